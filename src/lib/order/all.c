/* SPDX-License-Identifier: MIT */
/* The fence of a free whose stream or context the driver does not tell. Must not make a record:
 * what is parked is recorded by whoever polls next. */
#include "order/order_internal.h"

enum vpmm_status vpmm_order_fence_all(struct vpmm_order *order, vpmm_fence *fence_out)
{
    struct vpmm_context *context;
    vpmm_fence all = VPMM_FENCE_NONE;
    (void)!vpmm_order_context(order, NULL, &context);
    uint32_t n = vpmm_atomic_load(&order->n_contexts);
    for (uint32_t number = 1; number <= n; number++) {
        vpmm_fence fence = vpmm_park_living(order, vpmm_context_at(order, number));
        vpmm_fence both = vpmm_order_join(order, all, fence);
        /* Either may have completed meanwhile, if its context is gone. */
        if (!both && (vpmm_order_ask(order, all, 0) != VPMM_VERDICT_COMPLETE ||
                      vpmm_order_ask(order, fence, 0) != VPMM_VERDICT_COMPLETE))
            return VPMM_NO_METADATA;
        all = both;
    }
    *fence_out = all;
    return VPMM_OK;
}
