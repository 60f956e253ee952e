/* SPDX-License-Identifier: MIT */
/* `vpmm dump`: the region map of a running process. Must not read that process's metadata outside
 * of the child that looks. */
#include "cli/cli.h"
#include "cli/cli_look.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char vpmm_help_dump[] =
    "usage: vpmm dump PID [--json] [--device N]\n"
    "\n"
    "Shows every region of the pool of process PID, as the process itself does when it gets the\n"
    "signal that VPMM_DUMP_SIGNAL names. The process notices nothing: it may run, wait for the\n"
    "device, be stopped, or use that signal for itself. It must be one of yours.\n"
    "\n"
    "  --json      as one JSON object, for programs\n"
    "  --device N  of device N alone\n"
    "\n"
    "A line such as 'vpmm device 0: [4][-6][1][*10][z2][...]' shows the regions in the order of\n"
    "their addresses, in pages: [4] live, [-6] free, [*10] a hole, [z2] an old address that waits\n"
    "to be unmapped. docs/DUMP.md tells the rest.\n"
    "\n"
    "  vpmm dump 1234\n"
    "  vpmm dump 1234 --json | jq '.devices[].live_bytes'\n";

struct request {
    enum vpmm_dump_format format;
    int device; /* or VPMM_REPORT_ALL_DEVICES */
};

static int show(const struct vpmm_look *look, const struct vpmm_attached *attached, int fd)
{
    const struct request *request = look->self;
    bool has_weights = vpmm_report_has_weights(attached->router);
    if (!has_weights && !vpmm_report_has_pool(attached->router, VPMM_REPORT_ALL_DEVICES))
        return vpmm_cli_fail("dump", "process %" PRIu64 " has no pool yet", look->pid);
    if (!has_weights && !vpmm_report_has_pool(attached->router, request->device))
        return vpmm_cli_fail("dump", "process %" PRIu64 " has no pool on device %d", look->pid,
                             request->device);
    vpmm_report_dump_to(fd, request->format, look->pid, request->device, attached->router);
    return 0;
}

static bool read_device(const char *text, struct request *request)
{
    uint64_t number = 0;
    bool is_number = vpmm_cli_number(text, 0, VPMM_DEVICES_MAX - 1, &number);
    request->device = (int)number;
    return is_number;
}

/* False, with a status after a message: it is wrong. */
static bool read_option(int found, struct vpmm_look *look, char *const *argv, int *status_out)
{
    struct request *request = look->self;
    if (found == 'a')
        return vpmm_look_read_tries(look, optarg, status_out);
    if (found == 'j') {
        request->format = VPMM_DUMP_JSON;
        return true;
    }
    if (found == 'd' && read_device(optarg, request))
        return true;
    if (found == 'd')
        *status_out = vpmm_cli_wrong_number("dump", "--device", optarg, 0, VPMM_DEVICES_MAX - 1);
    else
        *status_out = vpmm_cli_wrong_option("dump", found, argv);
    return false;
}

int vpmm_cli_dump(int argc, char **argv)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'},
        {"device", required_argument, NULL, 'd'},
        {VPMM_LOOK_AGAIN, required_argument, NULL, 'a'},
        {NULL, 0, NULL, 0},
    };
    struct request request = {VPMM_DUMP_TEXT, VPMM_REPORT_ALL_DEVICES};
    struct vpmm_look look = {.command = "dump", .words = argv + 1, .show = show, .self = &request};
    int status = 0;
    for (int found; (found = getopt_long(argc, argv, ":", options, NULL)) != -1;)
        if (!read_option(found, &look, argv, &status))
            return status;
    if (!vpmm_look_read_pid(&look, argc - optind, argv + optind, &status))
        return status;
    return vpmm_look_print(&look);
}
