/* SPDX-License-Identifier: MIT */
#include "fakes.h"

#include "base/lock.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

struct fakes fakes;

/* Guards what several threads may write at once. */
static pthread_mutex_t notes = PTHREAD_MUTEX_INITIALIZER;

void fakes_reset(void)
{
    memset(&fakes, 0, sizeof fakes);
    for (int i = 0; i < FAKE_DEVICES; i++) {
        fakes.facts[i] =
            (struct vpmm_device_facts){FAKE_DEVICE_BYTES, FAKE_GRANULARITY, true, false};
        fakes.contexts[i] = (struct vpmm_context){(uint64_t)(10 + i), i, false};
        fakes.heaps[i].base = FAKE_ROOT_BYTES * (uint64_t)(i + 1);
        fakes.heaps[i].state = VPMM_REGION_LIVE;
        for (int j = 0; j < FAKE_DEVICES; j++)
            fakes.can_reach[i][j] = true;
    }
}

void fakes_tell(const char *what, uint64_t number)
{
    size_t length = strlen(fakes.told);
    (void)snprintf(fakes.told + length, sizeof fakes.told - length, "%s %d; ", what, (int)number);
}

/* ---- driver ---- */

static enum vpmm_status device_facts(void *self, int device, struct vpmm_device_facts *facts_out)
{
    (void)self;
    assert_true(vpmm_lock_none_held());
    vpmm_atomic_add(&fakes.n_facts, 1);
    if (!fakes.facts_status)
        *facts_out = fakes.facts[device];
    return fakes.facts_status;
}

static enum vpmm_status memory_info(void *self, uint64_t *free_out, uint64_t *total_out)
{
    (void)self;
    assert_true(vpmm_lock_none_held());
    *free_out = 3 << 20;
    *total_out = FAKE_DEVICE_BYTES;
    return VPMM_OK;
}

static enum vpmm_status peer_possible(void *self, int device, int peer, bool *possible_out)
{
    (void)self;
    assert_true(vpmm_lock_none_held());
    assert_int_not_equal(device, peer);
    *possible_out = fakes.can_reach[device][peer];
    return VPMM_OK;
}

static enum vpmm_status capture_relax(void *self, int *mode_out)
{
    (void)self;
    *mode_out = 7;
    fakes.is_relaxed = !fakes.relax_status;
    return fakes.relax_status;
}

static void capture_restore(void *self, int mode)
{
    (void)self;
    assert_int_equal(mode, 7);
    fakes.is_relaxed = false;
}

const struct vpmm_driver fake_driver = {.device_facts = device_facts,
                                        .memory_info = memory_info,
                                        .peer_possible = peer_possible,
                                        .capture_relax = capture_relax,
                                        .capture_restore = capture_restore};

/* ---- order ---- */

enum vpmm_status vpmm_order_create(const struct vpmm_driver *driver,
                                   const struct vpmm_memory *memory, struct vpmm_order **order_out)
{
    (void)driver;
    (void)memory;
    if (!fakes.order_status)
        *order_out = (struct vpmm_order *)&fakes;
    return fakes.order_status;
}

void vpmm_order_destroy(struct vpmm_order *order)
{
    assert_ptr_equal(order, &fakes);
    for (int i = 0; i < FAKE_DEVICES; i++)
        assert_true(fakes.heaps[i].is_destroyed || !fakes.heaps[i].params.page_bytes);
}

enum vpmm_status vpmm_order_context(struct vpmm_order *order, vpmm_context_handle handle,
                                    struct vpmm_context **context_out)
{
    (void)order;
    assert_true(vpmm_lock_none_held());
    if (fakes.context_status)
        return fakes.context_status;
    if (!handle && fakes.current < 0)
        return VPMM_NO_CONTEXT;
    *context_out = handle ? (struct vpmm_context *)handle : &fakes.contexts[fakes.current];
    return VPMM_OK;
}

uint64_t vpmm_context_id(const struct vpmm_context *context)
{
    return context->id;
}

int vpmm_context_device(const struct vpmm_context *context)
{
    return context->device;
}

enum vpmm_status vpmm_order_stream(struct vpmm_order *order, vpmm_stream_handle handle,
                                   struct vpmm_stream *stream_out)
{
    (void)order;
    assert_true(vpmm_lock_none_held());
    assert_non_null(handle);
    if (fakes.stream_status)
        return fakes.stream_status;
    struct vpmm_context *context = (struct vpmm_context *)handle;
    *stream_out = (struct vpmm_stream){.context = context,
                                       .handle = handle,
                                       .id = context->id,
                                       .is_capturing = fakes.is_capturing};
    return VPMM_OK;
}

