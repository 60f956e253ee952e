/* SPDX-License-Identifier: MIT */
/* How long passes take on the device, how long their work waits for copies, and how fast the link
 * is: by pairs of events whose times are asked in a later pass. Must not wait for an event, and
 * must not make one within a pass.
 *
 * A pass is timed where there are pairs for all of its steps: its own, one for each use that waits
 * for a copy, and one for a copy of known size. All of them count, or none. */
#include "offload/offload_internal.h"

/* So many passes may be timed and not asked about yet. */
#define PASSES_AHEAD 2u
#define SPANS_MAX 4096u
/* A ring is judged once, by so many passes. It is too narrow for a pass that waits for more than
 * this share of its time, and computes for at least this share of what its copies need. */
#define JUDGED_PASSES 16u
#define STALL_SHARE 20u
#define COMPUTE_SHARE 2u

static struct offload_span *span_at(struct vpmm_offload *offload, uint64_t number)
{
    struct offload_span *spans = offload->times.span_array.at;
    return &spans[number % offload->times.n_spans];
}

static enum vpmm_status make_pair(struct vpmm_offload *offload, struct offload_span *span)
{
    const struct vpmm_driver *driver = offload->driver;
    vpmm_context_handle context = offload->params.context;
    enum vpmm_status status = VPMM_OK;
    if (!span->begin)
        status = driver->event_create_timed(driver->self, context, &span->begin);
    if (!status && !span->end)
        status = driver->event_create_timed(driver->self, context, &span->end);
    return status;
}

/* Half of the largest group: a short copy says little of the link. */
static uint64_t sample_of(struct vpmm_offload *offload)
{
    uint64_t most = 0;
    for (uint32_t i = 1; i <= offload->n_groups; i++) {
        const struct offload_group *group = offload_group(offload, i);
        if (!group->has_extent && group->n_chunks > most)
            most = group->n_chunks;
    }
    return (most + 1) / 2;
}

void offload_times_plan(struct vpmm_offload *offload)
{
    struct offload_times *times = &offload->times;
    times->judged = (struct offload_judged){0};
    uint64_t wanted = PASSES_AHEAD * (offload->n_steps + (uint64_t)2);
    times->is_timed = false;
    times->n_asked = times->n_opened;
    times->sample_chunks = sample_of(offload);
    if (!offload->driver->event_create_timed || !offload->driver->event_elapsed ||
        wanted > SPANS_MAX || wanted <= times->n_spans)
        return;
    if (offload_array_grow(offload, &times->span_array, wanted * sizeof(struct offload_span)))
        return;
    uint32_t n = times->n_spans;
    for (; n < wanted; n++)
        if (make_pair(offload, (struct offload_span *)times->span_array.at + n))
            break;
    times->n_spans = n;
    times->n_asked = times->n_opened = 0;
}

void offload_times_finish(struct vpmm_offload *offload)
{
    const struct vpmm_driver *driver = offload->driver;
    struct offload_span *spans = offload->times.span_array.at;
    size_t n = offload->times.span_array.bytes / sizeof *spans;
    for (size_t i = 0; i < n; i++) {
        if (spans[i].begin)
            (void)driver->event_destroy(driver->self, spans[i].begin);
        if (spans[i].end)
            (void)driver->event_destroy(driver->self, spans[i].end);
    }
}

/* ---- asking ---- */

static void note_link(struct vpmm_offload *offload, uint64_t bytes, uint64_t ns)
{
    struct vpmm_offload_figures *figures = offload->figures;
    uint64_t rate = ns ? (uint64_t)((double)bytes * 1e9 / (double)ns) : 0;
    if (rate > vpmm_atomic_load(&figures->link_bytes_per_s))
        vpmm_atomic_store(&figures->link_bytes_per_s, rate);
}

/* The pass that was asked about before this one: all of its waits have been counted. A step that
 * computes for as long as its copy takes keeps its slots for that time, and the copies behind it go
 * on only where the ring has room for another step. */
static void judge(struct vpmm_offload *offload)
{
    struct offload_judged *judged = &offload->times.judged;
    uint64_t rate = vpmm_atomic_load(&offload->figures->link_bytes_per_s);
    if (!judged->pass_ns || !rate || judged->n_passes == JUDGED_PASSES)
        return;
    double copy_ns = (double)judged->copied_bytes * 1e9 / (double)rate;
    double compute_ns = (double)judged->pass_ns - (double)judged->stall_ns;
    judged->n_passes++;
    judged->n_narrow +=
        judged->stall_ns > judged->pass_ns / STALL_SHARE && compute_ns * COMPUTE_SHARE > copy_ns;
}

static void count_pass(struct vpmm_offload *offload, const struct offload_span *span, uint64_t ns)
{
    struct offload_judged *judged = &offload->times.judged;
    judge(offload);
    judged->pass_ns = ns;
    judged->stall_ns = 0;
    judged->copied_bytes = span->bytes;
    vpmm_atomic_add(&offload->figures->timed_passes, 1);
    vpmm_atomic_add(&offload->figures->pass_ns, ns);
    offload->times.copied_bytes += span->bytes;
}

