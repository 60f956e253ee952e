/* SPDX-License-Identifier: MIT */
/* What the files of src/lib/offload share. No lock: `is_taken` lets one call in at a time, and what
 * statistics read is atomic. Private to this folder. */
#ifndef VPMM_OFFLOAD_INTERNAL_H
#define VPMM_OFFLOAD_INTERNAL_H

#include "base/atomic.h"
#include "base/table.h"
#include "offload/offload.h"
#include "offload/safetensors.h"
#include "offload/spread.h"

#define OFFLOAD_NAME_ROOM 104
#define OFFLOAD_SOURCES_MAX 256u
#define OFFLOAD_STAGES 2u
#define OFFLOAD_STAGE_BYTES ((uint64_t)16 << 20)
#define OFFLOAD_NO_SLOT UINT32_MAX
#define OFFLOAD_READERS_MAX 4u

/* Where a weight's bytes are in host memory, or from where they are read. */
struct offload_weight {
    char name[OFFLOAD_NAME_ROOM];
    uint32_t group;
    uint64_t offset, bytes; /* in its group's window */
    const char *host;       /* pinned or registered; NULL: staged, or not known yet */
    uint32_t source;        /* the number of the registered file that has it, + 1; 0: none has */
    int descriptor;         /* staged: from there; -1: it is not */
    uint64_t file_offset;
};

struct offload_group {
    enum vpmm_offload_kind kind;
    uint64_t address, bytes, n_chunks;
    uint32_t first_weight, n_weights; /* by number, from 1 on */
    char *host;                       /* allocated for all of it, or NULL */
    uint64_t first_chunk;             /* of its part of `chunk_slots` */

    vpmm_extent_handle extent; /* resident or direct: its own memory */
    bool has_extent;
    vpmm_extent_handle host_extent; /* of a promoted one: what it shows otherwise */
    bool is_promoted;               /* direct, and its own extent is the device's */
    uint32_t heat;                  /* passes that used it, the older the less */
    uint64_t heat_pass;             /* the last of them */
    bool is_mapped;                 /* its window shows memory */
    bool is_resident;               /* its own, that is */
    bool is_loaded;     /* all its bytes are there, or will be when `arrived` is complete */
    bool has_arrived;   /* they are known to be there */
    bool is_copied;     /* the load that its next use needs was a copy */
    uint32_t in_use;    /* uses without their done */
    uint32_t expected;  /* loads ahead of their use */
    uint64_t used_at;   /* the count of uses when it was last used */
    uint32_t open_step; /* recording: its step that is not done yet, + 1 */
    vpmm_event_handle arrived;
};

struct offload_slot {
    vpmm_extent_handle extent;
    uint32_t owner; /* the group whose bytes it has, or is getting; 0: none */
};

struct offload_source {
    const char *bytes; /* of the mapped file */
    uint64_t n_bytes;
    int descriptor;
    bool is_in_memory; /* it is in a file system without a disk */
    bool is_registered;
    struct vpmm_safetensors tensors;
};

/* A mapping of `memory` as an array. */
struct offload_array {
    void *at;
    size_t bytes;
};

/* A pinned buffer through which bytes go that have no pinned place. */
struct offload_stage {
    void *memory;
    vpmm_event_handle copied; /* NULL: not made yet */
    enum {
        OFFLOAD_STAGE_FREE,
        OFFLOAD_STAGE_MARKED, /* free once `copied` is complete */
        OFFLOAD_STAGE_UNKNOWN /* free once all copies are complete */
    } state;
};

/* A stream whose work has read resident weights. */
struct offload_reader {
    vpmm_stream_handle stream;
    vpmm_event_handle over; /* behind its last use; NULL: not made yet */
};

/* Two timed events, and what lies between them. */
struct offload_span {
    vpmm_event_handle begin, end;
    uint64_t bytes; /* copied meanwhile */
    enum offload_span_kind {
        OFFLOAD_SPAN_PASS,
        OFFLOAD_SPAN_STALL, /* of work that waits for a copy */
        OFFLOAD_SPAN_COPY
    } kind;
};

struct offload_times {
    struct offload_array span_array;
    uint32_t n_spans; /* used in turn */
    uint64_t n_opened, n_asked;
    uint64_t first; /* of the pass under way */
    struct offload_span *pass;
    bool is_timed, has_sample;
    uint64_t sample_chunks; /* the least copy that tells of the link */
    uint64_t copied_bytes;  /* in timed passes */
    struct offload_judged {
        uint64_t pass_ns, stall_ns, copied_bytes; /* of the timed pass asked about last */
        uint32_t n_passes, n_narrow;              /* before it, since the plan was made */
    } judged;
};

enum offload_phase {
    OFFLOAD_SETTING_UP,
    OFFLOAD_READY,
    OFFLOAD_IN_PASS,
};

