/* SPDX-License-Identifier: MIT */
/* What the allocating and freeing wrappers ask about captures. */
#ifndef VPMM_PRELOAD_STREAM_H
#define VPMM_PRELOAD_STREAM_H

#include "preload/entry.h"

#include <stdbool.h>

/* Whether the driver would refuse the calling thread an allocation or a free now, because of a
 * capture that it takes no part in; `stream` is the call's, NULL for cudaMalloc and cudaFree. Where
 * it would, the capture ends of the question as it would of the call itself: then the original
 * function must get the call. False on a stream that captures, where such calls are legal (driver).
 */
bool vpmm_capture_refuses(struct vpmm_router *router, vpmm_stream_handle stream);

#endif
