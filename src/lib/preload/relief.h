/* SPDX-License-Identifier: MIT */
/* Calls that take device memory and are not the pool's to serve: where the driver has none, the
 * pool gives back what nobody uses, or soon will not use any more, and the call is made again. */
#ifndef VPMM_PRELOAD_RELIEF_H
#define VPMM_PRELOAD_RELIEF_H

#include "preload/entry.h"

/* An original call, made again as long as `has_relief` makes room for it. */
#define VPMM_TRY_RELIEVED(result, has_relief, call)                                                \
    do {                                                                                           \
        (result) = (call);                                                                         \
        while ((result) == CUDA_ERROR_OUT_OF_MEMORY && (has_relief))                               \
            (result) = (call);                                                                     \
    } while (0)

/* As vpmm_router_relieve; `device` may be VPMM_DEVICE_OF_CONTEXT. */
bool vpmm_relieve_device(int device, struct vpmm_relief *relief);

#endif
