/* SPDX-License-Identifier: MIT */
/* The inside of the simulated machine, private to this folder. One lock guards everything; every
 * function here is called with it held unless it says otherwise. Ownership: the machine owns
 * contexts, streams and threads until its end; ops, blobs, graphs and stores are counted; the rest
 * dies where its CUDA call says. */
#ifndef VPMM_SIM_INTERNAL_H
#define VPMM_SIM_INTERNAL_H

#include "sim/engine.h"
#include "sim/sim_memory.h"

#include <pthread.h>

#define TRY(call)                                                                                  \
    do {                                                                                           \
        CUresult try_result = (call);                                                              \
        if (try_result != CUDA_SUCCESS)                                                            \
            return try_result;                                                                     \
    } while (0)

/* ---- objects: handle values ---- */

enum object_kind {
    OBJECT_CONTEXT,
    OBJECT_STREAM,
    OBJECT_EVENT,
    OBJECT_HANDLE,
    OBJECT_POOL,
    OBJECT_GRAPH,
    OBJECT_EXEC,
    OBJECT_GREEN,
    OBJECT_KINDS
};
enum object_life {
    OBJECT_UNKNOWN,
    OBJECT_DEAD,
    OBJECT_LIVE
};

struct slot {
    void *object;
    enum object_kind kind;
    bool live;
    uint32_t next_free;
};

struct registry {
    struct slot *slots;
    uint32_t n, room;
    uint32_t first_free[OBJECT_KINDS];
    uint64_t n_live[OBJECT_KINDS];
};

uint64_t object_add(struct sim *sim, enum object_kind kind, void *object);
void object_retire(struct sim *sim, uint64_t handle);
/* The object, also of a dead handle when its memory still lives (contexts, streams): callers of
 * others check the life. */
enum object_life object_find(struct sim *sim, enum object_kind kind, uint64_t handle,
                             void *object_out);
void *grow(void *array, size_t element_bytes, size_t n, size_t *room);
void *allocate(size_t bytes);

/* ---- work ---- */

struct blob {
    unsigned refs;
    size_t bytes;
    unsigned char data[];
};
struct blob *blob_new(const void *bytes, size_t n);

enum work_kind {
    WORK_MARK,
    WORK_KERNEL,
    WORK_HOST,
    WORK_COPY,
    WORK_FILL,
    WORK_WAIT_VALUE,
    WORK_WRITE_VALUE,
    WORK_FREE,
    WORK_ALLOC
};

/* What a piece of work does, in a queue or in a graph. */
struct work {
    enum work_kind kind;
    const char *name;
    struct blob *ranges; /* struct sim_range[] */
    struct blob *bytes;  /* a copied argument or staged source */
    void (*run)(struct sim_view *view, void *argument);
    bool (*ready)(struct sim_view *view, void *argument);
    CUhostFn function;
    void *argument;
    CUdeviceptr to, from;
    uint64_t n_bytes;
    uint64_t value;
    unsigned width, flags;
    bool peer; /* access of the device does not matter */
    struct plain *plain;
};
struct work work_copy(const struct work *work);
void work_finish(struct work *work);
void work_ranges_set(struct work *work, const struct sim_range *ranges, unsigned n);

struct op {
    struct op *next, *previous; /* pending ones */
    struct work work;
    struct stream *stream; /* NULL for what belongs to no stream */
    struct context *context;
    struct op **before, **after; /* counted, while pending */
    size_t n_before, before_room, n_after, after_room;
    size_t n_unmet;
    size_t ready_index; /* + 1, 0 when not ready */
    uint64_t mark;
    unsigned refs;
    bool done, running;
    double done_ms;
    struct segment *segments; /* for race checks */
    bool *segment_writes;
    size_t n_segments;
};

struct sim_view {
    struct sim *sim;
    struct context *context;
    const struct work *work;
    int device;
    bool quiet;
};

