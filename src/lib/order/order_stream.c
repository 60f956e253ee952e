/* SPDX-License-Identifier: MIT */
/* Streams: which one a handle means in the calling thread, and its id. Must not ask a capturing
 * stream for its id, because that ends the capture. */
#include "order/memo.h"
#include "order/order_internal.h"

/* Own ids never meet those of a driver. */
#define OWN_ID (UINT64_C(1) << 63)
/* In a driver's ids, so that the highest bits are for others. */
#define CONTEXT_MASK ((UINT64_C(1) << 14) - 1)

/* So many names more than the last time may exist before those that can go are looked for. */
#define NAMES_KEPT 64u

static uint32_t *bucket_of(struct vpmm_order *order, vpmm_stream_handle handle, uint64_t thread)
{
    uint64_t mixed = ((uint64_t)(uintptr_t)handle + thread) * UINT64_C(0x9e3779b97f4a7c15);
    return &order->name_buckets[mixed >> 32 & (VPMM_ORDER_BUCKETS - 1)];
}

static struct vpmm_name *at(const struct vpmm_order *order, uint32_t number)
{
    return vpmm_table_at(&order->names, number);
}

/* The address of a thread's own memory would come back with a later thread. */
uint64_t vpmm_thread_number(struct vpmm_order *order)
{
    static _Thread_local __attribute__((tls_model("initial-exec"))) struct {
        uint64_t order;
        uint64_t number;
    } self;
    if (self.order != order->number) {
        self.order = order->number;
        self.number = vpmm_atomic_add(&order->n_threads, 1) + 1;
    }
    return self.number;
}

uint64_t vpmm_stream_thread(struct vpmm_order *order, vpmm_stream_handle handle)
{
    return handle == VPMM_STREAM_PER_THREAD ? vpmm_thread_number(order) : 0;
}

static void drop(struct vpmm_order *order, uint32_t *link)
{
    uint32_t number = *link;
    *link = at(order, number)->next;
    vpmm_table_give(&order->names, number);
}

/* Nobody can name the stream any more. */
static bool has_ended(const struct vpmm_order *order, const struct vpmm_name *name)
{
    return vpmm_context_is_gone(vpmm_context_at(order, name->context)) ||
           (name->thread && vpmm_thread_has_ended(name->system_thread));
}

/* Threads leave the names of their streams behind, and contexts those of theirs. */
static void sweep(struct vpmm_order *order)
{
    if (order->names.n_used < order->n_names_swept)
        return;
    for (uint32_t i = 0; i < VPMM_ORDER_BUCKETS; i++)
        for (uint32_t *link = &order->name_buckets[i]; *link;)
            if (has_ended(order, at(order, *link)))
                drop(order, link);
            else
                link = &at(order, *link)->next;
    order->n_names_swept = 2 * order->names.n_used + NAMES_KEPT;
}

/* The id of a stream of a driver without ids: made at first sight, ended by the stream's
 * destruction. 0 without memory. */
static uint64_t own_id(struct vpmm_order *order, const struct vpmm_context *context,
                       vpmm_stream_handle handle)
{
    uint64_t thread = vpmm_stream_thread(order, handle);
    uint64_t id = 0;
    vpmm_lock_take(&order->lock);
    uint32_t *bucket = bucket_of(order, handle, thread);
    for (uint32_t number = *bucket; number && !id; number = at(order, number)->next) {
        const struct vpmm_name *name = at(order, number);
        if (name->handle == handle && name->thread == thread && name->context == context->number)
            id = name->id;
    }
    if (!id) {
        sweep(order);
        uint32_t number = vpmm_table_take(&order->names);
        if (number) {
            id = OWN_ID | ++order->next_name;
            *at(order, number) = (struct vpmm_name){
                handle, thread, id, context->number, *bucket, thread ? vpmm_thread_self() : 0};
            *bucket = number;
        }
    }
    vpmm_lock_give(&order->lock);
    return id;
}

/* Forgets the id made for `handle`, where the driver has none. */
static void name_end(struct vpmm_order *order, vpmm_stream_handle handle)
{
    uint32_t *link = bucket_of(order, handle, 0);
    while (*link)
        if (at(order, *link)->handle == handle)
            drop(order, link);
        else
            link = &at(order, *link)->next;
}

/* cuda.h calls a driver's id "unique for the life of the program". The context is folded in, so
 * that ids stay apart where a driver counts them by context; those of the first context look as the
 * driver shows them. */
static uint64_t driver_id(const struct vpmm_context *context, uint64_t id)
{
    return id ^ ((context->number - 1) & CONTEXT_MASK) << 48;
}

