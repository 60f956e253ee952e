/* SPDX-License-Identifier: MIT */
/* One simulated machine: devices, contexts, streams, memory and the rules between them, as the CUDA
 * driver has them. It serves two fronts: sim/table.h (the seam, for tests of the core) and a fake
 * libcuda.so.1 (for whole programs). Deterministic for a single-threaded caller, and strict: it
 * stops with a report on misuse. Never part of the library.
 *
 * sim_a_b() is cuAB() of driver 13.0 (newest _v form), with the machine as its first parameter and
 * outputs last; it checks handles, keeps the calling thread's context stack and capture mode, and
 * answers as CUDA does: a front only unpacks. Where a name or parameter differs from CUDA's, a
 * comment says so. Streams are CUDA's: NULL and CU_STREAM_LEGACY are the legacy stream,
 * CU_STREAM_PER_THREAD the thread's own (a _ptsz front turns NULL into that). Every function may be
 * called by any thread; blocking ones hold up nobody else. Outputs are written on success only.
 *
 * Device addresses start at SIM_ADDRESS_LOW, which no host maps: anything below is a host address.
 */
#ifndef VPMM_SIM_ENGINE_H
#define VPMM_SIM_ENGINE_H

#include <cuda.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_DEVICES_MAX 8
#define SIM_ADDRESS_LOW ((CUdeviceptr)1 << 48)

struct sim;

/* ---- misuse ---- */

/* What a correct program never does. ..._IN_USE, CAPTURE_BROKEN, RACE, HANG and LOCK_HELD are what
 * a faulty allocator would do to a correct program; the others also are what CUDA has an error code
 * for. */
#define SIM_MISUSE_LIST(X)                                                                         \
    X(MAP_OVER, "mapping over a mapping")                                                          \
    X(UNMAP_PART, "unmapping or protecting part of a mapping")                                     \
    X(UNMAP_IN_USE, "unmapping under queued work")                                                 \
    X(FREE_IN_USE, "freeing memory or address space that queued work or mappings use")             \
    X(NO_ACCESS, "work touched an address without mapping or permission")                          \
    X(DOUBLE_RELEASE, "releasing a handle, event, stream or range that is not live")               \
    X(CAPTURE_BROKEN, "a call that breaks a stream capture")                                       \
    X(DEAD_STREAM, "use of a destroyed stream")                                                    \
    X(DEAD_CONTEXT, "use of a destroyed context or of something that died with it")                \
    X(DEAD_EVENT, "use of a destroyed event")                                                      \
    X(RACE, "unordered work on the same page")                                                     \
    X(HANG, "waiting for work that does not come to an end")                                       \
    X(LOCK_HELD, "a driver call under a lock of ours")

#define SIM_MISUSE_ENUM(name, text) SIM_##name,
enum sim_misuse {
    SIM_MISUSE_LIST(SIM_MISUSE_ENUM) SIM_MISUSE_COUNT
};
#undef SIM_MISUSE_ENUM

enum sim_action {
    SIM_STOP,   /* report on stderr and abort (the default) */
    SIM_RECORD, /* call the handler and count, then answer as CUDA would */
    SIM_ANSWER, /* only answer as CUDA would */
};

/* Called under the machine's lock: it must not call the machine. */
typedef void (*sim_misuse_handler)(void *self, enum sim_misuse misuse, const char *report);

/* ---- the machine ---- */