struct vpmm_offload {
    const struct vpmm_driver *driver;
    const struct vpmm_memory *memory;
    struct vpmm_offload_params params;
    char nowhere[1]; /* for messages that nobody wants */
    vpmm_atomic32 is_taken;
    enum offload_phase phase;
    uint64_t chunk_bytes;
    uint64_t root, root_bytes, root_used;

    struct vpmm_table groups, weights; /* numbers from 1 on, in order; none is ever given back */
    uint32_t n_groups, n_weights;
    struct offload_source sources[OFFLOAD_SOURCES_MAX];
    uint32_t n_sources;
    uint64_t host_pinned_bytes;
    uint64_t host_registered_bytes; /* of those, pages of files that the system could drop before */
    struct offload_stage stages[OFFLOAD_STAGES];
    unsigned next_stage;

    /* The order: given, or recorded. */
    struct offload_array step_array;
    uint32_t n_steps;
    bool has_order;

    /* The plan that is carried out. */
    struct offload_array slot_array, chunk_slot_array, item_array;
    uint32_t n_slots;
    bool is_planned;    /* windows of streamed groups show their slots; otherwise they are mapped at
                           use */
    bool is_dismantled; /* a change failed, and nothing is held */
    bool is_wide;       /* the ring is to have room for two steps */
    bool is_torn;       /* a change has begun, and no plan is carried out yet */

    vpmm_stream_handle copies;
    vpmm_event_handle mark; /* recorded and waited for at once */
    bool has_streams;

    /* A pass. */
    uint32_t next_use;   /* the step that is to begin */
    uint32_t load_step;  /* the step whose group is loaded next; past the last: of the next pass */
    uint64_t load_chunk; /* of that group: those before have been queued */
    uint64_t n_uses;
    uint32_t n_in_use;
    bool is_capturing;
    bool has_failed; /* a use, or an end of one: the pass is not recorded */
    bool is_wild;    /* the pass has left the recorded order */
    bool is_lost;    /* a pass ended with groups in use, or its capture failed */
    bool is_frozen;  /* a pass was captured, and there was no thaw */
    uint32_t captured_step;
    uint64_t captured_chunk;

    struct offload_times times;

    /* Memory that the program lacks. */
    struct offload_reader readers[OFFLOAD_READERS_MAX];
    uint32_t n_readers;
    uint64_t begun_bytes;           /* copied when the pass under way began */
    uint64_t n_begun, readers_pass; /* passes, and the one that the readers are of */
    bool has_more_readers;          /* or one without its event */
    bool is_idle; /* no work reads or fills windows: the next change need not wait */
    vpmm_atomic64 asked_bytes;
    uint32_t quiet_passes, quiet_wanted;

    uint64_t promote_room_bytes; /* of the budget, what the plan leaves to direct groups */
    uint32_t passes_unlooked;

    struct vpmm_offload_need need;
    uint64_t budget_bytes; /* that holds now: params.budget_bytes, or less under pressure */
    uint64_t due_bytes;    /* a larger budget that waits for the thaw; 0: none */
    struct vpmm_offload_figures *figures, own_figures;
};

static inline struct offload_group *offload_group(struct vpmm_offload *offload, uint32_t number)
{
    return vpmm_table_record(&offload->groups, number);
}

static inline struct offload_weight *offload_weight(struct vpmm_offload *offload, uint32_t number)
{
    return vpmm_table_record(&offload->weights, number);
}

static inline struct offload_slot *offload_slots(struct vpmm_offload *offload)
{
    return offload->slot_array.at;
}

static inline uint32_t *offload_chunk_slots(struct vpmm_offload *offload,
                                            const struct offload_group *group)
{
    return (uint32_t *)offload->chunk_slot_array.at + group->first_chunk;
}

static inline struct vpmm_spread_step *offload_steps(struct vpmm_offload *offload)
{
    return offload->step_array.at;
}

/* ---- tell.c: why a call failed ---- */

/* Writes the pieces, up to NULL, to where messages go. Returns `status`. */
enum vpmm_status offload_tell(struct vpmm_offload *offload, enum vpmm_status status, ...)
    __attribute__((sentinel));
/* The same with a byte count after each of the first two pieces. */
enum vpmm_status offload_tell_bytes(struct vpmm_offload *offload, enum vpmm_status status,
                                    const char *before, uint64_t bytes, const char *between,
                                    uint64_t more_bytes, const char *after);
/* "PIECE: what the status means". */
enum vpmm_status offload_tell_status(struct vpmm_offload *offload, enum vpmm_status status,
                                     const char *piece);
/* To whoever listens: now this happened to so many bytes at an address. */
void offload_tell_watch(struct vpmm_offload *offload, enum vpmm_watch_kind kind, uint64_t address,
                        uint64_t bytes);
