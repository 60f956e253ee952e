/* SPDX-License-Identifier: MIT */
#include "base/lock.h"

#include <assert.h>

#ifndef NDEBUG
/* One bit per rank that the thread holds. */
static _Thread_local unsigned held __attribute__((tls_model("initial-exec")));
#endif

void vpmm_lock_init(struct vpmm_lock *lock, enum vpmm_rank rank)
{
    (void)pthread_mutex_init(&lock->mutex, NULL);
    lock->rank = rank;
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
    (void)pthread_mutex_unlock(&lock->mutex);
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
    (void)pthread_cond_wait(&condition->changed, &lock->mutex);
}

void vpmm_condition_broadcast(struct vpmm_condition *condition)
{
    (void)pthread_cond_broadcast(&condition->changed);
}
