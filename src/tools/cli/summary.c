/* SPDX-License-Identifier: MIT */
/* Adds a trace up item by item. Must not take memory that grows with the length of the trace. */
#include "cli/summary.h"

#include <stdlib.h>

/* Times below 8 ns have a place each; above, each power of two has eight. */
#define SUB 8u

struct vpmm_summary *vpmm_summary_create(int device)
{
    struct vpmm_summary *summary = calloc(1, sizeof *summary);
    if (summary) {
        summary->device = device;
        summary->span_ns = 1000;
    }
    return summary;
}

void vpmm_summary_destroy(struct vpmm_summary *summary)
{
    if (summary)
        vpmm_live_finish(&summary->live);
    free(summary);
}

static unsigned log2_of(uint64_t number)
{
    return number ? 63 - (unsigned)__builtin_clzll(number) : 0;
}

/* ---- durations ---- */

static void note_time(struct vpmm_summary_times *times, uint64_t ns)
{
    unsigned power = log2_of(ns);
    unsigned place =
        ns < SUB ? (unsigned)ns : (power - 2) * SUB + (unsigned)(ns >> (power - 3) & (SUB - 1));
    times->places[place < VPMM_SUMMARY_TIMES ? place : VPMM_SUMMARY_TIMES - 1]++;
    times->n++;
    times->total_ns += ns;
    if (ns > times->max_ns)
        times->max_ns = ns;
}

uint64_t vpmm_summary_quantile(const struct vpmm_summary_times *times, unsigned of_a_thousand)
{
    uint64_t wanted = times->n - times->n * (1000 - of_a_thousand) / 1000, seen = 0;
    unsigned place = 0;
    if (times->n == 0)
        return 0;
    while (place < VPMM_SUMMARY_TIMES && (seen += times->places[place]) < wanted)
        place++;
    if (place < SUB)
        return place;
    unsigned power = place / SUB + 2;
    uint64_t next = ((uint64_t)SUB + place % SUB + 1) << (power - 3);
    return next - 1 < times->max_ns ? next - 1 : times->max_ns;
}

static unsigned life_place(uint64_t ns)
{
    unsigned place = 0;
    for (uint64_t limit = 1000; place + 1 < VPMM_SUMMARY_LIVES && ns >= limit; limit *= 10)
        place++;
    return place;
}

static void add(struct vpmm_summary_count *count, uint64_t bytes)
{
    count->n++;
    count->bytes += bytes;
}

/* ---- over time ---- */

static uint64_t unused_bytes(const struct vpmm_summary_device *device)
{
    return device->held_bytes > device->pool_bytes ? device->held_bytes - device->pool_bytes : 0;
}

static void note_most(uint64_t *most, uint64_t bytes)
{
    if (bytes > *most)
        *most = bytes;
}

static void join_spans(struct vpmm_summary *summary)
{
    for (unsigned i = 0; i < VPMM_SUMMARY_SPANS; i++) {
        struct vpmm_summary_span span = {0};
        for (unsigned j = 2 * i; j < 2 * i + 2 && j < VPMM_SUMMARY_SPANS; j++) {
            const struct vpmm_summary_span *part = &summary->spans[j];
            note_most(&span.live_bytes, part->live_bytes);
            note_most(&span.held_bytes, part->held_bytes);
            note_most(&span.unused_bytes, part->unused_bytes);
            span.is_set = span.is_set || part->is_set;
        }
        summary->spans[i] = span;
    }
    summary->span_ns *= 2;
}

/* Parts of the time in which nothing happened keep what was before. */
static void note_span(struct vpmm_summary *summary, uint64_t ns)
{
    uint64_t since = ns - summary->first_ns;
    while (since / summary->span_ns >= VPMM_SUMMARY_SPANS)
        join_spans(summary);
    uint64_t at = since / summary->span_ns;
    const struct vpmm_summary_device *all = &summary->all;
    struct vpmm_summary_span *span = &summary->spans[at];
    note_most(&span->live_bytes, all->live_bytes);
    note_most(&span->held_bytes, all->held_bytes);
    span->is_set = true;
}

