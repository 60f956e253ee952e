/* SPDX-License-Identifier: MIT */
/* `vpmm trace summary`: reads a trace twice, and prints what it comes to. Must not keep the trace
 * in memory between the two. */
#define _GNU_SOURCE
#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/summary.h"
#include "cli/trace.h"
#include "cli/traces.h"

#include <getopt.h>
#include <stdio.h>

struct request {
    const char *path;
    enum vpmm_trace_form form;
    int device; /* -1: all */
    bool is_json;
};

static bool first_pass(struct vpmm_trace_reader *reader, struct vpmm_summary *summary)
{
    struct vpmm_progress progress;
    struct vpmm_trace_item item;
    bool is_enough = true;
    vpmm_progress_begin(&progress, "reading");
    while (is_enough && vpmm_cli_trace_next(reader, &progress, &item))
        is_enough = vpmm_summary_add(summary, &item);
    vpmm_progress_end(&progress);
    return is_enough && vpmm_summary_end(summary);
}

static bool note_live(struct vpmm_live *live, const struct vpmm_trace_item *item)
{
    struct vpmm_live_block block = {.address = item->entry.address,
                                    .bytes = item->entry.bytes,
                                    .stream = item->entry.stream,
                                    .thread = item->thread};
    if (!item->is_known)
        return true;
    if (item->entry.kind == VPMM_TRACE_MALLOC)
        return vpmm_live_put(live, &block);
    vpmm_live_take(live, item->entry.address, &block);
    return true;
}

/* What was live at the peak. A file that was there a moment ago and now is not is left at nothing.
 */
static bool second_pass(struct vpmm_trace_reader *reader, struct vpmm_summary *summary)
{
    struct vpmm_progress progress;
    struct vpmm_trace_item item;
    struct vpmm_live live = {0};
    bool is_enough = true;
    uint64_t n_items = 0;
    if (!vpmm_trace_rewind(reader))
        return true;
    vpmm_progress_begin(&progress, "looking at the peak");
    while (is_enough && n_items < summary->all.live.item &&
           vpmm_cli_trace_next(reader, &progress, &item)) {
        if (summary->device >= 0 && item.entry.device != summary->device)
            continue;
        n_items++;
        is_enough = note_live(&live, &item);
    }
    vpmm_progress_end(&progress);
    is_enough = is_enough && vpmm_summary_group(&live, &summary->at_peak);
    vpmm_live_finish(&live);
    return is_enough;
}

static int summarise(const struct request *request, struct vpmm_trace_reader *reader)
{
    struct vpmm_summary *summary = vpmm_summary_create(request->device);
    if (!summary || !first_pass(reader, summary)) {
        vpmm_summary_destroy(summary);
        return vpmm_cli_fail("trace", "there is no memory for the figures of %s", request->path);
    }
    int status = vpmm_cli_trace_check("trace", reader);
    const struct vpmm_trace_facts facts = vpmm_trace_reader_facts(reader);
    if (status == 0 && request->device >= 0 && summary->n_mallocs + summary->n_frees == 0)
        status = vpmm_cli_fail("trace", "%s: there are no requests of device %d", request->path,
                               request->device);
    if (status == 0 && !second_pass(reader, summary))
        status = vpmm_cli_fail("trace", "there is no memory for the peak of %s", request->path);
    if (status == 0)
        (request->is_json ? vpmm_summary_print_json : vpmm_summary_print)(summary, &facts,
                                                                          request->path);
    vpmm_summary_destroy(summary);
    return status;
}

static int take_option(struct request *request, int found, char *const *argv)
{
    switch (found) {
    case 'j':
        request->is_json = true;
        return 0;
    case 'd':
        return vpmm_cli_trace_device(optarg, &request->device);
    case 'f':
        return vpmm_cli_trace_from(optarg, &request->form);
    default:
        return vpmm_cli_wrong_option("trace", found, argv);
    }
}

int vpmm_cli_trace_summary(int argc, char **argv)
{
    static const struct option options[] = {{"json", no_argument, NULL, 'j'},
                                            {"device", required_argument, NULL, 'd'},
                                            {"from", required_argument, NULL, 'f'},
                                            {NULL, 0, NULL, 0}};
    struct request request = {.device = -1};
    struct vpmm_trace_reader *reader;
    int found;
    while ((found = getopt_long(argc, argv, ":", options, NULL)) != -1) {
        int status = take_option(&request, found, argv);
        if (status)
            return status;
    }
    if (argc - optind != 1)
        return vpmm_cli_wrong("trace",
                              argc == optind ? "summary needs a FILE"
                                             : "summary takes one FILE, not also '%s'",
                              argv[argc - 1]);
    request.path = argv[optind];
    int status = vpmm_cli_trace_open("trace", request.path, request.form, &reader);
    if (status == 0) {
        status = summarise(&request, reader);
        vpmm_trace_close(reader);
    }
    return status;
}
