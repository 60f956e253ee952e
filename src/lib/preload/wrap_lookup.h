/* SPDX-License-Identifier: MIT */
/* Which wrapper stands for which driver function. Pure look-up: real answers come first and are
 * replaced only where it is certain that they name the very function that a wrapper continues to.
 * No state of its own. */
#ifndef VPMM_PRELOAD_LOOKUP_H
#define VPMM_PRELOAD_LOOKUP_H

#include "preload/api.h"

#include <stdbool.h>

struct vpmm_api_row {
    const char *name;   /* as exported */
    const char *base;   /* as cuGetProcAddress is asked */
    int version;        /* first CUDA version of this ABI, as in cudaTypedefs.h */
    bool is_per_thread; /* the spelling for per-thread default streams */
    vpmm_code *wrapper;
};

/* The newest CUDA version whose names and ABIs api.def was compared with. */
#define VPMM_API_VERSION_CHECKED 13000

const struct vpmm_api_row *vpmm_api_row(enum vpmm_api api);

/* The number of the function exported as `name`, or VPMM_API_COUNT. Safe in dlsym. */
enum vpmm_api vpmm_api_by_name(const char *name);

/* Called at each look-up by cuGetProcAddress, before the driver is asked. It is for the library
 * that this file is part of to define. */
void vpmm_lookup_begins(void);

#endif
