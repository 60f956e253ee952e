/* SPDX-License-Identifier: MIT */
/* The public interface of VPMM, for C and C++. A program needs none of it: preloading libvpmm.so is
 * enough. With it a program that links libvpmm_api.a (pkg-config vpmm) can look at the pools of its
 * own process and ask them for something. Where the library is not preloaded every function does
 * nothing and says VPMM_NOT_LOADED, so one executable serves both ways.
 *
 * Any thread may call anything here, with or without a current context, also while streams capture:
 * no call ends a capture. From a function that CUDA calls back (cudaLaunchHostFunc, a stream's
 * callback), where no call of CUDA is allowed, vpmm_next_device, vpmm_snapshot_take,
 * vpmm_requests_count and vpmm_dump may be called, and the others answer VPMM_DRIVER_FAILED where
 * the driver refuses. From a signal handler: nothing.
 *
 * docs/API.md tells more. */
#ifndef VPMM_VPMM_H
#define VPMM_VPMM_H

#include <stddef.h>
#include <stdint.h>

/* The version that these declarations belong to; the build checks that it is the project's. */
#define VPMM_VERSION "0.1.0"

#ifdef __cplusplus
extern "C" {
#endif

/* What became of a call. */
enum vpmm_result {
    VPMM_DONE = 0,       /* all of it */
    VPMM_NOT_LOADED = 1, /* the library is not preloaded in this process */
    VPMM_NOT_ACTIVE =
        2,            /* it is, but leaves this process to CUDA: VPMM_DISABLE, VPMM_ONLY, a driver
                         without what it needs, or a child of fork whose parent had a pool */
    VPMM_NO_POOL = 3, /* the device has no pool: so far it served no request there */
    VPMM_BUSY = 4,    /* a stream capture, or another call or process, stands in the way of some of
                         it; the rest is done: ask again later */
    VPMM_DRIVER_FAILED = 5, /* the driver refused some of it; the rest is done: ask again */
    VPMM_WRONG = 6,         /* an argument is not what it should be; nothing was done */
    VPMM_TOO_OLD = 7,       /* the library that is preloaded is older than this function */

    /* Of weights larger than their budget. */
    VPMM_BUDGET_TOO_SMALL = 8, /* struct vpmm_weights_need says what would do */
    VPMM_OTHER_ORDER = 9,  /* a group is used, or a pass ends, where the recorded order differs */
    VPMM_DEVICE_FULL = 10, /* no device memory, or VPMM_LIMIT leaves none */
    VPMM_NO_HOST_MEMORY = 11, /* or the control group leaves too little of it */
    VPMM_BAD_SOURCE = 12      /* a file does not hold what it should */
};

/* A short English text; never NULL. */
const char *vpmm_result_text(enum vpmm_result result);

/* The version of the library that is preloaded; NULL: none is. */
const char *vpmm_loaded_version(void);

/* In place of a device's number: all that have a pool. */
#define VPMM_EVERY_DEVICE (-1)

/* The next device after `after` that has a pool (-1: the first one); -1: there is no other. */
int vpmm_next_device(int after);

/* One device's pool at one moment. All but requested_bytes and the counts are of whole pages: each
 * is wholly live, pending or ready.
 *
 * Every page that is freed stays in outstanding_bytes until the work that may use it is known
 * complete: it counts to pending_bytes from the moment it counts to live_bytes no more. A block
 * that another thread is just freeing may count to both for that moment, never to neither. Pages
 * that a request takes while they are pending, because its stream comes after that work, are live
 * again; while such a request is under way, its pages are busy. */
struct vpmm_snapshot {
    size_t size_bytes; /* of this struct: set it to sizeof before each call. Of a library that is
                          older than this header, what it does not know of reads as 0 */
    uint64_t page_bytes;

    uint64_t live_bytes;        /* in blocks that the program has */
    uint64_t requested_bytes;   /* the same, as the program asked for it */
    uint64_t pending_bytes;     /* freed, and the work that may use it is not known complete */
    uint64_t outstanding_bytes; /* live_bytes + pending_bytes */
    uint64_t reusable_bytes;    /* free, at once or once the work is complete */
    uint64_t ready_bytes;       /* of those, what any request may have at once */
    uint64_t held_bytes;        /* physical memory in all: what the device is short of */
    uint64_t limit_bytes;       /* the most that may be held; 0: there is no limit */
    /* Parts of pending_bytes: freed here, but open in another process; and what is never used again
     * because the driver could not tell which work may use it. */
    uint64_t withheld_bytes, lost_bytes;

    /* Address space: reserved_bytes is all of it. */
    uint64_t reserved_bytes;
    uint64_t hole_bytes;        /* where nothing is mapped */
    uint64_t zombie_bytes;      /* old addresses of memory in use elsewhere, not unmapped yet */
    uint64_t busy_bytes;        /* part of a change under way; what is withheld or lost, too */
    uint64_t quarantined_bytes; /* where an unmap failed */

    uint64_t live_peak_bytes, held_peak_bytes; /* the most there ever was */
    uint64_t created_bytes, released_bytes;    /* taken from the device and given back, ever */
    uint64_t moved_bytes;                      /* mapped again elsewhere, ever */
    uint64_t trimmed_bytes;                    /* of the released, those given back on request */
    uint64_t extents, mappings;                /* physical handles, and the places that show them */

    /* How requests were served since the pool was made. */
    uint64_t mallocs, frees;
    uint64_t cache_hits; /* by what the stream itself had freed; the others are not among these */
    uint64_t habit_hits; /* where the same request was served a round before */
    uint64_t fits;       /* by memory that lay free, without a driver call */
    uint64_t revives;    /* at an old address that still showed it, without a driver call */
    uint64_t stitches;   /* by moving pages */
    uint64_t grows;      /* by new memory alone */
    uint64_t host_waits, stream_waits; /* waits for pending memory, on the host and on the device */
    uint64_t failures;                 /* left to CUDA after all */

    uint64_t decayed_bytes; /* of the released, those given back because they were not needed for a
                               while */
    uint64_t weights_bytes; /* of held_bytes, those of weights larger than their budget; the peaks,
                               and all else here, are of the pool alone */
};

/* DONE, NOT_LOADED, NOT_ACTIVE, NO_POOL, WRONG (size_bytes is 0, say), BUSY (inside a call of CUDA
 * that the library serves). Makes no driver call, and waits for none. Where it is not DONE, all but
 * size_bytes is 0. */
enum vpmm_result vpmm_snapshot_take(int device, struct vpmm_snapshot *snapshot);

/* The large and small requests of the process, by who served them and why. */
struct vpmm_requests {
    size_t size_bytes; /* as in struct vpmm_snapshot */
    uint64_t pool;     /* served by a pool; the others were left to CUDA or refused: */
    uint64_t small, large, capturing, no_context, no_vmm, explicit_pool, other_pool, pool_limit,
        no_peer, no_ipc, disabled, limited, full, other; /* docs/API.md tells what each means */
};
enum vpmm_request_kind {
    VPMM_OF_MALLOC = 0,      /* cudaMalloc and its like */
    VPMM_OF_MALLOC_ASYNC = 1 /* cudaMallocAsync and its like */
};
/* DONE, NOT_LOADED, NOT_ACTIVE, WRONG, BUSY. Before the first request all are 0. */
enum vpmm_result vpmm_requests_count(enum vpmm_request_kind kind, struct vpmm_requests *requests);

/* Gives memory that is not live back to the device until at most `keep_bytes` are held there. What
 * is pending cannot go: see vpmm_reap. Memory goes in whole extents, so less may be left. Waits for
 * no work of the device. `*given_back_out` (or NULL): how many bytes went. DONE, also where more
 * had to stay; NOT_LOADED, NOT_ACTIVE, NO_POOL, BUSY (as above), DRIVER_FAILED. */
enum vpmm_result vpmm_trim(int device, uint64_t keep_bytes, uint64_t *given_back_out);

/* Waits until the work is complete that may use what is pending now, as cudaDeviceSynchronize would
 * wait for it, and makes that memory reusable. Only what was really waited for leaves
 * pending_bytes: where a wait fails, what it was for stays pending, the others are waited for all
 * the same, and the next call tries again. `*pending_bytes_out` (or NULL): what is pending after
 * it. DONE: all of it is reusable but for what is lost; what other threads free meanwhile may be
 * pending. BUSY: a capture, another process, or a thread that stopped in the middle of a request
 * keeps some of it pending. DRIVER_FAILED: a wait failed. NOT_LOADED, NOT_ACTIVE, NO_POOL. */
enum vpmm_result vpmm_reap(int device, uint64_t *pending_bytes_out);

/* Writes every region of every pool to the descriptor `fd`, as the dump signal does: docs/DUMP.md.
 * DONE, NOT_LOADED, NOT_ACTIVE, NO_POOL (there is none at all), WRONG, BUSY. */
enum vpmm_form {
    VPMM_AS_TEXT = 0,
    VPMM_AS_JSON = 1
};
enum vpmm_result vpmm_dump(int fd, enum vpmm_form form);

/* ---- weights larger than their budget: docs/WEIGHTS.md ---- */

/* An object holds the weights of a model, or of a part of it, on one device. Their bytes stay in
 * host memory, and the object copies them in while the program computes. It never holds more of the
 * device than its budget.
 *
 * A *group* is what is used at once, a layer say. Weights are added group by group; each has one
 * address for life. A *pass* is one walk over the groups: begin, then for each group use, the work
 * that reads it, and done, then end. The order of the first pass is recorded, unless it is given.
 * From then on a pass maps nothing, allocates nothing and waits for nothing on the host, and it may
 * be captured into a graph.
 *
 * A streamed weight may be read only between use and done: outside, its address shows another one's
 * bytes.
 *
 * Streams are CUstream or cudaStream_t; NULL is the legacy stream. The streams of a pass must be in
 * order with those of the pass before it (one stream, or events), launches of graphs of captured
 * passes included. Memory is in bytes.
 *
 * Threads: vpmm_weights_stats from any thread, until the object is destroyed. Of the others one at
 * a time: who meets another gets VPMM_BUSY, and nothing was done. No call may be made from a host
 * function. Each call needs a current context of the object's device. A child of fork must not use
 * its parent's objects.
 *
 * Results besides those named: NOT_LOADED, NOT_ACTIVE, TOO_OLD, WRONG, BUSY, DRIVER_FAILED. */
struct vpmm_weights;

enum vpmm_weights_flag {
    VPMM_WEIGHTS_FOLLOW = 1, /* serve an order other than the recorded one, slowly, and count it */
    VPMM_WEIGHTS_CHECK = 2,  /* map only what is in use: a read of anything else faults. Slow */
    VPMM_WEIGHTS_MUST_MAP = 4, /* refuse a file whose mapping the driver does not register */
    VPMM_WEIGHTS_STAGE = 8     /* register no file: read it through pinned buffers */
};

struct vpmm_weights_options {
    size_t size_bytes; /* of this struct */
    int device;        /* that of the current context */
    unsigned flags;    /* of enum vpmm_weights_flag */
    uint64_t budget_bytes;
    uint64_t chunk_bytes;    /* in which physical memory comes; 0: as small as the device allows */
    uint64_t ring_bytes;     /* for what is copied in; 0: chosen */
    uint64_t host_bytes_max; /* the most that is pinned; 0: what the machine and the control group
                                leave */
    char *message; /* where a call on the object that fails says why, in one line; NULL: nowhere.
                      It must live as long as the object */
    size_t message_bytes;
    uint64_t promote_bytes; /* of the budget, the most for direct groups that are used much. They
                               are read within passes only then, between use and done */
};

/* NOT_ACTIVE; WRONG: another device, a chunk that the device does not allow; DEVICE_FULL: no
 * address space; NO_HOST_MEMORY; DRIVER_FAILED, also where the driver lacks what is needed. */
enum vpmm_result vpmm_weights_make(const struct vpmm_weights_options *options,
                                   struct vpmm_weights **weights_out);
/* Waits for the work of the context, then gives back all that the object has: addresses, device and
 * host memory. On another result than DONE it is still there. BUSY: a stream captures. */
enum vpmm_result vpmm_weights_destroy(struct vpmm_weights *weights);

enum vpmm_weight_kind {
    VPMM_WEIGHT_STREAMED = 0, /* resident, or copied in for each use, as the budget allows */
    VPMM_WEIGHT_KEPT = 1,     /* resident: may be read at any time once it is sealed */
    VPMM_WEIGHT_DIRECT = 2    /* in host memory at an address of the device: takes nothing of the
                                 budget, may be read at any time, at the speed of the bus */
};
struct vpmm_weight {
    size_t size_bytes; /* of this struct */
    const char *name;  /* for messages; it is copied */
    enum vpmm_weight_kind kind;
    uint32_t group; /* as that of the weight added before, or one more; the first is 0. All weights
                       of a group are of one kind */
    uint64_t bytes;
};
/* `address_out`: its address, a multiple of 512; `number_out`: its number, from 0. Before the seal.
 * DEVICE_FULL: no address space. */
enum vpmm_result vpmm_weights_add(struct vpmm_weights *weights, const struct vpmm_weight *weight,
                                  uint64_t *address_out, uint32_t *number_out);

/* The weight's bytes, by one of three ways, before the seal and when its group is complete: into
 * pinned memory of the object, which the program fills; the same, read from a descriptor; or from a
 * tensor of a file, which is not copied in host memory. NO_HOST_MEMORY; BAD_SOURCE. */
enum vpmm_result vpmm_weights_host(struct vpmm_weights *weights, uint32_t number,
                                   void **memory_out);
enum vpmm_result vpmm_weights_read(struct vpmm_weights *weights, uint32_t number, int fd,
                                   uint64_t offset);
/* BAD_SOURCE: the file has no tensor of that name, or one of another size. */
enum vpmm_result vpmm_weights_from(struct vpmm_weights *weights, uint32_t number, uint32_t source,
                                   const char *tensor);

/* Opens a safetensors file, maps it, and has the driver register the mapping. Where the driver does
 * not, weights of it are read through pinned buffers within begin, use and done: then passes wait
 * on the host and cannot be captured (staged_bytes counts them). The file must not change while the
 * object lives. BAD_SOURCE; NO_HOST_MEMORY. `source_out`: its number. */
enum vpmm_result vpmm_weights_open(struct vpmm_weights *weights, const char *path,
                                   uint32_t *source_out);

struct vpmm_source_tensor {
    size_t size_bytes; /* of this struct */
    const char *name;  /* as long as the object lives */
    const char *dtype; /* as the file has it: "BF16"; likewise */
    uint32_t n_dimensions;
    uint64_t shape[16];
    uint64_t offset, bytes; /* in the file */
};
/* The tensor of that number, from 0 in the order of the header; WRONG past the last. */
enum vpmm_result vpmm_weights_tensor(struct vpmm_weights *weights, uint32_t source, uint32_t number,
                                     struct vpmm_source_tensor *tensor);

/* The order of the groups' uses, instead of recording the first pass. A group may stand there
 * several times. Only streamed ones. Before the seal. */
enum vpmm_result vpmm_weights_order(struct vpmm_weights *weights, const uint32_t *groups,
                                    uint32_t n);

struct vpmm_weights_need {
    size_t size_bytes;     /* of this struct */
    uint64_t floor_bytes;  /* the smallest budget with which a pass can be made */
    uint64_t smooth_bytes; /* from here on each copy runs beside the use before it */
    uint64_t all_bytes;    /* from here on nothing is copied */
    uint64_t host_bytes;   /* host memory that the object pins */
};
/* Takes the device memory and loads what is resident. `need` (or NULL) is filled in on DONE and on
 * BUDGET_TOO_SMALL. DEVICE_FULL; NO_HOST_MEMORY. On failure nothing of the device is held, and it
 * may be called again. */
enum vpmm_result vpmm_weights_seal(struct vpmm_weights *weights, struct vpmm_weights_need *need);

/* While the budget is at least all_bytes, uses of streamed groups on the stream of the pass need
 * not be told. OTHER_ORDER of use: another group is due; nothing was done. BUDGET_TOO_SMALL of use:
 * what is in use together exceeds the budget. OTHER_ORDER of end: the pass was shorter than the
 * recorded one, or groups were in use: the next pass begins afresh. The end of a recorded pass
 * moves memory and waits for the context: DEVICE_FULL and BUDGET_TOO_SMALL are possible, then the
 * next begin tries again. Where graphs of captured passes live, end and cancel load what they need,
 * and wait for the context where groups were in use: another failure says that no graph may be
 * launched before the end of another pass. BUSY of begin: a pass is under way, or the stream
 * captures and this pass cannot be captured (the first of an unknown order, with CHECK, of staged
 * weights). */
enum vpmm_result vpmm_weights_begin(struct vpmm_weights *weights, void *stream);
enum vpmm_result vpmm_weights_use(struct vpmm_weights *weights, uint32_t group, void *stream);
enum vpmm_result vpmm_weights_done(struct vpmm_weights *weights, uint32_t group, void *stream);
enum vpmm_result vpmm_weights_end(struct vpmm_weights *weights, void *stream);
/* Ends a pass that will not be finished, because something else failed. It is not recorded. */
enum vpmm_result vpmm_weights_cancel(struct vpmm_weights *weights, void *stream);

/* Another budget, between passes. Waits for the context and moves memory. BUDGET_TOO_SMALL, with
 * `need` (or NULL) filled in: nothing was done. DEVICE_FULL: the old budget holds. BUSY: there are
 * graphs of captured passes, and the budget shrinks. It may grow, which has its effect at the thaw.
 */
enum vpmm_result vpmm_weights_budget(struct vpmm_weights *weights, uint64_t budget_bytes,
                                     struct vpmm_weights_need *need);
/* No graph of a captured pass will be launched any more. Waits for the context where a pass was
 * captured, and takes a larger budget that waited for it. BUSY: a stream captures, nothing was
 * done. DEVICE_FULL: the old budget holds. */
enum vpmm_result vpmm_weights_thaw(struct vpmm_weights *weights);

struct vpmm_weights_stats {
    size_t size_bytes; /* of this struct */
    uint64_t passes, captured_passes;
    uint64_t hits, misses; /* uses of bytes that were there, and of bytes that had to be copied */
    uint64_t late; /* of the misses, those whose copy was not complete when the call was made */
    uint64_t evictions, divergences;     /* slots that another group took; uses out of order */
    uint64_t copied_bytes, staged_bytes; /* to the device; of those, through pinned buffers */
    uint64_t host_waits, host_wait_ns;   /* of calls that waited for the device */
    uint64_t budget_bytes, held_bytes, held_peak_bytes, resident_bytes, ring_bytes;
    uint64_t weight_bytes, direct_bytes, host_bytes;
    uint64_t yields;    /* times that memory was given back because the program lacked it */
    uint64_t vmm_calls; /* calls of the driver that take, give back, map or unmap memory */

    /* Of passes of a known order that were not captured, as far as the device has told. A pass is
     * left out where the host is far ahead of the device. All 0: the driver cannot tell. */
    uint64_t timed_passes;
    uint64_t pass_ns, stall_ns; /* what they took on the device; of that, waiting for copies */
    uint64_t bound_ns; /* what their copies take at the link's rate: bound_ns / pass_ns is the share
                          of the bound */
    uint64_t link_bytes_per_s; /* the rate of the fastest copy so far */

    uint64_t promoted_bytes; /* of the device, in windows of direct groups */
    uint64_t promotions, demotions;
};
enum vpmm_result vpmm_weights_stats(struct vpmm_weights *weights, struct vpmm_weights_stats *stats);

/* The same functions as the library has them, for whoever would rather not link libvpmm_api.a:
 * dlsym(RTLD_DEFAULT, "vpmm_interface_1") is a function that returns this table, or NULL where the
 * library is not preloaded. A later library only adds members at its end; what lies past size_bytes
 * is not there. Structs are passed as above. */
struct vpmm_interface {
    size_t size_bytes;
    const char *version;
    int (*next_device)(int after);
    enum vpmm_result (*snapshot_take)(int device, struct vpmm_snapshot *snapshot);
    enum vpmm_result (*requests_count)(enum vpmm_request_kind kind, struct vpmm_requests *requests);
    enum vpmm_result (*trim)(int device, uint64_t keep_bytes, uint64_t *given_back_out);
    enum vpmm_result (*reap)(int device, uint64_t *pending_bytes_out);
    enum vpmm_result (*dump)(int fd, enum vpmm_form form);

    enum vpmm_result (*weights_make)(const struct vpmm_weights_options *, struct vpmm_weights **);
    enum vpmm_result (*weights_destroy)(struct vpmm_weights *);
    enum vpmm_result (*weights_add)(struct vpmm_weights *, const struct vpmm_weight *, uint64_t *,
                                    uint32_t *);
    enum vpmm_result (*weights_host)(struct vpmm_weights *, uint32_t number, void **);
    enum vpmm_result (*weights_read)(struct vpmm_weights *, uint32_t number, int fd, uint64_t);
    enum vpmm_result (*weights_from)(struct vpmm_weights *, uint32_t number, uint32_t source,
                                     const char *tensor);
    enum vpmm_result (*weights_open)(struct vpmm_weights *, const char *path, uint32_t *);
    enum vpmm_result (*weights_tensor)(struct vpmm_weights *, uint32_t source, uint32_t number,
                                       struct vpmm_source_tensor *);
    enum vpmm_result (*weights_order)(struct vpmm_weights *, const uint32_t *, uint32_t n);
    enum vpmm_result (*weights_seal)(struct vpmm_weights *, struct vpmm_weights_need *);
    enum vpmm_result (*weights_begin)(struct vpmm_weights *, void *stream);
    enum vpmm_result (*weights_use)(struct vpmm_weights *, uint32_t group, void *stream);
    enum vpmm_result (*weights_done)(struct vpmm_weights *, uint32_t group, void *stream);
    enum vpmm_result (*weights_end)(struct vpmm_weights *, void *stream);
    enum vpmm_result (*weights_cancel)(struct vpmm_weights *, void *stream);
    enum vpmm_result (*weights_budget)(struct vpmm_weights *, uint64_t, struct vpmm_weights_need *);
    enum vpmm_result (*weights_thaw)(struct vpmm_weights *);
    enum vpmm_result (*weights_stats)(struct vpmm_weights *, struct vpmm_weights_stats *);
};
typedef const struct vpmm_interface *vpmm_interface_fn(void);

#ifdef __cplusplus
}
#endif

#endif
