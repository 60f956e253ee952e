/* SPDX-License-Identifier: MIT */
/* Contexts by the driver API: memory of one used and freed in another, what outlives its context,
 * streams of other contexts, green contexts. */
#include "driver.h"

static CUcontext context_make(void)
{
    CUcontext context;
    MUST(cuCtxCreate_v2(&context, 0, 0));
    return context;
}

/* Both kinds of memory of a second context, used and freed with the first one current. */
static void crosswise(CUcontext first, size_t bytes)
{
    CUcontext second = context_make();
    CUstream of_second;
    CUdeviceptr p = 0, q = 0;
    part("another context's memory", bytes);
    MUST(cuStreamCreate(&of_second, CU_STREAM_NON_BLOCKING));
    ANSWER(cuMemAlloc(&p, bytes));
    ANSWER(cuMemAllocAsync(&q, bytes, of_second));
    ANSWER(cuStreamSynchronize(of_second));
    MUST(cuCtxSetCurrent(first));
    observe(p, p);
    observe(q, q);
    ANSWER(cuMemsetD8(p, 4, bytes));
    ANSWER(cuMemsetD8(q, 5, bytes));
    ANSWER(cuMemcpyDtoD(p, q, bytes));
    truth_ask("the copy arrived", truth_holds(p, bytes, 5));
    ANSWER(cuMemFree(p));
    ANSWER(cuMemFreeAsync(q, of_second));
    ANSWER(cuStreamSynchronize(of_second));
    ANSWER(cuMemAllocAsync(&q, bytes, of_second));
    observe(q, q);
    ANSWER(cuMemFreeAsync(q, NULL));
    ANSWER(cuCtxSynchronize());
    ANSWER(cuCtxDestroy(second));
}

/* What is left when a context is destroyed with memory of it alive. */
static void destroyed(CUcontext first, size_t bytes)
{
    CUcontext second = context_make();
    CUdeviceptr p = 0, q = 0;
    part("memory of a destroyed context", bytes);
    ANSWER(cuMemAlloc(&p, bytes));
    ANSWER(cuMemAllocAsync(&q, bytes, CU_STREAM_LEGACY));
    ANSWER(cuCtxSynchronize());
    ANSWER(cuCtxDestroy(second));
    MUST(cuCtxSetCurrent(first));
    ANSWER(cuMemsetD8(p, 1, 16));
    ANSWER(cuMemFree(p));
    ANSWER(cuMemFreeAsync(p, CU_STREAM_LEGACY));
    observe_range(&observer, p, p);
    ANSWER(cuMemsetD8(q, 1, bytes));
    truth_ask("it holds", truth_holds(q, bytes, 1));
    observe(q, q);
    ANSWER(cuMemFreeAsync(q, CU_STREAM_LEGACY));
    ANSWER(cuCtxSynchronize());
    ANSWER(cuMemFree(q));
}

/* Streams and events of one context with the other one current. */
static void streams(CUcontext first)
{
    CUcontext second = context_make();
    CUstream theirs;
    CUevent event;
    CUdeviceptr p, q;
    PART("streams of another context");
    MUST(cuStreamCreate(&theirs, CU_STREAM_DEFAULT));
    MUST(cuCtxSetCurrent(first));
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    ANSWER(cuEventRecord(event, theirs));
    ANSWER(cuStreamWaitEvent(theirs, event, 0));
    ANSWER(cuMemAlloc(&p, 8 * MIB));
    ANSWER(cuMemAllocAsync(&q, 8 * MIB, theirs));
    ANSWER(cuMemsetD8Async(q, 9, 8 * MIB, theirs));
    ANSWER(cuStreamSynchronize(theirs));
    ANSWER(cuMemFreeAsync(p, theirs));
    ANSWER(cuMemFreeAsync(q, CU_STREAM_LEGACY));
    ANSWER(cuMemFreeAsync(q, theirs));
    ANSWER(cuStreamSynchronize(theirs));
    ANSWER(cuStreamDestroy(theirs));
    ANSWER(cuEventDestroy(event));
    ANSWER(cuCtxDestroy(second));
}

#define FIND(name) (__extension__(__typeof__(&name)) dlsym(RTLD_DEFAULT, #name))

/* A part of the device as a context of its own. */
static void green(CUcontext first)
{
    __typeof__(&cuDeviceGetDevResource) get = FIND(cuDeviceGetDevResource);
    __typeof__(&cuDevSmResourceSplitByCount) split = FIND(cuDevSmResourceSplitByCount);
    __typeof__(&cuDevResourceGenerateDesc) describe = FIND(cuDevResourceGenerateDesc);
    CUdevResource all, some;
    CUdevResourceDesc description;
    CUgreenCtx green_context;
    CUcontext context;
    CUstream stream;
    CUdeviceptr p, q;
    unsigned n = 1;
    if (!get || !split || !describe)
        return;
    PART("a green context");
    ANSWER(get(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    ANSWER(split(&some, &n, &all, NULL, 0, 16));
    ANSWER(describe(&description, &some, 1));
    ANSWER(cuGreenCtxCreate(&green_context, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    ANSWER(cuCtxFromGreenCtx(&context, green_context));
    ANSWER(cuGreenCtxStreamCreate(&stream, green_context, CU_STREAM_NON_BLOCKING, 0));
    ANSWER(cuCtxSetCurrent(context));
    for (size_t i = 0; i < COUNT(sizes); i++) {
        part("in it", sizes[i]);
        ANSWER(cuMemAlloc(&p, sizes[i]));
        ANSWER(cuMemAllocAsync(&q, sizes[i], stream));
        ANSWER(cuMemsetD8Async(q, 3, sizes[i], stream));
        ANSWER(cuMemcpyDtoDAsync(p, q, sizes[i], stream));
        ANSWER(cuStreamSynchronize(stream));
        truth_ask("the copy arrived", truth_holds(p, sizes[i], 3));
        observe(p, p);
        ANSWER(cuMemFreeAsync(q, stream));
        ANSWER(cuMemFree(p));
    }
    ANSWER(cuMemAlloc(&p, 64 * MIB));
    ANSWER(cuMemAllocAsync(&q, 64 * MIB, stream));
    ANSWER(cuCtxSynchronize());
    ANSWER(cuStreamDestroy(stream));
    MUST(cuCtxSetCurrent(first));
    ANSWER(cuGreenCtxDestroy(green_context));
    ANSWER(cuMemFree(p));
    ANSWER(cuMemFree(q));
}

int main(void)
{
    truth_start();
    CUcontext first = context_make();
    for (size_t i = 0; i < COUNT(sizes); i++) {
        crosswise(first, sizes[i]);
        destroyed(first, sizes[i]);
    }
    streams(first);
    green(first);
    MUST(cuCtxDestroy(first));
    return 0;
}
