/* SPDX-License-Identifier: MIT */
/* The seam: everything this library asks of a CUDA driver, as one table of operations that is
 * handed to whoever needs it. driver/cuda.c implements it over the real driver, src/tools/sim over
 * the simulated device.
 *
 * Rules for every operation: any thread; no lock of ours is held by the caller; nothing is changed
 * and no output is written unless the answer is VPMM_OK; the calling thread's current context is
 * what it was when the call returns. BROKEN stands for any sticky device error and SHUT_DOWN for a
 * driver that is gone, from every operation. An optional operation is NULL where the driver does
 * not have it.
 *
 * Costs and behaviour named below were measured on an NVIDIA H200, driver 580 (docs/DESIGN.md,
 * "Measured ground"). */
#ifndef VPMM_DRIVER_DRIVER_H
#define VPMM_DRIVER_DRIVER_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Handles are the driver's own (CUcontext, CUstream, CUevent, CUmemGenericAllocationHandle), opaque
 * here. */
typedef struct vpmm_opaque_context *vpmm_context_handle;
typedef struct vpmm_opaque_stream *vpmm_stream_handle;
typedef struct vpmm_opaque_event *vpmm_event_handle;
typedef uint64_t vpmm_extent_handle;

/* The two special streams, as the driver API names them. A wrapper replaces NULL by one of them, so
 * that a handle means the same thing in every spelling of a call; both are resolved in the calling
 * thread and its current context. */
#define VPMM_STREAM_LEGACY ((vpmm_stream_handle)0x1)
#define VPMM_STREAM_PER_THREAD ((vpmm_stream_handle)0x2)

#define VPMM_DEVICES_MAX 64

struct vpmm_device_facts {
    uint64_t total_bytes;
    uint64_t granularity_bytes; /* of physical memory: extents and mappings are multiples of it */
    bool has_vmm;               /* virtual memory management is supported */
    bool can_export;            /* extents are made so that other processes can import them */
};

struct vpmm_stream_facts {
    vpmm_context_handle context; /* of the stream; a green context's primary one */
    /* Never reused while the process lives. 0 where the driver, before 12.0, has none, and for a
     * stream that captures: to ask for it would end the capture. */
    uint64_t id;
    bool is_legacy; /* the legacy default stream of its context */
    /* Synchronises with the legacy stream: made without CU_STREAM_NON_BLOCKING, or per-thread.
     * False for the legacy stream itself, and for a stream that captures. */
    bool is_blocking;
    bool is_capturing;
};

struct vpmm_driver {
    void *self;

    /* ---- devices and contexts ---- */
    enum vpmm_status (*device_facts)(void *self, int device, struct vpmm_device_facts *facts_out);
    /* Free and total bytes of the device of the *current* context. NO_CONTEXT. */
    enum vpmm_status (*memory_info)(void *self, uint64_t *free_out, uint64_t *total_out);
    /* The calling thread's current context; NO_CONTEXT when there is none. 7 ns. */
    enum vpmm_status (*context_current)(void *self, vpmm_context_handle *context_out);
    /* The device of `context`. CONTEXT_GONE. */
    enum vpmm_status (*context_device)(void *self, vpmm_context_handle context, int *device_out);
    /* A number that no other context of the process ever has: a handle may come again, and this
     * tells whose it is. CONTEXT_GONE. Optional: driver 12.0. */
    enum vpmm_status (*context_id)(void *self, vpmm_context_handle context, uint64_t *id_out);
    /* Waits on the host for all work of `context`. CONTEXT_GONE, CAPTURED. */
    enum vpmm_status (*context_synchronize)(void *self, vpmm_context_handle context);
    /* Whether `device` can reach memory of `peer`. */
    enum vpmm_status (*peer_possible)(void *self, int device, int peer, bool *possible_out);
    /* Gives what CUDA's default pool of `device` holds but nobody uses back to the device. */
    enum vpmm_status (*default_pool_trim)(void *self, int device);

    /* ---- address space and extents (the VMM calls; none waits for the device) ---- */
    /* NO_MEMORY when the address space is used up. 4 us for 8 TiB. */
    enum vpmm_status (*address_reserve)(void *self, uint64_t bytes, uint64_t *address_out);
    enum vpmm_status (*address_free)(void *self, uint64_t address, uint64_t bytes);
    /* One physical handle on `device`, exportable as a file descriptor where the device allows it.
     * NO_MEMORY. 7 us. */
    enum vpmm_status (*extent_create)(void *self, int device, uint64_t bytes,
                                      vpmm_extent_handle *extent_out);
    /* Legal while mapped: the memory then lives until its last unmap. */
    enum vpmm_status (*extent_release)(void *self, vpmm_extent_handle extent);
    /* Maps all of one extent (never a part: the driver cannot) at `address`. 0.5 us. */
    enum vpmm_status (*map)(void *self, uint64_t address, uint64_t bytes,
                            vpmm_extent_handle extent);
    /* Makes a range of whole mappings readable and writable for the devices named. NO_MEMORY. 20 us
     * a handle. */
    enum vpmm_status (*set_access)(void *self, uint64_t address, uint64_t bytes, const int *devices,
                                   int n_devices);
    /* Unmaps a range of whole mappings. Does not wait for work that uses it: the caller must know
     * it complete. */
    enum vpmm_status (*unmap)(void *self, uint64_t address, uint64_t bytes);

