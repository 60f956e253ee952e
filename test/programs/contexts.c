/* SPDX-License-Identifier: MIT */
/* Contexts: which is current, what dies with one, and what the primary one does. */
#include "truth.h"

#include <pthread.h>
#include <stdlib.h>

#define BYTES (6 * MIB)

static void none(void)
{
    CUdeviceptr p = 0;
    size_t free_bytes, total;
    CUcontext context = (CUcontext)1;
    CUdevice device;
    CUstream stream;
    CUevent event;
    PART("no context");
    ANSWER(cuCtxGetCurrent(&context));
    ASK(context == NULL);
    ANSWER(cuCtxGetDevice(&device));
    ANSWER(cuMemAlloc(&p, BYTES));
    ANSWER(cuMemAlloc(&p, 0));
    ANSWER(cuMemAlloc(NULL, BYTES));
    ANSWER(cuMemAllocAsync(&p, BYTES, NULL));
    ANSWER(cuMemAllocAsync(&p, BYTES, CU_STREAM_PER_THREAD));
    ANSWER(cuMemFree(0));
    ANSWER(cuMemFree(0x10000));
    ANSWER(cuMemFreeAsync(0x10000, NULL));
    ANSWER(cuMemGetInfo(&free_bytes, &total));
    ANSWER(cuMemGetAddressRange(&p, &total, 0x10000));
    ANSWER(cuStreamCreate(&stream, 0));
    ANSWER(cuStreamSynchronize(NULL));
    ANSWER(cuEventCreate(&event, 0));
    ANSWER(cuCtxSynchronize());
    ANSWER(cuMemsetD8(0x10000, 0, 16));
    ANSWER(cuCtxPopCurrent(&context));
}

static void rules(CUcontext a, CUcontext b)
{
    CUcontext popped = NULL, current = NULL;
    CUdevice device = -1;
    PART("current context");
    ANSWER(cuCtxSetCurrent(a));
    ANSWER(cuCtxPushCurrent(b));
    MUST(cuCtxGetCurrent(&current));
    ASK(current == b);
    ANSWER(cuCtxGetDevice(&device));
    VALUE(device);
    ANSWER(cuCtxPopCurrent(&popped));
    ASK(popped == b);
    MUST(cuCtxGetCurrent(&current));
    ASK(current == a);
    ANSWER(cuCtxSetCurrent(b));
    MUST(cuCtxGetCurrent(&current));
    ASK(current == b);
    ANSWER(cuCtxSetCurrent(NULL));
    MUST(cuCtxGetCurrent(&current));
    ASK(current == NULL);
    ANSWER(cuCtxSetCurrent(a));
}

/* A stream that is named stands for its context. */
static void *use_stream(void *self)
{
    CUstream stream = self;
    CUdeviceptr p = 0, small = 0, base;
    size_t bytes;
    ANSWER(cuMemAllocAsync(&p, BYTES, stream));
    ANSWER(cuMemAllocAsync(&small, 1000, stream));
    ANSWER(cuMemsetD8Async(p, 1, BYTES, stream));
    ANSWER(cuStreamSynchronize(stream));
    ANSWER(cuMemGetAddressRange(&base, &bytes, p));
    ANSWER(cuMemFreeAsync(p, stream));
    ANSWER(cuMemFree(small));
    return NULL;
}

static void named_stream(CUcontext a)
{
    CUstream stream;
    pthread_t thread;
    PART("a thread without a context");
    MUST(cuCtxSetCurrent(a));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (pthread_create(&thread, NULL, use_stream, stream) || pthread_join(thread, NULL))
        exit(1);
    MUST(cuStreamDestroy(stream));
}

