/* SPDX-License-Identifier: MIT */
/* What api.def becomes in C: a function type and a number for each name, and the prototype of each
 * wrapper. A wrapper carries its CUDA name only as its symbol; in C it is vpmm_wrap_<name>, so that
 * cuda.h's macros and prototypes cannot clash with it and no line of ours can call an intercepted
 * name by accident. */
#ifndef VPMM_PRELOAD_API_H
#define VPMM_PRELOAD_API_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#define VPMM_EXPORT __attribute__((visibility("default")))

/* So many parameters that each take one register, or one place on the stack: integers, pointers,
 * and structures of no more than eight bytes. */
#define VPMM_WORDS_1 uintptr_t a0
#define VPMM_WORDS_2 VPMM_WORDS_1, uintptr_t a1
#define VPMM_WORDS_3 VPMM_WORDS_2, uintptr_t a2
#define VPMM_WORDS_4 VPMM_WORDS_3, uintptr_t a3
#define VPMM_WORDS_5 VPMM_WORDS_4, uintptr_t a4
#define VPMM_WORDS_6 VPMM_WORDS_5, uintptr_t a5
#define VPMM_WORDS_7 VPMM_WORDS_6, uintptr_t a6
#define VPMM_WORDS_8 VPMM_WORDS_7, uintptr_t a7
#define VPMM_WORDS_9 VPMM_WORDS_8, uintptr_t a8
#define VPMM_WORDS_10 VPMM_WORDS_9, uintptr_t a9
#define VPMM_WORDS_11 VPMM_WORDS_10, uintptr_t a10

/* The same words as they are handed on. */
#define VPMM_ARGUMENTS_1 a0
#define VPMM_ARGUMENTS_2 VPMM_ARGUMENTS_1, a1
#define VPMM_ARGUMENTS_3 VPMM_ARGUMENTS_2, a2
#define VPMM_ARGUMENTS_4 VPMM_ARGUMENTS_3, a3
#define VPMM_ARGUMENTS_5 VPMM_ARGUMENTS_4, a4
#define VPMM_ARGUMENTS_6 VPMM_ARGUMENTS_5, a5
#define VPMM_ARGUMENTS_7 VPMM_ARGUMENTS_6, a6
#define VPMM_ARGUMENTS_8 VPMM_ARGUMENTS_7, a7
#define VPMM_ARGUMENTS_9 VPMM_ARGUMENTS_8, a8
#define VPMM_ARGUMENTS_10 VPMM_ARGUMENTS_9, a9
#define VPMM_ARGUMENTS_11 VPMM_ARGUMENTS_10, a10

#define VPMM_API(name, base, version, spelling, parameters)                                        \
    typedef CUresult name##_fn parameters;                                                         \
    VPMM_EXPORT CUresult vpmm_wrap_##name parameters __asm__(#name);
#define VPMM_STREAM(name, base, version, spelling, n, place)                                       \
    typedef CUresult name##_fn(VPMM_WORDS_##n);                                                    \
    VPMM_EXPORT CUresult vpmm_wrap_##name(VPMM_WORDS_##n) __asm__(#name);
#define VPMM_USED(name, parameters) typedef CUresult name##_fn parameters;
#include "preload/api.def"

enum vpmm_api {
#define VPMM_API(name, base, version, spelling, parameters) VPMM_API_##name,
#define VPMM_STREAM(name, base, version, spelling, n, place) VPMM_API_##name,
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
