/* SPDX-License-Identifier: MIT */
/* Metadata memory: zeroed whole mappings, handed to whoever needs them, so that a test can make the
 * Nth one fail and count what is left over. The library calls malloc nowhere: it may run inside the
 * host program's malloc. */
#ifndef VPMM_BASE_MEMORY_H
#define VPMM_BASE_MEMORY_H

#include <stddef.h>

struct vpmm_memory {
    void *self;
    /* `bytes` of zeroed, page-aligned memory that costs nothing until touched, or NULL. Any thread.
     */
    void *(*map)(void *self, size_t bytes);
    /* Gives back exactly what one `map` returned. Any thread. */
    void (*unmap)(void *self, void *address, size_t bytes);
};

/* Anonymous private mappings of the operating system. */
extern const struct vpmm_memory vpmm_memory_system;

#endif