static bool is_current(const struct vpmm_order *order, const struct vpmm_memo *memo)
{
    vpmm_context_handle current;
    return order->driver->context_current(order->driver->self, &current) == VPMM_OK &&
           current == memo->current;
}

static bool has_id(const struct vpmm_order *order, vpmm_stream_handle handle, uint64_t driver_id)
{
    uint64_t id;
    return order->driver->stream_id(order->driver->self, handle, &id) == VPMM_OK && id == driver_id;
}

/* Whether the driver still means the memo's stream by its handle. */
VPMM_NOINLINE static bool is_special_still(const struct vpmm_order *order,
                                           const struct vpmm_memo *memo)
{
    return is_current(order, memo) &&
           (memo->stream.is_legacy || has_id(order, memo->stream.handle, memo->driver_id));
}

const struct vpmm_stream *vpmm_order_recall(struct vpmm_order *order, vpmm_stream_handle handle)
{
    const struct vpmm_memo *memo = vpmm_memo_find(order, handle);
    if (!memo || vpmm_atomic_load(&order->n_captures))
        return NULL;
    bool is_still = vpmm_stream_is_special(handle) ? is_special_still(order, memo)
                                                   : has_id(order, handle, memo->driver_id);
    return is_still ? &memo->stream : NULL;
}

const struct vpmm_stream *vpmm_order_remembered(struct vpmm_order *order, vpmm_stream_handle handle)
{
    const struct vpmm_memo *memo = vpmm_memo_find(order, handle);
    return memo ? &memo->stream : NULL;
}

/* Nothing is kept of a driver without ids: its streams have other names. Nor beside the beginning
 * of a capture, which is counted only when it has begun: a stream that captures must not be asked
 * its id. */
static void keep(struct vpmm_order *order, uint64_t driver_id, uint64_t epoch,
                 const struct vpmm_stream *stream)
{
    const struct vpmm_driver *driver = order->driver;
    struct vpmm_memo memo = {.epoch = epoch, .driver_id = driver_id, .stream = *stream};
    if (!driver->stream_id || stream->is_capturing || vpmm_atomic_load(&order->n_closing) ||
        (vpmm_stream_is_special(stream->handle) &&
         driver->context_current(driver->self, &memo.current)))
        return;
    vpmm_memo_keep(order, &memo);
}

static enum vpmm_status look(struct vpmm_order *order, vpmm_stream_handle handle,
                             struct vpmm_stream *stream_out)
{
    uint64_t epoch = vpmm_atomic_load(&order->epoch);
    struct vpmm_stream_facts facts;
    struct vpmm_context *context;
    enum vpmm_status status = order->driver->stream_facts(order->driver->self, handle, &facts);
    if (!status)
        status = vpmm_order_context(order, facts.context, &context);
    if (status)
        return status;
    uint64_t id = 0;
    if (!facts.is_capturing) {
        id = facts.id ? driver_id(context, facts.id) : own_id(order, context, handle);
        if (!id)
            return VPMM_NO_METADATA;
    }
    *stream_out = (struct vpmm_stream){.context = context,
                                       .handle = handle,
                                       .id = id,
                                       .is_legacy = facts.is_legacy,
                                       .is_blocking = facts.is_blocking,
                                       .is_capturing = facts.is_capturing};
    keep(order, facts.id, epoch, stream_out);
    return VPMM_OK;
}

const struct vpmm_stream *vpmm_stream_ask(struct vpmm_order *order, vpmm_stream_handle handle,
                                          struct vpmm_stream *room)
{
    const struct vpmm_stream *known = vpmm_order_recall(order, handle);
    return known || look(order, handle, room) ? known : room;
}

enum vpmm_status vpmm_order_stream(struct vpmm_order *order, vpmm_stream_handle handle,
                                   struct vpmm_stream *stream_out)
{
    const struct vpmm_stream *known = vpmm_order_recall(order, handle);
    if (!known)
        return look(order, handle, stream_out);
    *stream_out = *known;
    return VPMM_OK;
}

void vpmm_order_stream_gone(struct vpmm_order *order, vpmm_stream_handle handle)
{
    struct vpmm_stream stream = {.id = 0};
    if (vpmm_stream_is_special(handle))
        return;
    if (vpmm_atomic_load(&order->n_tracks) && vpmm_order_stream(order, handle, &stream))
        stream.id = 0;
    vpmm_lock_take(&order->lock);
    vpmm_atomic_add(&order->epoch, 1);
    if (stream.id)
        vpmm_track_forget(order, stream.id);
    name_end(order, handle);
    vpmm_capture_forget(order, handle);
    vpmm_lock_give(&order->lock);
}
