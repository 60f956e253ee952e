/* SPDX-License-Identifier: MIT */
/* What api.def becomes in C: a function type and a number for each name, and the prototype of each
 * wrapper. A wrapper carries its CUDA name only as its symbol; in C it is vpmm_wrap_<name>, so that
 * cuda.h's macros and prototypes cannot clash with it and no line of ours can call an intercepted
 * name by accident. */
#ifndef VPMM_PRELOAD_API_H
#define VPMM_PRELOAD_API_H

#include <cuda.h>
#include <stddef.h>

#define VPMM_EXPORT __attribute__((visibility("default")))

#define VPMM_API(name, base, version, spelling, parameters)                                        \
    typedef CUresult name##_fn parameters;                                                         \
    VPMM_EXPORT CUresult vpmm_wrap_##name parameters __asm__(#name);
#define VPMM_USED(name, parameters) typedef CUresult name##_fn parameters;
#include "preload/api.def"

enum vpmm_api {
#define VPMM_API(name, base, version, spelling, parameters) VPMM_API_##name,
#include "preload/api.def"
    VPMM_API_WRAPPED, /* how many are intercepted; those only called follow */
    VPMM_API_LAST_WRAPPED = VPMM_API_WRAPPED - 1,
#define VPMM_USED(name, parameters) VPMM_API_##name,
#include "preload/api.def"
    VPMM_API_COUNT
};

/* Some code; a value of this type is converted to its own function type before it is called. */
typedef void vpmm_code(void);

#endif