struct sim_config {
    int n_devices;         /* 1 */
    uint64_t device_bytes; /* capacity of each device; 16 GiB */
    uint64_t granularity;  /* bytes, a power of two; 2 MiB */
    int driver_version;    /* 13000; cuCtxRecordEvent needs 12050, cuStreamGetId 12000 */
    bool has_vmm;          /* true */
    bool has_peers;        /* true: any device can reach any other */
    bool has_bytes;        /* true; false: memory has no content (fast; reads give zeros) */
    bool eager; /* true: work completes as soon as nothing holds it back; false: adversarial, work
                 * waits until a synchronising call needs it or sim_step() is called */
    bool host_thread;   /* host functions run on a thread of their own; false: where the queue
                           advances */
    bool reuses_early;  /* CUDA's memory pools give out what a stream is known to come after, before
                         * its work is over, as a real one does; false: that is never seen, and work
                         * on it need not be told apart */
    bool reuse_handles; /* a new stream, event or context gets the handle value that was freed last;
                         * the use of a destroyed one is then not always noticed */
    bool faults_stick;  /* NO_ACCESS by queued work also leaves CUDA_ERROR_ILLEGAL_ADDRESS on its
                           context */
    bool check_races;   /* report RACE when unordered pending work shares a page and one of them
                           writes */
    unsigned query_progress; /* adversarial: every Nth query that says NOT_READY advances one step;
                                0: only after thousands in which nothing else got on */
    unsigned hang_ms; /* a wait without any progress for so long is HANG; 0: never; default 20000 */
    uint64_t seed;    /* chooses among the orders that CUDA allows */
    uint64_t va_bytes;         /* address space for reservations in all; 120 TiB */
    uint64_t va_largest_bytes; /* largest single reservation; 64 TiB */
    uint64_t mappings_max;     /* mappings that exist at once with access set; 524090 */
    enum sim_action actions[SIM_MISUSE_COUNT];
    sim_misuse_handler on_misuse; /* for SIM_RECORD; may be NULL */
    /* Called without the lock before each call proper, by the calling thread, with CUDA's name of
     * it: a test may act here as somebody else would, the machine included (no recursion into the
     * hook). May be NULL. */
    void (*before_call)(void *self, const char *name);
    /* Called under the lock when a call succeeded: for a cost model. n_handles are the mappings or
     * handles it dealt with, bytes their size. May be NULL. */
    void (*on_call)(void *self, const char *name, uint64_t n_handles, uint64_t bytes);
    void *self; /* for the three above */
};

