/* SPDX-License-Identifier: MIT */
/* Allocates and frees, and says so: one line a call, with what a trace of it has to show. The first
 * argument names a scene. */
#define _GNU_SOURCE
#include <cuda.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ul << 20)
#define NOBODYS ((CUdeviceptr)0x10)

static CUstream stream;
static CUcontext context;

static void must(CUresult result)
{
    if (result) {
        printf("unexpected %d\n", (int)result);
        exit(1);
    }
}

static unsigned long long id_of(CUstream of)
{
    unsigned long long id = 0;
    must(cuStreamGetId(of, &id));
    return id;
}

/* kind, form, whether it succeeded, address, bytes (of a free those of its block), stream */
static void say(const char *kind, const char *form, CUresult result, CUdeviceptr address,
                size_t bytes, unsigned long long id)
{
    printf("%s %s %d %llu %zu %llu\n", kind, form, result == CUDA_SUCCESS,
           result || strcmp(kind, "free") == 0 || address ? address : 0, bytes, id);
    (void)fflush(stdout);
}

static CUdeviceptr allocate(size_t bytes)
{
    CUdeviceptr address = 0;
    CUresult result = cuMemAlloc(&address, bytes);
    say("malloc", "plain", result, result ? 0 : address, bytes, 0);
    return address;
}

static CUdeviceptr allocate_on(CUstream on, size_t bytes)
{
    CUdeviceptr address = 0;
    CUresult result = cuMemAllocAsync(&address, bytes, on);
    say("malloc", "async", result, result ? 0 : address, bytes, id_of(on));
    return address;
}

static void release(CUdeviceptr address, size_t bytes)
{
    say("free", "plain", cuMemFree(address), address, bytes, 0);
}

static void release_on(CUstream on, CUdeviceptr address, size_t bytes)
{
    say("free", "async", cuMemFreeAsync(address, on), address, bytes, id_of(on));
}

static void start(void)
{
    must(cuInit(0));
    must(cuDevicePrimaryCtxRetain(&context, 0));
    must(cuCtxSetCurrent(context));
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

/* Every wrapper, answered by the pool, by CUDA and by nobody. What CUDA frees has no size. */
static void calls(void)
{
    CUdeviceptr address, rows;
    CUmemoryPool pool;
    size_t pitch;
    const size_t small_bytes = getenv("VPMM_MIN_SIZE") ? 0 : 1000;
    address = allocate(5 * MIB + 1);
    release(address, 5 * MIB + 1);
    for (int i = 0; i < 3; i++) {
        address = allocate_on(stream, 8 * MIB);
        release_on(stream, address, 8 * MIB);
    }
    address = allocate_on(NULL, 4 * MIB);
    release_on(NULL, address, 4 * MIB);
    must(cuDeviceGetDefaultMemPool(&pool, 0));
    must(cuMemAllocFromPoolAsync(&address, 6 * MIB, pool, stream));
    say("malloc", "async", CUDA_SUCCESS, address, 6 * MIB, id_of(stream));
    release_on(stream, address, 6 * MIB);
    for (int i = 0; i < 2; i++) {
        must(cuMemAllocPitch(&rows, &pitch, 4000, 1000, 4));
        say("malloc", "plain", CUDA_SUCCESS, rows, pitch * 1000, 0);
        release(rows, i ? pitch * 1000 : 0);
    }
    address = allocate(1000);
    release(address, small_bytes);
    address = allocate_on(stream, 1000);
    release_on(stream, address, small_bytes);
    (void)allocate((size_t)1 << 50);
    (void)allocate_on(stream, (size_t)1 << 50);
    (void)allocate(0);
    release(0, 0);
    release(NOBODYS, 0);
    address = allocate(2 * MIB);
    release(address + MIB, 0);
    release(address, 2 * MIB);
    release(address, 0);
    (void)allocate(3 * MIB);
}

#define THREADS 4
#define ROUNDS 3000

static void *work(void *unused)
{
    CUstream own;
    CUdeviceptr address;
    (void)unused;
    must(cuCtxSetCurrent(context));
    must(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    for (size_t i = 0; i < ROUNDS; i++) {
        must(cuMemAllocAsync(&address, (i % 3 + 1) * 2 * MIB, own));
        must(cuMemFreeAsync(address, own));
        must(cuMemAlloc(&address, 2 * MIB));
        must(cuMemFree(address));
    }
    return NULL;
}

static void threads(void)
{
    pthread_t ids[THREADS];
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&ids[i], NULL, work, NULL))
            exit(1);
    for (int i = 0; i < THREADS; i++)
        (void)pthread_join(ids[i], NULL);
}

