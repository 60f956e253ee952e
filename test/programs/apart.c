/* SPDX-License-Identifier: MIT */
/* Two contexts of one device. While a cuMemFree in the one waits for work that only the host can
 * let go, the other asks for more memory than is left. */
#include "truth.h"

#include <pthread.h>
#include <time.h>

static struct gate gate;

struct freeing {
    CUcontext context;
    CUdeviceptr block;
    CUresult result;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool has_returned, is_answered;
};

static void *free_block(void *argument)
{
    struct freeing *freeing = argument;
    MUST(cuCtxSetCurrent(freeing->context));
    freeing->result = cuMemFree(freeing->block);
    pthread_mutex_lock(&freeing->lock);
    freeing->has_returned = true;
    pthread_cond_broadcast(&freeing->changed);
    pthread_mutex_unlock(&freeing->lock);
    return NULL;
}

static struct timespec after_ms(long ms)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return until;
}

/* Lets go of the work if the other context's request waits for it. */
static void *watch(void *argument)
{
    struct freeing *freeing = argument;
    struct timespec until = after_ms(10000);
    pthread_mutex_lock(&freeing->lock);
    while (!freeing->is_answered &&
           pthread_cond_timedwait(&freeing->changed, &freeing->lock, &until) == 0)
        ;
    truth_ask("the other context waits", !freeing->is_answered);
    pthread_mutex_unlock(&freeing->lock);
    gate_open(&gate);
    return NULL;
}

/* Where cuMemFree does not wait, the request comes after it. */
static void await_return(struct freeing *freeing)
{
    struct timespec until = after_ms(200);
    pthread_mutex_lock(&freeing->lock);
    while (!freeing->has_returned &&
           pthread_cond_timedwait(&freeing->changed, &freeing->lock, &until) == 0)
        ;
    pthread_mutex_unlock(&freeing->lock);
}

int main(void)
{
    struct freeing freeing = {.lock = PTHREAD_MUTEX_INITIALIZER,
                              .changed = PTHREAD_COND_INITIALIZER};
    pthread_t freer, watcher;
    CUcontext second;
    CUstream stream;
    CUdeviceptr p;
    size_t free_bytes, total_bytes;
    CUdevice device = truth_start();
    MUST(cuCtxGetCurrent(&freeing.context));
    MUST(cuCtxCreate_v2(&second, 0, device));
    MUST(cuCtxSetCurrent(freeing.context));
    gate_init(&gate);
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuMemGetInfo(&free_bytes, &total_bytes));
    size_t bytes = free_bytes / 100 * 70 / (2 * MIB) * (2 * MIB);
    PART("two contexts");
    ANSWER(cuMemAlloc(&freeing.block, bytes));
    gate_close(&gate, stream);
    pthread_create(&freer, NULL, free_block, &freeing);
    await_return(&freeing);
    pthread_create(&watcher, NULL, watch, &freeing);
    MUST(cuCtxSetCurrent(second));
    ANSWER(cuMemAlloc(&p, bytes));
    pthread_mutex_lock(&freeing.lock);
    freeing.is_answered = true;
    pthread_cond_broadcast(&freeing.changed);
    pthread_mutex_unlock(&freeing.lock);
    pthread_join(watcher, NULL);
    pthread_join(freer, NULL);
    truth_answer("cuMemFree", freeing.result);
    ANSWER(cuMemAlloc(&p, bytes));
    ANSWER(cuMemFree(p));
    return 0;
}
