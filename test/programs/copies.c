/* SPDX-License-Identifier: MIT */
/* Which copies and fills without a stream wait on the host for work that is held: each line tells
 * whether the call returns before that may go on. */
#include "truth.h"

#include <pthread.h>
#include <time.h>

#define BLOCK (6 * MIB)
#define PITCH ((size_t)4096)

static struct gate gate;
static CUdeviceptr plain[2], pooled[2];
static unsigned char *pinned;
static unsigned char pageable[BLOCK];
static size_t n_bytes;

/* Opens the gate where the call does not return by itself. */
struct watch {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool is_over, has_opened;
};

static void *watch_run(void *argument)
{
    struct watch *watch = argument;
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_nsec += 100 * 1000000L;
    end.tv_sec += end.tv_nsec / 1000000000L;
    end.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&watch->lock);
    while (!watch->is_over && pthread_cond_timedwait(&watch->ended, &watch->lock, &end) == 0)
        ;
    if (!watch->is_over) {
        watch->has_opened = true;
        gate_open(&gate);
    }
    pthread_mutex_unlock(&watch->lock);
    return NULL;
}

static CUresult copy_2d(CUdeviceptr to, CUdeviceptr from)
{
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = from,
                          .dstDevice = to,
                          .srcPitch = PITCH,
                          .dstPitch = PITCH,
                          .WidthInBytes = 8,
                          .Height = n_bytes / PITCH + 1};
    return cuMemcpy2D(&copy);
}

/* ---- the calls ---- */

static CUresult dtod_plain(void)
{
    return cuMemcpyDtoD(plain[0], plain[1], n_bytes);
}
static CUresult dtod_pooled(void)
{
    return cuMemcpyDtoD(pooled[0], pooled[1], n_bytes);
}
static CUresult dtod_from_pooled(void)
{
    return cuMemcpyDtoD(plain[0], pooled[1], n_bytes);
}
static CUresult dtod_to_pooled(void)
{
    return cuMemcpyDtoD(pooled[0], plain[1], n_bytes);
}
static CUresult any_plain(void)
{
    return cuMemcpy(plain[0], plain[1], n_bytes);
}
static CUresult any_pooled(void)
{
    return cuMemcpy(pooled[0], pooled[1], n_bytes);
}
static CUresult rows_plain(void)
{
    return copy_2d(plain[0], plain[1]);
}
static CUresult rows_pooled(void)
{
    return copy_2d(pooled[0], pooled[1]);
}
static CUresult rows_mixed(void)
{
    return copy_2d(pooled[0], plain[1]);
}
static CUresult dtoh_pinned(void)
{
    return cuMemcpyDtoH(pinned, plain[0], n_bytes);
}
static CUresult dtoh_pageable(void)
{
    return cuMemcpyDtoH(pageable, plain[0], n_bytes);
}
static CUresult htod_pinned(void)
{
    return cuMemcpyHtoD(plain[0], pinned, n_bytes);
}
static CUresult htod_pageable(void)
{
    return cuMemcpyHtoD(plain[0], pageable, n_bytes);
}
static CUresult fill_plain(void)
{
    return cuMemsetD8(plain[0], 1, n_bytes);
}
static CUresult fill_pooled(void)
{
    return cuMemsetD8(pooled[0], 1, n_bytes);
}

static const struct call {
    const char *name;
    CUresult (*make)(void);
} calls[] = {
    {"cuMemcpyDtoD, cuMemAlloc", dtod_plain},
    {"cuMemcpyDtoD, cuMemAllocAsync", dtod_pooled},
    {"cuMemcpyDtoD, from cuMemAllocAsync", dtod_from_pooled},
    {"cuMemcpyDtoD, to cuMemAllocAsync", dtod_to_pooled},
    {"cuMemcpy, cuMemAlloc", any_plain},
    {"cuMemcpy, cuMemAllocAsync", any_pooled},
    {"cuMemcpy2D, cuMemAlloc", rows_plain},
    {"cuMemcpy2D, cuMemAllocAsync", rows_pooled},
    {"cuMemcpy2D, to cuMemAllocAsync", rows_mixed},
    {"cuMemcpyDtoH, pinned", dtoh_pinned},
    {"cuMemcpyDtoH, pageable", dtoh_pageable},
    {"cuMemcpyHtoD, pinned", htod_pinned},
    {"cuMemcpyHtoD, pageable", htod_pageable},
    {"cuMemsetD8, cuMemAlloc", fill_plain},
    {"cuMemsetD8, cuMemAllocAsync", fill_pooled},
};

static void look(const struct call *call, CUstream held)
{
    struct watch watch = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false};
    pthread_t thread;
    gate_close(&gate, held);
    pthread_create(&thread, NULL, watch_run, &watch);
    CUresult result = call->make();
    pthread_mutex_lock(&watch.lock);
    watch.is_over = true;
    pthread_cond_signal(&watch.ended);
    pthread_mutex_unlock(&watch.lock);
    pthread_join(thread, NULL);
    printf("%s: %s: %s\n", call->name, watch.has_opened ? "waits" : "returns", truth_code(result));
    fflush(stdout);
    if (!watch.has_opened)
        gate_open(&gate);
    MUST(cuCtxSynchronize());
}

int main(void)
{
    static const size_t sizes[] = {64, 64 * KIB, BLOCK};
    CUstream stream;
    void *host;
    truth_start();
    gate_init(&gate);
    MUST(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    MUST(cuMemHostAlloc(&host, BLOCK, 0));
    pinned = host;
    for (int i = 0; i < 2; i++) {
        MUST(cuMemAlloc(&plain[i], BLOCK + PITCH));
        MUST(cuMemAllocAsync(&pooled[i], BLOCK + PITCH, stream));
    }
    MUST(cuCtxSynchronize());
    for (size_t size = 0; size < sizeof sizes / sizeof sizes[0]; size++)
        for (int is_legacy = 0; is_legacy < 2; is_legacy++) {
            n_bytes = sizes[size];
            printf("\n[%zu bytes, while %s is held]\n", n_bytes,
                   is_legacy ? "the legacy stream" : "a blocking stream");
            for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
                look(&calls[i], is_legacy ? CU_STREAM_LEGACY : stream);
        }
    for (int i = 0; i < 2; i++) {
        MUST(cuMemFree(plain[i]));
        MUST(cuMemFree(pooled[i]));
    }
    MUST(cuStreamDestroy(stream));
    MUST(cuMemFreeHost(host));
    return 0;
}
