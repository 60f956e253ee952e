/* SPDX-License-Identifier: MIT */
/* The whole library under many threads at once: a program linked to libvpmm and then to the
 * simulated driver, so that the exported names are the library's wrappers without any preload.
 * The first argument names a scene; run_wrappers.py runs them all and judges the statistics and
 * dumps that are left. */
#define _GNU_SOURCE
#include "crowd.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WRAPPED(name)                                                                              \
    {                                                                                              \
#        name, (void (*)(void))name                                                                \
    }

static void wrappers_answer(void)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } wrapped[] = {
        WRAPPED(cuMemAlloc),
        WRAPPED(cuMemAllocPitch),
        WRAPPED(cuMemAllocAsync),
        WRAPPED(cuMemAllocAsync_ptsz),
        WRAPPED(cuMemAllocFromPoolAsync),
        WRAPPED(cuMemAllocFromPoolAsync_ptsz),
        WRAPPED(cuMemFree),
        WRAPPED(cuMemFreeAsync),
        WRAPPED(cuMemFreeAsync_ptsz),
        WRAPPED(cuMemGetInfo),
        WRAPPED(cuMemGetAddressRange),
        WRAPPED(cuPointerGetAttribute),
        WRAPPED(cuPointerGetAttributes),
        WRAPPED(cuPointerSetAttribute),
        WRAPPED(cuMemRetainAllocationHandle),
        WRAPPED(cuMemGetAccess),
        WRAPPED(cuMemSetAccess),
        WRAPPED(cuMemUnmap),
        WRAPPED(cuMemPoolCreate),
        WRAPPED(cuMemPoolDestroy),
        WRAPPED(cuMemPoolGetAttribute),
        WRAPPED(cuMemPoolSetAttribute),
        WRAPPED(cuMemPoolSetAccess),
        WRAPPED(cuCtxSynchronize),
        WRAPPED(cuStreamSynchronize),
        WRAPPED(cuStreamDestroy),
        WRAPPED(cuStreamBeginCapture),
        WRAPPED(cuStreamBeginCapture_v2_ptsz),
        WRAPPED(cuStreamEndCapture),
        WRAPPED(cuStreamEndCapture_ptsz),
        WRAPPED(cuCtxCreate_v2),
        WRAPPED(cuCtxDestroy),
        WRAPPED(cuDevicePrimaryCtxRetain),
        WRAPPED(cuCtxEnablePeerAccess),
    };
    for (size_t i = 0; i < sizeof wrapped / sizeof *wrapped; i++) {
        Dl_info info;
        void *address;
        memcpy(&address, &wrapped[i].function, sizeof address);
        if (!dladdr(address, &info) || !strstr(info.dli_fname, "libvpmm")) {
            fprintf(stderr, "%s is not the library's\n", wrapped[i].name);
            abort();
        }
    }
}

/* ---- the first moments ---- */

static pthread_barrier_t barrier;

static void meet(void)
{
    (void)pthread_barrier_wait(&barrier);
}

static struct block firsts[THREADS];

/* Half of the threads on each device, and half of them with cudaMalloc first. */
static void *wake_up(void *number)
{
    uintptr_t n = (uintptr_t)number;
    struct actor actor = {.dice = (uint32_t)n, .device = (int)(n % DEVICES)};
    CUcontext context;
    meet();
    MUST(&actor, cuInit(0));
    MUST(&actor, cuDevicePrimaryCtxRetain(&context, actor.device));
    MUST(&actor, cuCtxSetCurrent(context));
    HOLDS(&actor,
          block_make(&actor, 4 * PAGE_BYTES, n % 4 < 2 ? NULL : CU_STREAM_PER_THREAD, &firsts[n]));
    block_use(&actor, &firsts[n], CU_STREAM_PER_THREAD);
    atomic_fetch_add(&program.n_calls, actor.n_calls);
    return NULL;
}