static void count(struct vpmm_offload *offload, const struct offload_span *span, uint64_t ns)
{
    switch (span->kind) {
    case OFFLOAD_SPAN_PASS:
        count_pass(offload, span, ns);
        break;
    case OFFLOAD_SPAN_STALL:
        offload->times.judged.stall_ns += ns;
        vpmm_atomic_add(&offload->figures->stall_ns, ns);
        break;
    case OFFLOAD_SPAN_COPY:
        note_link(offload, span->bytes, ns);
        break;
    }
}

/* Those whose events are complete, in the order in which they were opened. */
static void ask(struct vpmm_offload *offload)
{
    const struct vpmm_driver *driver = offload->driver;
    struct offload_times *times = &offload->times;
    int mode;
    if (times->n_asked == times->n_opened || driver->capture_relax(driver->self, &mode))
        return;
    for (; times->n_asked != times->n_opened; times->n_asked++) {
        const struct offload_span *span = span_at(offload, times->n_asked);
        uint64_t ns;
        enum vpmm_status status = driver->event_elapsed(driver->self, span->begin, span->end, &ns);
        if (status == VPMM_NOT_READY)
            break;
        if (!status)
            count(offload, span, ns);
    }
    driver->capture_restore(driver->self, mode);
    uint64_t rate = vpmm_atomic_load(&offload->figures->link_bytes_per_s);
    if (rate)
        vpmm_atomic_store(&offload->figures->bound_ns,
                          (uint64_t)((double)times->copied_bytes * 1e9 / (double)rate));
}

/* ---- a pass ---- */

/* The next pair, its first event recorded; NULL: not timed, and neither is the pass from now on. */
static struct offload_span *open_span(struct vpmm_offload *offload, enum offload_span_kind kind,
                                      vpmm_stream_handle stream)
{
    const struct vpmm_driver *driver = offload->driver;
    struct offload_times *times = &offload->times;
    if (!times->is_timed)
        return NULL;
    struct offload_span *span = span_at(offload, times->n_opened);
    if (times->n_opened - times->n_asked == times->n_spans ||
        driver->event_record(driver->self, span->begin, stream)) {
        offload_times_drop(offload);
        return NULL;
    }
    span->kind = kind;
    span->bytes = vpmm_atomic_load(&offload->figures->copied_bytes);
    times->n_opened++;
    return span;
}

static void close_span(struct vpmm_offload *offload, struct offload_span *span,
                       vpmm_stream_handle stream)
{
    const struct vpmm_driver *driver = offload->driver;
    if (!span || !offload->times.is_timed)
        return;
    span->bytes = vpmm_atomic_load(&offload->figures->copied_bytes) - span->bytes;
    if (driver->event_record(driver->self, span->end, stream))
        offload_times_drop(offload);
}

void offload_times_begin(struct vpmm_offload *offload, vpmm_stream_handle stream)
{
    struct offload_times *times = &offload->times;
    times->is_timed = false;
    if (offload->is_capturing || !offload->is_planned || !times->n_spans)
        return;
    ask(offload);
    times->first = times->n_opened;
    times->has_sample = false;
    times->is_timed =
        times->n_spans - (times->n_opened - times->n_asked) >= offload->n_steps + (uint64_t)2;
    times->pass = open_span(offload, OFFLOAD_SPAN_PASS, stream);
}

void offload_times_end(struct vpmm_offload *offload, vpmm_stream_handle stream)
{
    struct offload_times *times = &offload->times;
    if (times->is_timed && !times->has_sample)
        times->sample_chunks = (times->sample_chunks + 1) / 2;
    close_span(offload, times->pass, stream);
    times->is_timed = false;
}

void offload_times_drop(struct vpmm_offload *offload)
{
    struct offload_times *times = &offload->times;
    if (times->is_timed)
        times->n_opened = times->first;
    times->is_timed = false;
}

struct offload_span *offload_times_stall(struct vpmm_offload *offload, vpmm_stream_handle stream)
{
    return open_span(offload, OFFLOAD_SPAN_STALL, stream);
}

void offload_times_resume(struct vpmm_offload *offload, struct offload_span *stall,
                          vpmm_stream_handle stream)
{
    close_span(offload, stall, stream);
}

struct offload_span *offload_times_copy(struct vpmm_offload *offload, uint64_t n_chunks)
{
    struct offload_times *times = &offload->times;
    if (times->has_sample || n_chunks < times->sample_chunks)
        return NULL;
    struct offload_span *span = open_span(offload, OFFLOAD_SPAN_COPY, offload->copies);
    times->has_sample = span != NULL;
    return span;
}

void offload_times_copied(struct vpmm_offload *offload, struct offload_span *copy)
{
    close_span(offload, copy, offload->copies);
}

/* ---- the ring ---- */

void offload_settle_ring(struct vpmm_offload *offload)
{
    const struct offload_judged *judged = &offload->times.judged;
    if (offload->is_wide || offload->params.ring_bytes || !offload->n_slots ||
        !offload_may_change(offload) || judged->n_passes < JUDGED_PASSES ||
        judged->n_narrow <= JUDGED_PASSES / 2)
        return;
    offload->is_wide = true;
    (void)offload_change(offload, offload->budget_bytes);
}
