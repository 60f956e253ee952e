/* SPDX-License-Identifier: MIT */
#include "fixture.h"

#include "order/order_program.h"

#include "base/lock.h"
#include "sim/sim_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Of several threads one gets the failure. */
static bool is_to_fail(struct fixture *fixture)
{
    uint64_t left = vpmm_atomic_load(&fixture->maps_until_failure);
    while (left && !vpmm_atomic_swap_if(&fixture->maps_until_failure, &left, left - 1))
        continue;
    return left == 1;
}

static void *memory_map(void *self, size_t bytes)
{
    struct fixture *fixture = self;
    if (is_to_fail(fixture))
        return NULL;
    void *address = vpmm_memory_system.map(NULL, bytes);
    vpmm_atomic_add(&fixture->maps_outstanding, address != NULL);
    return address;
}

static void memory_unmap(void *self, void *address, size_t bytes)
{
    struct fixture *fixture = self;
    vpmm_atomic_sub(&fixture->maps_outstanding, 1);
    vpmm_memory_system.unmap(NULL, address, bytes);
}

void fixture_params_default(struct fixture_params *params)
{
    memset(params, 0, sizeof *params);
    sim_config_default(&params->sim);
    params->sim.device_bytes = 64 * GIB;
    params->sim.has_bytes = false;
    params->sim.eager = false;
    params->heap.page_bytes = GIB;
    params->heap.root_bytes = 1024 * GIB;
    params->heap.extent_pages_max = 1;
    params->heap.slack_bytes = 256 * MIB;
    params->heap.slack_percent = 2;
}

/* ---- what the heap tells ---- */

static uint64_t watch_now_ns(void *self)
{
    (void)self;
    return 1;
}

static void watch_tell(void *self, const struct vpmm_watch_event *event)
{
    struct fixture *fixture = self;
    assert_true(vpmm_lock_none_held());
    assert_int_equal(event->begin_ns, 1);
    vpmm_atomic_add(&fixture->told[event->kind], 1);
    vpmm_atomic_add(&fixture->told_bytes[event->kind], event->bytes);
}

static uint64_t told_bytes(struct fixture *fixture, enum vpmm_watch_kind kind)
{
    return vpmm_atomic_load(&fixture->told_bytes[kind]);
}

/* While no other thread is in the heap. */
static void assert_told(struct fixture *fixture)
{
    struct vpmm_pool_totals totals = fixture_totals(fixture);
    struct vpmm_heap_counts counts;
    uint64_t page = fixture->page_bytes;
    vpmm_heap_counts(fixture->heap, &counts);
    assert_int_equal(told_bytes(fixture, VPMM_WATCH_GROW), totals.created_pages * page);
    assert_int_equal(told_bytes(fixture, VPMM_WATCH_RELEASE), totals.released_pages * page);
    assert_int_equal(told_bytes(fixture, VPMM_WATCH_STITCH), totals.moved_pages * page);
    assert_true(vpmm_atomic_load(&fixture->told[VPMM_WATCH_HOST_WAIT]) >= counts.host_waits);
    assert_true(vpmm_atomic_load(&fixture->told[VPMM_WATCH_STREAM_WAIT]) >= counts.stream_waits);
}

void fixture_setup(struct fixture *fixture, const struct fixture_params *params)
{
    memset(fixture, 0, sizeof *fixture);
    fixture->memory = (struct vpmm_memory){fixture, memory_map, memory_unmap};
    fixture->sim = sim_create(&params->sim);
    assert_non_null(fixture->sim);
    sim_table_fill(fixture->sim, &fixture->driver);
    assert_int_equal(sim_ctx_create(fixture->sim, 0, 0, &fixture->handle), CUDA_SUCCESS);
    assert_int_equal(vpmm_order_create(&fixture->driver, &fixture->memory, &fixture->order),
                     VPMM_OK);
    assert_int_equal(vpmm_order_context(fixture->order, NULL, &fixture->context), VPMM_OK);
    struct vpmm_heap_params heap = params->heap;
    fixture->watch = (struct vpmm_watch){fixture, watch_now_ns, watch_tell};
    heap.watch = &fixture->watch;
    assert_int_equal(
        vpmm_heap_create(&heap, &fixture->driver, fixture->order, &fixture->memory, &fixture->heap),
        VPMM_OK);
    fixture->page_bytes = vpmm_heap_page_bytes(fixture->heap);
    fixture_audit(fixture);
}

