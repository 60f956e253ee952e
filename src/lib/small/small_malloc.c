/* SPDX-License-Identifier: MIT */
/* Serves requests from racks, and gets new slabs from the heap. Must not call the heap or the
 * driver while it holds a latch. */
#include "small/small_internal.h"

#include "base/pages.h"

/* The largest requests of the shelves but the last are one of so many parts of a page. */
#define FINE_SHARE 32u
#define MIDDLE_SHARE 8u
#define COARSE_SHARE 2u

/* While a rack has fewer pages, what is free on any shelf serves any request, so that a stream with
 * a few blocks has one page. */
#define SHARING_PAGES 4u

/* A new wide slab is no more than one of so many parts of what the shelf has already, so that
 * little is held that nobody asked for. The first ones may be half, up to some pages, because with
 * so few the blocks would leave more over. */
#define GROWTH_SHARE 16u
#define FIRST_PAGES_MAX 8u

/* So much may be pending of wide blocks of cudaMalloc before a request waits for the oldest. */
#define PENDING_BYTES_MAX ((uint64_t)64 << 20)

#define IDS_SET_ASIDE 1024u

static uint64_t rack_id(const struct vpmm_request *request)
{
    return request->stream ? request->stream->id
                           : VPMM_RACK_OF_CONTEXT | vpmm_context_id(request->context);
}

static uint32_t grains_of(uint64_t bytes)
{
    return (uint32_t)((bytes + VPMM_GRAIN_BYTES - 1) / VPMM_GRAIN_BYTES);
}

static uint32_t shelf_of(const struct vpmm_small *small, uint64_t bytes)
{
    if (bytes <= small->page_bytes / FINE_SHARE)
        return VPMM_SHELF_FINE;
    if (bytes <= small->page_bytes / MIDDLE_SHARE)
        return VPMM_SHELF_MIDDLE;
    return bytes <= small->page_bytes / COARSE_SHARE ? VPMM_SHELF_COARSE : VPMM_SHELF_WIDE;
}

/* What is learnt of other streams' work counts only where the program allows that. */
static bool is_cautious(const struct vpmm_request *request)
{
    return request->mempool && vpmm_atomic_load(&request->mempool->is_cautious);
}

static void require_numbers(struct vpmm_small *small, struct vpmm_rack *rack)
{
    if (rack->next_id == rack->end_id) {
        rack->next_id = vpmm_heap_reserve_ids(small->heap, IDS_SET_ASIDE);
        rack->end_id = rack->next_id + IDS_SET_ASIDE;
    }
}

static void add_to(vpmm_atomic64 *count, uint64_t n)
{
    vpmm_atomic_store(count, vpmm_atomic_load(count) + n);
}

/* With the latch. NULL: no piece is large enough. */
VPMM_NOINLINE static struct vpmm_piece *take_cold(struct vpmm_small *small, struct vpmm_rack *rack,
                                                  uint64_t bytes)
{
    uint32_t n_grains = grains_of(bytes);
    struct vpmm_piece *piece = vpmm_piece_take(small, rack, shelf_of(small, bytes), n_grains);
    if (!piece && vpmm_slab_move(rack, shelf_of(small, bytes), n_grains))
        piece = vpmm_piece_take(small, rack, shelf_of(small, bytes), n_grains);
    bool shares = vpmm_atomic_load(&rack->n_pages) < SHARING_PAGES;
    for (uint32_t shelf = 0; shelf < VPMM_SHELVES && !piece && shares; shelf++)
        piece = vpmm_piece_take(small, rack, shelf, n_grains);
    return piece;
}

/* With the latch, where the rack has a number left: a piece that nobody has is the program's. */
static VPMM_INLINE void hand_out(struct vpmm_rack *rack, struct vpmm_piece *piece, uint64_t bytes)
{
    uint64_t number = rack->next_id++;
    rack->n_in_row = 0;
    vpmm_atomic_store(&piece->bytes, (uint32_t)bytes);
    vpmm_atomic_store(&piece->word, number << VPMM_PIECE_NUMBER_SHIFT | VPMM_PIECE_LIVE);
    add_to(&rack->n_bytes, bytes);
    add_to(&rack->n_mallocs, 1);
}

/* With the latch. False: no piece is large enough. */
static bool serve(struct vpmm_small *small, struct vpmm_rack *rack, uint64_t bytes,
                  uint64_t *address_out)
{
    struct vpmm_piece *piece = vpmm_hot_take(rack, grains_of(bytes));
    if (!piece)
        piece = take_cold(small, rack, bytes);
    if (!piece)
        return false;
    const struct vpmm_slab *slab = vpmm_slab_at(small, piece->slab);
    require_numbers(small, rack);
    hand_out(rack, piece, bytes);
    *address_out = slab->begin + (uint64_t)vpmm_piece_grain(slab, piece) * VPMM_GRAIN_BYTES;
    return true;
}

