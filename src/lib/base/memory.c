/* SPDX-License-Identifier: MIT */
/* Maps metadata memory from the system and gives it back. Must not call malloc: the library may run
 * inside the host program's malloc. */
#define _DEFAULT_SOURCE
#include "base/memory.h"

#include <sys/mman.h>

static void *system_map(void *self, size_t bytes)
{
    (void)self;
    void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return address == MAP_FAILED ? NULL : address;
}

static void system_unmap(void *self, void *address, size_t bytes)
{
    (void)self;
    (void)munmap(address, bytes);
}

const struct vpmm_memory vpmm_memory_system = {NULL, system_map, system_unmap};