/* Memory of one context used and freed while another is current; then the end of its context. */
static void two(CUcontext a, CUcontext b)
{
    CUdeviceptr plain, ordered, mine;
    CUcontext owner = NULL;
    CUevent event;
    CUstream stream;
    PART("two contexts");
    MUST(cuCtxSetCurrent(b));
    MUST(cuMemAlloc(&plain, BYTES));
    MUST(cuMemAllocAsync(&ordered, BYTES, NULL));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuEventCreate(&event, 0));
    MUST(cuCtxSynchronize());
    MUST(cuCtxSetCurrent(a));
    ANSWER(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, plain));
    ASK(owner == b);
    ANSWER(cuMemsetD8(plain, 0x31, BYTES));
    ANSWER(cuMemsetD8(ordered, 0x32, BYTES));
    truth_ask("plain holds", truth_holds(plain, BYTES, 0x31));
    truth_ask("ordered holds", truth_holds(ordered, BYTES, 0x32));
    ANSWER(cuEventQuery(event));
    ANSWER(cuEventRecord(event, NULL));
    ANSWER(cuStreamSynchronize(stream));
    MUST(cuMemAlloc(&mine, BYTES));
    ANSWER(cuMemFree(plain));
    ANSWER(cuMemFree(plain));
    MUST(cuCtxSetCurrent(b));
    MUST(cuMemAlloc(&plain, BYTES));
    ANSWER(cuMemFree(mine));
    MUST(cuCtxSetCurrent(a));
    PART("the end of one");
    ANSWER(cuCtxDestroy(b));
    ANSWER(cuMemGetAddressRange(NULL, NULL, plain));
    ANSWER(cuMemFree(plain));
    ANSWER(cuMemFreeAsync(plain, NULL));
    ANSWER(cuMemGetAddressRange(NULL, NULL, ordered));
    truth_ask("ordered still holds", truth_holds(ordered, BYTES, 0x32));
    ANSWER(cuMemFreeAsync(ordered, NULL));
    ANSWER(cuMemFree(ordered));
    ANSWER(cuEventQuery(event));
}

static void current_dies(void)
{
    CUcontext context, current = NULL;
    CUdeviceptr p = 0;
    PART("the current context is destroyed");
    MUST(cuCtxCreate_v2(&context, 0, 0));
    MUST(cuMemAlloc(&p, BYTES));
    ANSWER(cuCtxDestroy(context));
    ANSWER(cuCtxGetCurrent(&current));
    ASK(current == context);
    ASK(current == NULL);
    ANSWER(cuMemAlloc(&p, BYTES));
}

static void primary(CUdevice device)
{
    CUcontext first, second, current = NULL;
    CUdeviceptr p, q;
    unsigned flags = 99;
    int active = 99;
    PART("primary");
    MUST(cuDevicePrimaryCtxRetain(&first, device));
    MUST(cuDevicePrimaryCtxRetain(&second, device));
    ASK(first == second);
    MUST(cuCtxSetCurrent(first));
    MUST(cuMemAlloc(&p, BYTES));
    MUST(cuMemAllocAsync(&q, BYTES, NULL));
    MUST(cuCtxSynchronize());
    ANSWER(cuDevicePrimaryCtxGetState(device, &flags, &active));
    VALUE(active);
    ANSWER(cuCtxDestroy(first));
    ANSWER(cuDevicePrimaryCtxRelease(device));
    ANSWER(cuMemGetAddressRange(NULL, NULL, p));
    ANSWER(cuDevicePrimaryCtxReset(device));
    ANSWER(cuDevicePrimaryCtxGetState(device, &flags, &active));
    VALUE(active);
    ANSWER(cuCtxGetCurrent(&current));
    ASK(current == first);
    ANSWER(cuMemAlloc(&p, BYTES));
    ANSWER(cuMemAllocAsync(&p, BYTES, NULL));
    ANSWER(cuMemFree(0));
    ANSWER(cuDevicePrimaryCtxRetain(&second, device));
    ASK(first == second);
    ANSWER(cuCtxSetCurrent(second));
    ANSWER(cuMemFree(p));
    ANSWER(cuMemGetAddressRange(NULL, NULL, q));
    ANSWER(cuMemFree(q));
    ANSWER(cuMemAlloc(&p, BYTES));
    ANSWER(cuMemFree(p));
}

static void releases(CUdevice device)
{
    unsigned flags;
    int active = 99;
    PART("releases");
    MUST(cuCtxSetCurrent(NULL));
    for (int i = 0; i < 5; i++) {
        ANSWER(cuDevicePrimaryCtxRelease(device));
        MUST(cuDevicePrimaryCtxGetState(device, &flags, &active));
        VALUE(active);
    }
}

int main(void)
{
    CUdevice device;
    CUcontext a, b, shown = NULL;
    ANSWER(cuCtxGetCurrent(&shown));
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    none();
    MUST(cuCtxCreate_v2(&a, 0, device));
    MUST(cuCtxCreate_v2(&b, 0, device));
    MUST(cuCtxGetCurrent(&shown));
    ASK(shown == b);
    rules(a, b);
    named_stream(a);
    two(a, b);
    current_dies();
    MUST(cuCtxSetCurrent(a));
    ANSWER(cuCtxDestroy(a));
    primary(device);
    releases(device);
    return 0;
}
