/* SPDX-License-Identifier: MIT */
#include "stage.h"

#include "heap/heap_internal.h"
#include "order/order_internal.h"
#include "pool/pool_internal.h"

#define MAPPINGS_MAX 64

/* All that the pool adds to but for the live pages, whose peak is taken from what an addition says.
 */
static void pool_counters(const struct vpmm_pool *pool)
{
    const struct vpmm_counters *counters = &pool->counters;
    for (int i = 0; i < VPMM_REGION_STATES; i++)
        if (i != VPMM_REGION_LIVE)
            schedule_counters(&counters->pages[i], sizeof counters->pages[i]);
    schedule_counters(&counters->live_bytes, sizeof counters->live_bytes);
}

/* From the first counter of a record to its end. */
#define COUNT_FROM(record, counter)                                                                \
    schedule_counters(&(record)->counter, sizeof *(record)-offsetof(__typeof__(*(record)), counter))

void stage_count_order(const struct vpmm_order *order)
{
    /* All fibers are one thread to the library. It gets its number here, and not in the first run
     * alone. */
    (void)vpmm_order_may_wait_host((struct vpmm_order *)(uintptr_t)order, VPMM_FENCE_NONE, NULL);
    COUNT_FROM(order, n_events);
}

static void heap_counters(const struct vpmm_heap *heap)
{
    pool_counters(heap->pool);
    COUNT_FROM(heap, frees);
}

static enum vpmm_verdict always_complete(void *self, vpmm_fence fence)
{
    (void)self;
    (void)fence;
    return VPMM_VERDICT_COMPLETE;
}

static vpmm_fence nothing_to_join(void *self, vpmm_fence a, vpmm_fence b)
{
    (void)self;
    (void)a;
    (void)b;
    return VPMM_FENCE_NONE;
}

uint64_t stage_address(uint64_t page)
{
    return DEVICE_BASE + page * DEVICE_PAGE_BYTES;
}

static void grow(struct stage_pool *stage, uint64_t pages)
{
    struct vpmm_plan *plan;
    uint64_t address;
    expect(!vpmm_pool_plan_growth(stage->pool, pages, &plan));
    for (uint32_t i = 0; i < plan->n_steps; i++)
        plan->steps[i].extent = ++stage->last_extent;
    vpmm_pool_commit(stage->pool, plan, &address);
}

struct stage_pool *stage_pool(uint64_t pages, uint64_t mapped)
{
    struct stage_pool *stage = schedule_room(sizeof *stage);
    struct vpmm_pool_params params = {
        .page_bytes = DEVICE_PAGE_BYTES, .extent_pages_max = 1, .mappings_max = MAPPINGS_MAX};
    stage->view = (struct vpmm_fence_view){NULL, always_complete, nothing_to_join};
    vpmm_lock_init(&stage->lock, VPMM_RANK_HEAP);
    expect(!vpmm_pool_create(&params, &schedule_memory, &stage->pool));
    expect(!vpmm_pool_add_root(stage->pool, DEVICE_BASE, pages, false));
    pool_counters(stage->pool);
    if (mapped)
        grow(stage, mapped);
    return stage;
}

uint64_t stage_take(struct stage_pool *stage, uint64_t pages, uint64_t *id_out)
{
    uint64_t address;
    vpmm_lock_take(&stage->lock);
    struct vpmm_want want = {
        .pages = pages,
        .owner = {.bytes = pages * DEVICE_PAGE_BYTES - 1, .id = ++stage->last_id},
        .view = &stage->view};
    expect(!vpmm_pool_fit(stage->pool, &want, &address));
    vpmm_lock_give(&stage->lock);
    if (id_out)
        *id_out = want.owner.id;
    return (address - DEVICE_BASE) / DEVICE_PAGE_BYTES;
}

bool stage_free(struct stage_pool *stage, uint64_t page, struct vpmm_region_view *view_out)
{
    if (vpmm_pool_claim(stage->pool, stage_address(page), view_out))
        return false;
    vpmm_lock_take(&stage->lock);
    vpmm_pool_free(stage->pool, stage_address(page), VPMM_FENCE_NONE, 0);
    vpmm_lock_give(&stage->lock);
    return true;
}

void stage_pool_check(struct stage_pool *stage)
{
    const char *broken = vpmm_pool_audit(stage->pool);
    if (broken)
        schedule_fail("audit: %s", broken);
}

struct stage_heap *stage_heap(uint64_t device_pages, uint64_t eager_pages)
{
    struct stage_heap *stage = schedule_room(sizeof *stage);
    stage->device = device_create(device_pages);
    const struct vpmm_driver *driver = &stage->device->driver;
    struct vpmm_heap_params params = {
        .root_bytes = 2 * device_pages * DEVICE_PAGE_BYTES,
        .extent_pages_max = 1,
        .eager_pages = eager_pages,
        .slack_bytes = device_pages * DEVICE_PAGE_BYTES,
    };
    expect(!vpmm_order_create(driver, &schedule_memory, &stage->order));
    expect(!vpmm_order_context(stage->order, device_context(0), &stage->context));
    expect(!vpmm_heap_create(&params, driver, stage->order, &schedule_memory, &stage->heap));
    heap_counters(stage->heap);
    stage_count_order(stage->order);
    return stage;
}

static uint64_t page_of(uint64_t address)
{
    return (address - DEVICE_BASE) / DEVICE_PAGE_BYTES;
}

void stage_know(struct stage_heap *stage, int stream)
{
    expect(!vpmm_order_stream(stage->order, device_stream(stream), &stage->streams[stream]));
}

static struct vpmm_stream look_up(const struct stage_heap *stage, int stream)
{
    struct vpmm_stream known = stage->streams[stream];
    if (!known.context)
        expect(!vpmm_order_stream(stage->order, device_stream(stream), &known));
    return known;
}

