/* SPDX-License-Identifier: MIT */
/* `vpmm replay`: reads a trace, replays it, and prints what came of it. Must not print anything but
 * results on standard output. */
#include "cli/cli_replay.h"

#include "base/bytes.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/traces.h"

#include <stdio.h>
#include <unistd.h>

#define NAME "replay"

/* ---- reading ---- */

struct source {
    struct vpmm_trace_reader *reader;
    struct vpmm_progress progress;
};

static bool next(void *self, struct vpmm_trace_item *item_out)
{
    struct source *source = self;
    return vpmm_cli_trace_next(source->reader, &source->progress, item_out);
}

static int read_tape(const struct vpmm_cli_replay_arguments *arguments, struct vpmm_tape *tape_out)
{
    struct source source;
    const struct vpmm_tape_source items = {next, &source};
    int status =
        vpmm_cli_trace_open(NAME, arguments->path, VPMM_TRACE_FORM_UNKNOWN, &source.reader);
    if (status)
        return status;
    vpmm_progress_begin(&source.progress, "reading");
    enum vpmm_status read = vpmm_tape_read(&items, &arguments->choice, tape_out);
    vpmm_progress_end(&source.progress);
    status = read ? vpmm_cli_fail(NAME, "%s: %s", arguments->path, vpmm_status_text(read))
                  : vpmm_cli_trace_check(NAME, source.reader);
    if (!read && status)
        vpmm_tape_finish(tape_out);
    vpmm_trace_close(source.reader);
    return status;
}

/* ---- the command ---- */

static void draw_step(void *self, uint64_t n_done, uint64_t n_all)
{
    if (vpmm_progress_is_due(self))
        vpmm_progress_draw(self, n_done, n_all);
}

static void tell_limit(void *self, uint64_t limit_bytes, bool completes)
{
    char size[24];
    vpmm_progress_end(self);
    (void)vpmm_bytes_print(limit_bytes, size, sizeof size);
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\x1b[Ka limit of %s %s", size, completes ? "is enough" : "is too small");
}

/* Decides where, and says why in `message` where nobody asked for it. */
static int choose_place(const struct vpmm_cli_replay_arguments *arguments,
                        struct vpmm_replay_options *options,
                        char message[static VPMM_REPLAY_MESSAGE_BYTES])
{
    message[0] = '\0';
    if (arguments->place == VPMM_CLI_REPLAY_ON_SIM) {
        options->gpu = VPMM_REPLAY_SIMULATED;
        return 0;
    }
    if (vpmm_replay_gpus(message) > 0)
        return 0;
    if (arguments->place == VPMM_CLI_REPLAY_ON_GPU || options->through != VPMM_REPLAY_POOL)
        return vpmm_cli_fail(NAME, "no GPU: %s%s", message,
                             options->through == VPMM_REPLAY_POOL ? "; --on sim needs none" : "");
    options->gpu = VPMM_REPLAY_SIMULATED;
    return 0;
}

static int run(struct vpmm_cli_replays *all, const struct vpmm_replay_options *options)
{
    char message[VPMM_REPLAY_MESSAGE_BYTES];
    struct vpmm_cli_replay *replay = &all->replays[all->n_replays];
    struct vpmm_progress *progress = options->watcher->self;
    replay->through = options->through;
    vpmm_progress_begin(progress, "replaying");
    bool is_good = vpmm_replay_run(all->tape, options, &replay->result, message);
    vpmm_progress_end(progress);
    if (!is_good)
        return vpmm_cli_fail(NAME, "%s", message);
    all->n_replays++;
    return 0;
}

static int run_all(const struct vpmm_cli_replay_arguments *arguments,
                   struct vpmm_replay_options *options, struct vpmm_cli_replays *all)
{
    char message[VPMM_REPLAY_MESSAGE_BYTES];
    struct vpmm_progress *progress = options->watcher->self;
    int status = run(all, options);
    bool compares = arguments->is_comparison && options->gpu != VPMM_REPLAY_SIMULATED;
    for (int i = 1; compares && !status && i < VPMM_REPLAY_THROUGHS; i++) {
        options->through = (enum vpmm_replay_through)i;
        status = run(all, options);
    }
    if (status || !arguments->finds_limit)
        return status;
    vpmm_progress_begin(progress, "trying a limit");
    all->has_limit = vpmm_replay_find_limit(all->tape, options, &all->limit_bytes, message);
    if (isatty(STDERR_FILENO))
        fputs("\r\x1b[K", stderr);
    return all->has_limit ? 0 : vpmm_cli_fail(NAME, "%s", message);
}

/* Of the first replay that could not serve all. */
static int check_refusals(const struct vpmm_cli_replays *all)
{
    char largest[24], room[24];
    for (unsigned i = 0; i < all->n_replays; i++) {
        const struct vpmm_replay_result *result = &all->replays[i].result;
        const struct vpmm_replay_pass *pass = &result->passes[0];
        while (pass < result->passes + result->n_passes && pass->refused == 0)
            pass++;
        if (pass == result->passes + result->n_passes)
            continue;
        uint64_t limit_bytes = result->limit_bytes;
        (void)vpmm_bytes_print(pass->refused_largest_bytes, largest, sizeof largest);
        (void)vpmm_bytes_print(limit_bytes ? limit_bytes : result->device_bytes, room, sizeof room);
        return vpmm_cli_fail(NAME, "through %s, %llu request%s of %s%s found no room in %s, %s",
                             vpmm_cli_replay_name(all->replays[i].through),
                             (unsigned long long)pass->refused, pass->refused == 1 ? "" : "s",
                             pass->refused == 1 ? "" : "up to ", largest, room,
                             limit_bytes ? "the limit" : "the device");
    }
    return 0;
}

int vpmm_cli_replay(int argc, char **argv)
{
    char message[VPMM_REPLAY_MESSAGE_BYTES];
    struct vpmm_tape tape;
    struct vpmm_cli_replay_arguments arguments;
    int status = vpmm_cli_replay_parse(argc, argv, &arguments);
    if (status)
        return status;
    struct vpmm_progress progress;
    const struct vpmm_replay_watcher watcher = {draw_step, tell_limit, &progress};
    struct vpmm_replay_options options = arguments.options;
    options.watcher = &watcher;
    status = choose_place(&arguments, &options, message);
    if (!status)
        status = read_tape(&arguments, &tape);
    if (status)
        return status;
    if (tape.n_allocations == 0 && tape.n_small + tape.n_elsewhere > 0) {
        vpmm_tape_finish(&tape);
        return vpmm_cli_fail(NAME, "%s: nothing of what is asked for is in it", arguments.path);
    }
    struct vpmm_cli_replays all = {.path = arguments.path,
                                   .tape = &tape,
                                   .least_bytes = arguments.choice.least_bytes,
                                   .is_simulated = options.gpu == VPMM_REPLAY_SIMULATED,
                                   .note = message[0] ? message : NULL};
    status = run_all(&arguments, &options, &all);
    if (!status) {
        (arguments.is_json ? vpmm_cli_replays_print_json : vpmm_cli_replays_print)(&all);
        status = check_refusals(&all);
    }
    for (unsigned i = 0; i < all.n_replays; i++)
        vpmm_replay_result_finish(&all.replays[i].result);
    vpmm_tape_finish(&tape);
    return status;
}
