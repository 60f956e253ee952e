/* SPDX-License-Identifier: MIT */
/* A library that is no driver and yet has functions of a driver's names; one that opens it must get
 * those. */
#define FOREIGN(name, code)                                                                        \
    int name(void);                                                                                \
    int name(void)                                                                                 \
    {                                                                                              \
        return code;                                                                               \
    }

FOREIGN(cuInit, 4141)
FOREIGN(cuMemAlloc_v2, 4242)
FOREIGN(cuMemAllocAsync, 4343)
FOREIGN(cuMemFree_v2, 4444)