/* Each device gets one pool, and each of them reaches every block. */
static void scene_cold(struct actor *actor)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        threads[i] = thread_begin(wake_up, i);
    for (int i = 0; i < THREADS; i++)
        thread_join(threads[i]);
    HOLDS(actor, vpmm_sim_calls("cuMemAddressReserve") == DEVICES);
    program_start(actor);
    for (int i = 0; i < THREADS; i++) {
        actor_go_to(actor, (firsts[i].device + 1) % DEVICES);
        block_use(actor, &firsts[i], actor->own[actor->device]);
        block_free(actor, &firsts[i], i % 3 ? actor->own[actor->device] : NULL);
    }
    program_finish(actor);
    HOLDS(actor, program.n_checked == THREADS);
}

/* ---- two frees of one block ---- */

#define PAIR_ROUNDS 200

static CUdeviceptr doomed[THREADS / 2];
static CUresult answers[THREADS];

static CUresult free_somehow(struct actor *actor, CUdeviceptr address)
{
    switch (roll(&actor->dice, 3)) {
    case 0:
        return TRY(actor, cuMemFree(address));
    case 1:
        return TRY(actor, cuMemFreeAsync(address, actor->own[0]));
    default:
        return TRY(actor, cuMemFreeAsync_ptsz(address, NULL));
    }
}

/* Nobody allocates between the two meetings, so that a freed address stays freed. */
static void *free_in_pairs(void *number)
{
    uintptr_t n = (uintptr_t)number;
    struct actor actor = {0};
    actor_begin(&actor, program.seed * 1000 + (uint32_t)n);
    for (int i = 0; i < PAIR_ROUNDS; i++) {
        uint64_t bytes = (1 + roll(&actor.dice, 4)) * PAGE_BYTES;
        if (n % 2 && roll(&actor.dice, 2))
            MUST(&actor, cuMemAlloc(&doomed[n / 2], bytes));
        else if (n % 2)
            MUST(&actor, cuMemAllocAsync(&doomed[n / 2], bytes, CU_STREAM_LEGACY));
        meet();
        answers[n] = free_somehow(&actor, doomed[n / 2]);
        meet();
        HOLDS(&actor, (answers[n] == CUDA_SUCCESS) != (answers[n ^ 1] == CUDA_SUCCESS));
        HOLDS(&actor, !answers[n] || answers[n] == CUDA_ERROR_INVALID_VALUE);
        meet();
    }
    actor_end(&actor);
    return NULL;
}

static void scene_pairs(struct actor *actor)
{
    pthread_t threads[THREADS];
    program_start(actor);
    for (uintptr_t i = 0; i < THREADS; i++)
        threads[i] = thread_begin(free_in_pairs, i);
    for (int i = 0; i < THREADS; i++)
        thread_join(threads[i]);
    program_finish(actor);
}

static void scene_mixed(struct actor *actor)
{
    crowd_run(actor, NULL);
}

#define SCENE(name)                                                                                \
    {                                                                                              \
#        name, scene_##name                                                                        \
    }
static const struct {
    const char *name;
    void (*run)(struct actor *actor);
} scenes[] = {SCENE(cold), SCENE(pairs), SCENE(mixed), SCENE(forks), SCENE(fresh)};

int main(int n, char **arguments)
{
    struct actor actor = {0};
    wrappers_answer();
    program.seed = n > 2 ? (unsigned)strtoul(arguments[2], NULL, 10) : 1;
    program.rounds = n > 3 ? atoi(arguments[3]) : 300;
    if (pthread_barrier_init(&barrier, NULL, THREADS) != 0)
        return 2;
    for (size_t i = 0; n > 1 && i < sizeof scenes / sizeof *scenes; i++)
        if (strcmp(arguments[1], scenes[i].name) == 0) {
            scenes[i].run(&actor);
            crowd_tell(scenes[i].name);
            return 0;
        }
    fprintf(stderr, "usage: %s cold|pairs|mixed|forks|fresh [SEED [ROUNDS]]\n", arguments[0]);
    return 2;
}
