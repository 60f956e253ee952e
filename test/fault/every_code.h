/* SPDX-License-Identifier: MIT */
/* One allocation or free of an ordinary program, with what has to be there before it. */
#ifndef VPMM_TEST_FAULT_EVERY_CODE_H
#define VPMM_TEST_FAULT_EVERY_CODE_H

#include "vpmm/vpmm.h"

#include <cuda.h>

#include <stdbool.h>
#include <stddef.h>

#define MIB ((size_t)1 << 20)

struct scene {
    const char *name;
    void (*prepare)(void);
    CUresult (*act)(void);  /* the call that meets the fault; a free may be called twice */
    CUresult (*undo)(void); /* of an allocation: its free; NULL: the act is a free */
    void (*finish)(void);   /* NULL: nothing to clear away */
};
/* Ended by one without a name. */
extern const struct scene scenes[];

/* Of the library that is preloaded; here it is linked. */
vpmm_interface_fn vpmm_interface_1;

/* Once, with a current context and a pool. */
void scenes_start(void);

/* Ends the process where `result` is no success. */
void must(const char *what, CUresult result);
#define MUST(call) must(#call, (call))
bool is_pooled(CUdeviceptr address);

#endif
