/* SPDX-License-Identifier: MIT */
/* What the files of src/lib/small share. A rack's latch guards its shelves, its slabs and their
 * free pieces. A live piece belongs to the program: whoever claims it, by one compare-and-swap, may
 * give it to the rack, under the latch or through the rack's list of returns, which takes no latch.
 * The lock guards the tables and who has which rack. Slabs and racks never move and keep their
 * type, so that readers without a lock may follow what they find and look whether it still is what
 * they expect. */
#ifndef VPMM_SMALL_INTERNAL_H
#define VPMM_SMALL_INTERNAL_H

#include "base/atomic.h"
#include "base/lock.h"
#include "base/pages.h"
#include "base/table.h"
#include "order/order_program.h"
#include "small/small.h"

/* A slab has at most so many pages. */
#define VPMM_SLAB_PAGES_MAX 64u
#define VPMM_SMALL_ROOTS 64u
#define VPMM_RACK_BUCKETS 256u
#define VPMM_RACKS_MAX 2048u
#define VPMM_HOT 8u
#define VPMM_HOT_SHIFT 29u
/* So many that are still pending, in a row, end a look at those that wait: they are in the order of
 * their frees, and those of one stream complete in that order. */
#define VPMM_PENDING_MAX 32u
/* The same of a thorough look: before the rack takes memory, and where the heap asks for empty
 * slabs. */
#define VPMM_THOROUGH_MAX 4096u

/* Of a piece's word; above it the number of the allocation. */
#define VPMM_PIECE_STATE ((uint64_t)3)
#define VPMM_PIECE_NONE ((uint64_t)0)     /* no piece begins at this grain */
#define VPMM_PIECE_FREE ((uint64_t)1)     /* in its rack's bins */
#define VPMM_PIECE_LIVE ((uint64_t)2)     /* the program's */
#define VPMM_PIECE_RETURNED ((uint64_t)3) /* freed, and not in the bins yet */
#define VPMM_PIECE_NUMBER_SHIFT 2

/* One for each grain of a slab; those within a piece stand for nothing. */
struct vpmm_piece {
    vpmm_atomic64 word;
    struct vpmm_piece *next; /* free: in its bin; returned: in the list that it is in */
    union {
        struct vpmm_piece *prev; /* free */
        vpmm_fence fence;        /* returned */
        uint64_t address;        /* hot: its own */
    };
    vpmm_atomic32 bytes; /* live: as requested */
    uint32_t n_grains;
    uint32_t n_left; /* grains of the piece at its left; 0: it is the first */
    uint32_t slab;   /* number */
};

struct vpmm_slab {
    vpmm_atomic64 address; /* 0: the record is not in use */
    uint64_t pages;        /* this and the next five: constant, also between two uses */
    uint64_t bytes;
    uint32_t n_grains;
    uint32_t number;
    struct vpmm_piece *pieces;
    vpmm_atomic64 *starts; /* one bit a grain: a piece begins there */
    uint64_t region_id;    /* constant while in use: owner.id of its region. The address may be
                            * another owner's once the slab's context has ended. */
    uint64_t begin;        /* constant while in use: its address, also while it is given back */
    /* This and the next: constant while in use. Readers without a lock may see those of another
     * use, and look whether the piece that they are after still has the same word. */
    _Atomic(struct vpmm_rack *) rack;
    vpmm_atomic64 context_id;
    vpmm_atomic32 shelf;           /* written under the rack's latch */
    struct vpmm_slab *next, *prev; /* of its rack; next: of idle ones */
};

/* Free pieces by size: exact up to 15 grains, then eight bins a power of two. */
#define VPMM_BINS 192u
#define VPMM_BINS_WORDS (VPMM_BINS / 64)

/* Slabs for requests of one kind. Their pieces are in the bins. */
struct vpmm_shelf {
    uint64_t has[VPMM_BINS_WORDS]; /* one bit a bin: it is not empty */
    struct vpmm_piece *bins[VPMM_BINS];
    struct vpmm_slab *empties; /* slabs that are one free piece */
    uint32_t n_empties;
    uint64_t pages; /* of all its slabs */
};

