/* SPDX-License-Identifier: MIT */
/* The composition root: the one place that knows the environment, the real driver and the process.
 * It owns the router and every writable variable of this folder. Nothing is made when the library
 * is loaded; the router and the signal handlers come with the program's first call of a wrapper,
 * all messages with its first pool. */
#ifndef VPMM_PRELOAD_ENTRY_H
#define VPMM_PRELOAD_ENTRY_H

#include "driver/driver.h"
#include "ipc/ipc.h"
#include "preload/tracing.h"
#include "preload/wrap_work.h"
#include "route/route.h"

#include <cuda.h>
#include <stdbool.h>

/* The router, with the calling thread marked as inside us until vpmm_leave; or NULL where the
 * original function must serve: disabled, not active in this program, a forked child whose parent
 * had a pool, or a call out of our own code. */
struct vpmm_router *vpmm_enter(void);
void vpmm_leave(void);
/* The same for a call that allocates or frees. NULL too where the driver refuses every call of the
 * thread with a code of its own, as inside a host function (driver, once a thread). */
struct vpmm_router *vpmm_enter_served(void);

/* Counts a request for which vpmm_enter answered NULL, unless our own code made it. */
void vpmm_entry_passed(bool is_async);

/* The same for the public interface, which makes nothing: NULL too where there is no router yet.
 * `passes_out`: there will be none. */
struct vpmm_router *vpmm_enter_made(bool *passes_out);

/* Whether the calling thread is inside us now. */
bool vpmm_entry_is_inside(void);

/* The largest page that a machine of this kind may have. */
#ifdef __aarch64__
#    define VPMM_OS_PAGE_BYTES_MAX 65536
#else
#    define VPMM_OS_PAGE_BYTES_MAX 4096
#endif

/* Alone on its page, which a forked child finds cleared: it must not change what it shares with its
 * parent, and not every fork calls our handler. */
extern struct vpmm_present {
    _Alignas(VPMM_OS_PAGE_BYTES_MAX) _Atomic(struct vpmm_world *) world;
    /* What VPMM_TRACE asks for: vpmm_no_tracing where nothing is recorded; NULL: somebody has to
     * find that out yet. */
    _Atomic(struct vpmm_tracing *) tracing;
    /* Of the world's router; NULL: there is none. */
    _Atomic(struct vpmm_order *) order;
} vpmm_present;
extern struct vpmm_tracing vpmm_no_tracing;
static inline bool vpmm_is_recorded(void)
{
    return __builtin_expect(
        atomic_load_explicit(&vpmm_present.tracing, memory_order_relaxed) != &vpmm_no_tracing, 0);
}
/* The order, for a look without a driver call or a lock: no vpmm_enter is needed. NULL: none. */
static inline struct vpmm_order *vpmm_order_present(void)
{
    return atomic_load_explicit(&vpmm_present.order, memory_order_acquire);
}
/* Where the call is to be recorded; NULL: nowhere, or it comes out of our own code. */
struct vpmm_tracing *vpmm_entry_tracing(void);
/* The calling thread's. */
struct vpmm_recorder_writer *vpmm_entry_writer(void);

/* Of signal handlers: writes every region to where the options say, and sees to a store into the
 * trace that had no place to go. False: the store was none of ours. */
void vpmm_entry_dump(void);
bool vpmm_entry_absorb(const void *address);

/* The calling thread is ours: it is inside us as long as it lives. */
void vpmm_stay(void);
/* What stands behind legacy IPC, or NULL where it is not emulated. */
struct vpmm_ipc *vpmm_entry_ipc(void);
/* What that lends to other processes: whatever the router has exported. */
struct vpmm_ipc_lender vpmm_ipc_lender_of(struct vpmm_router *router);

/* The memory pool that `pool` is, and its device; NULL: not one that we serve (driver, where it was
 * not heard of before). */
struct vpmm_mempool *vpmm_entry_mempool(struct vpmm_router *router, CUmemoryPool pool,
                                        int *device_out);

/* Remembers the primary context of `device`, and tells it: NULL when the program never retained it.
 */
void vpmm_entry_set_primary(CUdevice device, CUcontext context);
CUcontext vpmm_entry_primary(CUdevice device);

/* What is known of the driver's pitches. Between vpmm_enter and vpmm_leave. */
struct vpmm_pitches;
struct vpmm_pitches *vpmm_entry_pitches(void);

/* No allocation ever holds this address: named to the driver in place of one of ours that is no
 * block (any more), it gets the refusal that bare CUDA gives for freed memory. */
#define VPMM_NO_ALLOCATION ((CUdeviceptr)0x10)

/* The seam's name of a driver's handle. */
static inline vpmm_context_handle vpmm_context_of(CUcontext context)
{
    return (vpmm_context_handle)(void *)context;
}

static inline vpmm_mempool_handle vpmm_mempool_of(CUmemoryPool pool)
{
    return (vpmm_mempool_handle)(void *)pool;
}

/* The same for a stream that the program names; NULL means what it means in the plain spelling or
 * in the per-thread one. */
static inline vpmm_stream_handle vpmm_stream_of(CUstream stream, vpmm_stream_handle null_stream)
{
    vpmm_stream_handle handle = stream ? (vpmm_stream_handle)(void *)stream : null_stream;
    vpmm_see_stream((uintptr_t)handle);
    return handle;
}

#endif