/* With the latch: whether what the rack has waits for nothing but its owner. */
static bool is_own(const struct vpmm_small *small, const struct vpmm_rack *rack)
{
    return vpmm_order_ask(small->order, rack->followed, vpmm_atomic_load(&rack->id)) !=
           VPMM_VERDICT_PENDING;
}

/* What the device answers to a mark is told by the program's next call. */
static void after(struct vpmm_small *small, const struct vpmm_request *request, bool waits_for_none,
                  bool is_late)
{
    if (request->stream)
        vpmm_order_mark_malloc(small->order, request->stream, request->bytes, waits_for_none);
    if (request->mempool)
        vpmm_heap_note_parts(small->heap, request->mempool, is_late);
}

/* As vpmm_small_malloc_warm, where no piece of just that size is hot, or the request leaves a mark
 * or a figure. */
VPMM_NOINLINE static bool serve_lukewarm(struct vpmm_small *small,
                                         const struct vpmm_request *request, uint64_t *address_out)
{
    struct vpmm_rack *rack = vpmm_rack_take(small, rack_id(request));
    if (!rack)
        return false;
    bool is_served = serve(small, rack, request->bytes, address_out);
    bool waits_for_none = is_own(small, rack);
    vpmm_rack_give(rack);
    if (is_served)
        after(small, request, waits_for_none, false);
    return is_served;
}

/* Most requests end here, with no call of anything else. */
bool vpmm_small_malloc_warm(struct vpmm_small *small, const struct vpmm_request *request,
                            uint64_t *address_out)
{
    uint64_t id = rack_id(request);
    bool is_plain = !(request->stream && request->stream->is_blocking) &&
                    !(request->mempool && vpmm_atomic_load(&request->mempool->is_asked));
    struct vpmm_rack *rack = is_plain ? vpmm_rack_find(small, id) : NULL;
    struct vpmm_piece *piece = NULL;
    if (rack && vpmm_latch_try(&rack->latch, VPMM_RANK_RACK)) {
        bool is_ready = vpmm_atomic_load(&rack->id) == id && rack->next_id != rack->end_id;
        piece = is_ready ? vpmm_hot_take(rack, grains_of(request->bytes)) : NULL;
        if (piece) {
            *address_out = piece->address;
            hand_out(rack, piece, request->bytes);
        }
        vpmm_rack_give(rack);
    }
    return piece || serve_lukewarm(small, request, address_out);
}

/* ---- new slabs ---- */

/* The fewest pages for so many bytes. */
static uint64_t pages_for(const struct vpmm_small *small, uint64_t bytes)
{
    return vpmm_pages_in(bytes - 1, small->page_bytes) + 1;
}

/* Of all numbers of such blocks that may be, the one that leaves the smallest share of its pages
 * over. With the latch. */
static uint64_t pages_of_next(const struct vpmm_small *small, const struct vpmm_rack *rack,
                              uint64_t bytes)
{
    uint64_t block = (uint64_t)grains_of(bytes) * VPMM_GRAIN_BYTES;
    uint64_t best = pages_for(small, block), best_n = 1;
    uint64_t has = rack->shelves[VPMM_SHELF_WIDE].pages;
    uint64_t most = has / 2 < FIRST_PAGES_MAX ? has / 2 : FIRST_PAGES_MAX;
    if (shelf_of(small, bytes) != VPMM_SHELF_WIDE || vpmm_heap_is_tight(small->heap))
        return best;
    if (most < has / GROWTH_SHARE)
        most = has / GROWTH_SHARE;
    if (most > VPMM_SLAB_PAGES_MAX)
        most = VPMM_SLAB_PAGES_MAX;
    for (uint64_t n = 2; pages_for(small, n * block) <= most; n++) {
        uint64_t pages = pages_for(small, n * block);
        if (pages * best_n < best * n) {
            best = pages;
            best_n = n;
        }
    }
    return best;
}

/* A slab counts to none of CUDA's memory pools, but is got as a block of the request's would be. */
static enum vpmm_status get_region(struct vpmm_small *small, const struct vpmm_request *request,
                                   uint64_t pages, uint64_t *address_out)
{
    const struct vpmm_mempool *asked = request->mempool;
    struct vpmm_mempool mempool;
    struct vpmm_request whole = *request;
    vpmm_mempool_init(&mempool, VPMM_MEMPOOL_NONE, 0);
    if (asked) {
        vpmm_atomic_store(&mempool.is_cautious, vpmm_atomic_load(&asked->is_cautious));
        vpmm_atomic_store(&mempool.follows_never, vpmm_atomic_load(&asked->follows_never));
        vpmm_atomic_store(&mempool.waits_never, vpmm_atomic_load(&asked->waits_never));
    }
    whole.mempool = request->stream ? &mempool : NULL;
    whole.bytes = pages * small->page_bytes;
    whole.is_slab = true;
    return vpmm_heap_malloc(small->heap, &whole, address_out);
}