void fixture_teardown(struct fixture *fixture)
{
    struct sim_counts counts;
    vpmm_heap_reap(fixture->heap);
    (void)sim_drain(fixture->sim);
    fixture_audit(fixture);
    assert_told(fixture);
    vpmm_heap_destroy(fixture->heap);
    vpmm_order_destroy(fixture->order);
    sim_live_counts(fixture->sim, &counts);
    assert_int_equal(counts.handles, 0);
    assert_int_equal(counts.handles_held, 0);
    assert_int_equal(counts.reservations, 0);
    assert_int_equal(counts.mappings, 0);
    assert_int_equal(counts.events, 0);
    assert_int_equal(fixture->maps_outstanding, 0);
    sim_destroy(fixture->sim);
}

CUstream fixture_stream(struct fixture *fixture, unsigned flags)
{
    CUstream stream;
    assert_int_equal(sim_stream_create(fixture->sim, flags, 0, &stream), CUDA_SUCCESS);
    return stream;
}

static void resolve(struct fixture *fixture, CUstream handle, struct vpmm_stream *stream_out)
{
    assert_int_equal(vpmm_order_stream(fixture->order, (vpmm_stream_handle)handle, stream_out),
                     VPMM_OK);
}

enum vpmm_status fixture_try_malloc(struct fixture *fixture, uint64_t pages, CUstream stream,
                                    uint64_t *address_out)
{
    struct vpmm_stream resolved;
    struct vpmm_request request = {.bytes = pages * fixture->page_bytes,
                                   .context = fixture->context};
    if (stream) {
        resolve(fixture, stream, &resolved);
        request.stream = &resolved;
        request.context = resolved.context;
        request.mempool = fixture->mempool;
    }
    enum vpmm_status status = vpmm_heap_malloc(fixture->heap, &request, address_out);
    fixture_audit(fixture);
    return status;
}

enum vpmm_status fixture_try_free(struct fixture *fixture, uint64_t address, CUstream stream)
{
    struct vpmm_stream resolved;
    enum vpmm_status wait;
    if (stream)
        resolve(fixture, stream, &resolved);
    enum vpmm_status status =
        vpmm_heap_free(fixture->heap, address, stream ? &resolved : NULL, &wait);
    fixture_audit(fixture);
    return status ? status : wait;
}

uint64_t fixture_malloc(struct fixture *fixture, uint64_t pages, CUstream stream)
{
    uint64_t address = 0;
    assert_int_equal(fixture_try_malloc(fixture, pages, stream, &address), VPMM_OK);
    assert_int_not_equal(address, 0);
    return address;
}

void fixture_free(struct fixture *fixture, uint64_t address, CUstream stream)
{
    assert_int_equal(fixture_try_free(fixture, address, stream), VPMM_OK);
}

void fixture_audit(struct fixture *fixture)
{
    const char *broken = vpmm_heap_audit(fixture->heap);
    if (broken)
        fail_msg("audit: %s; %s", broken, fixture_layout(fixture));
}

uint64_t fixture_device_free_bytes(struct fixture *fixture)
{
    size_t free_bytes, total_bytes;
    assert_int_equal(sim_mem_get_info(fixture->sim, &free_bytes, &total_bytes), CUDA_SUCCESS);
    return free_bytes;
}

void fixture_finish(struct fixture *fixture)
{
    vpmm_heap_gather(fixture->heap);
    assert_int_equal(sim_ctx_synchronize(fixture->sim), CUDA_SUCCESS);
}

struct vpmm_pool_totals fixture_totals(struct fixture *fixture)
{
    struct vpmm_pool_totals totals;
    vpmm_pool_totals(vpmm_heap_pool(fixture->heap), &totals);
    return totals;
}

