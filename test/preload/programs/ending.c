/* SPDX-License-Identifier: MIT */
/* Threads, signals, and the end of a device and of a process. The first argument names a scene;
 * each call of interest prints one line. Built for per-thread default streams: NULL is the thread's
 * own stream. */
#include <cuda.h>

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1ul << 20)
#define N_THREADS 4
#define N_BLOCKS 8
#define N_STEPS 400
#define N_SIGNALS 100

/* Of the simulated device. */
struct vpmm_sim_spin;
struct vpmm_sim_spin *vpmm_sim_spin(CUstream stream, bool per_thread, CUdeviceptr address,
                                    size_t bytes, unsigned char byte);
void vpmm_sim_spin_release(struct vpmm_sim_spin *spin);
void vpmm_sim_device_break(CUdevice device, CUresult code);
void vpmm_sim_shut_down(void);
uint64_t vpmm_sim_calls(const char *name);

static CUcontext context;

static CUresult tell(const char *what, CUresult result)
{
    printf("%s %d\n", what, (int)result);
    return result;
}

static void must(CUresult result)
{
    if (result && tell("unexpected", result))
        exit(1);
}

/* ---- the thread's own stream ---- */

static CUdeviceptr freed;

static void *take_elsewhere(void *unused)
{
    CUdeviceptr block;
    (void)unused;
    must(cuCtxSetCurrent(context));
    must(cuMemAllocAsync(&block, 8 * MIB, NULL));
    printf("another thread gets the same memory %d\n", block == freed);
    must(cuMemFreeAsync(block, NULL));
    must(cuStreamSynchronize(NULL));
    return NULL;
}

static void scene_own_stream(void)
{
    CUdeviceptr block;
    pthread_t thread;
    must(cuMemAllocAsync(&freed, 8 * MIB, NULL));
    struct vpmm_sim_spin *spin = vpmm_sim_spin(NULL, true, freed, 8 * MIB, 1);
    must(cuMemFreeAsync(freed, NULL));
    if (pthread_create(&thread, NULL, take_elsewhere, NULL) != 0)
        exit(1);
    (void)pthread_join(thread, NULL);
    must(cuMemAllocAsync(&block, 8 * MIB, NULL));
    printf("the same thread gets the same memory %d\n", block == freed);
    vpmm_sim_spin_release(spin);
    must(cuStreamSynchronize(NULL));
}

/* ---- the end ---- */

static CUdeviceptr block, other, third;

/* And what is free and known to be complete. */
static void make_blocks(void)
{
    must(cuMemAlloc(&block, 8 * MIB));
    must(cuMemAllocAsync(&other, 8 * MIB, NULL));
    must(cuMemAlloc(&freed, 4 * MIB));
    must(cuMemAlloc(&third, 4 * MIB));
    must(cuMemFree(freed));
    must(cuMemFree(third));
    must(cuMemAllocAsync(&freed, 4 * MIB, NULL));
    must(cuMemFreeAsync(freed, NULL));
    must(cuCtxSynchronize());
    must(cuMemAlloc(&third, 4 * MIB));
}

static void use_everything(void)
{
    CUdeviceptr fresh = 0;
    size_t free_bytes, total_bytes;
    tell("range", cuMemGetAddressRange(&fresh, NULL, block));
    tell("malloc again", cuMemAlloc(&fresh, 4 * MIB));
    tell("async again", cuMemAllocAsync(&fresh, 4 * MIB, NULL));
    tell("malloc", cuMemAlloc(&fresh, 8 * MIB));
    tell("async", cuMemAllocAsync(&fresh, 8 * MIB, NULL));
    tell("free", cuMemFree(block));
    tell("freeasync", cuMemFreeAsync(other, NULL));
    tell("freeasync", cuMemFreeAsync(third, NULL));
    tell("info", cuMemGetInfo(&free_bytes, &total_bytes));
    tell("free of nothing", cuMemFree(0x10));
    (void)fflush(stdout);
}

static void scene_broken(void)
{
    make_blocks();
    vpmm_sim_device_break(0, CUDA_ERROR_ILLEGAL_ADDRESS);
    use_everything();
}