/* Fills in the defaults above (eager, every misuse stops). */
void sim_config_default(struct sim_config *config_out);
/* A machine, or NULL when `config` makes no sense. */
struct sim *sim_create(const struct sim_config *config);
/* Frees everything, finished or not. No other thread may be in a call. */
void sim_destroy(struct sim *sim);
const struct sim_config *sim_config(const struct sim *sim);
void sim_action_set(struct sim *sim, enum sim_misuse misuse, enum sim_action action);
/* How often each misuse was seen (counted for SIM_RECORD and SIM_ANSWER). */
uint64_t sim_misuse_count(struct sim *sim, enum sim_misuse misuse);
const char *sim_misuse_name(enum sim_misuse misuse);
/* Reports a misuse noticed by a front. */
void sim_misuse_report(struct sim *sim, enum sim_misuse misuse, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The calling OS thread acts as simulated thread `number` (1, 2, ...) from now on: own context
 * stack, capture mode and per-thread streams. 0: as itself, the default. */
void sim_thread_act_as(struct sim *sim, unsigned number);

/* ---- faults, counters ---- */

/* The call named `name` (CUDA's, without suffix: "cuMemMap"; NULL: any call that can fail) answers
 * `code` on its Nth use from now on (1 is the next), and, with `forever`, on all later ones too. It
 * then does nothing else. One fault per name (which is copied). What queries and never fails in
 * practice (cuCtxGetCurrent and the like) does not count for NULL. */
void sim_fault_set(struct sim *sim, const char *name, uint64_t nth, CUresult code, bool forever);
/* Removes the fault of `name`, or all of them (NULL). */
void sim_fault_clear(struct sim *sim, const char *name);
/* Whether the fault of `name` has struck since it was set. */
bool sim_fault_struck(struct sim *sim, const char *name);
/* How often `name` was called (NULL: all calls); failing uses count too. */
uint64_t sim_calls(struct sim *sim, const char *name);
void sim_calls_reset(struct sim *sim);
/* A sticky error on the device's contexts; CUDA_SUCCESS heals. */
void sim_device_break(struct sim *sim, CUdevice device, CUresult code);
/* From now on every call answers CUDA_ERROR_DEINITIALIZED. */
void sim_shut_down(struct sim *sim);

struct sim_counts {
    uint64_t contexts, streams, events, reservations, mappings; /* special streams do not count */
    uint64_t handles;      /* physical handles whose memory still lives (held or mapped) */
    uint64_t handles_held; /* of them not yet released by the program */
    uint64_t plain, async; /* live cuMemAlloc and cuMemAllocAsync allocations */
    uint64_t pools;        /* explicit ones */
    uint64_t graphs, graph_execs, captures;
    uint64_t pending; /* queued work that is not complete */
    uint64_t used_bytes[SIM_DEVICES_MAX];
    uint64_t used_peak_bytes[SIM_DEVICES_MAX];
};
void sim_live_counts(struct sim *sim, struct sim_counts *counts_out);

/* ---- devices ---- */

CUresult sim_device_get_count(struct sim *sim, int *count_out);
CUresult sim_device_total_mem(struct sim *sim, CUdevice device, size_t *bytes_out);
/* Those that programs and we ask for; any other known one is 0. */
CUresult sim_device_get_attribute(struct sim *sim, CUdevice_attribute attribute, CUdevice device,
                                  int *value_out);
CUresult sim_device_can_access_peer(struct sim *sim, CUdevice device, CUdevice peer, int *can_out);

/* ---- contexts ---- */

CUresult sim_ctx_create(struct sim *sim, unsigned flags, CUdevice device, CUcontext *context_out);
CUresult sim_ctx_destroy(struct sim *sim, CUcontext context);
CUresult sim_ctx_attach(struct sim *sim, unsigned flags, CUcontext *context_out);
CUresult sim_ctx_detach(struct sim *sim, CUcontext context);
CUresult sim_ctx_push_current(struct sim *sim, CUcontext context);
CUresult sim_ctx_pop_current(struct sim *sim, CUcontext *context_out); /* output may be NULL */
CUresult sim_ctx_set_current(struct sim *sim, CUcontext context);      /* NULL: none */
CUresult sim_ctx_get_current(struct sim *sim,
                             CUcontext *context_out); /* NULL in it when there is none */
CUresult sim_ctx_get_device(struct sim *sim, CUdevice *device_out);
CUresult sim_ctx_device_of(struct sim *sim, CUcontext context,
                           CUdevice *device_out); /* cuCtxGetDevice_v2 */
CUresult sim_ctx_get_id(struct sim *sim, CUcontext context,
                        unsigned long long *id_out); /* NULL: the current one */
CUresult sim_ctx_get_flags(struct sim *sim, unsigned *flags_out);
/* All that a context may have, CU_CTX_SYNC_MEMOPS included, which older headers lack. */
#define SIM_CTX_FLAGS_MASK 0xff
CUresult sim_ctx_set_flags(struct sim *sim, unsigned flags);
CUresult sim_ctx_synchronize(struct sim *sim);
CUresult sim_ctx_synchronize_of(struct sim *sim, CUcontext context); /* cuCtxSynchronize_v2 */
CUresult sim_ctx_record_event(struct sim *sim, CUcontext context, CUevent event);
CUresult sim_ctx_wait_event(struct sim *sim, CUcontext context, CUevent event);
CUresult sim_ctx_enable_peer_access(struct sim *sim, CUcontext peer, unsigned flags);
CUresult sim_ctx_disable_peer_access(struct sim *sim, CUcontext peer);
CUresult sim_device_primary_ctx_retain(struct sim *sim, CUdevice device, CUcontext *context_out);
CUresult sim_device_primary_ctx_release(struct sim *sim, CUdevice device);
CUresult sim_device_primary_ctx_reset(struct sim *sim, CUdevice device);
CUresult sim_device_primary_ctx_set_flags(struct sim *sim, CUdevice device, unsigned flags);
CUresult sim_device_primary_ctx_get_state(struct sim *sim, CUdevice device, unsigned *flags_out,
                                          int *active_out);
/* cuGreenCtxCreate without a resource descriptor: a green context upon the device's primary one,
 * which it retains. */
CUresult sim_green_ctx_create(struct sim *sim, CUdevice device, CUgreenCtx *green_out);
CUresult sim_green_ctx_destroy(struct sim *sim, CUgreenCtx green);
CUresult sim_ctx_from_green_ctx(struct sim *sim, CUgreenCtx green, CUcontext *context_out);
CUresult sim_green_ctx_stream_create(struct sim *sim, CUgreenCtx green, unsigned flags,
                                     int priority, CUstream *stream_out);

/* ---- streams ---- */

CUresult sim_stream_create(struct sim *sim, unsigned flags, int priority, CUstream *stream_out);
CUresult sim_stream_destroy(struct sim *sim, CUstream stream);
CUresult sim_stream_query(struct sim *sim, CUstream stream);
CUresult sim_stream_synchronize(struct sim *sim, CUstream stream);
CUresult sim_stream_wait_event(struct sim *sim, CUstream stream, CUevent event, unsigned flags);
/* A green context's stream answers with the primary context; the green one through `green_out` (may
 * be NULL). */
CUresult sim_stream_get_ctx(struct sim *sim, CUstream stream, CUcontext *context_out,
                            CUgreenCtx *green_out);
CUresult sim_stream_get_id(struct sim *sim, CUstream stream, unsigned long long *id_out);
CUresult sim_stream_get_flags(struct sim *sim, CUstream stream, unsigned *flags_out);
CUresult sim_stream_get_priority(struct sim *sim, CUstream stream, int *priority_out);
CUresult sim_stream_get_device(struct sim *sim, CUstream stream, CUdevice *device_out);

/* ---- events ---- */

CUresult sim_event_create(struct sim *sim, unsigned flags, CUevent *event_out);
CUresult sim_event_destroy(struct sim *sim, CUevent event);
CUresult sim_event_record(struct sim *sim, CUevent event, CUstream stream);
CUresult sim_event_query(struct sim *sim, CUevent event);
CUresult sim_event_synchronize(struct sim *sim, CUevent event);
/* Real time between the two completions. */
CUresult sim_event_elapsed_time(struct sim *sim, CUevent start, CUevent end, float *ms_out);

/* ---- work ---- */

/* The device's view of memory while a piece of work runs. */
struct sim_view;

struct sim_range {
    CUdeviceptr address;
    uint64_t bytes;
    bool writes;
};

/* A kernel. `run` is called when its turn comes, under the machine's lock: it acts through sim_read
 * and sim_write within the declared ranges and calls nothing else of the machine. `ready`, where
 * given, is asked from the moment its turn has come until it says true (a kernel that spins); it
 * may be asked often and calls nothing of the machine either. `argument_bytes` > 0: `argument` is
 * copied at launch (and `run` gets the copy); 0: the pointer is passed on.
 * `name` must stay valid. */
struct sim_kernel {
    const char *name;
    void (*run)(struct sim_view *view, void *argument);   /* may be NULL */
    bool (*ready)(struct sim_view *view, void *argument); /* may be NULL */
    void *argument;
    size_t argument_bytes;
    const struct sim_range *ranges; /* copied */
    unsigned n_ranges;
};

/* Queues a kernel: cuLaunchKernel. The ranges are checked when it runs (NO_ACCESS), not here. */
CUresult sim_launch(struct sim *sim, CUstream stream, const struct sim_kernel *kernel);
/* Copies between the device's memory and the host's. False, and NO_ACCESS reported, where the
 * work's device may not. */
bool sim_read(struct sim_view *view, CUdeviceptr address, void *bytes_out, size_t bytes);
bool sim_write(struct sim_view *view, CUdeviceptr address, const void *bytes, size_t n_bytes);
/* The same as some device's work at this moment, not queued: for tests. No mapping or access:
 * false, without a report. */
bool sim_peek(struct sim *sim, CUdevice device, CUdeviceptr address, void *bytes_out, size_t bytes);

CUresult sim_launch_host_func(struct sim *sim, CUstream stream, CUhostFn function, void *data);
/* All cuMemcpy forms: each end may be a host or a device address. The synchronous form goes over
 * the legacy stream (or, for a _ptds front, `stream` PER_THREAD) and waits. Pageable host memory is
 * read at once and written before return. */
CUresult sim_memcpy(struct sim *sim, CUdeviceptr to, CUdeviceptr from, size_t bytes,
                    CUstream stream);
CUresult sim_memcpy_async(struct sim *sim, CUdeviceptr to, CUdeviceptr from, size_t bytes,
                          CUstream stream);
/* The peer forms: they need no access of the current device. `wait`: the synchronous form. */
CUresult sim_memcpy_peer(struct sim *sim, CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                         CUcontext from_context, size_t bytes, CUstream stream, bool wait);
/* cuMemsetD8/D16/D32[Async]: `n` values of `width` bytes (1, 2, 4). Never waits (as the synchronous
 * form on device memory). */
CUresult sim_memset(struct sim *sim, CUdeviceptr to, unsigned value, unsigned width, size_t n,
                    CUstream stream);
/* cuStreamWaitValue32/64 and cuStreamWriteValue32/64 by `width` (4, 8), on a host address or a
 * device one. */
CUresult sim_stream_wait_value(struct sim *sim, CUstream stream, CUdeviceptr address,
                               uint64_t value, unsigned width, unsigned flags);
CUresult sim_stream_write_value(struct sim *sim, CUstream stream, CUdeviceptr address,
                                uint64_t value, unsigned width, unsigned flags);

/* Lets one piece of queued work complete that may, chosen by the seed; false when none may. */
bool sim_step(struct sim *sim);
/* Steps until none may; how many did. */
uint64_t sim_drain(struct sim *sim);
/* Like it, of one stream only (and of what it waits for). */
uint64_t sim_drain_stream(struct sim *sim, CUstream stream);

/* ---- capture and graphs ---- */

CUresult sim_stream_begin_capture(struct sim *sim, CUstream stream, CUstreamCaptureMode mode);
CUresult sim_stream_end_capture(struct sim *sim, CUstream stream, CUgraph *graph_out);
CUresult sim_stream_is_capturing(struct sim *sim, CUstream stream,
                                 CUstreamCaptureStatus *status_out);
/* cuStreamGetCaptureInfo's status and id (0 when none; `id_out` may be NULL). */
CUresult sim_stream_get_capture_info(struct sim *sim, CUstream stream,
                                     CUstreamCaptureStatus *status_out, cuuint64_t *id_out);
CUresult sim_thread_exchange_stream_capture_mode(struct sim *sim, CUstreamCaptureMode *mode_in_out);
CUresult sim_graph_destroy(struct sim *sim, CUgraph graph);
CUresult sim_graph_instantiate(struct sim *sim, CUgraph graph, unsigned long long flags,
                               CUgraphExec *exec_out);
CUresult sim_graph_exec_destroy(struct sim *sim, CUgraphExec exec);
CUresult sim_graph_launch(struct sim *sim, CUgraphExec exec, CUstream stream);
/* Nodes of `graph`, and those that are allocations or frees of memory (outputs may be NULL). */
CUresult sim_graph_count(struct sim *sim, CUgraph graph, size_t *n_nodes_out,
                         size_t *n_memory_nodes_out);

/* ---- plain, stream-ordered and host memory ---- */

CUresult sim_mem_get_info(struct sim *sim, size_t *free_out, size_t *total_out);
CUresult sim_mem_alloc(struct sim *sim, size_t bytes, CUdeviceptr *address_out);
CUresult sim_mem_alloc_pitch(struct sim *sim, size_t width, size_t height, unsigned element_bytes,
                             size_t *pitch_out, CUdeviceptr *address_out);
CUresult sim_mem_free(struct sim *sim, CUdeviceptr address);
CUresult sim_mem_alloc_async(struct sim *sim, size_t bytes, CUstream stream,
                             CUdeviceptr *address_out);
CUresult sim_mem_alloc_from_pool_async(struct sim *sim, size_t bytes, CUmemoryPool pool,
                                       CUstream stream, CUdeviceptr *address_out);
CUresult sim_mem_free_async(struct sim *sim, CUdeviceptr address, CUstream stream);
CUresult sim_mem_pool_create(struct sim *sim, const CUmemPoolProps *props, CUmemoryPool *pool_out);
CUresult sim_mem_pool_destroy(struct sim *sim, CUmemoryPool pool);
CUresult sim_mem_pool_get_attribute(struct sim *sim, CUmemoryPool pool,
                                    CUmemPool_attribute attribute, void *value_out);
CUresult sim_mem_pool_set_attribute(struct sim *sim, CUmemoryPool pool,
                                    CUmemPool_attribute attribute, const void *value);
CUresult sim_mem_pool_trim_to(struct sim *sim, CUmemoryPool pool, size_t keep_bytes);
CUresult sim_mem_pool_set_access(struct sim *sim, CUmemoryPool pool,
                                 const CUmemAccessDesc *accesses, size_t n);
CUresult sim_mem_pool_get_access(struct sim *sim, CUmemoryPool pool, const CUmemLocation *location,
                                 CUmemAccess_flags *flags_out);
CUresult sim_device_get_default_mem_pool(struct sim *sim, CUdevice device, CUmemoryPool *pool_out);
CUresult sim_device_get_mem_pool(struct sim *sim, CUdevice device, CUmemoryPool *pool_out);
CUresult sim_device_set_mem_pool(struct sim *sim, CUdevice device, CUmemoryPool pool);
/* Pinned memory of this process. */
CUresult sim_mem_host_alloc(struct sim *sim, size_t bytes, unsigned flags, void **memory_out);
CUresult sim_mem_free_host(struct sim *sim, void *memory);
CUresult sim_mem_host_register(struct sim *sim, void *memory, size_t bytes, unsigned flags);
CUresult sim_mem_host_unregister(struct sim *sim, void *memory);
CUresult sim_mem_get_address_range(struct sim *sim, CUdeviceptr address, CUdeviceptr *base_out,
                                   size_t *bytes_out);
CUresult sim_pointer_get_attribute(struct sim *sim, CUpointer_attribute attribute,
                                   CUdeviceptr address, void *value_out);
CUresult sim_pointer_set_attribute(struct sim *sim, CUpointer_attribute attribute,
                                   CUdeviceptr address, const void *value);

/* ---- sharing memory with other processes ---- */

/* Legacy IPC. The memory has its bytes in a file; `handle` names its descriptor in this process,
 * and opening it needs /proc. Memory without content (has_bytes) cannot be shared. */
CUresult sim_ipc_get_mem_handle(struct sim *sim, CUdeviceptr address, CUipcMemHandle *handle_out);
CUresult sim_ipc_open_mem_handle(struct sim *sim, const CUipcMemHandle *handle, unsigned flags,
                                 CUdeviceptr *address_out);
CUresult sim_ipc_close_mem_handle(struct sim *sim, CUdeviceptr address);
/* cuMemExportToShareableHandle and cuMemImportFromShareableHandle by file descriptors. Memory of
 * another process is not charged to a device here. */
CUresult sim_mem_export(struct sim *sim, CUmemGenericAllocationHandle handle, int *descriptor_out);
CUresult sim_mem_import(struct sim *sim, int descriptor, CUmemGenericAllocationHandle *handle_out);

/* ---- virtual memory management ---- */

CUresult sim_mem_get_allocation_granularity(struct sim *sim, const CUmemAllocationProp *prop,
                                            size_t *bytes_out);
CUresult sim_mem_address_reserve(struct sim *sim, size_t bytes, size_t alignment, CUdeviceptr wish,
                                 uint64_t flags, CUdeviceptr *address_out);
CUresult sim_mem_address_free(struct sim *sim, CUdeviceptr address, size_t bytes);
CUresult sim_mem_create(struct sim *sim, size_t bytes, const CUmemAllocationProp *prop,
                        uint64_t flags, CUmemGenericAllocationHandle *handle_out);
CUresult sim_mem_release(struct sim *sim, CUmemGenericAllocationHandle handle);
CUresult sim_mem_retain_allocation_handle(struct sim *sim, CUdeviceptr address,
                                          CUmemGenericAllocationHandle *handle_out);
CUresult sim_mem_get_allocation_properties(struct sim *sim, CUmemGenericAllocationHandle handle,
                                           CUmemAllocationProp *prop_out);
CUresult sim_mem_map(struct sim *sim, CUdeviceptr address, size_t bytes, size_t offset,
                     CUmemGenericAllocationHandle handle, uint64_t flags);
CUresult sim_mem_unmap(struct sim *sim, CUdeviceptr address, size_t bytes);
CUresult sim_mem_set_access(struct sim *sim, CUdeviceptr address, size_t bytes,
                            const CUmemAccessDesc *accesses, size_t n);
CUresult sim_mem_get_access(struct sim *sim, CUdeviceptr address, const CUmemLocation *location,
                            unsigned long long *flags_out);

#endif
