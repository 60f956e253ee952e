/* SPDX-License-Identifier: MIT */
/* A driver made of small functions, and a lookup that finds them by name. */
#ifndef VPMM_TEST_DRIVER_REAL_H
#define VPMM_TEST_DRIVER_REAL_H

#include "driver/cuda.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Contexts, streams and events are small numbers; the thread's contexts are a stack. */
struct real {
    uintptr_t stack[8];
    int depth, deepest;
    CUresult push, next; /* answers: of the push; of whatever is asked next */
    uintptr_t asked_in;  /* the context that was current in the last call that needs one */
    const char *missing;
    bool has_fd, has_rdma, is_strict; /* strict: creates only extents without extras */
    bool has_decompression, is_picky; /* picky: creates no extents for that */
    bool has_host; /* reads registered mappings, and maps extents in host memory */
    unsigned host_flags;
    uintptr_t unknown; /* a handle whose properties cannot be had */
    int n_creates, n_releases, n_id_questions, n_context_questions;
    unsigned stream_flags;
    CUmemAllocationProp properties;
    CUmemAccessDesc access[VPMM_DEVICES_MAX];
    size_t n_access;
    CUstreamCaptureMode mode;
    CUstreamCaptureStatus capture;
    CUresult capture_result;
    unsigned event_flags;
    size_t kept;
};
extern struct real real;

/* The thread's current context; 0: none. */
uintptr_t real_current(void);

/* Every name that the seam asks for. */
struct real_name {
    const char *name;
    bool required;
    size_t offset; /* in struct vpmm_cuda */
};
extern const struct real_name real_names[];
extern const size_t real_n_names;

/* The lookup; `self` must be &real. */
void *real_lookup(void *self, const char *name);

#endif