#define SHORT 1000

static void *work_once(void *unused)
{
    CUdeviceptr address;
    (void)unused;
    must(cuCtxSetCurrent(context));
    must(cuMemAlloc(&address, 2 * MIB));
    must(cuMemFree(address));
    return NULL;
}

static void short_threads(void)
{
    pthread_t id;
    for (int i = 0; i < SHORT; i++) {
        if (pthread_create(&id, NULL, work_once, NULL))
            exit(1);
        (void)pthread_join(id, NULL);
    }
}

static void *call_cancelled(void *block)
{
    must(cuCtxSetCurrent(context));
    (void)pthread_cancel(pthread_self());
    must(cuMemAlloc(block, 2 * MIB));
    pthread_testcancel();
    return NULL;
}

/* The first call of a wrapper opens the trace, with calls that end a cancelled thread. */
static void cancelled(void)
{
    size_t unused, total;
    void *result;
    pthread_t id;
    CUdeviceptr block = 0;
    must(cuMemGetInfo(&unused, &total));
    if (pthread_create(&id, NULL, call_cancelled, &block) || pthread_join(id, &result) ||
        result != PTHREAD_CANCELED)
        exit(1);
    say("malloc", "plain", CUDA_SUCCESS, block, 2 * MIB, 0);
    release(block, 2 * MIB);
}

/* New memory, extents that move, zombies that are unmapped, memory that goes back. */
static void moves(void)
{
    CUdeviceptr small[8], large;
    CUmemoryPool pool;
    for (int i = 0; i < 8; i++)
        small[i] = allocate_on(stream, 4 * MIB);
    for (int i = 0; i < 8; i += 2)
        release_on(stream, small[i], 4 * MIB);
    must(cuStreamSynchronize(stream));
    large = allocate_on(stream, 16 * MIB);
    release_on(stream, large, 16 * MIB);
    must(cuStreamSynchronize(stream));
    must(cuDeviceGetDefaultMemPool(&pool, 0));
    must(cuMemPoolTrimTo(pool, 0));
}

/* Memory that its context takes along. */
static void dies(void)
{
    CUcontext other;
    must(cuCtxCreate(&other, NULL, 0, 0));
    (void)allocate(2 * MIB);
    must(cuCtxDestroy(other));
    must(cuCtxSetCurrent(context));
    (void)allocate(4 * MIB);
}

static void forks(void)
{
    CUdeviceptr address = allocate(2 * MIB);
    pid_t child = fork();
    if (child == 0) {
        CUdeviceptr own;
        (void)cuMemAlloc(&own, 2 * MIB);
        _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        exit(1);
    release(address, 2 * MIB);
}

/* All descriptors that it did not open are closed, as daemons do. */
static void closes(void)
{
    for (int fd = 3; fd < 1000; fd++)
        (void)close(fd);
    threads();
}

/* Another device than the block's is current at frees of either kind, and at a request in order. */
static void on_two_devices(void)
{
    CUcontext other;
    CUstream others;
    must(cuDevicePrimaryCtxRetain(&other, 1));
    must(cuCtxSetCurrent(other));
    must(cuStreamCreate(&others, CU_STREAM_NON_BLOCKING));
    CUdeviceptr waiting = allocate(4 * MIB);
    must(cuCtxSetCurrent(context));
    CUdeviceptr ordered = allocate_on(others, 6 * MIB);
    must(cuStreamSynchronize(others));
    CUdeviceptr here = allocate(8 * MIB);
    release(waiting, 4 * MIB);
    release_on(stream, ordered, 6 * MIB);
    release(here, 8 * MIB);
}

static void dies_of_a_signal(void)
{
    calls();
    (void)raise(SIGKILL);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*act)(void);
    } scenes[] = {
        {"calls", calls},
        {"threads", threads},
        {"short", short_threads},
        {"cancelled", cancelled},
        {"moves", moves},
        {"dies", dies},
        {"forks", forks},
        {"closes", closes},
        {"killed", dies_of_a_signal},
        {"devices", on_two_devices},
    };
    for (size_t i = 0; argc > 1 && i < sizeof scenes / sizeof *scenes; i++) {
        if (strcmp(argv[1], scenes[i].name) != 0)
            continue;
        start();
        scenes[i].act();
        return 0;
    }
    return 2;
}