static struct vpmm_stream remembered;

/* Remembers every stream, where a test wants it to. */
const struct vpmm_stream *vpmm_order_recall(struct vpmm_order *order, vpmm_stream_handle handle)
{
    return fakes.caches && !vpmm_order_stream(order, handle, &remembered) ? &remembered : NULL;
}

/* ---- heaps and pools ---- */

enum vpmm_status vpmm_heap_create(const struct vpmm_heap_params *params,
                                  const struct vpmm_driver *driver, struct vpmm_order *order,
                                  const struct vpmm_memory *memory, struct vpmm_heap **heap_out)
{
    (void)driver;
    (void)order;
    (void)memory;
    assert_true(vpmm_lock_none_held());
    vpmm_atomic_add(&fakes.n_creates, 1);
    if (fakes.creating)
        fakes.creating();
    if (fakes.create_status)
        return fakes.create_status;
    fakes.heaps[params->device].params = *params;
    *heap_out = &fakes.heaps[params->device];
    return VPMM_OK;
}

void vpmm_heap_destroy(struct vpmm_heap *heap)
{
    heap->is_destroyed = true;
}

enum vpmm_status vpmm_heap_malloc(struct vpmm_heap *heap, const struct vpmm_request *request,
                                  uint64_t *address_out)
{
    assert_true(vpmm_lock_none_held());
    (void)pthread_mutex_lock(&notes);
    heap->request = *request;
    heap->stream = request->stream ? *request->stream : (struct vpmm_stream){0};
    (void)pthread_mutex_unlock(&notes);
    if (!heap->malloc_status)
        *address_out = heap->base;
    return heap->malloc_status;
}

enum vpmm_status vpmm_heap_free(struct vpmm_heap *heap, uint64_t address,
                                const struct vpmm_stream *stream, enum vpmm_status *wait_out)
{
    assert_true(vpmm_lock_none_held());
    heap->freed_address = address;
    heap->has_freed_stream = stream != NULL;
    heap->freed_stream = stream ? *stream : (struct vpmm_stream){0};
    if (!heap->free_status)
        *wait_out = heap->wait_status;
    return heap->free_status;
}

bool vpmm_heap_free_unknown(struct vpmm_heap *heap, uint64_t address)
{
    assert_true(vpmm_lock_none_held());
    heap->unknown_address = address;
    return !heap->free_status;
}

bool vpmm_heap_give_up(struct vpmm_heap *heap, uint64_t address)
{
    heap->given_up_address = address;
    return !heap->free_status;
}

enum vpmm_status vpmm_heap_export(struct vpmm_heap *heap, uint64_t address, uint64_t owner_id,
                                  uint64_t *shared_bytes_out)
{
    fakes_tell("export", (uint64_t)vpmm_heap_device(heap));
    *shared_bytes_out = 0;
    return vpmm_heap_holds(heap, address) && owner_id != 0 ? VPMM_OK : VPMM_NOT_FOUND;
}

bool vpmm_heap_holds(const struct vpmm_heap *heap, uint64_t address)
{
    return address >= heap->base && address < heap->base + FAKE_ROOT_BYTES;
}

enum vpmm_status vpmm_heap_find(const struct vpmm_heap *heap, uint64_t address,
                                struct vpmm_region_view *view_out)
{
    if (!vpmm_heap_holds(heap, address))
        return VPMM_NOT_FOUND;
    *view_out = (struct vpmm_region_view){.state = heap->state, .address = heap->base, .pages = 1};
    return VPMM_OK;
}

uint64_t vpmm_heap_live_bytes(const struct vpmm_heap *heap, uint64_t address)
{
    return heap->state == VPMM_REGION_LIVE && address == heap->base ? FAKE_LIVE_BYTES : 0;
}

uint64_t vpmm_heap_held_bytes(const struct vpmm_heap *heap)
{
    return heap->held;
}

void vpmm_heap_counts(const struct vpmm_heap *heap, struct vpmm_heap_counts *counts_out)
{
    *counts_out = heap->counts;
    counts_out->direct_hits = heap->cache_hits;
}

uint64_t vpmm_heap_trim_to(struct vpmm_heap *heap, uint64_t keep_bytes)
{
    assert_true(vpmm_lock_none_held());
    assert_true(fakes.is_relaxed);
    assert_int_equal(keep_bytes, 0);
    heap->n_trims_to_nothing++;
    return 0;
}

