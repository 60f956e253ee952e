/* SPDX-License-Identifier: MIT */
/* Weights larger than their budget: device memory for a model whose weights stay in host memory and
 * are copied in while the program computes. Owns the address space of the weights, their physical
 * memory on the device, one stream for copies, and the host memory that it pins. It must not touch
 * the pool, and does nothing to a program that makes no object of it.
 *
 * Words. A *group* is what is used at once: its weights lie one after the other in one *window*, a
 * range of addresses that never changes. Physical memory comes in *chunks*. A *resident* group's
 * window shows memory of its own. The windows of *streamed* groups show slots of one *ring*,
 * several windows the same slots, so a group's bytes are there from its arrival until another group
 * of its slots is loaded. A *pass* is one walk over the model; its *steps* are the groups in the
 * order of use. The *floor* is the smallest budget with which a pass can be made.
 *
 * In a pass of a known order nothing is mapped, nothing is allocated and no thread waits: each
 * group's copy waits on the device for the work that used its slots before, and its use waits on
 * the device for the copy. A pass of an unknown order maps and waits on the host, and is recorded.
 *
 * Threads: statistics from any thread. All else by whoever has entered the object. No call is made
 * with a lock of ours held. */
#ifndef VPMM_OFFLOAD_OFFLOAD_H
#define VPMM_OFFLOAD_OFFLOAD_H

#include "base/atomic.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/watch.h"
#include "driver/driver.h"
#include "offload/safetensors.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vpmm_offload;

enum vpmm_offload_kind {
    VPMM_OFFLOAD_STREAMED, /* resident or in the ring, as the budget allows */
    VPMM_OFFLOAD_KEPT,     /* always resident: may be read at any time once it is sealed */
    VPMM_OFFLOAD_DIRECT,   /* the window shows host memory: costs no budget, and is slow to read.
                              With promote_bytes, it is read within passes only, and uses tell which
                            */
};

/* X(name): what is counted, and what is held.
 * - hits, misses: uses of bytes that were there, and of bytes that had to be copied;
 * - late: of the misses, those whose copy was not complete when the host got there;
 * - evictions: groups whose slots another took; divergences: uses out of the recorded order;
 * - copied_bytes: to the device; staged_bytes: of those, through pinned buffers;
 * - host_waits, host_wait_ns: in all calls but the making and the destruction;
 * - yields: how often memory was given back because the program lacked it;
 * - vmm_calls: those that take, give back, map or unmap memory;
 * - held_bytes: of the device; resident_bytes and ring_bytes: its parts, in whole chunks;
 * - promoted_bytes: of the device, in windows of direct groups; promotions, demotions: how often
 * one was moved there, and back because another is used more;
 * - timed_passes: those whose time the device has told so far, not captured ones; pass_ns: their
 *   time there; stall_ns: of that, waiting for copies;
 * - link_bytes_per_s: of the fastest copy that was timed; bound_ns: what the timed passes copied
 *   takes so long at that rate, so bound_ns / pass_ns is their share of the bound;
 * - host_bytes: pinned; direct_bytes: of those, in windows. */
#define VPMM_OFFLOAD_FIGURES(X)                                                                    \
    X(passes)                                                                                      \
    X(captured_passes)                                                                             \
    X(hits)                                                                                        \
    X(misses)                                                                                      \
    X(late)                                                                                        \
    X(evictions)                                                                                   \
    X(divergences)                                                                                 \
    X(copied_bytes)                                                                                \
    X(staged_bytes)                                                                                \
    X(host_waits)                                                                                  \
    X(host_wait_ns)                                                                                \
    X(yields)                                                                                      \
    X(vmm_calls)                                                                                   \
    X(budget_bytes)                                                                                \
    X(held_bytes)                                                                                  \
    X(held_peak_bytes)                                                                             \
    X(resident_bytes)                                                                              \
    X(ring_bytes)                                                                                  \
    X(weight_bytes)                                                                                \
    X(direct_bytes)                                                                                \
    X(host_bytes)                                                                                  \
    X(timed_passes)                                                                                \
    X(pass_ns)                                                                                     \
    X(stall_ns)                                                                                    \
    X(bound_ns)                                                                                    \
    X(link_bytes_per_s)                                                                            \
    X(promoted_bytes)                                                                              \
    X(promotions)                                                                                  \
    X(demotions)

struct vpmm_offload_figures {
#define VPMM_OFFLOAD_FIGURE(name) vpmm_atomic64 name;
    VPMM_OFFLOAD_FIGURES(VPMM_OFFLOAD_FIGURE)
#undef VPMM_OFFLOAD_FIGURE
};

/* Who must agree before device memory is taken. `take` false: it may not be. `relieve`: the device
 * has too little; whether trying again may help. `drain` waits on the host for all work of the
 * context; CAPTURED: that would end a stream capture. All are called with no lock held. NULL
 * members: nobody is asked. */
struct vpmm_offload_ledger {
    void *self;
    bool (*take)(void *self, int device, uint64_t bytes);
    void (*give)(void *self, int device, uint64_t bytes);
    bool (*relieve)(void *self, int device, uint64_t bytes);
    enum vpmm_status (*drain)(void *self, vpmm_context_handle context);
};

