/* SPDX-License-Identifier: MIT */
/* The table of live blocks. An address must not be put in while it is there. */
#include "trace/live.h"

#include <stdlib.h>
#include <string.h>

#define ROOM_LEAST 256u

static size_t place_of(const struct vpmm_live *live, uint64_t address)
{
    uint64_t mixed = address ^ address >> 29;
    mixed *= 0x9e3779b97f4a7c15u;
    mixed ^= mixed >> 32;
    return (size_t)mixed & (live->room - 1);
}

/* Where `address` is, or the empty place where it would be. */
static size_t find(const struct vpmm_live *live, uint64_t address)
{
    size_t at = place_of(live, address);
    while (live->blocks[at].address && live->blocks[at].address != address)
        at = (at + 1) & (live->room - 1);
    return at;
}

static bool grow(struct vpmm_live *live)
{
    struct vpmm_live larger = {.room = live->room ? live->room * 2 : ROOM_LEAST, .n = live->n};
    larger.blocks = calloc(larger.room, sizeof *larger.blocks);
    if (!larger.blocks)
        return false;
    for (size_t i = 0; i < live->room; i++) {
        if (live->blocks[i].address)
            larger.blocks[find(&larger, live->blocks[i].address)] = live->blocks[i];
    }
    free(live->blocks);
    *live = larger;
    return true;
}

void vpmm_live_finish(struct vpmm_live *live)
{
    free(live->blocks);
    *live = (struct vpmm_live){0};
}

void vpmm_live_clear(struct vpmm_live *live)
{
    if (live->n)
        memset(live->blocks, 0, live->room * sizeof *live->blocks);
    live->n = 0;
}

bool vpmm_live_put(struct vpmm_live *live, const struct vpmm_live_block *block)
{
    if (live->n >= live->room / 2 && !grow(live))
        return false;
    live->blocks[find(live, block->address)] = *block;
    live->n++;
    return true;
}

/* Blocks behind an emptied place move up, so that none is cut off from where it is looked for. */
static void close_gap(struct vpmm_live *live, size_t gap)
{
    size_t mask = live->room - 1;
    for (size_t at = (gap + 1) & mask; live->blocks[at].address; at = (at + 1) & mask) {
        size_t wanted = place_of(live, live->blocks[at].address);
        if (((at - wanted) & mask) >= ((at - gap) & mask)) {
            live->blocks[gap] = live->blocks[at];
            gap = at;
        }
    }
    live->blocks[gap].address = 0;
}

bool vpmm_live_take(struct vpmm_live *live, uint64_t address, struct vpmm_live_block *block_out)
{
    if (live->n == 0 || address == 0)
        return false;
    size_t at = find(live, address);
    if (!live->blocks[at].address)
        return false;
    *block_out = live->blocks[at];
    live->n--;
    close_gap(live, at);
    return true;
}
