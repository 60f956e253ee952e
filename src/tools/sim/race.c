/* SPDX-License-Identifier: MIT */
/* Finds operations that share a page and may run at the same time. Must not complain of two that a
 * stream or an event puts in order. */
#include "sim/sim_internal.h"

#include <stdlib.h>

/* The stores behind the op's declared ranges, as mapped at this moment. */
static void segments_find(struct sim *sim, struct op *op)
{
    const struct sim_range *ranges = (const struct sim_range *)(void *)op->work.ranges->data;
    size_t room = 0;
    size_t writes_room = 0;
    for (size_t i = 0; i < op->work.ranges->bytes / sizeof *ranges; i++) {
        for (uint64_t done = 0; done < ranges[i].bytes;) {
            struct segment segment;
            if (space_find(sim, op->context->device, op->context, ranges[i].address + done,
                           ranges[i].bytes - done, ranges[i].writes, &segment) == REACH_NONE)
                break;
            op->segments = grow(op->segments, sizeof *op->segments, op->n_segments, &room);
            op->segment_writes =
                grow(op->segment_writes, sizeof *op->segment_writes, op->n_segments, &writes_room);
            op->segment_writes[op->n_segments] = ranges[i].writes;
            op->segments[op->n_segments++] = segment;
            done += segment.bytes;
        }
    }
}

static bool segments_clash(const struct op *a, const struct op *b)
{
    for (size_t i = 0; i < a->n_segments; i++)
        for (size_t j = 0; j < b->n_segments; j++) {
            const struct segment *one = &a->segments[i];
            const struct segment *other = &b->segments[j];
            if (one->store == other->store && one->offset < other->offset + other->bytes &&
                other->offset < one->offset + one->bytes &&
                (a->segment_writes[i] || b->segment_writes[j]))
                return true;
        }
    return false;
}

void op_race_check(struct sim *sim, struct op *op)
{
    if (!sim->config.check_races || op->work.ranges == NULL)
        return;
    segments_find(sim, op);
    uint64_t mark = ++sim->mark;
    op_mark(op, mark);
    for (const struct op *other = sim->pending; other != NULL; other = other->next)
        if (other->mark != mark && segments_clash(op, other))
            misuse(sim, SIM_RACE, "%s and %s share a page, and nothing orders them", op->work.name,
                   other->work.name);
}