/* What is done where the driver does not register the mapping of a file. */
enum vpmm_offload_staging {
    VPMM_OFFLOAD_MAY_STAGE, /* its weights are read through pinned buffers, within the calls */
    VPMM_OFFLOAD_MUST_MAP,  /* it is refused */
    VPMM_OFFLOAD_STAGES,    /* no mapping is registered at all */
};

struct vpmm_offload_params {
    int device;
    vpmm_context_handle context; /* of that device; must outlive the object */
    uint64_t budget_bytes;       /* the most that is held on the device, at any time */
    uint64_t chunk_bytes;        /* 0: the device's granularity; otherwise a multiple of it */
    uint64_t ring_bytes;         /* the wish; 0: chosen from the largest step */
    uint64_t promote_bytes;      /* of the budget, the most for direct groups that are used much */
    uint64_t root_bytes; /* of address space; 0: 1 TiB, or less where that is not to be had */
    bool follows;        /* an order other than the recorded one is served, and counted */
    bool checks;         /* only groups in use are mapped; every pass is slow */
    enum vpmm_offload_staging staging;
    uint64_t host_bytes_max; /* the most that is pinned; 0: what the control group leaves */
    char *message;           /* where a call that fails says why, in one line; NULL: nowhere */
    size_t message_room;
    struct vpmm_offload_ledger ledger;
    const struct vpmm_watch *watch; /* hears of loads, evictions and passes; NULL: nobody does */
    struct vpmm_offload_figures *figures; /* where to count, all 0; outlives it; NULL: its own */
};

/* INVALID: a size does not fit the device's granularity; NOT_SUPPORTED: the driver lacks what is
 * needed; NO_METADATA; NO_MEMORY: no address space; or the driver's answer. Undone then. */
VPMM_MUST_CHECK enum vpmm_status vpmm_offload_create(const struct vpmm_offload_params *params,
                                                     const struct vpmm_driver *driver,
                                                     const struct vpmm_memory *memory,
                                                     struct vpmm_offload **offload_out);
/* Waits for all work of the context and gives everything back. Where that cannot be waited for
 * (CAPTURED: a stream captures), nothing happens, and it may be called again: but a context that is
 * gone is waited for no more. */
VPMM_MUST_CHECK enum vpmm_status vpmm_offload_destroy(struct vpmm_offload *offload);

/* False: another thread is inside. No driver. */
bool vpmm_offload_enter(struct vpmm_offload *offload);
/* A millisecond. */
void vpmm_offload_pause(void);
/* For who is inside for a bounded time only: others wait for that one in vpmm_offload_enter. */
bool vpmm_offload_enter_briefly(struct vpmm_offload *offload);
void vpmm_offload_leave(struct vpmm_offload *offload);

/* ---- weights, before the seal ---- */

struct vpmm_offload_weight {
    const char *name; /* for messages; copied */
    enum vpmm_offload_kind kind;
    uint32_t group; /* the number of the last one, or one more; the first is 0 */
    uint64_t bytes; /* not 0 */
};

/* Every weight lies at a multiple of so many bytes. */
#define VPMM_OFFLOAD_ALIGNMENT 512u

/* `address_out`: where it is for life; nothing is mapped there before the seal. Numbers count from
 * 0. INVALID: another group, kind or size than may be, or sealed; NO_MEMORY: the address space is
 * used up; NO_METADATA. */
VPMM_MUST_CHECK enum vpmm_status vpmm_offload_add(struct vpmm_offload *offload,
                                                  const struct vpmm_offload_weight *weight,
                                                  uint64_t *address_out, uint32_t *number_out);

/* Pinned host memory for the weight's bytes, to be written before the seal; belongs to the object.
 * The group must be complete: no weight is added to it any more. NO_HOST_ROOM; INVALID: the weight
 * has a file. */
VPMM_MUST_CHECK enum vpmm_status vpmm_offload_host(struct vpmm_offload *offload, uint32_t number,
                                                   void **memory_out);
/* The same, filled from `offset` of the file on. UNSOUND: it cannot be read there. */
VPMM_MUST_CHECK enum vpmm_status vpmm_offload_read(struct vpmm_offload *offload, uint32_t number,
                                                   int descriptor, uint64_t offset);

/* Maps a safetensors file and has the driver register the mapping. UNSOUND: the file is not one;
 * NO_HOST_ROOM, NO_METADATA, NOT_SUPPORTED: the mapping is refused, and must be registered. */
VPMM_MUST_CHECK enum vpmm_status vpmm_offload_open(struct vpmm_offload *offload, const char *path,
                                                   uint32_t *source_out);
/* The tensor of that number in the header's order; NULL: there is none. It lives as long as the
 * object. */
const struct vpmm_tensor *vpmm_offload_tensor(const struct vpmm_offload *offload, uint32_t source,
                                              uint32_t number);
/* The weight's bytes are those of the tensor of that name. NOT_FOUND: the file has none; UNSOUND:
 * it has another size. */
VPMM_MUST_CHECK enum vpmm_status vpmm_offload_from(struct vpmm_offload *offload, uint32_t number,
                                                   uint32_t source, const char *tensor);