    /* A file descriptor of the extent, the caller's to close, with which another process imports
     * it. No context need be current. Optional, as is the next. INVALID: it was not made so. */
    enum vpmm_status (*extent_export)(void *self, vpmm_extent_handle extent, int *descriptor_out);
    /* The extent that another process exported, to be mapped and released as one's own; the
     * descriptor stays the caller's. `device_out`: whose memory it is. The memory lives as long as
     * any process holds or maps it. */
    enum vpmm_status (*extent_import)(void *self, int descriptor, vpmm_extent_handle *extent_out,
                                      int *device_out);

    /* ---- streams and events ---- */
    /* What `stream` is, to the calling thread. NO_CONTEXT; CONTEXT_GONE; CAPTURED for the legacy
     * stream while a blocking stream of its context captures; INVALID. Allowed during any capture.
     */
    enum vpmm_status (*stream_facts)(void *self, vpmm_stream_handle stream,
                                     struct vpmm_stream_facts *facts_out);
    /* Whether `stream` captures. The statuses of stream_facts. Allowed during any capture. 12 ns.
     */
    enum vpmm_status (*stream_captures)(void *self, vpmm_stream_handle stream, bool *captures_out);
    /* The id alone, of any stream but the legacy one. For who knows that it does not capture: a
     * capture would end of the question (measured on driver 580). Optional: driver 12.0. 22 ns. */
    enum vpmm_status (*stream_id)(void *self, vpmm_stream_handle stream, uint64_t *id_out);
    /* Makes later work of `stream` wait for `event` on the device. */
    enum vpmm_status (*stream_wait)(void *self, vpmm_stream_handle stream, vpmm_event_handle event);
    /* An event of `context`, without timing. CONTEXT_GONE. */
    enum vpmm_status (*event_create)(void *self, vpmm_context_handle context,
                                     vpmm_event_handle *event_out);
    enum vpmm_status (*event_destroy)(void *self, vpmm_event_handle event);
    /* `stream` must be alive and not capturing, and mean the intended stream in the calling thread.
     * 0.14 us. */
    enum vpmm_status (*event_record)(void *self, vpmm_event_handle event,
                                     vpmm_stream_handle stream);
    /* Covers every stream of `context`, which must be the event's own. Invalidates every capture
     * under way in the context, whatever the thread's capture mode. Optional: driver 12.5. 0.18 us.
     */
    enum vpmm_status (*event_record_context)(void *self, vpmm_event_handle event,
                                             vpmm_context_handle context);
    /* OK when complete, also when never recorded; NOT_READY; CAPTURED when it belongs to a graph;
     * CONTEXT_GONE. The thread's capture mode must be relaxed: otherwise a capture under way in
     * global mode dies of it. 0.16 us. */
    enum vpmm_status (*event_query)(void *self, vpmm_event_handle event);
    /* Waits on the host; same rule. */
    enum vpmm_status (*event_synchronize)(void *self, vpmm_event_handle event);
    /* Sets the calling thread's capture mode to relaxed; `*mode_out` is for the restore that must
     * follow. */
    enum vpmm_status (*capture_relax)(void *self, int *mode_out);
    void (*capture_restore)(void *self, int mode);

    /* ---- streams and copies of our own, and host memory (src/lib/offload) ----
     * All of them are optional. */

    /* A stream of `context` that synchronises with no other (CU_STREAM_NON_BLOCKING). CONTEXT_GONE.
     */
    enum vpmm_status (*stream_create)(void *self, vpmm_context_handle context,
                                      vpmm_stream_handle *stream_out);
    /* What is queued on it is still carried out. */
    enum vpmm_status (*stream_destroy)(void *self, vpmm_stream_handle stream);
    /* An event of `context` that keeps the time; slower to record. CONTEXT_GONE. */
    enum vpmm_status (*event_create_timed)(void *self, vpmm_context_handle context,
                                           vpmm_event_handle *event_out);
    /* The device's time between two of them, to about half a microsecond. NOT_READY: one is not
     * complete. INVALID: one was not recorded, or by a capture. Waits for nothing; the thread's
     * capture mode must be relaxed. */
    enum vpmm_status (*event_elapsed)(void *self, vpmm_event_handle begin, vpmm_event_handle end,
                                      uint64_t *ns_out);
    /* Queues a copy of host memory to the device on `stream` of `context`. Pinned or registered
     * memory is read when the stream gets there; of other memory the driver takes a copy within the
     * call (CUDA Driver API, "API synchronization behavior"). 55 GB/s from pinned memory. */
    enum vpmm_status (*copy_in)(void *self, vpmm_context_handle context, uint64_t address,
                                const void *from, uint64_t bytes, vpmm_stream_handle stream);
    /* Pins host memory of the program where it is, for all contexts; it must be page-aligned.
     * `is_read_only`: a mapping that cannot be written to. NOT_SUPPORTED: the device cannot read
     * such. NO_MEMORY. 0.44 s for 8 GiB that are in memory, 0.10 s for 4 GiB of a file's mapping.
     */
    enum vpmm_status (*host_register)(void *self, vpmm_context_handle context, void *memory,
                                      uint64_t bytes, bool is_read_only);
    enum vpmm_status (*host_unregister)(void *self, vpmm_context_handle context, void *memory);
    /* Pinned host memory for all contexts. NO_MEMORY. 0.47 s for 1 GiB. */
    enum vpmm_status (*host_alloc)(void *self, vpmm_context_handle context, uint64_t bytes,
                                   void **memory_out);
    enum vpmm_status (*host_free)(void *self, vpmm_context_handle context, void *memory);
    /* An extent in the host memory that is nearest to `device`: mapped as any other, and read by
     * kernels over the bus. NOT_SUPPORTED; NO_MEMORY. 0.23 s for 1 GiB. */
    enum vpmm_status (*extent_create_host)(void *self, int device, uint64_t bytes,
                                           vpmm_extent_handle *extent_out);
};

#endif