/* Up to a 32nd of a page, up to an eighth, up to a half, and more. Apart, because the more blocks a
 * page has the less likely are all of them freed: a few small ones must not hold the pages of large
 * ones. */
enum vpmm_shelf_kind {
    VPMM_SHELF_FINE,
    VPMM_SHELF_MIDDLE,
    VPMM_SHELF_COARSE,
    VPMM_SHELF_WIDE, /* its slabs may have many pages, the others' have one */
    VPMM_SHELVES = VPMM_SMALL_CLASSES
};

struct vpmm_rack {
    _Alignas(64) struct vpmm_latch latch;
    uint32_t n_in_row;                /* latch: frees of the owner since its last request */
    vpmm_atomic64 id;                 /* of the stream, or VPMM_RACK_OF_CONTEXT; 0: nobody's */
    _Atomic(struct vpmm_rack *) next; /* in its bucket */
    struct vpmm_context *context;
    uint64_t
        n_owners;  /* lock and latch: it grows whenever the owner, or what `fence` says, changes */
    bool is_async; /* constant: of a stream, also when that is gone */
    bool has_followed;   /* latch: it has pieces that other streams freed and may work on */
    vpmm_fence followed; /* latch: what those wait for */
    bool is_left;        /* lock: it may be adopted once `fence` is complete */
    bool is_retired;     /* latch: other processes may see it, so that nobody gets it; left, too */
    bool is_lost;        /* lock: nobody can tell what that would have to wait for */
    vpmm_fence fence;    /* lock: what the last owner left behind */
    /* latch: open, of the context's frees that wait for nothing, or of those that the stream makes
     * into other racks; or NONE. The others: of a stream's (batch.c) */
    vpmm_fence batch;
    struct vpmm_track *track; /* NULL: none yet */
    uint64_t turn;            /* that all frees of the batch belong to */
    uint64_t joined_bytes;
    uint32_t n_joined, n_joined_max;
    uint64_t next_id, end_id; /* numbers set aside */
    /* By size, all of a list of the same: returned, may be had by the owner, and not merged yet. */
    struct vpmm_piece *hot[VPMM_HOT];
    struct vpmm_slab *slabs;                         /* that are not empty */
    struct vpmm_piece *waiting_first, *waiting_last; /* returned, with fences not complete */
    uint64_t waiting_grains;                         /* of those */
    /* Written under the latch. Of those blocks that were served and not freed by the owner. */
    vpmm_atomic64 n_bytes;
    vpmm_atomic64 n_mallocs, n_frees,
        n_ended; /* served; freed by the owner; ended with a context */
    vpmm_atomic64 n_slabs, n_pages, n_waiting, n_cold; /* cold: not by vpmm_small_malloc_warm */
    struct vpmm_shelf shelves[VPMM_SHELVES];
    /* Pieces returned from elsewhere, the last one first. */
    _Alignas(64) _Atomic(struct vpmm_piece *) returns;
    vpmm_atomic64 n_returned, returned_bytes; /* ever */
    vpmm_atomic64 n_taken;                    /* of those, from the list; latch */
};

/* No stream has such an id: see order_stream.c. */
#define VPMM_RACK_OF_CONTEXT (UINT64_C(1) << 62)

/* Which slab has a page of one of the heap's roots. */
struct vpmm_small_root {
    uint64_t address, bytes;
    _Atomic(struct vpmm_slab *) *slabs;
};

struct vpmm_small {
    struct vpmm_heap *heap;
    struct vpmm_order *order;
    const struct vpmm_memory *memory;
    struct vpmm_small_params params;
    uint64_t page_bytes;
    struct vpmm_mempool mempool; /* of slabs of cudaMallocAsync: none of CUDA's */
    struct vpmm_lock lock;
    struct vpmm_table slabs, racks;
    struct vpmm_slab *idle[VPMM_SLAB_PAGES_MAX + 1]; /* by pages */
    vpmm_atomic32 n_racks;                           /* the first ones exist */
    vpmm_atomic64 async_pages;                       /* of all slabs of cudaMallocAsync */
    uint32_t n_left;
    uint64_t n_wanted;   /* lock: requests that found no rack that was nobody's */
    uint64_t emptied_at; /* lock: how many these were when all racks were last emptied */
    uint32_t last_asked; /* lock: the rack that was looked at last */
    _Atomic(struct vpmm_rack *) buckets[VPMM_RACK_BUCKETS];
    vpmm_atomic32 n_roots;
    struct vpmm_small_root roots[VPMM_SMALL_ROOTS];
};

