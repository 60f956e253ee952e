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
    VPMM_NO_POOL = 3, /* the device has no pool: so far no large request was made there */
    VPMM_BUSY = 4,    /* a stream capture, or another call or process, stands in the way of some of
                         it; the rest is done: ask again later */
    VPMM_DRIVER_FAILED = 5, /* the driver refused some of it; the rest is done: ask again */
    VPMM_WRONG = 6,         /* an argument is not what it should be; nothing was done */
    VPMM_TOO_OLD = 7        /* the library that is preloaded is older than this function */
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
};
typedef const struct vpmm_interface *vpmm_interface_fn(void);

#ifdef __cplusplus
}
#endif

#endif
