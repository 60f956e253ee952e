/* SPDX-License-Identifier: MIT */
/* What the allocating and freeing wrappers ask about captures and broken contexts. */
#ifndef VPMM_PRELOAD_STREAM_H
#define VPMM_PRELOAD_STREAM_H

#include "preload/entry.h"

/* The code with which the driver refuses the calling thread an allocation or a free now, because of
 * a capture that it takes no part in; `stream` is the call's, NULL for cudaMalloc and cudaFree. The
 * capture ends of the question as it would of the call, so the code is the call's answer.
 * CUDA_SUCCESS: not refused; or the stream itself captures, where such calls are legal (driver). */
CUresult vpmm_capture_refusal(struct vpmm_router *router, vpmm_stream_handle stream);

/* What the driver says to a question that is harmless at any time: CUDA_SUCCESS, INVALID_CONTEXT
 * without a current context, or the code with which it refuses everything (driver, 13 ns). */
CUresult vpmm_context_answer(void);

/* Whether an error has broken the current context, or the driver is gone: bare CUDA then answers
 * every allocation with that error. Memory of the pool would hide it, since mapping some still
 * succeeds (measured on driver 580). False: it is whole, or there is none (driver, 13 ns). */
bool vpmm_context_is_broken(void);

#endif
