/* SPDX-License-Identifier: MIT */
/* Which wrapper stands for which driver function. Pure look-up: real answers come first and are
 * replaced only where it is certain that they name the very function that a wrapper continues to.
 * No state of its own. */
#ifndef VPMM_PRELOAD_LOOKUP_H
#define VPMM_PRELOAD_LOOKUP_H

#include "preload/api.h"

#include <stdbool.h>
#include <stdint.h>

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

/* The function that cuGetProcAddress is bound to give for these arguments according to the list
 * alone: the newest ABI not newer than `version`, in the spelling that `flags` ask for where there
 * is one. VPMM_API_COUNT: none. */
enum vpmm_api vpmm_api_by_version(const char *base, int version, uint64_t flags);

/* What a program gets that asked cuGetProcAddress for `symbol` and was answered `found` by the
 * driver: `found` itself or our wrapper for it. */
void *vpmm_lookup_substitute(const char *symbol, int version, uint64_t flags, void *found);

#endif
