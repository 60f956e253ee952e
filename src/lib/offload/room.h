/* SPDX-License-Identifier: MIT */
/* How much memory this process may still use: what the machine has available and what its control
 * groups leave, whichever is less. It only reads files of the system, and keeps none open. */
#ifndef VPMM_OFFLOAD_ROOM_H
#define VPMM_OFFLOAD_ROOM_H

#include <stdint.h>

/* In bytes; UINT64_MAX: nothing says. What a group has in the page cache counts as left, because
 * the system drops it where memory is needed; but for shared memory, which "file" contains and
 * "shmem" tells (Linux, Documentation/admin-guide/cgroup-v2.rst, "Memory Interface Files"; of
 * version 1 Documentation/admin-guide/cgroup-v1/memory.rst, "stat file"). */
uint64_t vpmm_host_room(void);

/* For tests: the same of a system whose files lie below these folders (/proc and /sys/fs/cgroup).
 */
uint64_t vpmm_host_room_of(const char *proc, const char *cgroups);

#endif
