/* SPDX-License-Identifier: MIT */
/* What the files of the seam share. Private to this folder. Each file sets the members of the table
 * that it implements; an optional one stays NULL where `cuda` lacks a function that it needs. */
#ifndef VPMM_DRIVER_CUDA_INTERNAL_H
#define VPMM_DRIVER_CUDA_INTERNAL_H

#include "driver/cuda.h"

void vpmm_cuda_fill_memory(const struct vpmm_cuda *cuda, struct vpmm_driver *driver);
void vpmm_cuda_fill_order(const struct vpmm_cuda *cuda, struct vpmm_driver *driver);
void vpmm_cuda_fill_host(const struct vpmm_cuda *cuda, struct vpmm_driver *driver);

/* Makes `context` current until vpmm_cuda_leave, which must follow an OK. CONTEXT_GONE when it
 * cannot be. */
VPMM_MUST_CHECK enum vpmm_status vpmm_cuda_enter(const struct vpmm_cuda *cuda,
                                                 vpmm_context_handle context);
void vpmm_cuda_leave(const struct vpmm_cuda *cuda);

/* `status` of a call that is made with the context current. */
#define VPMM_CUDA_IN(status, cuda, context, call)                                                  \
    do {                                                                                           \
        (status) = vpmm_cuda_enter(cuda, context);                                                 \
        if (!(status)) {                                                                           \
            (status) = vpmm_cuda_status(call);                                                     \
            vpmm_cuda_leave(cuda);                                                                 \
        }                                                                                          \
    } while (0)

/* An event of `context`, with CUDA's flags. CONTEXT_GONE. */
VPMM_MUST_CHECK enum vpmm_status vpmm_cuda_event_create(const struct vpmm_cuda *cuda,
                                                        vpmm_context_handle context, unsigned flags,
                                                        vpmm_event_handle *event_out);

#endif