/* What it has cached is one block, of the stream that freed it. */
bool vpmm_heap_malloc_cached(struct vpmm_heap *heap, const struct vpmm_request *request,
                             uint64_t *address_out, bool *has_habit_out)
{
    *has_habit_out = heap->habit_of == request->stream->id;
    if (heap->cached_of != request->stream->id)
        return false;
    *address_out = heap->base;
    heap->cached_of = 0;
    heap->cache_hits++;
    return true;
}

bool vpmm_heap_malloc_by_habit(struct vpmm_heap *heap, const struct vpmm_request *request,
                               uint64_t *address_out)
{
    assert_false(vpmm_cancel_hold());
    assert_int_equal(heap->habit_of, request->stream->id);
    *address_out = heap->base;
    return true;
}

bool vpmm_heap_free_cached(struct vpmm_heap *heap, uint64_t address,
                           const struct vpmm_stream *stream, enum vpmm_status *status_out)
{
    if (!fakes.caches || address != heap->base || heap->state != VPMM_REGION_LIVE)
        return false;
    heap->cached_of = stream->id;
    *status_out = VPMM_OK;
    return true;
}

uint64_t vpmm_heap_trim(struct vpmm_heap *heap, uint64_t bytes)
{
    assert_true(vpmm_lock_none_held());
    heap->trimmed = heap->releasable < bytes ? heap->releasable : bytes;
    return heap->trimmed;
}

bool vpmm_heap_relieve(struct vpmm_heap *heap, struct vpmm_relief *relief)
{
    relief->rounds++;
    return vpmm_heap_trim(heap, UINT64_MAX) > 0;
}

void vpmm_heap_gather(struct vpmm_heap *heap)
{
    (void)heap;
}

void vpmm_heap_reap(struct vpmm_heap *heap)
{
    assert_true(vpmm_lock_none_held());
    heap->is_reaped = true;
}

uint64_t vpmm_heap_releasable_bytes(struct vpmm_heap *heap)
{
    return heap->is_reaped ? heap->releasable : 0;
}

enum vpmm_status vpmm_heap_add_peer(struct vpmm_heap *heap, int peer)
{
    assert_true(vpmm_lock_none_held());
    if (fakes.connecting)
        fakes.connecting();
    (void)pthread_mutex_lock(&notes);
    fakes.n_connections++;
    if (!fakes.add_peer_status)
        heap->peers |= (uint64_t)1 << peer;
    (void)pthread_mutex_unlock(&notes);
    return fakes.add_peer_status;
}

int vpmm_heap_device(const struct vpmm_heap *heap)
{
    return heap->params.device;
}

uint64_t vpmm_heap_page_bytes(const struct vpmm_heap *heap)
{
    return heap->params.page_bytes;
}

const struct vpmm_pool *vpmm_heap_pool(const struct vpmm_heap *heap)
{
    return (const struct vpmm_pool *)heap;
}

void vpmm_pool_totals(const struct vpmm_pool *pool, struct vpmm_pool_totals *totals_out)
{
    (void)pool;
    *totals_out =
        (struct vpmm_pool_totals){.live_pages = 100, .held_pages = 300, .zombie_pages = 7};
}

/* Runs of 3, 2 + 4 and 5 free pages. */
bool vpmm_pool_next(const struct vpmm_pool *pool, uint64_t *cursor,
                    struct vpmm_region_view *view_out)
{
    static const struct vpmm_region_view views[] = {
        {.state = VPMM_REGION_FREE, .pages = 3}, {.state = VPMM_REGION_LIVE, .pages = 9},
        {.state = VPMM_REGION_FREE, .pages = 2}, {.state = VPMM_REGION_FREE, .pages = 4},
        {.state = VPMM_REGION_HOLE, .pages = 9}, {.state = VPMM_REGION_FREE, .pages = 5},
    };
    (void)pool;
    fakes.n_looks++;
    if (*cursor == sizeof views / sizeof views[0])
        return false;
    *view_out = views[(*cursor)++];
    return true;
}

struct vpmm_context *vpmm_order_capture_begin(struct vpmm_order *order, vpmm_stream_handle handle)
{
    (void)order;
    (void)handle;
    return NULL;
}

uint64_t vpmm_heap_layout(void)
{
    return 1;
}

uint64_t vpmm_order_layout(void)
{
    return 2;
}

uint64_t vpmm_pool_layout(void)
{
    return 3;
}
