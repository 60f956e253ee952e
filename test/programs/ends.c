/* SPDX-License-Identifier: MIT */
/* How contexts end: by a count, with the last green one, released beside another thread's free; and
 * how one is told from the next. */
#define _GNU_SOURCE
#include "truth.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define BYTES (6 * MIB)
#define PATIENCE_US 1000000

static CUcontext make(void)
{
    CUcontext context;
    MUST(cuCtxCreate_v2(&context, 0, 0));
    return context;
}

static CUcontext current(void)
{
    CUcontext context = NULL;
    MUST(cuCtxGetCurrent(&context));
    return context;
}

/* ---- counts ---- */

static void counts(CUcontext first)
{
    CUcontext own = make(), same = NULL, other;
    CUdeviceptr plain, ordered;
    PART("attach and detach");
    MUST(cuMemAlloc(&plain, BYTES));
    MUST(cuMemAllocAsync(&ordered, BYTES, NULL));
    MUST(cuCtxSynchronize());
    ANSWER(cuCtxAttach(&same, 1));
    ANSWER(cuCtxAttach(&same, 0));
    ASK(same == own);
    other = make();
    ANSWER(cuCtxDetach(own));
    ANSWER(cuCtxDestroy(other));
    ASK(current() == own);
    ANSWER(cuCtxDetach(own));
    ASK(current() == own);
    ANSWER(cuMemsetD8(plain, 0x41, BYTES));
    truth_ask("plain holds", truth_holds(plain, BYTES, 0x41));
    ANSWER(cuCtxDetach(own));
    ASK(current() == own);
    MUST(cuCtxSetCurrent(first));
    ANSWER(cuMemFree(plain));
    ANSWER(cuMemsetD8(ordered, 0x42, BYTES));
    truth_ask("ordered holds", truth_holds(ordered, BYTES, 0x42));
    ANSWER(cuMemFree(ordered));
    PART("attached, and destroyed");
    own = make();
    MUST(cuCtxAttach(&same, 0));
    MUST(cuMemAlloc(&plain, BYTES));
    ANSWER(cuCtxDestroy(own));
    MUST(cuCtxSetCurrent(first));
    ANSWER(cuMemFree(plain));
}

/* What a handle answers whose context has ended. To make it current succeeds on a GPU, or crashes.
 */
static void dead(CUcontext first)
{
    unsigned long long id = 0;
    CUcontext own = make();
    PART("a destroyed context");
    MUST(cuCtxDestroy(own));
    MUST(cuCtxSetCurrent(first));
    ANSWER(cuCtxGetId(own, &id));
}

/* ---- the primary context ---- */

static void count_primary(CUdevice device)
{
    CUcontext primary, same = NULL;
    CUdeviceptr plain;
    unsigned flags;
    int active = -1;
    PART("attach and detach of a primary context");
    MUST(cuDevicePrimaryCtxRetain(&primary, device));
    MUST(cuCtxSetCurrent(primary));
    MUST(cuMemAlloc(&plain, BYTES));
    ANSWER(cuCtxAttach(&same, 0));
    ANSWER(cuCtxDetach(primary));
    MUST(cuDevicePrimaryCtxGetState(device, &flags, &active));
    VALUE(active);
    ANSWER(cuMemFree(plain));
    MUST(cuCtxSetCurrent(NULL));
    ANSWER(cuDevicePrimaryCtxRelease(device));
    MUST(cuDevicePrimaryCtxGetState(device, &flags, &active));
    VALUE(active);
}

static unsigned long long id_of(CUcontext context)
{
    unsigned long long id = 0;
    MUST(cuCtxGetId(context, &id));
    return id;
}

static unsigned long long legacy_id(void)
{
    unsigned long long id = 0;
    MUST(cuStreamGetId(CU_STREAM_LEGACY, &id));
    return id;
}

/* Whether ids tell the lives of one handle apart. */
static void lives(CUdevice device, bool by_reset)
{
    CUcontext before, after;
    CUevent event;
    PART(by_reset ? "before and after a reset" : "before and after the last release");
    MUST(cuDevicePrimaryCtxRetain(&before, device));
    MUST(cuCtxSetCurrent(before));
    unsigned long long id = id_of(before), legacy = legacy_id(), answer;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventRecord(event, CU_STREAM_LEGACY));
    MUST(cuCtxSynchronize());
    ASK(id_of(before) == id);
    truth_answer("the end",
                 by_reset ? cuDevicePrimaryCtxReset(device) : cuDevicePrimaryCtxRelease(device));
    ANSWER(cuCtxGetId(before, &answer));
    MUST(cuDevicePrimaryCtxRetain(&after, device));
    MUST(cuCtxSetCurrent(after));
    ASK(after == before);
    ASK(id_of(after) == id);
    ASK(legacy_id() == legacy);
    MUST(cuCtxSetCurrent(NULL));
    for (int i = 0; i < 1 + by_reset; i++)
        ANSWER(cuDevicePrimaryCtxRelease(device));
}

/* ---- green contexts ---- */

#define FIND(name) (__extension__(__typeof__(&name)) dlsym(RTLD_DEFAULT, #name))

