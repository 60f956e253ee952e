/* SPDX-License-Identifier: MIT */
/* Locks with a rank, latches and conditions. A thread that is cancelled must not end in a wait
 * here, because it may hold other locks. */
#define _POSIX_C_SOURCE 200809L
#include "base/lock.h"

#include "base/status.h"

#include <assert.h>
#include <sched.h>
#include <time.h>

/* How a latch is waited for: its holder needs nanoseconds, unless it was stopped meanwhile, perhaps
 * for the sake of the very thread that waits. */
#define SPINS 100
#define YIELDS 100
#define NAP_NS 50000

#ifndef NDEBUG
/* One bit per rank that the thread holds, and how many latches of each. */
static _Thread_local unsigned held __attribute__((tls_model("initial-exec")));
static _Thread_local unsigned n_latches[VPMM_RANK_COUNT] __attribute__((tls_model("initial-exec")));
#endif

void vpmm_lock_init(struct vpmm_lock *lock, enum vpmm_rank rank)
{
    (void)pthread_mutex_init(&lock->mutex, NULL);
    lock->rank = rank;
    lock->lets_cancel = 0;
}

void vpmm_lock_finish(struct vpmm_lock *lock)
{
    (void)pthread_mutex_destroy(&lock->mutex);
}

void vpmm_lock_take(struct vpmm_lock *lock)
{
#ifndef NDEBUG
    assert(held >> lock->rank == 0);
#endif
    (void)pthread_mutex_lock(&lock->mutex);
#ifndef NDEBUG
    held |= 1u << lock->rank;
#endif
}

_Bool vpmm_lock_try(struct vpmm_lock *lock)
{
    if (pthread_mutex_trylock(&lock->mutex))
        return 0;
#ifndef NDEBUG
    held |= 1u << lock->rank;
#endif
    return 1;
}

void vpmm_lock_give(struct vpmm_lock *lock)
{
#ifndef NDEBUG
    held &= ~(1u << lock->rank);
#endif
    _Bool lets_cancel = lock->lets_cancel;
    lock->lets_cancel = 0;
    (void)pthread_mutex_unlock(&lock->mutex);
    if (lets_cancel)
        vpmm_cancel_restore(1);
}

_Bool vpmm_cancel_hold(void)
{
    int before = PTHREAD_CANCEL_DISABLE;
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before == PTHREAD_CANCEL_ENABLE;
}

void vpmm_cancel_restore(_Bool could_be_cancelled)
{
    if (could_be_cancelled)
        (void)pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
}

static void note_taken(enum vpmm_rank rank)
{
#ifndef NDEBUG
    assert(held >> rank >> 1 == 0);
    held |= 1u << rank;
    n_latches[rank]++;
#else
    (void)rank;
#endif
}

/* A sleep is where a cancelled thread ends, and the thread may hold locks. */
static void nap(void)
{
    _Bool could_be_cancelled = vpmm_cancel_hold();
    (void)nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    vpmm_cancel_restore(could_be_cancelled);
}

VPMM_NOINLINE static void wait_for_latch(struct vpmm_latch *latch)
{
    for (unsigned n = 0; vpmm_atomic_load(&latch->is_taken); n++) {
        if (n < SPINS)
            continue;
        if (n < SPINS + YIELDS)
            (void)sched_yield();
        else
            nap();
    }
}

void vpmm_latch_take(struct vpmm_latch *latch, enum vpmm_rank rank)
{
    while (vpmm_atomic_exchange(&latch->is_taken, 1))
        wait_for_latch(latch);
    note_taken(rank);
}

void vpmm_latch_give(struct vpmm_latch *latch, enum vpmm_rank rank)
{
#ifndef NDEBUG
    if (--n_latches[rank] == 0)
        held &= ~(1u << rank);
#else
    (void)rank;
#endif
    vpmm_atomic_store(&latch->is_taken, 0);
}

_Bool vpmm_latch_try(struct vpmm_latch *latch, enum vpmm_rank rank)
{
    if (vpmm_atomic_exchange(&latch->is_taken, 1))
        return 0;
    note_taken(rank);
    return 1;
}

_Bool vpmm_lock_none_held(void)
{
#ifndef NDEBUG
    return held == 0;
#else
    return 1;
#endif
}

void vpmm_condition_init(struct vpmm_condition *condition)
{
    (void)pthread_cond_init(&condition->changed, NULL);
}

void vpmm_condition_finish(struct vpmm_condition *condition)
{
    (void)pthread_cond_destroy(&condition->changed);
}

void vpmm_condition_wait(struct vpmm_condition *condition, struct vpmm_lock *lock)
{
    /* Others hold the lock meanwhile, so what it remembers for this thread is put aside. */
    _Bool lets_cancel = lock->lets_cancel;
    lock->lets_cancel = 0;
    _Bool could_be_cancelled = vpmm_cancel_hold();
    (void)pthread_cond_wait(&condition->changed, &lock->mutex);
    lock->lets_cancel = lets_cancel || could_be_cancelled;
}

void vpmm_condition_broadcast(struct vpmm_condition *condition)
{
    (void)pthread_cond_broadcast(&condition->changed);
}
