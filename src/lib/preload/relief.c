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
#define RELIEVED_SEEING(see, name, parameters, ...)                                                \
    CUresult vpmm_wrap_##name parameters                                                           \
    {                                                                                              \
        see;                                                                                       \
        struct vpmm_relief relief = {.may_poll = true};                                            \
        CUresult result;                                                                           \
        VPMM_TRY_RELIEVED(result, vpmm_relieve_device(VPMM_DEVICE_OF_CONTEXT, &relief),            \
                          VPMM_ORIGINAL(name, __VA_ARGS__));                                       \
        return result;                                                                             \
    }
#define RELIEVED(...) RELIEVED_SEEING((void)0, __VA_ARGS__)

RELIEVED(cuMemAllocManaged, (CUdeviceptr * address_out, size_t bytes, unsigned flags), address_out,
         bytes, flags)
RELIEVED(cuArrayCreate_v2, (CUarray * array_out, const void *descriptor), array_out, descriptor)
RELIEVED(cuArray3DCreate_v2, (CUarray * array_out, const void *descriptor), array_out, descriptor)
RELIEVED(cuMipmappedArrayCreate, (void **array_out, const void *descriptor, unsigned n_levels),
         array_out, descriptor, n_levels)

RELIEVED(cuModuleLoad, (CUmodule * module_out, const char *path), module_out, path)
RELIEVED(cuModuleLoadData, (CUmodule * module_out, const void *image), module_out, image)
RELIEVED(cuModuleLoadDataEx,
         (CUmodule * module_out, const void *image, unsigned n, void *options, void **values),
         module_out, image, n, options, values)
RELIEVED(cuModuleLoadFatBinary, (CUmodule * module_out, const void *image), module_out, image)
RELIEVED(cuLibraryLoadData,
         (void **library_out, const void *code, void *jit_options, void **jit_values,
          unsigned n_jit_options, void *options, void **values, unsigned n_options),
         library_out, code, jit_options, jit_values, n_jit_options, options, values, n_options)
RELIEVED(cuLibraryLoadFromFile,
         (void **library_out, const char *path, void *jit_options, void **jit_values,
          unsigned n_jit_options, void *options, void **values, unsigned n_options),
         library_out, path, jit_options, jit_values, n_jit_options, options, values, n_options)

/* Loading a module may leave its functions and variables for these. */
RELIEVED(cuModuleGetFunction, (CUfunction * function_out, CUmodule module, const char *name),
         function_out, module, name)
RELIEVED(cuLibraryGetModule, (CUmodule * module_out, void *library), module_out, library)
RELIEVED(cuLibraryGetGlobal,
         (CUdeviceptr * address_out, size_t *bytes_out, void *library, const char *name),
         address_out, bytes_out, library, name)
RELIEVED(cuLibraryGetManaged,
         (CUdeviceptr * address_out, size_t *bytes_out, void *library, const char *name),
         address_out, bytes_out, library, name)
RELIEVED(cuKernelGetFunction, (CUfunction * function_out, void *kernel), function_out, kernel)
RELIEVED(cuFuncLoad, (CUfunction function), function)
RELIEVED(cuCtxSetLimit, (CUlimit limit, size_t value), limit, value)

RELIEVED(cuGraphInstantiateWithFlags,
         (CUgraphExec * exec_out, CUgraph graph, unsigned long long flags), exec_out, graph, flags)
RELIEVED(cuGraphInstantiateWithParams, (CUgraphExec * exec_out, CUgraph graph, void *parameters),
         exec_out, graph, parameters)
RELIEVED(cuGraphInstantiateWithParams_ptsz,
         (CUgraphExec * exec_out, CUgraph graph, void *parameters), exec_out, graph, parameters)
#define ON_STREAM(name, spelling)                                                                  \
    RELIEVED_SEEING((void)vpmm_stream_of(stream, spelling), name,                                  \
                    (CUgraphExec exec, CUstream stream), exec, stream)
ON_STREAM(cuGraphUpload, VPMM_STREAM_LEGACY)
ON_STREAM(cuGraphUpload_ptsz, VPMM_STREAM_PER_THREAD)
ON_STREAM(cuGraphLaunch, VPMM_STREAM_LEGACY)
ON_STREAM(cuGraphLaunch_ptsz, VPMM_STREAM_PER_THREAD)

RELIEVED_SEEING(vpmm_see_creation(flags), cuStreamCreate, (CUstream * stream_out, unsigned flags),
                stream_out, flags)
RELIEVED_SEEING(vpmm_see_creation(flags), cuStreamCreateWithPriority,
                (CUstream * stream_out, unsigned flags, int priority), stream_out, flags, priority)
RELIEVED_SEEING(vpmm_see_creation(flags), cuGreenCtxStreamCreate,
                (CUstream * stream_out, void *green, unsigned flags, int priority), stream_out,
                green, flags, priority)