static CUgreenCtx green_make(CUdevice device, CUcontext *context_out)
{
    __typeof__(&cuDeviceGetDevResource) get = FIND(cuDeviceGetDevResource);
    __typeof__(&cuDevSmResourceSplitByCount) split = FIND(cuDevSmResourceSplitByCount);
    __typeof__(&cuDevResourceGenerateDesc) describe = FIND(cuDevResourceGenerateDesc);
    CUdevResource all, some;
    CUdevResourceDesc description;
    CUgreenCtx green;
    unsigned n = 1;
    MUST(get(device, &all, CU_DEV_RESOURCE_TYPE_SM));
    MUST(split(&some, &n, &all, NULL, 0, 16));
    MUST(describe(&description, &some, 1));
    MUST(cuGreenCtxCreate(&green, description, device, CU_GREEN_CTX_DEFAULT_STREAM));
    MUST(cuCtxFromGreenCtx(context_out, green));
    return green;
}

static void tell_active(CUdevice device)
{
    unsigned flags;
    int active = -1;
    MUST(cuDevicePrimaryCtxGetState(device, &flags, &active));
    VALUE(active);
}

/* The program retains the primary context, or does not. */
static void green(CUdevice device, CUcontext first, bool is_retained)
{
    CUcontext primary, in_green;
    CUdeviceptr plain, ordered;
    PART(is_retained ? "a green context beside a reference" : "a green context alone");
    if (is_retained)
        MUST(cuDevicePrimaryCtxRetain(&primary, device));
    tell_active(device);
    CUgreenCtx green_context = green_make(device, &in_green);
    tell_active(device);
    MUST(cuCtxSetCurrent(in_green));
    ANSWER(cuMemAlloc(&plain, BYTES));
    ANSWER(cuMemAllocAsync(&ordered, BYTES, NULL));
    ANSWER(cuCtxSynchronize());
    MUST(cuCtxSetCurrent(first));
    if (is_retained) {
        ANSWER(cuDevicePrimaryCtxRelease(device));
        tell_active(device);
        ANSWER(cuMemsetD8(plain, 0x51, BYTES));
        truth_ask("plain holds", truth_holds(plain, BYTES, 0x51));
    }
    ANSWER(cuGreenCtxDestroy(green_context));
    tell_active(device);
    ANSWER(cuMemFree(plain));
    ANSWER(cuMemFree(ordered));
}

static CUcontext used;
static CUgreenCtx ended;
static bool is_ended;

static void *end_green(void *result)
{
    *(CUresult *)result = cuGreenCtxDestroy(ended);
    __atomic_store_n(&is_ended, true, __ATOMIC_SEQ_CST);
    return NULL;
}

/* Whether the end of a green context that is not the last reference waits for its work. */
static void green_at_work(CUdevice device, struct gate *gate)
{
    CUcontext in_green;
    CUstream stream;
    CUresult result = CUDA_ERROR_UNKNOWN;
    pthread_t thread;
    PART("a green context at work");
    MUST(cuDevicePrimaryCtxRetain(&used, device));
    MUST(cuCtxSetCurrent(used));
    ended = green_make(device, &in_green);
    MUST(cuGreenCtxStreamCreate(&stream, ended, CU_STREAM_NON_BLOCKING, 0));
    gate_close(gate, stream);
    if (pthread_create(&thread, NULL, end_green, &result))
        exit(1);
    for (int i = 0; i < 1000 && !__atomic_load_n(&is_ended, __ATOMIC_SEQ_CST); i++)
        usleep(PATIENCE_US / 1000);
    truth_ask("its end waits", !__atomic_load_n(&is_ended, __ATOMIC_SEQ_CST));
    gate_open(gate);
    pthread_join(thread, NULL);
    truth_answer("its end", result);
    ANSWER(cuCtxSynchronize());
    MUST(cuCtxSetCurrent(NULL));
    ANSWER(cuDevicePrimaryCtxRelease(device));
    tell_active(device);
}

/* ---- a reference given up beside another thread ---- */

struct freeing {
    CUdeviceptr block;
    CUresult result;
    bool has_begun;
};

static void *free_block(void *argument)
{
    struct freeing *freeing = argument;
    MUST(cuCtxSetCurrent(used));
    __atomic_store_n(&freeing->has_begun, true, __ATOMIC_SEQ_CST);
    freeing->result = cuMemFree(freeing->block);
    return NULL;
}

static void release_beside(CUdevice device, struct gate *gate)
{
    struct freeing freeing = {.result = CUDA_ERROR_UNKNOWN};
    CUdeviceptr block;
    CUstream held, stream;
    pthread_t thread;
    PART("a reference given up beside a free");
    MUST(cuDevicePrimaryCtxRetain(&used, device));
    MUST(cuDevicePrimaryCtxRetain(&used, device));
    MUST(cuCtxSetCurrent(used));
    MUST(cuMemAlloc(&freeing.block, BYTES));
    MUST(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    gate_close(gate, held);
    if (pthread_create(&thread, NULL, free_block, &freeing))
        exit(1);
    while (!__atomic_load_n(&freeing.has_begun, __ATOMIC_SEQ_CST))
        ;
    ANSWER(cuDevicePrimaryCtxRelease(device));
    ANSWER(cuMemAllocAsync(&block, BYTES, stream));
    gate_open(gate);
    pthread_join(thread, NULL);
    VALUE(freeing.result);
    ANSWER(cuMemFreeAsync(block, stream));
    ANSWER(cuStreamSynchronize(stream));
    ANSWER(cuDevicePrimaryCtxRelease(device));
    tell_active(device);
}

int main(void)
{
    CUdevice device;
    struct gate gate;
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    CUcontext first = make();
    gate_init(&gate);
    counts(first);
    count_primary(device);
    MUST(cuCtxSetCurrent(first));
    green(device, first, false);
    green(device, first, true);
    green_at_work(device, &gate);
    release_beside(device, &gate);
    lives(device, false);
    lives(device, true);
    MUST(cuCtxSetCurrent(first));
    dead(first);
    return 0;
}