/* The name of the group's first weight. */
const char *offload_group_name(struct vpmm_offload *offload, const struct offload_group *group);

/* ---- offload.c ---- */

/* Makes the array hold `bytes`, what it held included; the rest is zero. NO_METADATA leaves it. */
VPMM_MUST_CHECK enum vpmm_status offload_array_grow(struct vpmm_offload *offload,
                                                    struct offload_array *array, size_t bytes);

/* ---- memory.c: device memory within the budget ---- */

/* An extent of the device within the budget. */
VPMM_MUST_CHECK enum vpmm_status offload_extent_take(struct vpmm_offload *offload, uint64_t bytes,
                                                     vpmm_extent_handle *extent_out);
void offload_extent_give(struct vpmm_offload *offload, vpmm_extent_handle extent, uint64_t bytes);
/* The group's window shows the slots that `chunk_slots` names, or its own extent. Undone on
 * failure. */
VPMM_MUST_CHECK enum vpmm_status offload_window_map(struct vpmm_offload *offload,
                                                    struct offload_group *group);
/* The caller knows all that may read it to be complete. */
VPMM_MUST_CHECK enum vpmm_status offload_window_unmap(struct vpmm_offload *offload,
                                                      struct offload_group *group);
/* Gives the group memory of its own and shows it. Undone on failure. */
VPMM_MUST_CHECK enum vpmm_status offload_group_house(struct vpmm_offload *offload,
                                                     struct offload_group *group);
VPMM_MUST_CHECK enum vpmm_status offload_group_evict(struct vpmm_offload *offload,
                                                     struct offload_group *group);
/* The direct group, which is mapped nowhere, is to show that extent of the device, which it owns
 * from then on; or its host memory again. */
void offload_group_promote(struct vpmm_offload *offload, struct offload_group *group,
                           vpmm_extent_handle extent);
void offload_group_unpromote(struct vpmm_offload *offload, struct offload_group *group);
/* The ring has so many slots; what is beyond must be shown nowhere. What could be had is kept on
 * failure. */
VPMM_MUST_CHECK enum vpmm_status offload_ring_resize(struct vpmm_offload *offload,
                                                     uint32_t n_slots);

/* ---- copies.c ---- */

/* Queues copies of the window's bytes from `first` to `end` (in chunks). May be repeated. */
VPMM_MUST_CHECK enum vpmm_status offload_copy(struct vpmm_offload *offload,
                                              struct offload_group *group, uint64_t first,
                                              uint64_t end);
/* All of it, and its arrival. */
VPMM_MUST_CHECK enum vpmm_status offload_load(struct vpmm_offload *offload,
                                              struct offload_group *group);
/* Later work of `to` comes after earlier work of `from`. */
VPMM_MUST_CHECK enum vpmm_status offload_follow(struct vpmm_offload *offload, vpmm_stream_handle to,
                                                vpmm_stream_handle from);
/* Waits on the host for all that the stream of copies has; that comes after all that is done. */
VPMM_MUST_CHECK enum vpmm_status offload_wait_copies(struct vpmm_offload *offload);
/* Waits for all work of the context. */
VPMM_MUST_CHECK enum vpmm_status offload_wait_context(struct vpmm_offload *offload);

/* ---- source.c ---- */

void offload_sources_finish(struct vpmm_offload *offload);
/* ---- store.c ---- */

/* Notes that so many bytes are pinned; NO_HOST_ROOM: they may not be. */
VPMM_MUST_CHECK enum vpmm_status offload_host_charge(struct vpmm_offload *offload, uint64_t bytes);
void offload_host_refund(struct vpmm_offload *offload, uint64_t bytes);
/* The same of all pages of a file. */
VPMM_MUST_CHECK enum vpmm_status offload_host_charge_file(struct vpmm_offload *offload,
                                                          const struct offload_source *source);
void offload_host_refund_file(struct vpmm_offload *offload, const struct offload_source *source);
VPMM_MUST_CHECK enum vpmm_status offload_stages_make(struct vpmm_offload *offload);
void offload_store_finish(struct vpmm_offload *offload);
/* The bytes from `offset` of the file on. False: they are not there. */
bool offload_read_fully(int descriptor, void *to, uint64_t bytes, uint64_t offset);

/* ---- arrange.c: from one plan to another ---- */

/* Waits for the context, and carries out what `budget_bytes` and the order (where there is one) ask
 * for. On failure some of it is done; to arrange again, or to abandon, ends that. */
VPMM_MUST_CHECK enum vpmm_status offload_arrange(struct vpmm_offload *offload,
                                                 uint64_t budget_bytes);
