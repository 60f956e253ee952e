/* SPDX-License-Identifier: MIT */
#include "replay.h"

#include "sim/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIB ((uint64_t)1 << 40)

/* Enough looks for fences that depend on each other. */
#define SETTLING_LOOKS 4

static void require(bool is_true, const char *what)
{
    if (is_true)
        return;
    fprintf(stderr, "replay: %s\n", what);
    abort();
}

static void *zeroed(size_t n, size_t bytes)
{
    void *array = calloc(n ? n : 1, bytes);
    require(array != NULL, "out of memory");
    return array;
}

static void wait_on_host(void *self, vpmm_event_handle event)
{
    timeline_wait(self, (CUevent)(void *)event);
}

/* ---- the world ---- */

static void make_streams(struct replay *replay)
{
    const struct trace *trace = replay->trace;
    struct timeline *timeline = &replay->timeline;
    timeline->sim = replay->sim;
    timeline->n_streams = trace->n_streams;
    timeline->streams = zeroed(trace->n_streams, sizeof *timeline->streams);
    for (uint32_t i = 0; i < trace->n_streams; i++) {
        CUstream *stream = &timeline->streams[i].handle;
        if (trace->streams[i] == 0 || trace->streams[i] == (uintptr_t)CU_STREAM_LEGACY)
            *stream = CU_STREAM_LEGACY;
        else if (trace->streams[i] == (uintptr_t)CU_STREAM_PER_THREAD)
            *stream = CU_STREAM_PER_THREAD;
        else
            require(!sim_stream_create(replay->sim, CU_STREAM_NON_BLOCKING, 0, stream),
                    "no stream");
    }
}

static void make_events(struct replay *replay)
{
    struct timeline *timeline = &replay->timeline;
    timeline->n_events = replay->trace->n_events;
    timeline->events = zeroed(timeline->n_events, sizeof *timeline->events);
    for (uint32_t i = 0; i < timeline->n_events; i++)
        require(
            !sim_event_create(replay->sim, CU_EVENT_DISABLE_TIMING, &timeline->events[i].handle),
            "no event");
}

static void make_machine(struct replay *replay)
{
    struct sim_config config;
    CUcontext context;
    sim_config_default(&config);
    config.device_bytes = replay->options.device_bytes;
    config.has_bytes = false;
    replay->sim = sim_create(&config);
    require(replay->sim != NULL, "no simulated device");
    require(!sim_ctx_create(replay->sim, 0, 0, &context), "no context");
    sim_table_fill(replay->sim, &replay->inner);
    priced_fill(&replay->priced, &replay->inner, config.granularity, &replay->driver);
    replay->priced.wait = wait_on_host;
    replay->priced.wait_self = &replay->timeline;
}

void replay_setup(struct replay *replay, const struct trace *trace,
                  const struct replay_options *options)
{
    memset(replay, 0, sizeof *replay);
    replay->trace = trace;
    replay->options = *options;
    replay->blocks = zeroed(trace->n_allocations, sizeof *replay->blocks);
    replay->modelled_ns = zeroed(trace->n_ops, sizeof *replay->modelled_ns);
    replay->whole_ns = zeroed(trace->n_ops, sizeof *replay->whole_ns);
    make_machine(replay);
    make_streams(replay);
    make_events(replay);
    struct vpmm_heap_params params = {.root_bytes = 8 * TIB,
                                      .extent_pages_max = options->extent_pages_max,
                                      .slack_bytes = options->slack_bytes,
                                      .slack_percent = options->slack_percent,
                                      .spare_percent = options->spare_percent};
    require(!vpmm_order_create(&replay->driver, &vpmm_memory_system, &replay->order), "no order");
    require(!vpmm_heap_create(&params, &replay->driver, replay->order, &vpmm_memory_system,
                              &replay->heap),
            "no heap");
    replay->page_bytes = vpmm_heap_page_bytes(replay->heap);
}

static bool is_nothing_left(struct replay *replay)
{
    struct vpmm_pool_totals totals;
    const char *broken = vpmm_heap_audit(replay->heap);
    vpmm_pool_totals(vpmm_heap_pool(replay->heap), &totals);
    if (broken)
        fprintf(stderr, "replay: the audit says: %s\n", broken);
    if (totals.held_pages || totals.live_pages)
        fprintf(stderr, "replay: %llu pages are still held, %llu are live\n",
                (unsigned long long)totals.held_pages, (unsigned long long)totals.live_pages);
    return !broken && !totals.held_pages && !totals.live_pages;
}