static void scene_late(void)
{
    make_blocks();
    vpmm_sim_shut_down();
    if (atexit(use_everything) != 0)
        exit(1);
}

/* ---- frees that wait ---- */

static void tell_free(const char *what, CUresult result)
{
    static uint64_t before;
    uint64_t now = vpmm_sim_calls("cuCtxSynchronize");
    must(result);
    printf("%s waits %d\n", what, (int)(now - before));
    before = now;
}

static void scene_waits(void)
{
    make_blocks();
    tell_free("start", CUDA_SUCCESS);
    tell_free("free of cudaMalloc memory", cuMemFree(block));
    tell_free("free of cudaMallocAsync memory", cuMemFree(other));
    tell_free("freeasync of cudaMalloc memory", cuMemFreeAsync(third, NULL));
}

/* ---- signals ---- */

static atomic_int n_running;

static unsigned next_random(unsigned *state)
{
    *state = *state * 1103515245u + 12345u;
    return *state >> 16;
}

static void *storm(void *number)
{
    CUdeviceptr blocks[N_BLOCKS] = {0};
    unsigned state = (unsigned)(uintptr_t)number;
    must(cuCtxSetCurrent(context));
    for (int step = 0; step < N_STEPS; step++) {
        CUdeviceptr *at = &blocks[next_random(&state) % N_BLOCKS];
        size_t bytes = (next_random(&state) % 16 + 2) * MIB;
        bool is_async = next_random(&state) % 2;
        if (*at)
            must(is_async ? cuMemFreeAsync(*at, NULL) : cuMemFree(*at));
        must(is_async ? cuMemAllocAsync(at, bytes, NULL) : cuMemAlloc(at, bytes));
        if (step == N_STEPS / 2)
            (void)raise(SIGUSR1);
    }
    for (int i = 0; i < N_BLOCKS; i++)
        if (blocks[i])
            must(cuMemFree(blocks[i]));
    atomic_fetch_sub(&n_running, 1);
    return NULL;
}

/* Any thread may be the one that is interrupted, and each is at least once, by itself. */
static void scene_storm(void)
{
    pthread_t threads[N_THREADS];
    CUdeviceptr first;
    must(cuMemAlloc(&first, 8 * MIB));
    atomic_store(&n_running, N_THREADS);
    for (uintptr_t i = 0; i < N_THREADS; i++)
        if (pthread_create(&threads[i], NULL, storm, (void *)(i + 1)) != 0)
            exit(1);
    for (int i = 0; i < N_SIGNALS && atomic_load(&n_running); i++)
        (void)pthread_kill(threads[i % N_THREADS], SIGUSR1);
    for (int i = 0; i < N_THREADS; i++)
        (void)pthread_join(threads[i], NULL);
    must(cuMemFree(first));
    must(cuCtxSynchronize());
    (void)raise(SIGUSR1);
    puts("done");
}

/* ---- a thread with a small stack ends the process ---- */

#define STACK_BYTES (64ul << 10)

static void *leave(void *unused)
{
    (void)unused;
    exit(0);
}

static void scene_small(void)
{
    CUdeviceptr block;
    pthread_attr_t attributes;
    pthread_t thread;
    must(cuMemAllocAsync(&block, 8 * MIB, NULL));
    if (pthread_attr_init(&attributes) || pthread_attr_setstacksize(&attributes, STACK_BYTES) ||
        pthread_create(&thread, &attributes, leave, NULL))
        exit(1);
    (void)pthread_join(thread, NULL);
}

#define SCENE(name)                                                                                \
    {                                                                                              \
#        name, scene_##name                                                                        \
    }
static const struct {
    const char *name;
    void (*run)(void);
} scenes[] = {SCENE(own_stream), SCENE(broken), SCENE(late),
              SCENE(waits),      SCENE(storm),  SCENE(small)};

int main(int n, char **arguments)
{
    must(cuInit(0));
    must(cuDevicePrimaryCtxRetain(&context, 0));
    must(cuCtxSetCurrent(context));
    for (size_t i = 0; n > 1 && i < sizeof scenes / sizeof *scenes; i++)
        if (strcmp(arguments[1], scenes[i].name) == 0)
            scenes[i].run();
    return 0;
}