/* Before something changes: the parts of the time up to now had what is now. What is unused counts
 * only if time passes so: a block may be freed and released at one moment. */
static void carry_spans(struct vpmm_summary *summary, uint64_t ns)
{
    uint64_t from = summary->last_ns - summary->first_ns;
    while ((ns - summary->first_ns) / summary->span_ns >= VPMM_SUMMARY_SPANS)
        join_spans(summary);
    for (uint64_t at = from / summary->span_ns; at <= (ns - summary->first_ns) / summary->span_ns;
         at++) {
        note_span(summary, summary->first_ns + at * summary->span_ns);
        if (ns > summary->last_ns)
            note_most(&summary->spans[at].unused_bytes, summary->unused_bytes);
    }
}

unsigned vpmm_summary_n_spans(const struct vpmm_summary *summary)
{
    unsigned n = VPMM_SUMMARY_SPANS;
    while (n > 0 && !summary->spans[n - 1].is_set)
        n--;
    return n;
}

/* ---- live and held ---- */

static void note_peak(struct vpmm_summary_peak *peak, uint64_t bytes, uint64_t n_blocks,
                      const struct vpmm_summary *summary)
{
    if (bytes > peak->bytes)
        *peak = (struct vpmm_summary_peak){.bytes = bytes,
                                           .n_blocks = n_blocks,
                                           .at_ns = summary->last_ns,
                                           .item = summary->n_items};
}

static bool is_of_pool(const struct vpmm_live_block *block)
{
    return block->path < VPMM_TRACE_BY_CUDA;
}

static void change_live(struct vpmm_summary *summary, const struct vpmm_live_block *block,
                        bool is_more)
{
    struct vpmm_summary_device *both[] = {&summary->all, &summary->devices[block->device]};
    for (unsigned i = 0; i < 2; i++) {
        struct vpmm_summary_device *device = both[i];
        uint64_t pool_bytes = is_of_pool(block) ? block->bytes : 0;
        device->is_used = true;
        device->n_live += is_more ? 1 : -(uint64_t)1;
        device->live_bytes += is_more ? block->bytes : -block->bytes;
        device->pool_bytes += is_more ? pool_bytes : -pool_bytes;
        note_peak(&device->live, device->live_bytes, device->n_live, summary);
    }
}

static void set_held(struct vpmm_summary *summary, unsigned number, uint64_t held_bytes)
{
    struct vpmm_summary_device *all = &summary->all, *device = &summary->devices[number];
    all->held_bytes += held_bytes - device->held_bytes;
    device->held_bytes = held_bytes;
    all->is_used = device->is_used = all->has_held = device->has_held = true;
    note_peak(&all->held, all->held_bytes, all->n_live, summary);
    note_peak(&device->held, device->held_bytes, device->n_live, summary);
}

/* ---- calls ---- */

static void note_call(struct vpmm_summary *summary, const struct vpmm_trace_item *item)
{
    const struct vpmm_trace_entry *entry = &item->entry;
    bool is_malloc = entry->kind == VPMM_TRACE_MALLOC;
    unsigned at = summary->n_slowest;
    if (item->is_made_up)
        return;
    note_time(is_malloc ? &summary->mallocs : &summary->frees, entry->duration_ns);
    if (is_malloc && entry->path < VPMM_SUMMARY_PATHS) {
        add(&summary->paths[entry->path].count, item->is_known ? entry->bytes : 0);
        note_time(&summary->paths[entry->path].times, entry->duration_ns);
    }
    summary->has_durations = summary->has_durations || entry->duration_ns;
    summary->has_paths = summary->has_paths || entry->path;
    summary->has_threads = summary->has_threads || item->thread;
    if (entry->duration_ns == 0)
        return;
    if (at == VPMM_SUMMARY_SLOWEST &&
        summary->slowest[--at].entry.duration_ns >= entry->duration_ns)
        return;
    for (; at > 0 && summary->slowest[at - 1].entry.duration_ns < entry->duration_ns; at--)
        summary->slowest[at] = summary->slowest[at - 1];
    summary->slowest[at] = (struct vpmm_summary_call){*entry, item->thread};
    if (summary->n_slowest < VPMM_SUMMARY_SLOWEST)
        summary->n_slowest++;
}