static bool is_device_empty(struct replay *replay)
{
    struct sim_counts counts;
    for (uint32_t i = 0; i < replay->timeline.n_events; i++)
        require(!sim_event_destroy(replay->sim, replay->timeline.events[i].handle),
                "an event cannot be destroyed");
    sim_live_counts(replay->sim, &counts);
    if (counts.handles + counts.mappings + counts.reservations + counts.events == 0)
        return true;
    fprintf(stderr, "replay: %llu handles, %llu mappings and %llu events are left on the device\n",
            (unsigned long long)counts.handles, (unsigned long long)counts.mappings,
            (unsigned long long)counts.events);
    return false;
}

bool replay_teardown(struct replay *replay)
{
    for (int i = 0; i < SETTLING_LOOKS; i++)
        vpmm_heap_reap(replay->heap);
    (void)vpmm_heap_trim(replay->heap, UINT64_MAX);
    bool is_clean = is_nothing_left(replay);
    vpmm_heap_destroy(replay->heap);
    vpmm_order_destroy(replay->order);
    is_clean = is_device_empty(replay) && is_clean;
    sim_destroy(replay->sim);
    priced_finish(&replay->priced);
    free(replay->timeline.streams);
    free(replay->blocks);
    free(replay->timeline.events);
    free(replay->modelled_ns);
    free(replay->whole_ns);
    memset(replay, 0, sizeof *replay);
    return is_clean;
}

/* ---- one call ---- */

static CUstream handle_of(const struct replay *replay, uint32_t stream)
{
    return replay->timeline.streams[stream].handle;
}

static struct vpmm_stream resolve(struct replay *replay, uint32_t stream)
{
    struct vpmm_stream resolved;
    require(!vpmm_order_stream(replay->order, (vpmm_stream_handle)(void *)handle_of(replay, stream),
                               &resolved),
            "a stream cannot be resolved");
    return resolved;
}

static bool take(struct replay *replay, const struct trace_op *op)
{
    struct vpmm_stream stream;
    struct vpmm_request request = {.bytes = op->bytes};
    struct replay_block *block = &replay->blocks[op->object];
    if (op->is_sync) {
        require(!vpmm_order_context(replay->order, NULL, &request.context), "no context");
    } else {
        stream = resolve(replay, op->stream);
        request.stream = &stream;
        request.context = stream.context;
    }
    enum vpmm_status status = vpmm_heap_malloc(replay->heap, &request, &block->address);
    require(!status || status == VPMM_NO_MEMORY, "a malloc failed");
    block->bytes = op->bytes;
    block->stream = op->stream;
    block->is_sync = op->is_sync;
    return !status;
}

static void give(struct replay *replay, struct replay_block *block, uint32_t number, bool is_sync)
{
    struct vpmm_stream stream;
    enum vpmm_status wait;
    if (!is_sync)
        stream = resolve(replay, number);
    require(!vpmm_heap_free(replay->heap, block->address, is_sync ? NULL : &stream, &wait),
            "a free failed");
    block->address = 0;
}

/* ---- one pass ---- */

struct cursor {
    struct replay_pass *pass;
    uint64_t live_bytes;
    size_t n_calls;
};

static void sample(struct replay *replay, struct cursor *cursor)
{
    struct vpmm_pool_totals totals;
    vpmm_pool_totals(vpmm_heap_pool(replay->heap), &totals);
    uint64_t held_bytes = totals.held_pages * replay->page_bytes;
    if (held_bytes > cursor->pass->held_peak_bytes)
        cursor->pass->held_peak_bytes = held_bytes;
    if (cursor->live_bytes > cursor->pass->live_peak_bytes)
        cursor->pass->live_peak_bytes = cursor->live_bytes;
}

static void account(struct replay *replay, struct cursor *cursor, uint64_t start_ns,
                    const struct priced_tally *before)
{
    const struct priced_tally *tally = &replay->priced.tally;
    uint64_t spent_ns = priced_clock_ns() - start_ns;
    uint64_t foreign_ns = tally->inner_ns - before->inner_ns +
                          (tally->n_calls - before->n_calls) * replay->priced.overhead_ps / 1000;
    uint64_t own_ns = spent_ns > foreign_ns ? spent_ns - foreign_ns : 0;
    uint64_t driver_ns = tally->total_ns - before->total_ns;
    cursor->pass->own_ns += own_ns;
    cursor->pass->driver_ns += driver_ns;
    replay->modelled_ns[cursor->n_calls] = driver_ns;
    replay->whole_ns[cursor->n_calls] = driver_ns + own_ns;
    cursor->n_calls++;
}