/* Fills in the needs, and whether the budget is enough for them (BELOW_FLOOR). */
VPMM_MUST_CHECK enum vpmm_status offload_measure(struct vpmm_offload *offload,
                                                 uint64_t budget_bytes);
/* Gives all device memory back; what could not be unmapped stays, and is tried again next time. */
enum vpmm_status offload_dismantle(struct vpmm_offload *offload);
/* The same after a failure: the next begin arranges anew. */
void offload_abandon(struct vpmm_offload *offload);

/* ---- seal.c ---- */

/* Carries out another budget. On failure the old one holds, or nothing is held. */
enum vpmm_status offload_change(struct vpmm_offload *offload, uint64_t budget_bytes);

/* Between passes of a known order, and no graph needs what is held. */
static inline bool offload_may_change(const struct vpmm_offload *offload)
{
    return offload->phase == OFFLOAD_READY && offload->is_planned && !offload->is_frozen &&
           !offload->is_dismantled && !offload->is_lost;
}

/* ---- pressure.c: memory that the program lacks ---- */

/* Work of `stream` up to here may have read a resident group. */
void offload_note_done(struct vpmm_offload *offload, vpmm_stream_handle stream);
void offload_readers_finish(struct vpmm_offload *offload);
/* At the end of a pass: gives back what was asked for, or takes the budget again. */
void offload_settle_pressure(struct vpmm_offload *offload);

/* ---- promote.c: direct groups that are used much ---- */

/* The pass under way uses the direct group. */
void offload_note_heat(struct vpmm_offload *offload, struct offload_group *group);
/* At the end of a pass: moves what is used much to the device, as far as there is room. */
void offload_settle_heat(struct vpmm_offload *offload);
/* Shows host memory again. No work reads it. On failure it is mapped nowhere. */
VPMM_MUST_CHECK enum vpmm_status offload_demote(struct vpmm_offload *offload,
                                                struct offload_group *group);

/* ---- ring.c: passes of a known order ---- */

/* Queues every load that may be. What fails is tried again by the next call. */
enum vpmm_status offload_pump(struct vpmm_offload *offload);
VPMM_MUST_CHECK enum vpmm_status offload_ring_use(struct vpmm_offload *offload, uint32_t number,
                                                  vpmm_stream_handle stream);
/* Forgets what lies in slots ahead of no use: a graph that is launched later overwrites it. */
void offload_ring_forget(struct vpmm_offload *offload);
/* Makes `stream` wait for the group's bytes, where they are not known to be there. */
VPMM_MUST_CHECK enum vpmm_status
offload_await(struct vpmm_offload *offload, struct offload_group *group, vpmm_stream_handle stream);
void offload_note_use(struct vpmm_offload *offload, struct offload_group *group);
/* Says that the group is not the one that the order has at the next step. */
VPMM_MUST_CHECK enum vpmm_status offload_tell_order(struct vpmm_offload *offload, uint32_t number);
/* No load is ahead of its use: as before the first pass, but for what lies in the slots. */
void offload_ring_restart(struct vpmm_offload *offload);

/* ---- times.c: how long it takes on the device ---- */

/* Makes the events for passes of the plan. What is not asked yet is forgotten. */
void offload_times_plan(struct vpmm_offload *offload);
/* At the end of a pass: where most of the first passes of a plan computed about as long as they
 * copied, and waited, the ring is made wider. That waits for the context and moves memory. */
void offload_settle_ring(struct vpmm_offload *offload);
void offload_times_finish(struct vpmm_offload *offload);
/* Asks for what is complete of the passes before, and begins to time this one. */
void offload_times_begin(struct vpmm_offload *offload, vpmm_stream_handle stream);
void offload_times_end(struct vpmm_offload *offload, vpmm_stream_handle stream);
/* The pass under way does not count. */
void offload_times_drop(struct vpmm_offload *offload);
/* Around a wait of `stream` for a copy; NULL: it is not timed. */
struct offload_span *offload_times_stall(struct vpmm_offload *offload, vpmm_stream_handle stream);
void offload_times_resume(struct vpmm_offload *offload, struct offload_span *stall,
                          vpmm_stream_handle stream);
/* Around a copy of so many chunks. */
struct offload_span *offload_times_copy(struct vpmm_offload *offload, uint64_t n_chunks);
void offload_times_copied(struct vpmm_offload *offload, struct offload_span *copy);

/* ---- record.c: passes of an unknown order, and checked ones ---- */

VPMM_MUST_CHECK enum vpmm_status offload_record_use(struct vpmm_offload *offload, uint32_t number,
                                                    vpmm_stream_handle stream);
VPMM_MUST_CHECK enum vpmm_status offload_record_done(struct vpmm_offload *offload, uint32_t number);
VPMM_MUST_CHECK enum vpmm_status offload_record_end(struct vpmm_offload *offload);

#endif