/* The new owner comes after all that others left behind, but its own stream's. A step, so that each
 * order of this and the end of that work is seen. */
static void expect_done(const struct stage_heap *stage, uint64_t page, int stream)
{
    struct step step = {.what = "begin to use pages"};
    for (int i = 0; i < DEVICE_STREAMS; i++)
        if (stage->marks[page][i])
            step_touch(&step, &stage->device->streams[i].done, TOUCH_READS);
    if (step.n_touches)
        schedule_step(&step);
    for (int i = 0; i < DEVICE_STREAMS; i++)
        expect(stage->device->streams[i].done >= stage->marks[page][i] || (stream && i == stream));
}

/* What asks on `stream`, which is looked up in `*known`. */
static struct vpmm_request request_of(const struct stage_heap *stage, uint64_t pages, int stream,
                                      struct vpmm_stream *known)
{
    struct vpmm_request request = {.bytes = pages * DEVICE_PAGE_BYTES, .context = stage->context};
    if (stream) {
        *known = look_up(stage, stream);
        request.stream = known;
    }
    return request;
}

static uint64_t own(struct stage_heap *stage, uint64_t address, uint64_t pages, int stream)
{
    stage->n_mallocs++;
    for (uint64_t page = page_of(address); page < page_of(address) + pages; page++) {
        expect(stage->owners[page] == 0);
        stage->owners[page] = (uint64_t)schedule_thread() + 1;
        expect_done(stage, page, stream);
    }
    return address;
}

uint64_t stage_malloc(struct stage_heap *stage, uint64_t pages, int stream)
{
    struct vpmm_stream known;
    struct vpmm_request request = request_of(stage, pages, stream, &known);
    uint64_t address;
    enum vpmm_status status = vpmm_heap_malloc(stage->heap, &request, &address);
    return status ? 0 : own(stage, address, pages, stream);
}

uint64_t stage_malloc_cached(struct stage_heap *stage, uint64_t pages, int stream)
{
    struct vpmm_stream known;
    struct vpmm_request request = request_of(stage, pages, stream, &known);
    uint64_t address;
    bool has_habit;
    bool is_hit = vpmm_heap_malloc_cached(stage->heap, &request, &address, &has_habit);
    return is_hit ? own(stage, address, pages, stream) : 0;
}

/* cudaFree stands for the work of the whole context, the first. */
static void leave(struct stage_heap *stage, uint64_t page, int stream)
{
    stage->owners[page] = 0;
    for (int i = 0; i < DEVICE_STREAMS; i++)
        if (stream ? i == stream : i < DEVICE_STREAMS / DEVICE_CONTEXTS)
            stage->marks[page][i] = stage->device->streams[i].queued;
}

enum vpmm_status stage_heap_free(struct stage_heap *stage, uint64_t address, uint64_t pages,
                                 int stream)
{
    struct vpmm_stream known;
    enum vpmm_status waited;
    for (uint64_t i = 0; i < pages; i++)
        leave(stage, page_of(address) + i, stream);
    if (stream)
        known = look_up(stage, stream);
    enum vpmm_status status = vpmm_heap_free(stage->heap, address, stream ? &known : NULL, &waited);
    stage->n_frees += !status;
    return status;
}

struct vpmm_pool_totals stage_totals(const struct stage_heap *stage)
{
    struct vpmm_pool_totals totals;
    vpmm_pool_totals(vpmm_heap_pool(stage->heap), &totals);
    return totals;
}

/* Whoever may have the page by its fence: everybody (stream 0), or a stream. */
static void expect_fence(const struct stage_heap *stage, uint64_t page, vpmm_fence fence)
{
    for (int i = 0; i < DEVICE_STREAMS; i++) {
        uint64_t stream_id = i ? device_stream_id(i) : 0;
        if (vpmm_order_ask(stage->order, fence, stream_id) != VPMM_VERDICT_PENDING)
            expect_done(stage, page, i);
    }
}

void stage_expect_fences(const struct stage_heap *stage)
{
    uint64_t cursor = 0;
    struct vpmm_region_view view;
    while (vpmm_pool_next(vpmm_heap_pool(stage->heap), &cursor, &view))
        for (uint64_t i = 0; i < view.pages && view.state == VPMM_REGION_FREE; i++)
            expect_fence(stage, page_of(view.address) + i, view.fence);
}

void stage_expect_no_fences(struct vpmm_order *order)
{
    struct vpmm_order_totals totals;
    uint32_t n_living = 0;
    struct vpmm_context *context;
    for (uint64_t id = 1; (context = vpmm_order_context_by_id(order, id)) != NULL; id++)
        n_living += !vpmm_context_is_gone(context);
    for (int i = 0; i < 2; i++)
        (void)vpmm_order_poll(order);
    vpmm_order_totals(order, &totals);
    expect(totals.fences == 0);
    expect(!order->first_open && !order->first_joined);
    expect(order->slots.n_used == n_living);
}

void stage_heap_check(struct stage_heap *stage)
{
    struct vpmm_heap_counts counts;
    const char *broken = vpmm_heap_audit(stage->heap);
    if (broken)
        schedule_fail("audit: %s", broken);
    expect(stage_totals(stage).busy_pages == 0);
    vpmm_heap_counts(stage->heap, &counts);
    expect(counts.mallocs == stage->n_mallocs && counts.frees == stage->n_frees);
    for (int i = 0; i < DEVICE_STREAMS; i++)
        device_finish(stage->device, i);
    vpmm_heap_destroy(stage->heap);
    stage_expect_no_fences(stage->order);
    vpmm_order_destroy(stage->order);
    device_expect_empty(stage->device);
    expect(schedule_maps() == 0);
}