static bool gate_is_open(struct sim_view *view, void *argument)
{
    (void)view;
    const volatile bool *const *gate = argument;
    return **gate;
}

void fixture_work(struct fixture *fixture, CUstream stream, uint64_t address, uint64_t pages,
                  bool writes, const volatile bool *gate)
{
    struct sim_range range = {address, pages * fixture->page_bytes, writes};
    struct sim_kernel kernel = {.name = "work",
                                .ready = gate ? gate_is_open : NULL,
                                .argument = &gate,
                                .argument_bytes = sizeof gate,
                                .ranges = &range,
                                .n_ranges = 1};
    assert_int_equal(sim_launch(fixture->sim, stream, &kernel), CUDA_SUCCESS);
}

const char *fixture_layout(struct fixture *fixture)
{
    static char text[4096];
    static const char *const marks[] = {"?", "*", "-", "", "z", "?", "!"};
    const struct vpmm_pool *pool = vpmm_heap_pool(fixture->heap);
    uint64_t cursor = 0;
    size_t length = 0;
    size_t kept = 0;
    struct vpmm_region_view region;
    text[0] = 0;
    while (vpmm_pool_next(pool, &cursor, &region) && length < sizeof text - 32) {
        length += (size_t)snprintf(text + length, sizeof text - length, "[%s%llu]",
                                   marks[region.state], (unsigned long long)region.pages);
        if (region.state != VPMM_REGION_HOLE)
            kept = length;
    }
    text[kept] = 0;
    return text;
}

void fixture_params_cache(struct fixture_params *params)
{
    fixture_params_default(params);
    params->heap.page_bytes = 16 * MIB;
}

void fixture_setup_default(struct fixture *fixture)
{
    struct fixture_params params;
    fixture_params_default(&params);
    fixture_setup(fixture, &params);
}

void fixture_setup_cache(struct fixture *fixture)
{
    struct fixture_params params;
    fixture_params_cache(&params);
    fixture_setup(fixture, &params);
}

void fixture_setup_eager(struct fixture *fixture)
{
    struct fixture_params params;
    fixture_params_cache(&params);
    params.sim.eager = true;
    fixture_setup(fixture, &params);
}

uint64_t fixture_hits(struct fixture *fixture)
{
    struct vpmm_heap_counts counts;
    vpmm_heap_counts(fixture->heap, &counts);
    return counts.cache_hits;
}

uint64_t fixture_records(struct fixture *fixture)
{
    return sim_calls(fixture->sim, "cuEventRecord") + sim_calls(fixture->sim, "cuCtxRecordEvent");
}

void fixture_cycle(struct fixture *fixture, uint64_t pages, CUstream stream)
{
    fixture_free(fixture, fixture_malloc(fixture, pages, stream), stream);
}

void fixture_follow(struct fixture *fixture, CUstream earlier, CUstream later)
{
    struct vpmm_order *order = fixture->order;
    struct vpmm_event_points points;
    CUevent event;
    assert_int_equal(sim_event_create(fixture->sim, CU_EVENT_DISABLE_TIMING, &event), CUDA_SUCCESS);
    vpmm_order_event_recording(order, (vpmm_event_handle)event, (vpmm_stream_handle)earlier,
                               &points);
    assert_int_equal(sim_event_record(fixture->sim, event, earlier), CUDA_SUCCESS);
    vpmm_order_event_recorded(order, (vpmm_event_handle)event, &points, true);
    vpmm_order_event_waiting(order, (vpmm_event_handle)event, &points);
    assert_int_equal(sim_stream_wait_event(fixture->sim, later, event, 0), CUDA_SUCCESS);
    vpmm_order_event_waited(order, (vpmm_event_handle)event, (vpmm_stream_handle)later, &points);
    vpmm_order_event_gone(order, (vpmm_event_handle)event);
    assert_int_equal(sim_event_destroy(fixture->sim, event), CUDA_SUCCESS);
}