static inline struct vpmm_slab *vpmm_slab_at(const struct vpmm_small *small, uint32_t number)
{
    return vpmm_table_at(&small->slabs, number);
}

static inline struct vpmm_rack *vpmm_rack_at(const struct vpmm_small *small, uint32_t number)
{
    return vpmm_table_at(&small->racks, number);
}

static inline struct vpmm_rack *vpmm_slab_rack(const struct vpmm_slab *slab)
{
    return vpmm_atomic_load(&slab->rack);
}

static inline uint64_t vpmm_piece_state(const struct vpmm_piece *piece)
{
    return vpmm_atomic_load(&piece->word) & VPMM_PIECE_STATE;
}

static inline uint32_t vpmm_piece_grain(const struct vpmm_slab *slab,
                                        const struct vpmm_piece *piece)
{
    return (uint32_t)(piece - slab->pieces);
}

/* ---- piece.c: with the rack's latch ---- */

/* A free piece of just so many grains, cut from the smallest that was found, and out of its bin; it
 * is still marked free. NULL: there is none. */
struct vpmm_piece *vpmm_piece_take(const struct vpmm_small *small, struct vpmm_rack *rack,
                                   uint32_t shelf, uint32_t n_grains);
/* A piece that is in no bin becomes free, and merges with free ones beside it. */
void vpmm_piece_put(struct vpmm_rack *rack, struct vpmm_slab *slab, struct vpmm_piece *piece);
/* Into its bin, and out of it. */
void vpmm_piece_bin(struct vpmm_shelf *shelf, struct vpmm_piece *piece);
void vpmm_piece_unbin(struct vpmm_shelf *shelf, struct vpmm_piece *piece);
/* Which bin has pieces of that size. */
uint32_t vpmm_piece_bin_of(uint32_t n_grains);
/* Into a list of slabs, and out of it. */
void vpmm_slab_link(struct vpmm_slab **list, struct vpmm_slab *slab);
void vpmm_slab_unlink(struct vpmm_slab **list, struct vpmm_slab *slab);

/* ---- hot.c: with the rack's latch ---- */

static inline struct vpmm_piece **vpmm_hot_slot(struct vpmm_rack *rack, uint32_t n_grains)
{
    return &rack->hot[n_grains * UINT32_C(0x9e3779b1) >> VPMM_HOT_SHIFT];
}
/* A piece of just that size, the one kept last; NULL: there is none. */
static VPMM_INLINE struct vpmm_piece *vpmm_hot_take(struct vpmm_rack *rack, uint32_t n_grains)
{
    struct vpmm_piece **slot = vpmm_hot_slot(rack, n_grains);
    struct vpmm_piece *piece = *slot;
    if (!piece || piece->n_grains != n_grains)
        return NULL;
    *slot = piece->next;
    return piece;
}
/* Where pieces of that size have room; NULL: those of another size are there. */
static VPMM_INLINE struct vpmm_piece **vpmm_hot_room(struct vpmm_rack *rack, uint32_t n_grains)
{
    struct vpmm_piece **slot = vpmm_hot_slot(rack, n_grains);
    return *slot && (*slot)->n_grains != n_grains ? NULL : slot;
}
/* Keeps the piece there, which begins at `address`. */
static VPMM_INLINE void vpmm_hot_put(struct vpmm_piece **slot, struct vpmm_piece *piece,
                                     uint64_t address)
{
    piece->next = *slot;
    piece->address = address;
    *slot = piece;
}
/* The same, where those of another size become free. */
struct vpmm_piece **vpmm_hot_make_room(const struct vpmm_small *small, struct vpmm_rack *rack,
                                       uint32_t n_grains);