static void request(struct replay *replay, const struct trace_op *op, struct cursor *cursor)
{
    struct replay_block *block = &replay->blocks[op->object];
    if (op->kind == TRACE_FREE && block->address == 0)
        return;
    if (op->kind == TRACE_FREE && replay->options.lag_us)
        timeline_work(&replay->timeline, op->stream, replay->options.lag_us);
    struct priced_tally before = replay->priced.tally;
    uint64_t start_ns = priced_clock_ns();
    if (op->kind == TRACE_FREE) {
        give(replay, block, op->stream, op->is_sync);
        cursor->live_bytes -= block->bytes;
    } else if (take(replay, op)) {
        cursor->live_bytes += op->bytes;
    } else {
        cursor->pass->refused++;
    }
    account(replay, cursor, start_ns, &before);
    if (op->kind == TRACE_MALLOC)
        cursor->pass->last_malloc_ns = replay->whole_ns[cursor->n_calls - 1];
    sample(replay, cursor);
}

static void step(struct replay *replay, const struct trace_op *op, struct cursor *cursor)
{
    struct timeline *timeline = &replay->timeline;
    timeline_go_to(timeline, op->us);
    switch (op->kind) {
    case TRACE_MALLOC:
    case TRACE_FREE:
        request(replay, op, cursor);
        break;
    case TRACE_KERNEL:
        timeline_work(timeline, op->stream, op->duration_us);
        break;
    case TRACE_RECORD:
        timeline_record(timeline, op->object, op->stream);
        break;
    case TRACE_WAIT:
        timeline_follow(timeline, op->object, op->stream);
        break;
    }
}

static void free_what_is_live(struct replay *replay)
{
    for (uint32_t i = 0; i < replay->trace->n_allocations; i++) {
        struct replay_block *block = &replay->blocks[i];
        if (block->address)
            give(replay, block, block->stream, block->is_sync);
    }
    timeline_drain(&replay->timeline);
}

static uint64_t owed_ns(struct replay *replay)
{
    struct vpmm_region_view region;
    uint64_t cursor = 0;
    uint64_t ns = 0;
    while (vpmm_pool_next(vpmm_heap_pool(replay->heap), &cursor, &region))
        if (region.state == VPMM_REGION_ZOMBIE)
            ns +=
                priced_unmap_ns(&replay->priced, region.address, region.pages * replay->page_bytes);
    return ns;
}

static int compare(const void *a, const void *b)
{
    const uint64_t *left = a;
    const uint64_t *right = b;
    return (*left > *right) - (*left < *right);
}

static struct replay_quantiles quantiles(uint64_t *ns, size_t n)
{
    struct replay_quantiles quantiles = {0};
    if (n == 0)
        return quantiles;
    qsort(ns, n, sizeof *ns, compare);
    quantiles.p50_ns = ns[n / 2];
    quantiles.p99_ns = ns[n - 1 - n / 100];
    quantiles.max_ns = ns[n - 1];
    return quantiles;
}

/* Both begin with what was counted before the pass. */
static void subtract(uint64_t *counts, const uint64_t *before, size_t bytes)
{
    for (size_t i = 0; i < bytes / sizeof *counts; i++)
        counts[i] -= before[i];
}

void replay_run(struct replay *replay, struct replay_pass *pass_out)
{
    const struct trace *trace = replay->trace;
    struct cursor cursor = {.pass = pass_out};
    struct vpmm_heap_counts counts;
    struct priced_tally tally = replay->priced.tally;
    uint64_t waited_us = replay->timeline.waited_us;
    memset(pass_out, 0, sizeof *pass_out);
    vpmm_heap_counts(replay->heap, &counts);
    replay->timeline.shift_us = replay->timeline.now_us - (trace->n_ops ? trace->ops[0].us : 0);
    for (size_t i = 0; i < trace->n_ops; i++)
        step(replay, &trace->ops[i], &cursor);
    pass_out->calls = cursor.n_calls;
    pass_out->waited_us = replay->timeline.waited_us - waited_us;
    vpmm_heap_counts(replay->heap, &pass_out->counts);
    pass_out->tally = replay->priced.tally;
    subtract((uint64_t *)&pass_out->counts, (uint64_t *)&counts, sizeof counts);
    subtract((uint64_t *)&pass_out->tally, (uint64_t *)&tally, sizeof tally);
    pass_out->owed_ns = owed_ns(replay);
    pass_out->modelled = quantiles(replay->modelled_ns, cursor.n_calls);
    pass_out->whole = quantiles(replay->whole_ns, cursor.n_calls);
    free_what_is_live(replay);
}
