/* SPDX-License-Identifier: MIT */
/* The functions that we stand in front of: the real dlsym and the driver's own code, found once and
 * without any name private to glibc. Never loads a driver: it only finds the one that the program
 * has loaded. */
#ifndef VPMM_PRELOAD_ORIGINAL_H
#define VPMM_PRELOAD_ORIGINAL_H

#include "preload/api.h"

#include <pthread.h>
#include <stdbool.h>

typedef void *vpmm_dlsym_fn(void *handle, const char *name);

/* The dlsym to which a program's look-ups go on, or NULL when this C library has none that we know.
 * Works before any constructor ran; takes no lock and allocates nothing. */
vpmm_dlsym_fn *vpmm_original_dlsym_next(void);

/* Whether `address` is code of the libcuda that the program uses; the first libcuda ever seen
 * becomes that one. Safe in dlsym. */
bool vpmm_original_is_driver(const void *address);

/* Fills the table of originals if it is not filled yet. False when no libcuda is loaded. Not to be
 * called in dlsym. */
bool vpmm_original_find(void);

/* The address of driver function `name`, or NULL. For the seam's implementation. */
void *vpmm_original_lookup(void *self, const char *name);

/* The original of one wrapper, or NULL. */
vpmm_code *vpmm_original_at(enum vpmm_api api);
/* The same where it was found before; NULL: vpmm_original_at has to look. */
vpmm_code *vpmm_original_known(enum vpmm_api api);

/* Calls the original of `name`. Without a driver to ask, the program learns that there is none. */
#define VPMM_ORIGINAL(name, ...) VPMM_ORIGINAL_AT(VPMM_API_##name, name##_fn, __VA_ARGS__)

/* The same by its number and type. A macro that is given a name makes these of it: cuda.h has
 * macros of some names, which would become others where they are handed on. */
#define VPMM_ORIGINAL_AT(api, type, ...)                                                           \
    (vpmm_original_at(api) ? ((type *)vpmm_original_at(api))(__VA_ARGS__)                          \
                           : CUDA_ERROR_NOT_INITIALIZED)

/* The wrapper `name`: does `first`, and goes on to the original with the arguments. */
#define VPMM_FIRST(first, name, parameters, ...)                                                   \
    CUresult vpmm_wrap_##name parameters                                                           \
    {                                                                                              \
        first;                                                                                     \
        return VPMM_ORIGINAL_AT(VPMM_API_##name, name##_fn, __VA_ARGS__);                          \
    }

/* The block `...`, with an original call in which somebody may cancel the thread while it keeps
 * something that other threads wait for: then the thread calls undo(self), a void function of a
 * void pointer, before it ends. Must not be left by a jump or a return. Costs some 20 ns. Work of
 * our own holds cancellations off instead (base/lock.h): a call that waits for the program's work
 * must not, because bare CUDA may let the thread end. */
#define VPMM_UNDO_IF_CANCELLED(undo, self, ...)                                                    \
    do {                                                                                           \
        pthread_cleanup_push(undo, self);                                                          \
        __VA_ARGS__                                                                                \
        pthread_cleanup_pop(0);                                                                    \
    } while (0)

#endif