/* The groups in the order of their use, which may name one several times. Without it the first pass
 * is recorded. INVALID: a group that is none, is kept or is direct. */
VPMM_MUST_CHECK enum vpmm_status vpmm_offload_order(struct vpmm_offload *offload,
                                                    const uint32_t *groups, uint32_t n_groups);

struct vpmm_offload_need {
    uint64_t floor_bytes;  /* the smallest budget */
    uint64_t smooth_bytes; /* from here on a copy runs beside every use */
    uint64_t all_bytes;    /* from here on nothing is copied */
    uint64_t host_bytes;   /* pinned by this object: allocated, registered or in extents */
};

/* Takes the device memory, and loads what is resident. BELOW_FLOOR: `need_out` says what would do
 * (filled in from then on, and NULL is accepted); INVALID: a weight has no bytes; NO_MEMORY,
 * LIMITED, NO_HOST_ROOM, the driver's. Then nothing is held, and it may be tried again. */
VPMM_MUST_CHECK enum vpmm_status vpmm_offload_seal(struct vpmm_offload *offload,
                                                   struct vpmm_offload_need *need_out);

/* ---- passes ---- */

/* A pass on `stream`, which may be capturing from the second pass on. All streams that a pass names
 * must be in order with those of the pass before. OCCUPIED: one is under way; CAPTURED: this one
 * cannot be captured. */
VPMM_MUST_CHECK enum vpmm_status vpmm_offload_begin(struct vpmm_offload *offload,
                                                    vpmm_stream_handle stream);
/* Later work of `stream` may read the group until `done`. No-op for a kept or direct one.
 * OUT_OF_ORDER: the recorded order has another group here: nothing was done. BELOW_FLOOR: the
 * groups in use and this one exceed the budget. */
VPMM_MUST_CHECK enum vpmm_status vpmm_offload_use(struct vpmm_offload *offload, uint32_t group,
                                                  vpmm_stream_handle stream);
/* Ends one use: earlier work of `stream` is the last that reads the group. INVALID: it is not in
 * use. */
VPMM_MUST_CHECK enum vpmm_status vpmm_offload_done(struct vpmm_offload *offload, uint32_t group,
                                                   vpmm_stream_handle stream);
/* Ends the pass. Of a recorded one, plans the next: waits for the context, moves memory. A pass
 * that ends early, or with groups in use, is OUT_OF_ORDER; the next one begins afresh. Where graphs
 * of captured passes live, the end loads what they need (with groups in use it waits for the
 * context first): what fails is the answer, and no graph may be launched before the end of another
 * pass. */
VPMM_MUST_CHECK enum vpmm_status vpmm_offload_end(struct vpmm_offload *offload,
                                                  vpmm_stream_handle stream);
/* Ends a pass that cannot be finished, wherever it is. It is not recorded, and no error; but
 * loads for graphs can fail, as above. */
VPMM_MUST_CHECK enum vpmm_status vpmm_offload_cancel(struct vpmm_offload *offload,
                                                     vpmm_stream_handle stream);

/* Between passes: plans anew for another budget. Waits for the context. BELOW_FLOOR changes
 * nothing; after another failure the old plan is restored, and if even that fails nothing is held
 * and the next begin tries again. CAPTURED: a pass was captured since the last thaw, and less would
 * be held. */
VPMM_MUST_CHECK enum vpmm_status vpmm_offload_budget(struct vpmm_offload *offload,
                                                     uint64_t budget_bytes,
                                                     struct vpmm_offload_need *need_out);
/* No graph of a captured pass will be launched any more. Waits for the context where a pass was
 * captured; what fails then (CAPTURED: a stream captures) changes nothing. Then it carries out the
 * budget that waited for this, whose failures are those of the call above; the old one is kept. */
VPMM_MUST_CHECK enum vpmm_status vpmm_offload_thaw(struct vpmm_offload *offload);

/* The program lacks `bytes` of device memory: gives so much of what is resident back, but for the
 * floor, and says how much. Enters the object by itself. Between passes, and where no graph needs
 * what is held: otherwise, or where work does not end within half a second, the next end of a pass
 * gives it back, and the answer is 0. The budget is taken again after passes without another such
 * request. Any thread, holding no lock; never waits without bound. */
uint64_t vpmm_offload_yield(struct vpmm_offload *offload, uint64_t bytes);

/* ---- looking ---- */

struct vpmm_offload_stats {
#define VPMM_OFFLOAD_FIGURE(name) uint64_t name;
    VPMM_OFFLOAD_FIGURES(VPMM_OFFLOAD_FIGURE)
#undef VPMM_OFFLOAD_FIGURE
};
/* Each figure by itself is exact. No driver call. */
void vpmm_offload_stats(const struct vpmm_offload_figures *figures,
                        struct vpmm_offload_stats *stats_out);
const struct vpmm_offload_figures *vpmm_offload_figures(const struct vpmm_offload *offload);
/* Of the last one planned. */
void vpmm_offload_need(const struct vpmm_offload *offload, struct vpmm_offload_need *need_out);

#endif
