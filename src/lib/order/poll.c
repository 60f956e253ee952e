/* SPDX-License-Identifier: MIT */
/* Asks the driver which fences are complete by now, and has parked ones recorded. Must not wait for
 * a fence, and must not hold the lock while the driver is asked. */
#include "order/order_internal.h"

/* With fewer fences that are not known complete nobody looks for the sake of their events. */
#define TIDIED_LEAST 32u

/* A glance ends with so many busy queues, or after a look at so many; the next one goes on there.
 * Busy queues that it did not meet are left as credit to requests that find nothing. These may ask
 * so many in any case. So what requests pay does not grow with the streams. */
#define BUSY_MAX 7u
#define LOOKED_MAX 64u

static vpmm_fence fence_in(const struct vpmm_order *order, uint32_t slot)
{
    return slot ? vpmm_atomic_load(&vpmm_slot_at(order, slot)->number) : VPMM_FENCE_NONE;
}

/* The next glances pass over the queue, twice as many as the last time, unless a fence of it
 * completes before. */
static void pass_over(struct vpmm_queue *queue)
{
    queue->n_passes = queue->n_passes ? 2 * queue->n_passes : 1;
    if (queue->n_passes > VPMM_PASSES_MAX)
        queue->n_passes = VPMM_PASSES_MAX;
    queue->n_passes_left = queue->n_passes;
}

/* The slot half way from the queue's first one to `end`, which lies behind that; no further than
 * `n_max` from the first one. */
static uint32_t half_way(const struct vpmm_order *order, const struct vpmm_queue *queue,
                         uint32_t end, uint32_t n_max)
{
    uint32_t slow = queue->first;
    uint32_t fast = slow;
    for (uint32_t n = 0; n < n_max && (fast = vpmm_slot_at(order, fast)->next) != end &&
                         (fast = vpmm_slot_at(order, fast)->next) != end;
         n++)
        slow = vpmm_slot_at(order, slow)->next;
    return slow;
}

/* Finds the last fence of the queue that is complete, before `pending` in the slot `end`, which was
 * not: from the oldest on in steps that double, and then by halves. A query that finds its event
 * complete is dear while the device works, and mostly few or very many are. */
static void search(struct vpmm_order *order, struct vpmm_queue *queue, uint32_t end,
                   vpmm_fence pending)
{
    enum vpmm_status (*query)(void *, vpmm_event_handle) = order->driver->event_query;
    uint32_t step = 0;
    /* Once that is complete, too, the queue may be another's. */
    while (fence_in(order, end) == pending && queue->first != end) {
        uint32_t slot = half_way(order, queue, end, step);
        vpmm_fence fence = fence_in(order, slot);
        if (vpmm_fence_observe(order, fence, query) == VPMM_OK) {
            step = step == UINT32_MAX ? step : 2 * step + 1;
            continue;
        }
        end = slot;
        pending = fence;
        step = UINT32_MAX;
    }
}

/* Called with the lock, which is given up while the driver is asked: meanwhile the queue may have
 * become another's. While its oldest fence is not complete, no other is; and the newest vouches for
 * all. True: the queue is busy, some of it is not complete. */
static bool poll_queue(struct vpmm_order *order, struct vpmm_queue *queue)
{
    enum vpmm_status (*query)(void *, vpmm_event_handle) = order->driver->event_query;
    vpmm_fence oldest = fence_in(order, queue->first);
    pass_over(queue);
    if (!oldest || vpmm_fence_observe(order, oldest, query) != VPMM_OK)
        return oldest != VPMM_FENCE_NONE;
    uint32_t last = queue->last;
    vpmm_fence newest = fence_in(order, last);
    if (!newest || vpmm_fence_observe(order, newest, query) == VPMM_OK)
        return false;
    search(order, queue, last, newest);
    return true;
}

/* Called with the lock, which is given up where there is something to record. */
static void record_parked(struct vpmm_order *order, struct vpmm_context *context)
{
    if (!context->parked_used || vpmm_context_is_gone(context))
        return;
    vpmm_lock_give(&order->lock);
    vpmm_record_parked(order, context);
    vpmm_lock_take(&order->lock);
}

static bool is_passed_over(struct vpmm_queue *queue)
{
    bool is_passed = queue->n_passes_left > 0;
    if (is_passed)
        queue->n_passes_left--;
    return is_passed;
}

