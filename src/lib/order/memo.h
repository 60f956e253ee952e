/* SPDX-License-Identifier: MIT */
/* What each thread remembers of the streams that it names. Private to this folder. */
#ifndef VPMM_ORDER_MEMO_H
#define VPMM_ORDER_MEMO_H

#include "order/order.h"

#include <sys/types.h>

/* What the calling thread learnt of a stream. Its id tells whether the handle still means that one;
 * the special handles mean one in each context. */
struct vpmm_memo {
    _Alignas(64) uint64_t epoch;
    uint64_t driver_id;
    vpmm_context_handle current; /* of special handles */
    struct vpmm_stream stream;
};

/* Whether the handle means another stream in each context, or in each thread. */
static inline bool vpmm_stream_is_special(vpmm_stream_handle handle)
{
    return handle == VPMM_STREAM_LEGACY || handle == VPMM_STREAM_PER_THREAD;
}

/* NULL: the thread remembers no such stream. What is found stays as it is until the thread's next
 * vpmm_memo_keep. */
const struct vpmm_memo *vpmm_memo_find(const struct vpmm_order *order, vpmm_stream_handle handle);

/* Remembers it, in place of what the thread knew of that handle. Without memory, or with more
 * streams than there is room for, it may forget others. Takes the order's lock. */
void vpmm_memo_keep(struct vpmm_order *order, const struct vpmm_memo *memo);

/* The calling thread, as the system numbers it, and whether such a thread is there no more. A later
 * thread may have the number of one that has ended. Neither changes errno. */
pid_t vpmm_thread_self(void);
bool vpmm_thread_has_ended(pid_t thread);

/* Before the order is destroyed: no thread remembers anything of it any more. */
void vpmm_memos_finish(struct vpmm_order *order);

#endif
