/* SPDX-License-Identifier: MIT */
/* Makes a tape of a trace's items. Must not leave out a request without counting it. */
#include "replay/tape.h"

#include "replay/numbers.h"
#include "trace/reader.h"

#include <stdlib.h>
#include <string.h>

#define OPS_FIRST 4096
#define SKIPPED (VPMM_NUMBER_NONE - 1)

struct maker {
    struct vpmm_tape tape;
    const struct vpmm_tape_choice *choice;
    size_t ops_room;
    struct vpmm_numbers live; /* by address: the allocation, SKIPPED, or NONE once freed */
    struct vpmm_numbers streams, events;
};

static bool number_of(struct vpmm_numbers *numbers, uint64_t key, uint32_t *n, uint32_t *number_out)
{
    uint32_t *number = vpmm_numbers_at(numbers, key);
    if (!number)
        return false;
    if (*number == VPMM_NUMBER_NONE)
        *number = (*n)++;
    *number_out = *number;
    return true;
}

static bool find_stream(struct maker *maker, uint64_t handle, uint32_t *stream_out)
{
    struct vpmm_tape *tape = &maker->tape;
    uint32_t before = tape->n_streams;
    if (!number_of(&maker->streams, handle, &tape->n_streams, stream_out))
        return false;
    if (tape->n_streams == before)
        return true;
    uint64_t *grown = realloc(tape->streams, tape->n_streams * sizeof *grown);
    if (!grown)
        return false;
    tape->streams = grown;
    grown[before] = handle;
    return true;
}

static bool add(struct maker *maker, const struct vpmm_tape_op *op)
{
    struct vpmm_tape *tape = &maker->tape;
    if (tape->n_ops == maker->ops_room) {
        size_t room = maker->ops_room ? 2 * maker->ops_room : OPS_FIRST;
        struct vpmm_tape_op *grown = realloc(tape->ops, room * sizeof *grown);
        if (!grown)
            return false;
        tape->ops = grown;
        maker->ops_room = room;
    }
    tape->ops[tape->n_ops++] = *op;
    return true;
}

/* Why a malloc is left out: the count of those, or NULL. */
static uint64_t *reason_to_skip(struct maker *maker, const struct vpmm_trace_entry *entry)
{
    struct vpmm_tape *tape = &maker->tape;
    if (tape->device < 0)
        tape->device = entry->device;
    if (entry->device != tape->device)
        return &tape->n_elsewhere;
    return entry->bytes < maker->choice->least_bytes || entry->bytes == 0 ? &tape->n_small : NULL;
}

static bool add_malloc(struct maker *maker, const struct vpmm_trace_item *item,
                       struct vpmm_tape_op *op)
{
    const struct vpmm_trace_entry *entry = &item->entry;
    if (!item->is_known) {
        maker->tape.n_refused++;
        return true;
    }
    uint32_t *number = vpmm_numbers_at(&maker->live, entry->address);
    if (!number)
        return false;
    uint64_t *skipped = reason_to_skip(maker, entry);
    if (skipped) {
        *number = SKIPPED;
        (*skipped)++;
        return true;
    }
    *number = op->object = maker->tape.n_allocations++;
    op->kind = VPMM_TAPE_MALLOC;
    op->amount = entry->bytes;
    op->is_sync = !(entry->flags & VPMM_TRACE_IS_ASYNC);
    return find_stream(maker, entry->stream, &op->stream) && add(maker, op);
}

static bool add_free(struct maker *maker, const struct vpmm_trace_item *item,
                     struct vpmm_tape_op *op)
{
    const struct vpmm_trace_entry *entry = &item->entry;
    maker->tape.n_unmatched += !item->is_known || item->is_made_up;
    /* Where it failed, the block at that address is still live. */
    if (!item->is_known)
        return true;
    uint32_t *number = vpmm_numbers_at(&maker->live, entry->address);
    if (!number)
        return false;
    op->object = *number;
    *number = VPMM_NUMBER_NONE;
    if (op->object == VPMM_NUMBER_NONE || op->object == SKIPPED)
        return true;
    op->kind = VPMM_TAPE_FREE;
    op->is_sync = !(entry->flags & VPMM_TRACE_IS_ASYNC);
    maker->tape.n_frees++;
    return find_stream(maker, entry->stream, &op->stream) && add(maker, op);
}

static bool add_item(struct maker *maker, const struct vpmm_trace_item *item)
{
    const struct vpmm_trace_entry *entry = &item->entry;
    struct vpmm_tape *tape = &maker->tape;
    struct vpmm_tape_op op = {.ns = item->moment_ns};
    switch ((int)entry->kind) {
    case VPMM_TRACE_MALLOC:
        return add_malloc(maker, item, &op);
    case VPMM_TRACE_FREE:
        return vpmm_trace_frees_nothing(item) || add_free(maker, item, &op);
    case VPMM_TRACE_KERNEL:
        op.kind = VPMM_TAPE_WORK;
        op.amount = entry->bytes;
        tape->n_works++;
        break;
    case VPMM_TRACE_RECORD:
    case VPMM_TRACE_FOLLOW:
        op.kind = entry->kind == VPMM_TRACE_RECORD ? VPMM_TAPE_RECORD : VPMM_TAPE_FOLLOW;
        if (!number_of(&maker->events, entry->address, &tape->n_events, &op.object))
            return false;
        break;
    default:
        return true;
    }
    return find_stream(maker, entry->stream, &op.stream) && add(maker, &op);
}

static enum vpmm_status find_live_peak(struct vpmm_tape *tape)
{
    uint64_t live_bytes = 0;
    uint64_t *bytes = calloc((size_t)tape->n_allocations + 1, sizeof *bytes);
    if (!bytes)
        return VPMM_NO_METADATA;
    for (size_t i = 0; i < tape->n_ops; i++) {
        const struct vpmm_tape_op *op = &tape->ops[i];
        if (op->kind == VPMM_TAPE_FREE)
            live_bytes -= bytes[op->object];
        if (op->kind != VPMM_TAPE_MALLOC)
            continue;
        bytes[op->object] = op->amount;
        live_bytes += op->amount;
        if (live_bytes > tape->live_peak_bytes)
            tape->live_peak_bytes = live_bytes;
    }
    free(bytes);
    return VPMM_OK;
}

static enum vpmm_status read_items(struct maker *maker, const struct vpmm_tape_source *source)
{
    struct vpmm_trace_item item;
    while (source->next(source->self, &item))
        if (!add_item(maker, &item))
            return VPMM_NO_METADATA;
    return find_live_peak(&maker->tape);
}

enum vpmm_status vpmm_tape_read(const struct vpmm_tape_source *source,
                                const struct vpmm_tape_choice *choice, struct vpmm_tape *tape_out)
{
    struct maker maker = {.choice = choice, .tape = {.device = choice->device}};
    enum vpmm_status status = read_items(&maker, source);
    vpmm_numbers_finish(&maker.live);
    vpmm_numbers_finish(&maker.streams);
    vpmm_numbers_finish(&maker.events);
    if (status)
        vpmm_tape_finish(&maker.tape);
    else
        *tape_out = maker.tape;
    return status;
}

void vpmm_tape_finish(struct vpmm_tape *tape)
{
    free(tape->ops);
    free(tape->streams);
    memset(tape, 0, sizeof *tape);
}