static enum vpmm_status add_slab(struct vpmm_small *small, const struct vpmm_request *request,
                                 uint64_t pages)
{
    uint64_t address;
    uint64_t id = rack_id(request);
    enum vpmm_status status = get_region(small, request, pages, &address);
    uint64_t fewest = pages_for(small, request->bytes);
    if ((status == VPMM_NO_MEMORY || status == VPMM_LIMITED) && pages > fewest) {
        pages = fewest;
        status = get_region(small, request, pages, &address);
    }
    if (status)
        return status;
    struct vpmm_slab *slab = vpmm_slab_make(small, address, pages);
    struct vpmm_rack *rack = slab ? vpmm_rack_take(small, id) : NULL;
    if (rack) {
        vpmm_atomic_store(&slab->context_id, vpmm_context_id(request->context));
        vpmm_slab_add(small, rack, slab, shelf_of(small, request->bytes));
        vpmm_rack_give(rack);
        return VPMM_OK;
    }
    uint64_t region_id = slab ? slab->region_id : 0;
    if (slab) {
        vpmm_atomic_store(&slab->address, 0);
        vpmm_slab_recycle(small, slab);
    }
    (void)!vpmm_heap_free_fenced(small->heap, address, region_id, VPMM_FENCE_NONE, 0);
    return slab ? VPMM_NOT_READY : VPMM_NO_METADATA;
}

/* ---- waiting ---- */

/* With the latch: what a cudaMalloc of wide blocks waits for, instead of holding more, while much
 * is pending that bare cudaFree would have waited for; or NONE. */
static vpmm_fence find_wait(struct vpmm_small *small, const struct vpmm_rack *rack,
                            const struct vpmm_request *request)
{
    uint64_t wide_bytes = rack->shelves[VPMM_SHELF_WIDE].pages * small->page_bytes;
    uint64_t most = PENDING_BYTES_MAX + wide_bytes / GROWTH_SHARE;
    const struct vpmm_piece *piece = rack->waiting_first;
    if (request->stream || request->bytes < small->page_bytes || !piece ||
        rack->waiting_grains * VPMM_GRAIN_BYTES <= most ||
        !vpmm_order_may_wait_host(small->order, piece->fence, request->context))
        return VPMM_FENCE_NONE;
    return piece->fence;
}

/* ---- requests ---- */

/* All that may be free is, and what is of the request's very size is hot. */
static void settle(struct vpmm_small *small, struct vpmm_rack *rack,
                   const struct vpmm_request *request, uint32_t pending_max)
{
    struct vpmm_follower follower;
    const struct vpmm_mempool *mempool = request->mempool;
    vpmm_hot_cool(small, rack);
    if (is_cautious(request))
        return;
    bool follows = request->stream && !(mempool && vpmm_atomic_load(&mempool->follows_never));
    if (follows)
        vpmm_order_follower(small->order, request->stream, &follower);
    vpmm_returns_settle(small, rack, follows ? &follower : NULL, grains_of(request->bytes),
                        pending_max);
}

enum vpmm_status vpmm_small_malloc(struct vpmm_small *small, const struct vpmm_request *request,
                                   uint64_t *address_out)
{
    bool has_polled = is_cautious(request), may_wait = true;
    for (;;) {
        struct vpmm_rack *rack = vpmm_rack_require(small, rack_id(request), request->context);
        if (!rack)
            return VPMM_NOT_READY;
        bool is_served = serve(small, rack, request->bytes, address_out);
        if (!is_served) {
            settle(small, rack, request, has_polled ? VPMM_THOROUGH_MAX : VPMM_PENDING_MAX);
            is_served = serve(small, rack, request->bytes, address_out);
        }
        bool may_poll = rack->waiting_first != NULL && !has_polled;
        vpmm_fence awaited[VPMM_BATCHES_MAX];
        uint32_t n_awaited =
            !is_served && may_poll ? vpmm_batches_awaited(small, rack, awaited) : 0;
        uint64_t pages = pages_of_next(small, rack, request->bytes);
        add_to(&rack->n_cold, is_served);
        vpmm_fence oldest = has_polled && may_wait ? find_wait(small, rack, request) : 0;
        bool waits_for_none = is_own(small, rack);
        vpmm_rack_give(rack);
        if (is_served) {
            after(small, request, waits_for_none, true);
            return VPMM_OK;
        }
        vpmm_batches_close(small, awaited, n_awaited);
        if (may_poll)
            (void)vpmm_order_poll(small->order);
        if (oldest)
            may_wait = !vpmm_order_wait_host(small->order, oldest);
        enum vpmm_status status = may_poll || oldest ? VPMM_OK : add_slab(small, request, pages);
        has_polled |= may_poll;
        if (status)
            return status;
    }
}