enum asked {
    ASKED_ALL,
    ASKED_GLANCE, /* those that it is time for, within bounds */
    ASKED_MORE,   /* until the credit is used up */
};

/* Called with the lock. */
static void ask_all(struct vpmm_order *order)
{
    for (uint32_t number = 1; number < order->queues_end; number++) {
        struct vpmm_queue *queue = vpmm_queue_at(order, number);
        if (queue)
            (void)poll_queue(order, queue);
    }
}

static uint32_t n_queues(const struct vpmm_order *order)
{
    return order->queues_end ? order->queues_end - 1 : 0;
}

static struct vpmm_queue *next_queue(struct vpmm_order *order)
{
    order->glanced = order->glanced < n_queues(order) ? order->glanced + 1 : 1;
    return vpmm_queue_at(order, order->glanced);
}

/* The same of those that it is time for, within the bounds; true: there are others. */
static bool glance(struct vpmm_order *order)
{
    bool has_passed = false;
    unsigned n_busy = 0, n_looked = 0;
    uint32_t n = n_queues(order);
    uint32_t i = 0;
    for (; i < n && n_busy < BUSY_MAX && n_looked < LOOKED_MAX; i++) {
        struct vpmm_queue *queue = next_queue(order);
        if (!queue)
            continue;
        n_looked++;
        if (is_passed_over(queue))
            has_passed = true;
        else
            n_busy += poll_queue(order, queue);
    }
    if (order->credit < n)
        order->credit += BUSY_MAX - n_busy;
    return has_passed || i < n;
}

/* Until the credit is used up; true: there are others. */
static bool ask_more(struct vpmm_order *order)
{
    unsigned most = order->credit < BUSY_MAX ? BUSY_MAX : order->credit;
    unsigned n_busy = 0;
    uint32_t n = n_queues(order);
    uint32_t i = 0;
    for (; i < n && n_busy < most; i++) {
        struct vpmm_queue *queue = next_queue(order);
        n_busy += queue && poll_queue(order, queue);
    }
    order->credit = most - n_busy;
    return i < n;
}

static bool ask(struct vpmm_order *order, enum asked asked)
{
    if (asked == ASKED_ALL)
        ask_all(order);
    return asked == ASKED_GLANCE ? glance(order) : asked == ASKED_MORE && ask_more(order);
}

/* `has_passed_out`: there are queues that were not asked. */
static bool poll(struct vpmm_order *order, enum asked asked, bool *has_passed_out)
{
    const struct vpmm_driver *driver = order->driver;
    int mode;
    if (!vpmm_atomic_load(&order->n_fences) || driver->capture_relax(driver->self, &mode))
        return false;
    vpmm_lock_take(&order->lock);
    uint32_t n_contexts = order->n_parked ? vpmm_atomic_load(&order->n_contexts) : 0;
    for (uint32_t number = n_contexts; number; number--)
        record_parked(order, vpmm_context_at(order, number));
    uint64_t n_completed = vpmm_order_completions(order);
    *has_passed_out = ask(order, asked);
    bool any = vpmm_order_completions(order) != n_completed;
    if (any)
        vpmm_joined_sweep(order);
    vpmm_lock_give(&order->lock);
    driver->capture_restore(driver->self, mode);
    return any;
}

bool vpmm_order_poll(struct vpmm_order *order)
{
    bool has_passed = false;
    return poll(order, ASKED_ALL, &has_passed);
}

bool vpmm_order_glance(struct vpmm_order *order, bool *has_passed_out)
{
    *has_passed_out = false;
    return poll(order, ASKED_GLANCE, has_passed_out);
}

bool vpmm_order_poll_more(struct vpmm_order *order, bool *has_passed_out)
{
    *has_passed_out = false;
    return poll(order, ASKED_MORE, has_passed_out);
}

void vpmm_order_tidy(struct vpmm_order *order)
{
    uint64_t n_fences = vpmm_hint_load(&order->n_fences);
    if (n_fences < TIDIED_LEAST || n_fences < vpmm_hint_load(&order->n_fences_tidied))
        return;
    (void)vpmm_order_poll(order);
    vpmm_hint_store(&order->n_fences_tidied, 2 * vpmm_hint_load(&order->n_fences));
}
