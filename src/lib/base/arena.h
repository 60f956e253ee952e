/* SPDX-License-Identifier: MIT */
/* Metadata memory that other processes of the same user can look at: pieces of one large shared
 * mapping of a file that has no name. Its first page tells a reader where everything is. The
 * mapping is made whole, so that nothing here uses the descriptor again: programs close descriptors
 * that they do not know. A reader finds the file below /proc, and maps it at the same address.
 *
 * Where such a mapping cannot be had, or is used up, memory is the system's, and nobody outside
 * sees it. A forked child shares the mapping until vpmm_arena_abandon. */
#ifndef VPMM_BASE_ARENA_H
#define VPMM_BASE_ARENA_H

#include "base/atomic.h"
#include "base/lock.h"
#include "base/memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The file's name as /proc/PID/fd shows it. */
#define VPMM_ARENA_NAME "vpmm"
#define VPMM_ARENA_LINK "/memfd:" VPMM_ARENA_NAME " (deleted)"
#define VPMM_ARENA_MAGIC UINT64_C(0x616e6572616d7076)
#define VPMM_ARENA_BYTES ((uint64_t)64 << 30)

/* At the beginning of the file. What stands before `layout` is the same in all versions. */
struct vpmm_arena_header {
    uint64_t magic;
    char version[16];
    uint64_t layout; /* of everything else: see vpmm_arena_create */
    void *address;   /* where the process has it */
    uint64_t bytes;
    vpmm_atomic64 used_bytes;  /* handed out from the beginning on, this page included */
    vpmm_atomic64 has_spilled; /* pieces lie elsewhere: a reader must not follow pointers */
    uint64_t pid;              /* as the process itself sees it */
    uint64_t started_ns;       /* since 1970 */
    char program[64];          /* its short name, terminated */
    _Atomic(void *) root;      /* what vpmm_arena_publish was told; NULL: nothing yet */
};

#define VPMM_ARENA_CLASSES 48

struct vpmm_arena {
    struct vpmm_memory memory; /* to be handed on; its `self` is the arena */
    struct vpmm_arena_header *header;
    uint64_t bytes, page_bytes;
    int fd;                 /* where the file was open at first */
    uint64_t device, inode; /* of the file */
    struct vpmm_latch latch;
    void *given_back[VPMM_ARENA_CLASSES]; /* latch: by size, each names the next */
};

/* Makes an arena of `bytes` of address space in `arena`, which stays where it is as long as it
 * lives. `version` and `layout` tell a reader whether it knows what lies there. False, with nothing
 * left behind: the system, or a limit of the process, does not allow it. */
bool vpmm_arena_create(struct vpmm_arena *arena, uint64_t bytes, const char *version,
                       uint64_t layout);
/* Gives all memory back, whoever uses it. */
void vpmm_arena_destroy(struct vpmm_arena *arena);

/* Shows readers where to begin. */
void vpmm_arena_publish(struct vpmm_arena *arena, void *root);

/* In a forked child: what the child changes remains its own. The arena is not to be used any
 * further. */
void vpmm_arena_abandon(struct vpmm_arena *arena);

#endif
