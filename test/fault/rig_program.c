/* SPDX-License-Identifier: MIT */
/* The program's side of the rig: its requests, its work, its captures. */
#include "rig.h"

#define UNTOUCHED 42

/* Later work of `to` comes after all of `from`. */
static void order(struct rig *rig, CUstream from, CUstream to)
{
    CUevent event;
    if (from == to)
        return;
    SAME(CUDA_SUCCESS, sim_event_create(rig->f.sim, CU_EVENT_DISABLE_TIMING, &event));
    SAME(CUDA_SUCCESS, sim_event_record(rig->f.sim, event, from));
    SAME(CUDA_SUCCESS, sim_stream_wait_event(rig->f.sim, to, event, 0));
    SAME(CUDA_SUCCESS, sim_event_destroy(rig->f.sim, event));
}

static enum vpmm_status try_malloc(struct rig *rig, uint64_t bytes, CUstream stream,
                                   uint64_t *address_out)
{
    struct vpmm_order *the_order = rig->f.order;
    struct vpmm_stream resolved;
    struct vpmm_request request = {.bytes = bytes};
    enum vpmm_status status =
        stream ? vpmm_order_stream(the_order, (vpmm_stream_handle)stream, &resolved)
               : vpmm_order_context(the_order, NULL, &request.context);
    if (status)
        return status;
    if (stream) {
        request.stream = &resolved;
        request.context = resolved.context;
    }
    return vpmm_heap_malloc(rig->f.heap, &request, address_out);
}

static bool may_fail(const struct rig *rig, uint64_t strikes_before)
{
    return rig_is_excused(rig, strikes_before) || (rig->is_tight && rig_strikes(rig));
}

int rig_malloc_blank(struct rig *rig, uint64_t pages, CUstream stream)
{
    uint64_t address = UNTOUCHED;
    uint64_t strikes = rig_strikes(rig);
    rig_enter(rig);
    enum vpmm_status status = try_malloc(rig, pages * rig->f.page_bytes, stream, &address);
    rig_leave(rig);
    if (status && !may_fail(rig, strikes))
        fail_msg("nothing failed, but a request of %llu pages did: %s; %s",
                 (unsigned long long)pages, vpmm_status_text(status), fixture_layout(&rig->f));
    if (status) {
        SAME(UNTOUCHED, address);
        return NO_BLOCK;
    }
    int number = rig->n_blocks++;
    assert_in_range(number, 0, BLOCKS_MAX - 1);
    rig->blocks[number].block = (struct block){address, pages, (uint64_t)number + 1};
    rig->blocks[number].last = stream ? stream : rig->home;
    rig->blocks[number].is_live = rig->blocks[number].is_blank = true;
    rig->blocks[number].is_async = stream != NULL;
    SAME(CUDA_SUCCESS, sim_ctx_get_current(rig->f.sim, &rig->blocks[number].context));
    return number;
}

int rig_malloc(struct rig *rig, uint64_t pages, CUstream stream)
{
    int number = rig_malloc_blank(rig, pages, stream);
    if (number != NO_BLOCK) {
        rig->blocks[number].is_blank = false;
        block_write(&rig->f, rig->blocks[number].last, &rig->blocks[number].block, NULL);
    }
    return number;
}

void rig_refuse(struct rig *rig, uint64_t pages, CUstream stream)
{
    uint64_t address = UNTOUCHED;
    rig_enter(rig);
    enum vpmm_status status = try_malloc(rig, pages * rig->f.page_bytes, stream, &address);
    rig_leave(rig);
    assert_int_not_equal(VPMM_OK, status);
    SAME(UNTOUCHED, address);
}

void rig_use(struct rig *rig, int number, CUstream stream)
{
    if (number == NO_BLOCK)
        return;
    order(rig, rig->blocks[number].last, stream);
    rig->blocks[number].last = stream;
    block_check(&rig->f, stream, &rig->blocks[number].block);
    rig->blocks[number].block.pattern += BLOCKS_MAX;
    block_write(&rig->f, stream, &rig->blocks[number].block, NULL);
}

/* What the free reports beside having freed: only of a device or driver that is lost, or what the
 * wait of an older driver told. */