static bool note_malloc(struct vpmm_summary *summary, const struct vpmm_trace_item *item)
{
    const struct vpmm_trace_entry *entry = &item->entry;
    summary->n_mallocs++;
    note_call(summary, item);
    if (!item->is_known) {
        summary->n_failed += (entry->flags & VPMM_TRACE_IS_FAILED) != 0;
        return true;
    }
    const struct vpmm_live_block block = {.address = entry->address,
                                          .bytes = entry->bytes,
                                          .stream = entry->stream,
                                          .thread = item->thread,
                                          .moment_ns = item->moment_ns,
                                          .device = entry->device,
                                          .path = entry->path};
    add(&summary->sizes[log2_of(entry->bytes)], entry->bytes);
    change_live(summary, &block, true);
    return vpmm_live_put(&summary->live, &block);
}

static void note_free(struct vpmm_summary *summary, const struct vpmm_trace_item *item)
{
    struct vpmm_live_block block;
    summary->n_frees += !item->is_made_up;
    summary->n_made_up += item->is_made_up;
    note_call(summary, item);
    if (!item->is_known) {
        summary->n_unknown +=
            !(item->entry.flags & VPMM_TRACE_IS_FAILED) && !vpmm_trace_frees_nothing(item);
        return;
    }
    if (!vpmm_live_take(&summary->live, item->entry.address, &block))
        return;
    add(&summary->lives[life_place(item->moment_ns - block.moment_ns)], block.bytes);
    change_live(summary, &block, false);
}

static void note_pool(struct vpmm_summary *summary, const struct vpmm_trace_entry *entry)
{
    uint64_t held_bytes = summary->devices[entry->device].held_bytes;
    if (entry->kind == VPMM_TRACE_FIGURES)
        set_held(summary, entry->device, entry->address);
    if (entry->kind == VPMM_TRACE_GROW)
        set_held(summary, entry->device, held_bytes + entry->bytes);
    if (entry->kind == VPMM_TRACE_RELEASE)
        set_held(summary, entry->device, entry->bytes < held_bytes ? held_bytes - entry->bytes : 0);
    if (entry->kind == VPMM_TRACE_HOST_WAIT)
        note_time(&summary->host_waits, entry->duration_ns);
    if (entry->kind == VPMM_TRACE_STREAM_WAIT)
        note_time(&summary->stream_waits, entry->duration_ns);
    add(&summary->pool[entry->kind], entry->bytes);
}

bool vpmm_summary_add(struct vpmm_summary *summary, const struct vpmm_trace_item *item)
{
    const struct vpmm_trace_entry *entry = &item->entry;
    bool is_enough = true;
    if (summary->device >= 0 && entry->device != summary->device)
        return true;
    if (!summary->has_items)
        summary->first_ns = summary->last_ns = item->moment_ns;
    else
        carry_spans(summary, item->moment_ns);
    summary->has_items = true;
    summary->last_ns = item->moment_ns;
    summary->n_items++;
    if (entry->kind >= VPMM_TRACE_KINDS) {
        summary->n_kernels += entry->kind == VPMM_TRACE_KERNEL;
        summary->n_events += entry->kind != VPMM_TRACE_KERNEL;
    } else if (entry->kind == VPMM_TRACE_MALLOC) {
        is_enough = note_malloc(summary, item);
    } else if (entry->kind == VPMM_TRACE_FREE) {
        note_free(summary, item);
    } else {
        note_pool(summary, entry);
    }
    /* What grows is for the request under way, which is answered only after it. */
    if (entry->kind != VPMM_TRACE_GROW)
        summary->unused_bytes = unused_bytes(&summary->all);
    note_span(summary, item->moment_ns);
    return is_enough;
}

bool vpmm_summary_end(struct vpmm_summary *summary)
{
    return vpmm_summary_group(&summary->live, &summary->at_end);
}