/* All of them become free. */
void vpmm_hot_cool(const struct vpmm_small *small, struct vpmm_rack *rack);
/* They end with their slabs. */
void vpmm_hot_forget(struct vpmm_rack *rack);

/* ---- slab.c ---- */

/* The word that names the slab of the page; NULL: no slab was ever in that root. No lock. */
static VPMM_INLINE _Atomic(struct vpmm_slab *) *vpmm_slab_word(const struct vpmm_small *small,
                                                               uint64_t address)
{
    uint32_t n = vpmm_atomic_load(&small->n_roots);
    for (uint32_t i = 0; i < n; i++) {
        const struct vpmm_small_root *root = &small->roots[i];
        if (address - root->address < root->bytes)
            return &root->slabs[vpmm_pages_in(address - root->address, small->page_bytes)];
    }
    return NULL;
}
/* The slab that had the page of `address` a moment ago; NULL: there was none. No lock. */
static VPMM_INLINE struct vpmm_slab *vpmm_slab_guess(const struct vpmm_small *small,
                                                     uint64_t address)
{
    _Atomic(struct vpmm_slab *) *word = vpmm_slab_word(small, address);
    return word ? vpmm_atomic_load(word) : NULL;
}
/* The slab that holds `address`, or NULL. No lock. */
struct vpmm_slab *vpmm_slab_find(const struct vpmm_small *small, uint64_t address);
/* A record for a region of so many pages at `address`, which nobody finds yet. NULL: no memory. */
struct vpmm_slab *vpmm_slab_make(struct vpmm_small *small, uint64_t address, uint64_t pages);
/* With the rack's latch: the slab is the rack's, one free piece, and is found from now on. */
void vpmm_slab_add(struct vpmm_small *small, struct vpmm_rack *rack, struct vpmm_slab *slab,
                   uint32_t shelf);
/* With the rack's latch: an empty slab of another shelf that has room for so many grains is this
 * shelf's from now on. False: there is none. */
bool vpmm_slab_move(struct vpmm_rack *rack, uint32_t shelf, uint32_t n_grains);
/* With the rack's latch: an empty slab is the rack's no more, and is not found. */
void vpmm_slab_drop(struct vpmm_small *small, struct vpmm_slab *slab);
/* The same of one that has live pieces: these are none any more. False: somebody is just returning
 * one of them, so that the record must not be used again. */
bool vpmm_slab_kill(struct vpmm_small *small, struct vpmm_slab *slab);
/* The record may be used again; without a latch. */
void vpmm_slab_recycle(struct vpmm_small *small, struct vpmm_slab *slab);
void vpmm_slabs_finish(struct vpmm_small *small);

/* ---- rack.c ---- */

static inline _Atomic(struct vpmm_rack *) *vpmm_rack_bucket(struct vpmm_small *small, uint64_t id)
{
    uint64_t mixed = id * UINT64_C(0x9e3779b97f4a7c15);
    return &small->buckets[mixed >> 32 & (VPMM_RACK_BUCKETS - 1)];
}
/* The rack of that id, or NULL. Without the lock one may be missed beside a change. */
static VPMM_INLINE struct vpmm_rack *vpmm_rack_find(struct vpmm_small *small, uint64_t id)
{
    struct vpmm_rack *rack = vpmm_atomic_load(vpmm_rack_bucket(small, id));
    for (uint32_t n_steps = 0; rack && n_steps < VPMM_RACKS_MAX; n_steps++) {
        if (vpmm_atomic_load(&rack->id) == id)
            return rack;
        rack = vpmm_atomic_load(&rack->next);
    }
    return NULL;
}
/* The rack of that id with its latch, or NULL. No lock. */
struct vpmm_rack *vpmm_rack_take(struct vpmm_small *small, uint64_t id);
/* The same, made or adopted where there is none (driver). NULL: there are too many, or no memory.
 */