static void expect_told(const struct rig *rig, enum vpmm_status told, uint64_t strikes_before)
{
    bool is_lost = told == VPMM_BROKEN || told == VPMM_SHUT_DOWN;
    if (told && (!rig_is_excused(rig, strikes_before) || (!is_lost && !rig->does_wait)))
        fail_msg("cudaFree told: %s", vpmm_status_text(told));
}

/* Pages that the heap gave up, because after a fault nobody knows when they may be used again, are
 * taken back when the test is over. */
static void note_given_up(struct rig *rig, const struct block *block, uint64_t strikes_before)
{
    struct vpmm_region_view region;
    SAME(VPMM_OK, vpmm_heap_find(rig->f.heap, block->address, &region));
    if (region.state != VPMM_REGION_BUSY)
        return;
    assert_true(rig_is_excused(rig, strikes_before));
    rig->given_up[rig->n_given_up++] = block->address;
}

/* CUDA asks it of the program, and where a context cannot be recorded, so does the heap. */
static bool must_be_over(const struct rig *rig, int number)
{
    return rig->blocks[number].is_async && !rig->f.driver.event_record_context;
}

void rig_free(struct rig *rig, int number, CUstream stream)
{
    if (number == NO_BLOCK || !rig->blocks[number].is_live)
        return;
    const struct block *block = &rig->blocks[number].block;
    CUstream last = rig->blocks[number].last;
    struct vpmm_stream resolved;
    enum vpmm_status told = VPMM_OK;
    enum vpmm_status status = VPMM_OK;
    uint64_t strikes = rig_strikes(rig);
    if (!rig->blocks[number].is_blank) {
        order(rig, last, stream ? stream : last);
        block_check(&rig->f, stream ? stream : last, block);
    }
    if (!stream && must_be_over(rig, number))
        SAME(CUDA_SUCCESS, sim_stream_synchronize(rig->f.sim, last));
    rig_enter(rig);
    if (stream)
        status = vpmm_order_stream(rig->f.order, (vpmm_stream_handle)stream, &resolved);
    bool is_known = !status;
    if (is_known)
        status = vpmm_heap_free(rig->f.heap, block->address, stream ? &resolved : NULL, &told);
    else if (!vpmm_heap_give_up(rig->f.heap, block->address))
        fail_msg("a live block cannot be given up");
    rig_leave(rig);
    if (is_known)
        SAME(VPMM_OK, status);
    expect_told(rig, told, strikes);
    note_given_up(rig, block, strikes);
    rig->blocks[number].is_live = false;
}

void rig_reap(struct rig *rig)
{
    rig_enter(rig);
    vpmm_heap_reap(rig->f.heap);
    rig_leave(rig);
}

void rig_trim(struct rig *rig, uint64_t bytes)
{
    rig_enter(rig);
    (void)vpmm_heap_trim(rig->f.heap, bytes);
    rig_leave(rig);
}

void rig_add_peer(struct rig *rig, int peer)
{
    uint64_t strikes = rig_strikes(rig);
    rig_enter(rig);
    enum vpmm_status status = vpmm_heap_add_peer(rig->f.heap, peer);
    rig_leave(rig);
    if (status)
        assert_true(rig_is_excused(rig, strikes));
}

void rig_capture_begin(struct rig *rig, CUstream stream)
{
    vpmm_stream_handle handle = (vpmm_stream_handle)stream;
    rig_enter(rig);
    rig->capturing = vpmm_order_capture_begin(rig->f.order, handle);
    rig_leave(rig);
    SAME(CUDA_SUCCESS, sim_stream_begin_capture(rig->f.sim, stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    rig_enter(rig);
    vpmm_order_capture_began(rig->f.order, rig->capturing, handle, true);
    rig_leave(rig);
}

void rig_capture_end(struct rig *rig, CUstream stream)
{
    CUgraph graph;
    CUstreamCaptureStatus status;
    SAME(CUDA_SUCCESS, sim_stream_is_capturing(rig->f.sim, stream, &status));
    SAME(CU_STREAM_CAPTURE_STATUS_ACTIVE, status);
    SAME(CUDA_SUCCESS, sim_stream_end_capture(rig->f.sim, stream, &graph));
    rig_enter(rig);
    vpmm_order_capture_ended(rig->f.order, (vpmm_stream_handle)stream);
    rig_leave(rig);
    SAME(CUDA_SUCCESS, sim_graph_destroy(rig->f.sim, graph));
}
