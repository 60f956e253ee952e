/* SPDX-License-Identifier: MIT */
/* The wrappers of calls that queue work: they learn whether the program uses per-thread streams,
 * which it can name without having created them. Must not do more than look at one word, and at
 * the attributes of a launch that has any, because launches of kernels are among them. */
#define _GNU_SOURCE
#include "preload/wrap_work.h"

#include "order/order.h"
#include "preload/original.h"
#include "preload/wrap_lookup.h"

#include <dlfcn.h>
#include <string.h>

vpmm_atomic32 vpmm_has_blocking_stream;

void vpmm_watch_streams(struct vpmm_order *order)
{
    vpmm_dlsym_fn *next = vpmm_original_dlsym_next();
    void *found = next ? next(RTLD_DEFAULT, "cuLaunchKernel") : NULL;
    vpmm_code *code;
    memcpy(&code, &found, sizeof code);
    if (code == vpmm_api_row(VPMM_API_cuLaunchKernel)->wrapper)
        vpmm_order_watch_streams(order, &vpmm_has_blocking_stream);
}

/* In the plain spelling NULL is the legacy stream; in the other one it is the thread's own. */
#define SEE_PLAIN(word) vpmm_see_stream(word)
#define SEE_PTSZ(word) ((void)(word), vpmm_see_blocking_stream())

/* Where the original is known there is nothing to do but a jump, so that is kept apart. A name is
 * not handed on to another macro, because cuda.h has macros of some of these names. */
#define VPMM_STREAM(name, base, version, spelling, n, place)                                       \
    VPMM_NOINLINE static CUresult first_##name(VPMM_WORDS_##n)                                     \
    {                                                                                              \
        return VPMM_ORIGINAL_AT(VPMM_API_##name, name##_fn, VPMM_ARGUMENTS_##n);                   \
    }                                                                                              \
    CUresult vpmm_wrap_##name(VPMM_WORDS_##n)                                                      \
    {                                                                                              \
        SEE_##spelling(a##place);                                                                  \
        vpmm_code *original = vpmm_original_known(VPMM_API_##name);                                \
        return original ? ((name##_fn *)original)(VPMM_ARGUMENTS_##n)                              \
                        : first_##name(VPMM_ARGUMENTS_##n);                                        \
    }
#include "preload/api.def"

/* Of CUlaunchAttributeID; the second is of CUDA 12.3. Both values begin with the event. */
#define PROGRAMMATIC_EVENT 7
#define LAUNCH_COMPLETION_EVENT 12

/* Such a launch records the event where nobody can tell what comes before. So it is forgotten
 * before and after: another thread may record it meanwhile. */
static void forget_events(const CUlaunchConfig *config)
{
    for (unsigned i = 0; config->attrs && i < config->numAttrs; i++)
        if ((int)config->attrs[i].id == PROGRAMMATIC_EVENT ||
            (int)config->attrs[i].id == LAUNCH_COMPLETION_EVENT)
            vpmm_forget_event(config->attrs[i].value.programmaticEvent.event);
}

CUresult vpmm_wrap_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function,
                                    void **arguments, void **extra)
{
    if (config) {
        vpmm_see_stream((uintptr_t)config->hStream);
        forget_events(config);
    }
    CUresult result = VPMM_ORIGINAL(cuLaunchKernelEx, config, function, arguments, extra);
    if (config)
        forget_events(config);
    return result;
}

CUresult vpmm_wrap_cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function,
                                         void **arguments, void **extra)
{
    vpmm_see_blocking_stream();
    if (config)
        forget_events(config);
    CUresult result = VPMM_ORIGINAL(cuLaunchKernelEx_ptsz, config, function, arguments, extra);
    if (config)
        forget_events(config);
    return result;
}

/* Each launch names a stream of its own. */
VPMM_FIRST(vpmm_see_blocking_stream(), cuLaunchCooperativeKernelMultiDevice, (VPMM_WORDS_3),
           VPMM_ARGUMENTS_3)
