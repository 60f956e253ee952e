/* SPDX-License-Identifier: MIT */
/* Wrappers for the look-up table when dlsym is tested alone: never called. */
#define VPMM_API(name, base, version, spelling, parameters)                                        \
    int name(void);                                                                                \
    __attribute__((weak)) int name(void)                                                           \
    {                                                                                              \
        return 999;                                                                                \
    }
#define VPMM_STREAM(name, base, version, spelling, n, place)                                       \
    VPMM_API(name, base, version, spelling, ())
#include "preload/api.def"
