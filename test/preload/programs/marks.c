/* SPDX-License-Identifier: MIT */
/* Frees on the legacy stream, after the program used or made a stream in the way that its first
 * argument names. Prints how many events the driver was asked to record for a hundred such frees;
 * and, with the argument `order`, whether a later memset on another blocking stream waits for work
 * that the first one was given before the free. */
#include <cuda.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES ((size_t)4 << 20)
#define N_FREES 100

/* Of the simulated device. */
uint64_t vpmm_sim_calls(const char *name);

/* What cuda.h gives to programs that are built for per-thread default streams. */
CUresult cuMemsetD8Async_ptsz(CUdeviceptr address, unsigned char value, size_t n, CUstream stream);

static CUcontext context;
static CUdeviceptr block;
static uint32_t *flag;
static CUdeviceptr flag_address;

static void must(CUresult result)
{
    if (result == CUDA_SUCCESS)
        return;
    printf("unexpected %d\n", (int)result);
    exit(1);
}

static void start(void)
{
    must(cuInit(0));
    must(cuDevicePrimaryCtxRetain(&context, 0));
    must(cuCtxSetCurrent(context));
    must(cuMemAlloc(&block, BYTES));
    must(cuMemHostAlloc((void **)&flag, 64, CU_MEMHOSTALLOC_DEVICEMAP));
    *flag = 0;
    must(cuMemHostGetDevicePointer(&flag_address, flag, 0));
}

static void free_on_legacy(size_t bytes)
{
    CUdeviceptr address;
    must(cuMemAllocAsync(&address, bytes, CU_STREAM_LEGACY));
    must(cuMemFreeAsync(address, CU_STREAM_LEGACY));
}

/* Each handle means another stream in another thread. */
struct step {
    bool is_created; /* or the thread's own stream */
    CUstream stream;
    bool is_idle;
};

static void *hold(void *self)
{
    struct step *step = self;
    must(cuCtxSetCurrent(context));
    step->stream = CU_STREAM_PER_THREAD;
    if (step->is_created)
        must(cuStreamCreate(&step->stream, CU_STREAM_DEFAULT));
    must(cuStreamWaitValue32(step->stream, flag_address, 1, CU_STREAM_WAIT_VALUE_EQ));
    return NULL;
}

static void *follow(void *self)
{
    struct step *step = self;
    must(cuCtxSetCurrent(context));
    step->stream = CU_STREAM_PER_THREAD;
    if (step->is_created)
        must(cuStreamCreate(&step->stream, CU_STREAM_DEFAULT));
    must(cuMemsetD8Async(block, 1, BYTES, step->stream));
    step->is_idle = cuStreamQuery(step->stream) == CUDA_SUCCESS;
    __atomic_store_n(flag, 1, __ATOMIC_SEQ_CST);
    must(cuStreamSynchronize(step->stream));
    return NULL;
}

static void in_thread(void *body(void *), struct step *step)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, step) != 0 || pthread_join(thread, NULL) != 0)
        exit(2);
}

/* The legacy stream is left alone but for the free. */
static void tell_order(bool is_created, size_t bytes)
{
    struct step holding = {.is_created = is_created}, following = holding;
    CUdeviceptr address;
    must(cuMemAllocAsync(&address, bytes, CU_STREAM_LEGACY));
    must(cuStreamSynchronize(CU_STREAM_LEGACY));
    in_thread(hold, &holding);
    must(cuMemFreeAsync(address, CU_STREAM_LEGACY));
    in_thread(follow, &following);
    printf("later work is %s\n", following.is_idle ? "done" : "held");
    must(cuCtxSynchronize());
}

static void use(const char *how)
{
    CUstream stream;
    if (strcmp(how, "blocking") == 0)
        must(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    else if (strcmp(how, "priority") == 0)
        must(cuStreamCreateWithPriority(&stream, CU_STREAM_DEFAULT, 0));
    else if (strcmp(how, "non-blocking") == 0)
        must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    else if (strcmp(how, "legacy") == 0)
        must(cuMemsetD8Async(block, 1, BYTES, NULL));
    else if (strcmp(how, "handle") == 0)
        must(cuMemsetD8Async(block, 1, BYTES, CU_STREAM_PER_THREAD));
    else if (strcmp(how, "spelling") == 0)
        must(cuMemsetD8Async_ptsz(block, 1, BYTES, NULL));
    else if (strcmp(how, "allocation") == 0)
        must(cuMemAllocAsync(&block, BYTES, CU_STREAM_PER_THREAD));
    else if (strcmp(how, "wait") == 0) {
        CUevent event;
        must(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        must(cuStreamWaitEvent(CU_STREAM_PER_THREAD, event, 0));
    }
}

int main(int argc, char **argv)
{
    size_t bytes = argc > 3 ? (size_t)strtoull(argv[3], NULL, 10) : BYTES;
    if (argc < 3)
        return 2;
    start();
    if (strcmp(argv[1], "order") == 0) {
        tell_order(strcmp(argv[2], "created") == 0, bytes);
        return 0;
    }
    free_on_legacy(bytes);
    use(argv[2]);
    uint64_t before = vpmm_sim_calls("cuEventRecord");
    for (int i = 0; i < N_FREES; i++)
        free_on_legacy(bytes);
    printf("records %d\n", (int)(vpmm_sim_calls("cuEventRecord") - before));
    return 0;
}
