/* SPDX-License-Identifier: MIT */
/* The capture gate: counts the captures under way. Must not let a capture begin while the record of
 * a context is being made. */
#include "order/order_internal.h"

bool vpmm_gate_is_open(const struct vpmm_order *order)
{
    return !vpmm_atomic_load(&order->n_closing) && !vpmm_atomic_load(&order->n_captures);
}

static struct vpmm_capture *at(const struct vpmm_order *order, uint32_t number)
{
    return vpmm_table_at(&order->captures, number);
}

uint32_t vpmm_order_captures(const struct vpmm_order *order)
{
    return vpmm_atomic_load(&order->n_captures);
}

struct vpmm_context *vpmm_order_capture_begin(struct vpmm_order *order, vpmm_stream_handle handle)
{
    struct vpmm_stream stream;
    bool is_known = !vpmm_order_stream(order, handle, &stream);
    vpmm_lock_take(&order->lock);
    vpmm_atomic_add(&order->n_closing, 1);
    vpmm_atomic_add(&order->epoch, 1);
    while (order->n_recorders)
        vpmm_condition_wait(&order->calmed, &order->lock);
    vpmm_lock_give(&order->lock);
    return is_known ? stream.context : NULL;
}

/* The link to the capture of a stream; the per-thread stream is one in each context (0: which one,
 * nobody could tell), others are known by their handle. */
static uint32_t *find(struct vpmm_order *order, vpmm_stream_handle handle, uint64_t thread,
                      uint32_t context)
{
    uint32_t *link = &order->first_capture;
    while (*link) {
        const struct vpmm_capture *capture = at(order, *link);
        if (capture->handle == handle && capture->thread == thread &&
            (!thread || !context || !capture->context || capture->context == context))
            break;
        link = &at(order, *link)->next;
    }
    return link;
}

void vpmm_order_capture_began(struct vpmm_order *order, struct vpmm_context *ticket,
                              vpmm_stream_handle handle, bool begun)
{
    uint64_t thread = vpmm_stream_thread(order, handle);
    uint32_t context = ticket ? ticket->number : 0;
    vpmm_lock_take(&order->lock);
    vpmm_atomic_sub(&order->n_closing, 1);
    /* A stream that began before has ended that capture where nobody saw it. */
    if (begun && !(ticket && vpmm_atomic_load(&ticket->gone)) &&
        !*find(order, handle, thread, context)) {
        uint32_t number = vpmm_table_take(&order->captures);
        /* Without a record the capture's end would not be recognised, so the context stays closed:
         * memory freed there is never reused, which is safe. The first few thousand records are
         * made with the order. */
        if (number) {
            *at(order, number) =
                (struct vpmm_capture){handle, thread, context, order->first_capture};
            order->first_capture = number;
        }
        vpmm_atomic_add(&order->n_captures, 1);
    }
    if (begun)
        order->n_begins++;
    vpmm_lock_give(&order->lock);
}

static void end(struct vpmm_order *order, uint32_t *link)
{
    uint32_t number = *link;
    *link = at(order, number)->next;
    vpmm_atomic_sub(&order->n_captures, 1);
    vpmm_table_give(&order->captures, number);
}

static void uncount(struct vpmm_order *order, vpmm_stream_handle handle, uint32_t context)
{
    uint64_t thread = vpmm_stream_thread(order, handle);
    vpmm_lock_take(&order->lock);
    uint32_t *link = find(order, handle, thread, context);
    if (*link)
        end(order, link);
    vpmm_lock_give(&order->lock);
}

void vpmm_order_capture_ended(struct vpmm_order *order, vpmm_stream_handle handle)
{
    struct vpmm_stream stream;
    bool is_known = !vpmm_order_stream(order, handle, &stream);
    /* Another thread has begun the next capture there, which found this one counted. */
    if (is_known && stream.is_capturing)
        return;
    uncount(order, handle, is_known ? stream.context->number : 0);
}

void vpmm_order_capture_recheck(struct vpmm_order *order, vpmm_stream_handle handle)
{
    struct vpmm_stream stream;
    if (!vpmm_order_stream(order, handle, &stream) && !stream.is_capturing)
        uncount(order, handle, stream.context->number);
}

void vpmm_capture_forget(struct vpmm_order *order, vpmm_stream_handle handle)
{
    uint32_t *link = find(order, handle, 0, 0);
    if (*link)
        end(order, link);
}

void vpmm_captures_forget(struct vpmm_order *order, struct vpmm_context *context)
{
    uint32_t *link = &order->first_capture;
    while (*link) {
        if (at(order, *link)->context == context->number)
            end(order, link);
        else
            link = &at(order, *link)->next;
    }
}