/* Takes over `work`. */
struct op *op_new(struct context *context, struct stream *stream, struct work *work);
void op_follow(struct op *op, struct op *before);
void op_submit(struct sim *sim, struct op *op);
void op_drop(struct op *op);
struct op *op_hold(struct op *op);
/* Replaces a counted reference. */
void op_set(struct op **place, struct op *op);
bool op_step(struct sim *sim, uint64_t mark);
void op_settle(struct sim *sim); /* eager: whatever may complete does */
/* Completes the op, and markers before it, as far as nothing but markers holds them back. */
void op_run_markers(struct sim *sim, struct op *op);
/* Waits (the lock is given up meanwhile) for the ops named, which the caller holds. */
CUresult op_wait(struct sim *sim, struct op **ops, size_t n);
CUresult op_wait_one(struct sim *sim, struct op *op);
CUresult op_wait_context(struct sim *sim, struct context *context);
/* Gives the lock up until something has moved, or for a moment. */
void moved_wait(struct sim *sim);
struct op *op_using(struct sim *sim, CUdeviceptr address, uint64_t bytes);
/* Marks `op` and all pending ones that must come before it. */
void op_mark(struct op *op, uint64_t mark);
/* The same of what CUDA's memory pools learn of the order. */
void op_mark_learnt(struct op *op, uint64_t mark);
void op_race_check(struct sim *sim, struct op *op);
void op_complete(struct sim *sim, struct op *op);
bool run_is_ready(struct sim *sim, struct op *op);
void run_start(struct sim *sim, struct op *op);
void run_worker_stop(struct sim *sim);
double clock_ms(void);

/* ---- contexts, streams, events, threads ---- */

struct context {
    uint64_t handle, id, generation;
    int device;
    unsigned flags;
    bool alive, is_primary;
    bool ending;            /* a thread waits for its work, to end it then */
    unsigned n_freeing;     /* threads inside a cuMemFree that waits for it; of a root */
    unsigned retained;      /* of a primary one; green ones count */
    unsigned attached;      /* of another: what cuCtxDetach has still to give up */
    struct context *parent; /* of a green one */
    uint64_t green;
    CUresult error; /* sticky */
    unsigned peers; /* mask of devices whose plain memory it may use */
    struct stream *legacy;
    struct op *gate; /* all later work comes after it */
    struct context *next;
};

struct stream {
    uint64_t handle, id;     /* handle 0 for special streams */
    struct context *context; /* never a green one */
    struct context *green;   /* the green one it was made in, or NULL */
    struct thread *thread;   /* of a per-thread one */
    unsigned flags;
    int priority;
    bool alive, is_legacy;
    struct op *tail;
    struct op *records; /* the last lone record of an event */
    struct capture *capture;
    size_t *nodes; /* of the capture: what the next node comes after */
    size_t n_nodes, nodes_room;
    struct stream *next;
};

struct event {
    uint64_t handle;
    struct context *context;
    uint64_t generation;
    unsigned flags;
    struct op *op; /* of the last record; NULL when never recorded */
    uint64_t capture_id;
    size_t *nodes;
    size_t n_nodes;
    bool captured;
    struct event *next, *previous;
};

#define STACK_MAX 64
struct thread {
    unsigned number; /* 0: an operating system thread's own */
    struct context *stack[STACK_MAX];
    unsigned n_stack;
    CUstreamCaptureMode mode;
    struct thread *next;
};

struct os_thread {
    struct sim *sim;
    struct thread *self, *acting;
    bool in_hook;
    bool in_host_function;
    struct os_thread *next;
};

struct thread *thread_now(struct sim *sim);
struct os_thread *thread_os(struct sim *sim); /* with or without the lock */
CUresult context_now(struct sim *sim, struct context **context_out);
CUresult context_of(struct sim *sim, CUcontext handle, struct context **context_out);
struct context *context_root(struct context *context);
struct context *context_new(struct sim *sim, CUdevice device);
void context_start(struct sim *sim, struct context *context);
/* Waits, then ends everything that dies with it. */
CUresult context_end(struct sim *sim, struct context *context);
CUresult stream_of(struct sim *sim, CUstream handle, struct stream **stream_out);
/* For allocations, frees and fills: a stream that the program names needs no current context
 * (measured on driver 580). */
CUresult stream_serving(struct sim *sim, CUstream handle, struct stream **stream_out);
struct stream *stream_new(struct sim *sim, struct context *context, unsigned flags);
void stream_end(struct sim *sim, struct stream *stream);
/* Queues or captures `work` (taken over in any case); the op, counted, through `op_out` (may be
 * NULL; NULL in it when captured). */
/* Whether later work of the stream comes after the op, as far as CUDA's memory pools learn that. */
bool stream_follows(struct sim *sim, const struct stream *stream, const struct op *op);
CUresult stream_touch(struct sim *sim, struct stream *stream, const char *name);
CUresult stream_queue(struct sim *sim, struct stream *stream, struct work *work,
                      struct op **op_out);
/* Makes `op` come after all that CUDA's ordering rules ask of new work on `stream`. */
void stream_order(struct sim *sim, struct stream *stream, struct op *op);
CUresult event_of(struct sim *sim, CUevent handle, struct event **event_out);
void event_end(struct sim *sim, struct event *event);
/* NOT_READY; such answers may advance the queues now and then. */
CUresult query_refused(struct sim *sim);

