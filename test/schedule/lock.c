/* SPDX-License-Identifier: MIT */
/* The locks and conditions of base/lock.h as steps: a thread that would block is not let go on, so
 * a deadlock or a wake-up that is lost shows as threads of which none may go on. A condition wakes
 * only when it is broadcast. Ranks are checked in every build; of
 * latches a thread may hold several. */
#include "base/lock.h"

#include "base/write.h"
#include "schedule.h"

#include <string.h>

/* What stands in the bytes of the mutex: 0, or 1 + the thread that holds it. */
static int holder(const struct vpmm_lock *lock)
{
    int number;
    memcpy(&number, &lock->mutex, sizeof number);
    return number;
}

static void set_holder(struct vpmm_lock *lock, int number)
{
    memcpy(&lock->mutex, &number, sizeof number);
}

/* What stands in the bytes of the condition: one bit for each thread that waits. */
static unsigned waiters(const struct vpmm_condition *condition)
{
    unsigned bits;
    memcpy(&bits, &condition->changed, sizeof bits);
    return bits;
}

static void set_waiters(struct vpmm_condition *condition, unsigned bits)
{
    memcpy(&condition->changed, &bits, sizeof bits);
}

static bool is_free(const void *argument)
{
    return holder(argument) == 0;
}

static void take(struct vpmm_lock *lock)
{
    *schedule_ranks() |= 1u << lock->rank;
    set_holder(lock, schedule_thread() + 1);
}

static void give(struct vpmm_lock *lock)
{
    expect(holder(lock) == schedule_thread() + 1);
    *schedule_ranks() &= ~(1u << lock->rank);
    set_holder(lock, 0);
}

void vpmm_lock_init(struct vpmm_lock *lock, enum vpmm_rank rank)
{
    memset(lock, 0, sizeof *lock);
    lock->rank = rank;
}

void vpmm_lock_finish(struct vpmm_lock *lock)
{
    expect(holder(lock) == 0);
}

void vpmm_lock_take(struct vpmm_lock *lock)
{
    struct step step = {.what = "take a lock", .may = is_free, .argument = lock};
    expect(*schedule_ranks() >> lock->rank == 0);
    step_touch(&step, lock, TOUCH_TAKES);
    schedule_step(&step);
    take(lock);
}

_Bool vpmm_lock_try(struct vpmm_lock *lock)
{
    /* In vain or not: both change what comes after. */
    struct step step = {.what = "try a lock"};
    expect(*schedule_ranks() >> lock->rank == 0);
    step_touch(&step, lock, TOUCH_TAKES);
    schedule_step(&step);
    if (!is_free(lock))
        return false;
    take(lock);
    return true;
}

void vpmm_lock_give(struct vpmm_lock *lock)
{
    struct step step = {.what = "give a lock"};
    step_touch(&step, lock, TOUCH_GIVES);
    schedule_step(&step);
    give(lock);
}

static bool latch_is_free(const void *argument)
{
    const struct vpmm_latch *latch = argument;
    return atomic_load_explicit(&latch->is_taken, memory_order_relaxed) == 0;
}

/* In the latch itself stands what stands in a lock: 1 + the thread that holds it. */
static void hold_latch(struct vpmm_latch *latch, enum vpmm_rank rank)
{
    *schedule_ranks() |= 1u << rank;
    ++schedule_latches()[rank];
    atomic_store_explicit(&latch->is_taken, (uint32_t)schedule_thread() + 1, memory_order_relaxed);
}

void vpmm_latch_take(struct vpmm_latch *latch, enum vpmm_rank rank)
{
    struct step step = {.what = "take a latch", .may = latch_is_free, .argument = latch};
    expect(*schedule_ranks() >> rank >> 1 == 0);
    step_touch(&step, latch, TOUCH_TAKES);
    schedule_step(&step);
    hold_latch(latch, rank);
}

_Bool vpmm_latch_try(struct vpmm_latch *latch, enum vpmm_rank rank)
{
    /* In vain or not: both change what comes after. */
    struct step step = {.what = "try a latch"};
    expect(*schedule_ranks() >> rank >> 1 == 0);
    step_touch(&step, latch, TOUCH_TAKES);
    schedule_step(&step);
    if (!latch_is_free(latch))
        return false;
    hold_latch(latch, rank);
    return true;
}

void vpmm_latch_give(struct vpmm_latch *latch, enum vpmm_rank rank)
{
    struct step step = {.what = "give a latch"};
    step_touch(&step, latch, TOUCH_GIVES);
    schedule_step(&step);
    expect(atomic_load_explicit(&latch->is_taken, memory_order_relaxed) ==
           (uint32_t)schedule_thread() + 1);
    if (--schedule_latches()[rank] == 0)
        *schedule_ranks() &= ~(1u << rank);
    atomic_store_explicit(&latch->is_taken, 0, memory_order_relaxed);
}

_Bool vpmm_lock_none_held(void)
{
    return *schedule_ranks() == 0;
}

void vpmm_condition_init(struct vpmm_condition *condition)
{
    memset(condition, 0, sizeof *condition);
}

void vpmm_condition_finish(struct vpmm_condition *condition)
{
    expect(waiters(condition) == 0);
}

/* What stands for the waking of one thread: only the broadcast that does it touches it. */
static const void *waker(const struct vpmm_condition *condition, int thread)
{
    return (const char *)condition + 1 + thread;
}

struct sleeper {
    const struct vpmm_condition *condition;
    const struct vpmm_lock *lock;
    unsigned bit;
};

static bool may_wake(const void *argument)
{
    const struct sleeper *sleeper = argument;
    return !(waiters(sleeper->condition) & sleeper->bit) && is_free(sleeper->lock);
}

void vpmm_condition_wait(struct vpmm_condition *condition, struct vpmm_lock *lock)
{
    struct sleeper sleeper = {condition, lock, 1u << schedule_thread()};
    struct step sleep = {.what = "begin to wait for a condition"};
    struct step wake = {.what = "be woken from a condition", .may = may_wake, .argument = &sleeper};
    step_touch(&sleep, lock, TOUCH_GIVES);
    step_touch(&sleep, condition, TOUCH_WRITES);
    schedule_step(&sleep);
    give(lock);
    set_waiters(condition, waiters(condition) | sleeper.bit);

    step_touch(&wake, lock, TOUCH_TAKES);
    step_touch(&wake, waker(condition, schedule_thread()), TOUCH_READS);
    schedule_step(&wake);
    take(lock);
}

void vpmm_condition_broadcast(struct vpmm_condition *condition)
{
    struct step step = {.what = "broadcast a condition"};
    expect(!vpmm_lock_none_held());
    step_touch(&step, condition, TOUCH_WRITES);
    for (int i = 0; i < SCHEDULE_THREADS; i++)
        if (waiters(condition) >> i & 1)
            step_touch(&step, waker(condition, i), TOUCH_WRITES);
    schedule_step(&step);
    set_waiters(condition, 0);
}

/* Fibers are not cancelled. */
_Bool vpmm_cancel_hold(void)
{
    return 0;
}

void vpmm_cancel_restore(_Bool could_be_cancelled)
{
    (void)could_be_cancelled;
}

/* No case writes anything: texts are put together, and that is all. */
_Bool vpmm_write(int fd, const void *bytes, size_t n_bytes, unsigned patience_ms)
{
    (void)fd;
    (void)bytes;
    (void)n_bytes;
    (void)patience_ms;
    return 0;
}
