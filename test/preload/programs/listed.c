/* SPDX-License-Identifier: MIT */
/* Wrappers for the look-up table when dlsym is tested alone: never called. */
#define VPMM_API(name, base, version, spelling, parameters)                                        \
    int name(void);                                                                                \
    __attribute__((weak)) int name(void)                                                           \
    {                                                                                              \
        return 999;                                                                                \
    }
#include "preload/api.def"
