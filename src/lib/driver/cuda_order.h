/* SPDX-License-Identifier: MIT */
/* Private to driver/: the operations of the seam on contexts, streams and events. */
#ifndef VPMM_DRIVER_CUDA_ORDER_H
#define VPMM_DRIVER_CUDA_ORDER_H

#include "driver/cuda.h"
#include "driver/driver.h"

/* Sets those members of `driver`; an optional one is NULL where `cuda` lacks the function. */
void vpmm_cuda_fill_order(const struct vpmm_cuda *cuda, struct vpmm_driver *driver);

/* Makes `context` current until vpmm_cuda_leave, which must follow an OK. CONTEXT_GONE when it
 * cannot be. */
VPMM_MUST_CHECK enum vpmm_status vpmm_cuda_enter(const struct vpmm_cuda *cuda,
                                                 vpmm_context_handle context);
void vpmm_cuda_leave(const struct vpmm_cuda *cuda);

/* An event of `context`, with CUDA's flags. CONTEXT_GONE. */
VPMM_MUST_CHECK enum vpmm_status vpmm_cuda_event_create(const struct vpmm_cuda *cuda,
                                                        vpmm_context_handle context, unsigned flags,
                                                        vpmm_event_handle *event_out);

#endif
