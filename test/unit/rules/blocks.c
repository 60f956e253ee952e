/* SPDX-License-Identifier: MIT */
#include "blocks.h"

#include "base/atomic.h"

#include <stdio.h>
#include <string.h>

/* Words of a page that a pattern covers: its ends and some between. */
#define SPOTS 8

static vpmm_atomic64 n_wrong, n_checked;

struct pattern_work {
    struct block block;
    uint64_t page_bytes;
    const volatile bool *gate;
};

void rules_params(struct fixture_params *params)
{
    fixture_params_default(params);
    params->sim.device_bytes = 256 * MIB;
    params->sim.has_bytes = true;
    params->sim.check_races = true;
    params->sim.hang_ms = 5000;
    params->heap.page_bytes = 2 * MIB;
    params->heap.root_bytes = GIB;
    params->heap.slack_bytes = 128 * MIB;
}

void rules_forget(void)
{
    vpmm_atomic_store(&n_wrong, 0);
    vpmm_atomic_store(&n_checked, 0);
}

void rules_setup(struct fixture *fixture)
{
    struct fixture_params params;
    rules_forget();
    rules_params(&params);
    fixture_setup(fixture, &params);
}

static uint64_t word_of(uint64_t pattern, uint64_t page, uint64_t spot)
{
    return (pattern * 1000003 + page * 64 + spot) * 0x9e3779b97f4a7c15u;
}

static uint64_t spot_of(const struct pattern_work *work, uint64_t page, uint64_t spot)
{
    uint64_t last = work->page_bytes - sizeof(uint64_t);
    return work->block.address + page * work->page_bytes + last / (SPOTS - 1) / 8 * 8 * spot +
           (spot == SPOTS - 1 ? last - last / (SPOTS - 1) / 8 * 8 * spot : 0);
}

static bool is_ready(struct sim_view *view, void *argument)
{
    const struct pattern_work *work = argument;
    (void)view;
    return !work->gate || *work->gate;
}

static void write_pattern(struct sim_view *view, void *argument)
{
    const struct pattern_work *work = argument;
    for (uint64_t page = 0; page < work->block.pages; page++)
        for (uint64_t spot = 0; spot < SPOTS; spot++) {
            uint64_t word = word_of(work->block.pattern, page, spot);
            (void)sim_write(view, spot_of(work, page, spot), &word, sizeof word);
        }
}

static void check_pattern(struct sim_view *view, void *argument)
{
    const struct pattern_work *work = argument;
    for (uint64_t page = 0; page < work->block.pages; page++)
        for (uint64_t spot = 0; spot < SPOTS; spot++) {
            uint64_t word = 0;
            if (!sim_read(view, spot_of(work, page, spot), &word, sizeof word) ||
                word != word_of(work->block.pattern, page, spot))
                vpmm_atomic_add(&n_wrong, 1);
        }
    vpmm_atomic_add(&n_checked, 1);
}

static void queue(struct fixture *fixture, CUstream stream, const struct block *block, bool writes,
                  const volatile bool *gate)
{
    struct pattern_work work = {*block, fixture->page_bytes, gate};
    struct sim_range range = {block->address, block->pages * fixture->page_bytes, writes};
    struct sim_kernel kernel = {.name = writes ? "write" : "check",
                                .run = writes ? write_pattern : check_pattern,
                                .ready = is_ready,
                                .argument = &work,
                                .argument_bytes = sizeof work,
                                .ranges = &range,
                                .n_ranges = 1};
    if (sim_launch(fixture->sim, stream, &kernel) != CUDA_SUCCESS)
        vpmm_atomic_add(&n_wrong, 1);
}

void block_write(struct fixture *fixture, CUstream stream, const struct block *block,
                 const volatile bool *gate)
{
    queue(fixture, stream, block, true, gate);
}

void block_check(struct fixture *fixture, CUstream stream, const struct block *block)
{
    queue(fixture, stream, block, false, NULL);
}

bool block_is_intact(struct fixture *fixture, const struct block *block)
{
    struct pattern_work work = {*block, fixture->page_bytes, NULL};
    for (uint64_t page = 0; page < block->pages; page++)
        for (uint64_t spot = 0; spot < SPOTS; spot++) {
            uint64_t word;
            if (!sim_peek(fixture->sim, 0, spot_of(&work, page, spot), &word, sizeof word) ||
                word != word_of(block->pattern, page, spot))
                return false;
        }
    return true;
}

uint64_t blocks_wrong(void)
{
    return vpmm_atomic_load(&n_wrong);
}

uint64_t blocks_checked(void)
{
    return vpmm_atomic_load(&n_checked);
}

void picture_take(struct fixture *fixture, struct picture *picture_out)
{
    memset(picture_out, 0, sizeof *picture_out);
    (void)snprintf(picture_out->layout, sizeof picture_out->layout, "%s", fixture_layout(fixture));
    picture_out->totals = fixture_totals(fixture);
    sim_live_counts(fixture->sim, &picture_out->counts);
}

