/* SPDX-License-Identifier: MIT */
/* `vpmm stat`: the statistics of a running process. Must not read that process's metadata outside
 * of the child that looks. */
#include "cli/cli.h"
#include "cli/cli_look.h"

#include <getopt.h>
#include <inttypes.h>

const char vpmm_help_stat[] =
    "usage: vpmm stat PID [--json]\n"
    "\n"
    "Shows the figures of process PID as they are now: what each device's pool has live, held and\n"
    "free, how its requests were served, and how many were left to CUDA for which reason. Blocks\n"
    "that share pages are told by class, as in dumps. The process notices nothing, whatever it is\n"
    "doing. It must be one of yours.\n"
    "\n"
    "  --json  one object for programs, as VPMM_STATS=json writes it at exit\n"
    "\n"
    "  vpmm stat 1234\n"
    "  vpmm stat --json 1234 | jq '.devices[0].held_bytes'\n";

static int show(const struct vpmm_look *look, const struct vpmm_attached *attached, int fd)
{
    const bool *is_json = look->self;
    if (!vpmm_report_has_pool(attached->router, VPMM_REPORT_ALL_DEVICES) &&
        !vpmm_report_has_weights(attached->router))
        return vpmm_cli_fail("stat", "process %" PRIu64 " has no pool yet", look->pid);
    vpmm_report_stats_to(fd, *is_json, &attached->process, attached->router);
    return 0;
}

int vpmm_cli_stat(int argc, char **argv)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'},
        {VPMM_LOOK_AGAIN, required_argument, NULL, 'a'},
        {NULL, 0, NULL, 0},
    };
    bool is_json = false;
    struct vpmm_look look = {.command = "stat", .words = argv + 1, .show = show, .self = &is_json};
    int status = 0;
    for (int found; (found = getopt_long(argc, argv, ":", options, NULL)) != -1;) {
        if (found == 'j')
            is_json = true;
        else if (found != 'a')
            return vpmm_cli_wrong_option("stat", found, argv);
        else if (!vpmm_look_read_tries(&look, optarg, &status))
            return status;
    }
    if (!vpmm_look_read_pid(&look, argc - optind, argv + optind, &status))
        return status;
    return vpmm_look_print(&look);
}