/* ---- captures and graphs ---- */

struct node {
    struct work work;
    size_t *before;
    size_t n_before;
};
struct graph {
    uint64_t handle, exec;
    unsigned refs;
    struct node *nodes;
    size_t n, room;
    struct plain **allocs;
    size_t n_allocs, allocs_room;
};
struct capture {
    uint64_t id;
    CUstreamCaptureMode mode;
    struct thread *thread;
    struct stream *origin;
    struct graph *graph;
    bool broken;
    struct capture *next;
};

/* Whether a call that may not be made during captures is made during one; breaks (and reports)
 * those concerned. */
CUresult capture_unsafe(struct sim *sim, const char *name);
/* Breaks all captures of `context`, or of the blocking streams of it; false when there are none. */
bool capture_break_context(struct sim *sim, struct context *context, bool blocking_only,
                           const char *name);
/* What the legacy stream refuses while a blocking stream of its context captures; breaks that
 * capture, whatever the modes. */
CUresult capture_implicit(struct sim *sim, const struct stream *stream, const char *name);
bool capture_any_blocking(struct sim *sim, struct context *context);
void capture_break(struct sim *sim, struct capture *capture, const char *name);
void capture_end(struct sim *sim, struct capture *capture);
/* Ends those of a context or of an origin stream that goes away. */
void capture_abandon(struct sim *sim, struct context *context, struct stream *origin);
CUresult capture_add(struct sim *sim, struct stream *stream, struct work *work);
CUresult capture_wait(struct sim *sim, struct stream *stream, struct event *event);
CUresult capture_record(struct sim *sim, struct stream *stream, struct event *event);
struct graph *graph_new(struct sim *sim);
void graph_drop(struct sim *sim, struct graph *graph);

/* ---- calls, faults, reports ---- */

struct call_count {
    char *name; /* its own copy */
    uint64_t calls;
    uint64_t fault_in; /* uses until the fault strikes, 0: none */
    CUresult code;
    bool forever, struck;
};

/* The machine's one lock would order all threads that call it, and so hide from the thread
 * sanitizer what a real driver leaves unordered. Between these two the sanitizer sees neither the
 * calling thread's accesses nor what they wait for. Each call, the thread that runs host functions
 * and the end of a thread are between them. */
void call_hide(void);
void call_show(void);
/* Takes the lock, counts, and answers what stands in the way of the call. */
CUresult call_enter(struct sim *sim, const char *name);
/* The same for a call that never fails in practice. */
CUresult call_enter_query(struct sim *sim, const char *name);
/* Gives the lock back. */
CUresult call_leave(struct sim *sim, const char *name, CUresult result);
CUresult call_leave_priced(struct sim *sim, const char *name, CUresult result, uint64_t n_handles,
                           uint64_t bytes);
void misuse(struct sim *sim, enum sim_misuse kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- the machine ---- */

struct device {
    uint64_t used, peak;
    uint64_t small; /* bytes of plain allocations below the granularity */
    struct context *primary;
    unsigned primary_flags;
    struct pool *default_pool, *pool;
};

struct sim {
    struct sim_config config;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    pthread_key_t key;
    bool is_down;
    uint64_t random;
    uint64_t next_id;
    struct device devices[SIM_DEVICES_MAX];
    struct registry registry;
    struct thread *threads;
    struct os_thread *os_threads;
    struct context *contexts;
    struct stream *streams;
    struct event *events;
    struct capture *captures;
    struct pool *pools;
    struct host_range *host_ranges;
    struct call_count *counts;
    size_t n_counts, counts_room;
    struct call_count any;
    uint64_t misuses[SIM_MISUSE_COUNT];

    struct op *pending;
    uint64_t n_pending;
    struct op **ready;
    size_t n_ready, ready_room;
    uint64_t mark, progress;
    unsigned n_refusals; /* queries that said NOT_READY */
    unsigned n_in_vain;  /* of them those since `progress` was `refused_at` */
    uint64_t refused_at;

    struct reservation **reservations; /* ascending */
    size_t n_reservations, reservations_room;
    uint64_t reserved_bytes, n_mappings, n_accessible, n_handles, n_graphs, n_execs, n_plain,
        n_async;
    void *plains; /* tsearch root, by address */
    struct span_bin *bins;
    size_t n_bins, bins_room;
    CUdeviceptr plain_next;

    pthread_t worker;
    bool worker_runs, worker_stop;
    struct op **host_queue;
    size_t n_host, host_room;
};

uint64_t sim_random(struct sim *sim, uint64_t below);

#endif
