/* SPDX-License-Identifier: MIT */
/* A mutex with a rank, and a condition that its holder waits for. A thread takes locks in ascending
 * rank only; a debug build stops at the first that breaks this. */
#ifndef VPMM_BASE_LOCK_H
#define VPMM_BASE_LOCK_H

#include "base/atomic.h"

#include <pthread.h>

enum vpmm_rank {
    VPMM_RANK_IPC = 1, /* what other processes' memory is mapped */
    VPMM_RANK_ROUTE,   /* creation of heaps, list of devices */
    VPMM_RANK_SMALL,   /* who has which slabs of one device */
    VPMM_RANK_RACK,    /* a latch: what one stream's slabs hold */
    VPMM_RANK_HEAP,    /* the bookkeeping of one device */
    VPMM_RANK_LANE,    /* a latch: what one stream's front cache holds */
    VPMM_RANK_ORDER,   /* fences, streams and contexts */
    VPMM_RANK_TRACK,   /* a latch: what one stream or one event comes after */
    VPMM_RANK_MEMORY,  /* a latch: metadata memory that was given back */
    VPMM_RANK_LOG,
    VPMM_RANK_COUNT
};

struct vpmm_lock {
    pthread_mutex_t mutex;
    enum vpmm_rank rank;
    _Bool lets_cancel; /* its holder can be cancelled again when it gives the lock */
};

/* A lock for a few instructions: one atomic exchange to take it and one store to give it. Whoever
 * holds it makes no driver call. Several of one rank may be held at once, by whoever takes them in
 * one order. A zeroed one is free. */
struct vpmm_latch {
    vpmm_atomic32 is_taken;
};

struct vpmm_condition {
    pthread_cond_t changed;
};

void vpmm_lock_init(struct vpmm_lock *lock, enum vpmm_rank rank);
void vpmm_lock_finish(struct vpmm_lock *lock);
void vpmm_lock_take(struct vpmm_lock *lock);
/* False, and not taken, when somebody holds it. */
_Bool vpmm_lock_try(struct vpmm_lock *lock);
void vpmm_lock_give(struct vpmm_lock *lock);

void vpmm_latch_take(struct vpmm_latch *latch, enum vpmm_rank rank);
void vpmm_latch_give(struct vpmm_latch *latch, enum vpmm_rank rank);
/* False, and not taken, when somebody holds it. */
_Bool vpmm_latch_try(struct vpmm_latch *latch, enum vpmm_rank rank);

/* From here to `restore`, which gets the answer, the calling thread does not end because somebody
 * cancels it: for work that others wait for. May be nested. Costs two atomic operations, so it is
 * not for every request. */
_Bool vpmm_cancel_hold(void);
void vpmm_cancel_restore(_Bool could_be_cancelled);

/* True when the calling thread holds no lock and no latch; for assertions before driver calls.
 * Always true where assertions are compiled out. */
_Bool vpmm_lock_none_held(void);

void vpmm_condition_init(struct vpmm_condition *condition);
void vpmm_condition_finish(struct vpmm_condition *condition);
/* Gives the lock, waits for the next broadcast and takes the lock again. It may return without a
 * broadcast, so the caller looks again at what it waits for. A thread that is cancelled meanwhile
 * does not end before it has given the lock. */
void vpmm_condition_wait(struct vpmm_condition *condition, struct vpmm_lock *lock);
/* Wakes all who wait. Called with the lock that they gave. */
void vpmm_condition_broadcast(struct vpmm_condition *condition);

#endif
