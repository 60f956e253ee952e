/* SPDX-License-Identifier: MIT */
/* The wrappers of calls that take device memory which is not the pool's to serve. Launches of
 * kernels must not be among them: to try again would cost each of them time, and few of them take
 * memory. */
#include "preload/relief.h"

#include "preload/original.h"

bool vpmm_relieve_device(int device, struct vpmm_relief *relief)
{
    struct vpmm_router *router = vpmm_enter();
    if (!router)
        return false;
    bool has_room = vpmm_router_relieve(router, device, relief);
    vpmm_leave();
    return has_room;
}

/* How much such a call takes, only the driver knows. `see`: what is learnt of streams first. */
#define RELIEVED_SEEING(see, name, n)                                                              \
    CUresult vpmm_wrap_##name(VPMM_WORDS_##n)                                                      \
    {                                                                                              \
        see;                                                                                       \
        struct vpmm_relief relief = {.may_poll = true};                                            \
        CUresult result;                                                                           \
        VPMM_TRY_RELIEVED(result, vpmm_relieve_device(VPMM_DEVICE_OF_CONTEXT, &relief),            \
                          VPMM_ORIGINAL_AT(VPMM_API_##name, name##_fn, VPMM_ARGUMENTS_##n));       \
        return result;                                                                             \
    }
#define RELIEVED(name, n) RELIEVED_SEEING((void)0, name, n)

RELIEVED(cuMemAllocManaged, 3)
RELIEVED(cuArrayCreate_v2, 2)
RELIEVED(cuArray3DCreate_v2, 2)
RELIEVED(cuMipmappedArrayCreate, 3)

RELIEVED(cuModuleLoad, 2)
RELIEVED(cuModuleLoadData, 2)
RELIEVED(cuModuleLoadDataEx, 5)
RELIEVED(cuModuleLoadFatBinary, 2)
RELIEVED(cuLibraryLoadData, 8)
RELIEVED(cuLibraryLoadFromFile, 8)

/* Loading a module may leave its functions and variables for these. */
RELIEVED(cuModuleGetFunction, 3)
RELIEVED(cuLibraryGetModule, 2)
RELIEVED(cuLibraryGetGlobal, 4)
RELIEVED(cuLibraryGetManaged, 4)
RELIEVED(cuKernelGetFunction, 2)
RELIEVED(cuFuncLoad, 1)
RELIEVED(cuCtxSetLimit, 2)

RELIEVED(cuGraphInstantiateWithFlags, 3)
RELIEVED(cuGraphInstantiateWithParams, 3)
RELIEVED(cuGraphInstantiateWithParams_ptsz, 3)

#define PER_THREAD ((uintptr_t)VPMM_STREAM_PER_THREAD)
RELIEVED_SEEING(vpmm_see_stream(a1), cuGraphUpload, 2)
RELIEVED_SEEING(vpmm_see_stream(a1 ? a1 : PER_THREAD), cuGraphUpload_ptsz, 2)
RELIEVED_SEEING(vpmm_see_stream(a1), cuGraphLaunch, 2)
RELIEVED_SEEING(vpmm_see_stream(a1 ? a1 : PER_THREAD), cuGraphLaunch_ptsz, 2)

RELIEVED_SEEING(vpmm_see_creation((unsigned)a1), cuStreamCreate, 2)
RELIEVED_SEEING(vpmm_see_creation((unsigned)a1), cuStreamCreateWithPriority, 3)
RELIEVED_SEEING(vpmm_see_creation((unsigned)a2), cuGreenCtxStreamCreate, 4)