void picture_compare(struct fixture *fixture, const struct picture *before)
{
    struct picture after;
    picture_take(fixture, &after);
    assert_string_equal(before->layout, after.layout);
    SAME(before->totals.held_pages, after.totals.held_pages);
    SAME(before->totals.mappings, after.totals.mappings);
    SAME(before->totals.hole_pages, after.totals.hole_pages);
    SAME(before->totals.root_pages, after.totals.root_pages);
    SAME(before->totals.quarantined_pages, after.totals.quarantined_pages);
    SAME(before->counts.handles, after.counts.handles);
    SAME(before->counts.handles_held, after.counts.handles_held);
    SAME(before->counts.mappings, after.counts.mappings);
    SAME(before->counts.reservations, after.counts.reservations);
    SAME(before->counts.used_bytes[0], after.counts.used_bytes[0]);
}

struct stop the_stop = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false, false};
static struct vpmm_driver untouched;

static void stop_here(void)
{
    (void)pthread_mutex_lock(&the_stop.mutex);
    if (the_stop.is_armed) {
        the_stop.is_armed = false;
        the_stop.is_reached = true;
        (void)pthread_cond_broadcast(&the_stop.changed);
        while (!the_stop.is_open)
            (void)pthread_cond_wait(&the_stop.changed, &the_stop.mutex);
    }
    (void)pthread_mutex_unlock(&the_stop.mutex);
}

static enum vpmm_status record_slowly(void *self, vpmm_event_handle event,
                                      vpmm_stream_handle stream)
{
    stop_here();
    return untouched.event_record(self, event, stream);
}

static enum vpmm_status record_context_slowly(void *self, vpmm_event_handle event,
                                              vpmm_context_handle context)
{
    stop_here();
    return untouched.event_record_context(self, event, context);
}

void stop_arm(struct fixture *fixture)
{
    if (fixture->driver.event_record != record_slowly)
        untouched = fixture->driver;
    fixture->driver.event_record = record_slowly;
    fixture->driver.event_record_context = record_context_slowly;
    the_stop.is_armed = true;
    the_stop.is_reached = the_stop.is_open = false;
}

void stop_await(void)
{
    (void)pthread_mutex_lock(&the_stop.mutex);
    while (!the_stop.is_reached)
        (void)pthread_cond_wait(&the_stop.changed, &the_stop.mutex);
    (void)pthread_mutex_unlock(&the_stop.mutex);
}

void stop_open(void)
{
    (void)pthread_mutex_lock(&the_stop.mutex);
    the_stop.is_open = true;
    (void)pthread_cond_broadcast(&the_stop.changed);
    (void)pthread_mutex_unlock(&the_stop.mutex);
}

static void *free_it(void *argument)
{
    struct freeing *freeing = argument;
    struct fixture *fixture = freeing->fixture;
    struct vpmm_stream stream;
    enum vpmm_status wait;
    freeing->status = VPMM_FAILED;
    if (sim_ctx_set_current(fixture->sim, fixture->handle) != CUDA_SUCCESS ||
        (freeing->stream &&
         vpmm_order_stream(fixture->order, (vpmm_stream_handle)freeing->stream, &stream)))
        return NULL;
    freeing->status =
        vpmm_heap_free(fixture->heap, freeing->address, freeing->stream ? &stream : NULL, &wait);
    return NULL;
}

void freeing_start(struct freeing *freeing, struct fixture *fixture, uint64_t address,
                   CUstream stream)
{
    *freeing = (struct freeing){.fixture = fixture, .address = address, .stream = stream};
    SAME(0, pthread_create(&freeing->thread, NULL, free_it, freeing));
}

void freeing_end(struct freeing *freeing)
{
    SAME(0, pthread_join(freeing->thread, NULL));
}

uint64_t heap_count_host_waits(struct fixture *fixture)
{
    struct vpmm_heap_counts counts;
    vpmm_heap_counts(fixture->heap, &counts);
    return counts.host_waits;
}

uint64_t heap_count_stream_waits(struct fixture *fixture)
{
    struct vpmm_heap_counts counts;
    vpmm_heap_counts(fixture->heap, &counts);
    return counts.stream_waits;
}

bool pages_overlap(const struct fixture *fixture, uint64_t a, uint64_t a_pages, uint64_t b,
                   uint64_t b_pages)
{
    return a < b + b_pages * fixture->page_bytes && b < a + a_pages * fixture->page_bytes;
}

void gated_capture_begin(struct fixture *fixture, CUstream stream, CUstreamCaptureMode mode)
{
    struct vpmm_context *ticket =
        vpmm_order_capture_begin(fixture->order, (vpmm_stream_handle)stream);
    assert_non_null(ticket);
    SAME(CUDA_SUCCESS, sim_stream_begin_capture(fixture->sim, stream, mode));
    vpmm_order_capture_began(fixture->order, ticket, (vpmm_stream_handle)stream, true);
}

void gated_capture_end(struct fixture *fixture, CUstream stream)
{
    CUgraph graph;
    CUstreamCaptureStatus status;
    SAME(CUDA_SUCCESS, sim_stream_is_capturing(fixture->sim, stream, &status));
    SAME(CU_STREAM_CAPTURE_STATUS_ACTIVE, status);
    SAME(CUDA_SUCCESS, sim_stream_end_capture(fixture->sim, stream, &graph));
    vpmm_order_capture_recheck(fixture->order, (vpmm_stream_handle)stream);
    SAME(CUDA_SUCCESS, sim_graph_destroy(fixture->sim, graph));
}
