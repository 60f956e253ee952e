/* SPDX-License-Identifier: MIT */
#define _DEFAULT_SOURCE
#include "arena.h"

#include "schedule.h"

#include <string.h>
#include <sys/mman.h>

#define ARENA_BYTES ((size_t)4 << 30)
#define PAGE_BYTES ((size_t)4096)
#define DIRTY_MAX 4096
#define UNIT ((size_t)64)
/* Mappings up to here are filled with rubbish when they are given back. */
#define SMALL_BYTES ((size_t)256 << 10)

static struct {
    char *start;
    bool is_kept;
    unsigned n_dirty;
    char *dirty[DIRTY_MAX];
    char (*copies)[PAGE_BYTES];
} arena;

/* In the arena itself, so that it is restored with the rest. */
struct head {
    size_t used;
    uint64_t maps;
};

static struct head *head(void)
{
    return (struct head *)(void *)arena.start;
}

static void *map(size_t bytes)
{
    void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED)
        schedule_fail("no memory for the arena");
    return start;
}

void arena_reset(void)
{
    if (arena.start)
        (void)munmap(arena.start, ARENA_BYTES);
    if (!arena.copies)
        arena.copies = map(DIRTY_MAX * PAGE_BYTES);
    arena.start = map(ARENA_BYTES);
    arena.is_kept = false;
    arena.n_dirty = 0;
    head()->used = UNIT;
}

void arena_snapshot(void)
{
    arena.is_kept = true;
    (void)mprotect(arena.start, ARENA_BYTES, PROT_READ);
}

void arena_restore(void)
{
    for (unsigned i = 0; i < arena.n_dirty; i++)
        memcpy(arena.dirty[i], arena.copies[i], PAGE_BYTES);
}

bool arena_fault(const void *address)
{
    size_t offset = (size_t)((uintptr_t)address - (uintptr_t)arena.start);
    if (!arena.is_kept || offset >= ARENA_BYTES || arena.n_dirty == DIRTY_MAX)
        return false;
    char *page = arena.start + offset / PAGE_BYTES * PAGE_BYTES;
    for (unsigned i = 0; i < arena.n_dirty; i++)
        if (arena.dirty[i] == page)
            return false;
    memcpy(arena.copies[arena.n_dirty], page, PAGE_BYTES);
    arena.dirty[arena.n_dirty++] = page;
    return mprotect(page, PAGE_BYTES, PROT_READ | PROT_WRITE) == 0;
}

void *schedule_room(size_t bytes)
{
    void *room = arena.start + head()->used;
    bytes = (bytes + UNIT - 1) / UNIT * UNIT;
    if (bytes > ARENA_BYTES - head()->used)
        schedule_fail("the arena is full");
    head()->used += bytes;
    return room;
}

uint64_t schedule_maps(void)
{
    return head()->maps;
}

static void *memory_map(void *self, size_t bytes)
{
    (void)self;
    head()->maps++;
    return schedule_room(bytes);
}

static void memory_unmap(void *self, void *address, size_t bytes)
{
    (void)self;
    head()->maps--;
    if (bytes <= SMALL_BYTES)
        memset(address, 0xdd, bytes);
}

const struct vpmm_memory schedule_memory = {NULL, memory_map, memory_unmap};
