/* SPDX-License-Identifier: MIT */
/* Records the calls of the program that allocate and free, and what the heaps do, as VPMM_TRACE
 * asks. Costs a program without it one look at a pointer a call. */
#ifndef VPMM_PRELOAD_TRACING_H
#define VPMM_PRELOAD_TRACING_H

#include "base/watch.h"
#include "config/config.h"
#include "driver/driver.h"
#include "route/route.h"
#include "recorder/recorder.h"

#include <cuda.h>

/* All zero at first; stays where it is. */
struct vpmm_tracing {
    struct vpmm_recorder recorder;
    struct vpmm_router *router;
    struct vpmm_watch watch;
    vpmm_atomic32 state;
    vpmm_atomic64 due_ns[VPMM_DEVICES_MAX]; /* then the figures of that device are told again */
};

/* What heaps are given to listen with; before the trace is open it hears nothing. */
const struct vpmm_watch *vpmm_tracing_watch(struct vpmm_tracing *tracing,
                                            struct vpmm_router *router);

/* Opens the trace that `config` names, once, whoever asks first. INVALID, after one warning: there
 * is none; NOT_READY: another thread takes long to open it. Inside us. */
VPMM_MUST_CHECK enum vpmm_status vpmm_tracing_open(struct vpmm_tracing *tracing,
                                                   const struct vpmm_config *config);

/* The process ends. Nothing happens where it was not open. */
void vpmm_tracing_end(struct vpmm_tracing *tracing);
/* In a forked child: see vpmm_recorder_forget. */
void vpmm_tracing_forget(struct vpmm_tracing *tracing);

/* ---- one call of the program ---- */

struct vpmm_call {
    struct vpmm_tracing *tracing;
    uint64_t begin_ns, bytes;
    int device; /* -1: unknown */
    enum vpmm_route route;
    struct vpmm_served served;
    vpmm_stream_handle stream; /* NULL: not the stream-ordered form */
};

/* The call begins. False: it is not to be recorded. */
bool vpmm_call_begin(struct vpmm_call *call);
/* The same of a free of `address`. */
bool vpmm_call_begin_free(struct vpmm_call *call, CUdeviceptr address);

/* It has returned `result`; of a request for `bytes`, with an address if it succeeded. Returns
 * `result`. */
CUresult vpmm_call_end(const struct vpmm_call *call, const CUdeviceptr *address, uint64_t bytes,
                       CUresult result);
CUresult vpmm_call_end_free(const struct vpmm_call *call, CUdeviceptr address, CUresult result);

/* What became of it in between; `call` NULL: it is not recorded. */
static inline void vpmm_call_route(struct vpmm_call *call, enum vpmm_route route,
                                   vpmm_stream_handle stream)
{
    if (call) {
        call->route = route;
        call->stream = stream;
    }
}

static inline struct vpmm_served *vpmm_call_served(struct vpmm_call *call)
{
    return call ? &call->served : NULL;
}

#endif