struct vpmm_rack *vpmm_rack_require(struct vpmm_small *small, uint64_t id,
                                    struct vpmm_context *context);
static inline void vpmm_rack_give(struct vpmm_rack *rack)
{
    vpmm_latch_give(&rack->latch, VPMM_RANK_RACK);
}
static inline void vpmm_rack_latch(struct vpmm_rack *rack)
{
    vpmm_latch_take(&rack->latch, VPMM_RANK_RACK);
}

/* ---- returns.c ---- */

/* A claimed piece goes to its rack, to be reused when `fence` is complete or in order. No latch, no
 * lock. */
void vpmm_return_push(struct vpmm_rack *rack, struct vpmm_piece *piece, vpmm_fence fence);
/* With the latch: what was returned and may be reused is free, or hot if it has just `n_grains`.
 * `follower` NULL: what the rack's own stream comes after without the program's events.
 * `pending_max`: one of the two above. */
void vpmm_returns_settle(struct vpmm_small *small, struct vpmm_rack *rack,
                         const struct vpmm_follower *follower, uint32_t n_grains,
                         uint32_t pending_max);
/* With the latch: nothing is returned any more. */
void vpmm_returns_forget(struct vpmm_rack *rack);
/* With the latch of the piece's rack: a claimed piece waits for `fence` there. */
void vpmm_return_wait(struct vpmm_rack *rack, struct vpmm_piece *piece, vpmm_fence fence);
/* With the latch: the rack's batch, which no free joins from now on; whoever gets it closes it. */
static inline vpmm_fence vpmm_rack_detach(struct vpmm_rack *rack)
{
    vpmm_fence batch = rack->batch;
    rack->batch = VPMM_FENCE_NONE;
    rack->n_joined = 0;
    rack->joined_bytes = 0;
    return batch;
}

/* ---- batch.c ---- */

/* A piece that the caller claimed in another rack is freed on `stream`, and joins the stream's
 * batch (driver). False: it has to have a fence of its own, and nothing was done. */
bool vpmm_batch_join(struct vpmm_small *small, struct vpmm_slab *slab, struct vpmm_piece *piece,
                     const struct vpmm_stream *stream, enum vpmm_status *wait_out);
/* With the latch of the stream's rack: whether a piece of so many bytes may join without any call,
 * and does not fill the batch. */
static VPMM_INLINE bool vpmm_batch_has_room(const struct vpmm_small *small,
                                            const struct vpmm_rack *own, uint32_t bytes)
{
    return own->batch && own->n_joined + 1 < own->n_joined_max &&
           own->joined_bytes + bytes < small->page_bytes &&
           vpmm_order_turn(own->track) == own->turn;
}
/* With that latch: it joins, and goes to its own rack. */
void vpmm_batch_add(struct vpmm_small *small, struct vpmm_rack *own, struct vpmm_rack *rack,
                    struct vpmm_piece *piece);
/* So many streams' batches are closed at once for a request. */
#define VPMM_BATCHES_MAX 8u
/* With the latch: open fences that the rack's pieces wait for, a context's own and those of the
 * first pieces; how many. */
uint32_t vpmm_batches_awaited(const struct vpmm_small *small, const struct vpmm_rack *rack,
                              vpmm_fence fences_out[VPMM_BATCHES_MAX]);
/* Closes those of them that racks still have (driver). */
void vpmm_batches_close(struct vpmm_small *small, const vpmm_fence *fences, uint32_t n);
/* The same of all racks. */
void vpmm_batches_close_all(struct vpmm_small *small);

/* ---- reclaim.c ---- */

/* With the latch, which it gives: frees all empty slabs but one of a page, on `stream`, or (NULL)
 * where all their pieces are complete (driver). */
enum vpmm_status vpmm_small_shed(struct vpmm_small *small, struct vpmm_rack *rack,
                                 const struct vpmm_stream *stream);
/* The layer as the keeper of its heap. */
void vpmm_small_give_back(void *self);
uint64_t vpmm_small_pending_pages(void *self);
vpmm_fence vpmm_small_oldest(void *self, const struct vpmm_context *context);

#endif
