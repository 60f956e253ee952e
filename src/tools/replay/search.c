/* SPDX-License-Identifier: MIT */
/* Finds the smallest limit with which a trace completes. Must not call a limit enough that no
 * replay completed with. */
#include "replay/replay.h"

#include "base/bytes.h"

#include <stdio.h>

uint64_t vpmm_replay_live_peak(const struct vpmm_replay_result *result)
{
    uint64_t peak_bytes = 0;
    for (unsigned i = 0; i < result->n_passes; i++)
        if (result->passes[i].live_peak_bytes > peak_bytes)
            peak_bytes = result->passes[i].live_peak_bytes;
    return peak_bytes;
}

uint64_t vpmm_replay_held_peak(const struct vpmm_replay_result *result)
{
    uint64_t peak_bytes = 0;
    for (unsigned i = 0; i < result->n_passes; i++)
        if (result->passes[i].held_peak_bytes > peak_bytes)
            peak_bytes = result->passes[i].held_peak_bytes;
    return peak_bytes;
}

struct search {
    const struct vpmm_tape *tape;
    struct vpmm_replay_options options;
    char *message;
};

struct trial {
    bool completes;
    uint64_t page_bytes, held_peak_bytes;
};

/* False where it cannot be replayed at all. `limit_bytes` 0: without one. */
static bool try_limit(struct search *search, uint64_t limit_bytes, struct trial *trial_out)
{
    struct vpmm_replay_result result;
    search->options.limit_bytes = limit_bytes;
    if (!vpmm_replay_run(search->tape, &search->options, &result, search->message))
        return false;
    *trial_out = (struct trial){.completes = true,
                                .page_bytes = result.page_bytes,
                                .held_peak_bytes = vpmm_replay_held_peak(&result)};
    for (unsigned i = 0; i < result.n_passes; i++)
        trial_out->completes &= result.passes[i].refused == 0;
    vpmm_replay_result_finish(&result);
    const struct vpmm_replay_watcher *watcher = search->options.watcher;
    if (watcher && limit_bytes)
        watcher->tell(watcher->self, limit_bytes, trial_out->completes);
    return true;
}

/* What was held without a limit is enough, unless the limit makes the pool choose another way. */
static bool find_enough(struct search *search, uint64_t *limit_out, struct trial *trial)
{
    uint64_t limit_bytes;
    if (!try_limit(search, 0, trial))
        return false;
    bool completes = trial->completes;
    for (limit_bytes = trial->held_peak_bytes;
         completes && limit_bytes <= search->options.device_bytes;
         limit_bytes += (limit_bytes / 4 / trial->page_bytes + 1) * trial->page_bytes) {
        *limit_out = limit_bytes;
        if (limit_bytes && !try_limit(search, limit_bytes, trial))
            return false;
        if (trial->completes)
            return true;
    }
    char size[24];
    (void)vpmm_bytes_print(search->options.device_bytes, size, sizeof size);
    (void)snprintf(search->message, VPMM_REPLAY_MESSAGE_BYTES,
                   "no limit will do: the trace does not complete on a device of %s", size);
    return false;
}

bool vpmm_replay_find_limit(const struct vpmm_tape *tape, const struct vpmm_replay_options *options,
                            uint64_t *limit_out, char message_out[static VPMM_REPLAY_MESSAGE_BYTES])
{
    struct search search = {.tape = tape, .options = *options};
    struct trial trial;
    uint64_t enough_bytes;
    search.message = message_out;
    search.options.through = VPMM_REPLAY_POOL;
    search.options.gpu = VPMM_REPLAY_SIMULATED;
    search.options.limit_percent = 0;
    if (!find_enough(&search, &enough_bytes, &trial))
        return false;
    uint64_t page_bytes = trial.page_bytes;
    /* Less than is live can never do. That counts in bytes: blocks may share pages. */
    uint64_t live_pages =
        tape->live_peak_bytes / page_bytes + (tape->live_peak_bytes % page_bytes != 0);
    uint64_t live_bytes = live_pages * page_bytes;
    uint64_t least_bytes = live_bytes ? live_bytes - page_bytes : 0;
    uint64_t next_bytes = live_bytes;
    while (enough_bytes > least_bytes + page_bytes) {
        if (!try_limit(&search, next_bytes, &trial))
            return false;
        *(trial.completes ? &enough_bytes : &least_bytes) = next_bytes;
        next_bytes = least_bytes + (enough_bytes - least_bytes) / page_bytes / 2 * page_bytes;
    }
    *limit_out = enough_bytes;
    return true;
}
