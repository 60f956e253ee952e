/* SPDX-License-Identifier: MIT */
/* Gives resident weights back while the program lacks memory, and takes them again when passes have
 * been quiet. Must not wait without bound, and must not touch what a pass or a graph may read. */
#include "offload/offload_internal.h"

/* How often the end of the last uses is looked for, with a pause between two looks. */
#define LOOKS_MAX 500u
/* Passes without a request before the budget is taken again; twice as many after each request, and
 * after each time that it could not be taken. */
#define QUIET_PASSES 16u
#define QUIET_PASSES_MAX 4096u

/* All that a pass reads comes after what the pass before has read (vpmm_offload_begin), so the last
 * pass with any such use is enough. */
void offload_note_done(struct vpmm_offload *offload, vpmm_stream_handle stream)
{
    const struct vpmm_driver *driver = offload->driver;
    struct offload_reader *readers = offload->readers;
    uint32_t i = 0;
    if (offload->is_capturing)
        return;
    if (offload->readers_pass != offload->n_begun) {
        offload->readers_pass = offload->n_begun;
        offload->n_readers = 0;
        offload->has_more_readers = false;
    }
    while (i < offload->n_readers && readers[i].stream != stream)
        i++;
    if (i == OFFLOAD_READERS_MAX) {
        offload->has_more_readers = true;
        return;
    }
    if (!readers[i].over &&
        driver->event_create(driver->self, offload->params.context, &readers[i].over)) {
        offload->has_more_readers = true;
        return;
    }
    readers[i].stream = stream;
    offload->n_readers += i == offload->n_readers;
    if (driver->event_record(driver->self, readers[i].over, stream))
        offload->has_more_readers = true;
}

void offload_readers_finish(struct vpmm_offload *offload)
{
    for (uint32_t i = 0; i < OFFLOAD_READERS_MAX; i++)
        if (offload->readers[i].over)
            (void)offload->driver->event_destroy(offload->driver->self, offload->readers[i].over);
}

/* Whether all that has read or filled windows is over. The copies come after the uses of all that
 * was streamed. */
static bool is_over(struct vpmm_offload *offload)
{
    const struct vpmm_driver *driver = offload->driver;
    enum vpmm_status status = driver->event_query(driver->self, offload->mark);
    for (uint32_t i = 0; !status && i < offload->n_readers; i++)
        status = driver->event_query(driver->self, offload->readers[i].over);
    return !status;
}

static bool await_end(struct vpmm_offload *offload)
{
    const struct vpmm_driver *driver = offload->driver;
    int mode;
    bool is_at_end = false;
    if (driver->capture_relax(driver->self, &mode))
        return false;
    if (!driver->event_record(driver->self, offload->mark, offload->copies))
        for (unsigned i = 0; !is_at_end && i < LOOKS_MAX; i++) {
            is_at_end = is_over(offload);
            if (!is_at_end)
                vpmm_offload_pause();
        }
    driver->capture_restore(driver->self, mode);
    return is_at_end;
}

static void quiet_longer(struct vpmm_offload *offload)
{
    uint32_t quiet = offload->quiet_wanted ? 2 * offload->quiet_wanted : QUIET_PASSES;
    offload->quiet_wanted = quiet < QUIET_PASSES_MAX ? quiet : QUIET_PASSES_MAX;
    offload->quiet_passes = 0;
}

/* `bytes` less, but no less than what a pass needs. */
static uint64_t shrink(struct vpmm_offload *offload, uint64_t bytes)
{
    uint64_t held = vpmm_atomic_load(&offload->figures->held_bytes);
    uint64_t floor = offload->need.floor_bytes;
    uint64_t target = held > bytes && held - bytes > floor ? held - bytes : floor;
    target = target / offload->chunk_bytes * offload->chunk_bytes;
    if (held <= target || offload_change(offload, target))
        return 0;
    quiet_longer(offload);
    vpmm_atomic_add(&offload->figures->yields, 1);
    uint64_t left = vpmm_atomic_load(&offload->figures->held_bytes);
    return held > left ? held - left : 0;
}

uint64_t vpmm_offload_yield(struct vpmm_offload *offload, uint64_t bytes)
{
    uint64_t given = 0;
    if (!vpmm_offload_enter_briefly(offload)) {
        vpmm_atomic_store(&offload->asked_bytes, bytes);
        return 0;
    }
    if (offload_may_change(offload) && !offload->has_more_readers && await_end(offload)) {
        offload->is_idle = true;
        given = shrink(offload, bytes);
        offload->is_idle = false;
    }
    if (!given)
        vpmm_atomic_store(&offload->asked_bytes, bytes);
    vpmm_offload_leave(offload);
    return given;
}

void offload_settle_pressure(struct vpmm_offload *offload)
{
    uint64_t asked = vpmm_atomic_exchange(&offload->asked_bytes, 0);
    if (!offload_may_change(offload))
        return;
    if (asked) {
        (void)shrink(offload, asked);
    } else if (offload->budget_bytes < offload->params.budget_bytes &&
               ++offload->quiet_passes >= offload->quiet_wanted) {
        offload->quiet_passes = 0;
        if (offload_change(offload, offload->params.budget_bytes))
            quiet_longer(offload);
    }
}
