/* SPDX-License-Identifier: MIT */
/* Contexts that end in every way: by a count, with the last green context, beside another thread's
 * retain, beside waits and requests; and handles that come again. The first argument names a scene;
 * each call of interest prints one line, the same ones with and without the library. */
#include <cuda.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Programs still use cuCtxDetach. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define MIB (1ul << 20)
#define BYTES (8 * MIB)
#define LARGE (160 * MIB) /* more than half of the device where a scene needs that */
#define HANGS_S 60
#define N_THREADS 3
#define N_RESETS 40

/* Of the simulated device. */
struct vpmm_sim_spin;
struct vpmm_sim_spin *vpmm_sim_spin(CUstream stream, bool per_thread, CUdeviceptr address,
                                    size_t bytes, unsigned char byte);
void vpmm_sim_spin_release(struct vpmm_sim_spin *spin);
void vpmm_sim_hook_set(void (*hook)(const char *name));

static CUresult tell(const char *what, CUresult result)
{
    printf("%s %d\n", what, (int)result);
    fflush(stdout);
    return result;
}

static void must(CUresult result)
{
    if (result && tell("unexpected", result))
        exit(1);
}

static CUcontext retain(void)
{
    CUcontext primary;
    must(cuDevicePrimaryCtxRetain(&primary, 0));
    must(cuCtxSetCurrent(primary));
    return primary;
}

static CUdeviceptr block(void)
{
    CUdeviceptr address = 0;
    must(cuMemAlloc(&address, BYTES));
    return address;
}

static CUdeviceptr async_block(CUstream stream)
{
    CUdeviceptr address = 0;
    must(cuMemAllocAsync(&address, BYTES, stream));
    return address;
}

/* What is left of memory of a context that has ended, with another one current. */
static void tell_rest(CUdeviceptr gone, CUdeviceptr kept)
{
    tell("free of cudaMalloc memory", cuMemFree(gone));
    tell("free of cudaMallocAsync memory", cuMemFree(kept));
    tell("free", cuMemFree(block()));
}

/* ---- counts ---- */

static void scene_detach(void)
{
    CUcontext own, same = NULL;
    CUcontext primary = retain();
    must(cuCtxCreate(&own, NULL, 0, 0));
    CUdeviceptr gone = block(), kept = async_block(NULL);
    must(cuStreamSynchronize(NULL));
    tell("attach", cuCtxAttach(&same, 0));
    printf("the same %d\n", same == own);
    tell("detach", cuCtxDetach(own));
    tell("still there", cuMemsetD8(gone, 1, BYTES));
    CUdeviceptr freed = block();
    tell("free in it", cuMemFree(freed));
    tell("detach", cuCtxDetach(own));
    must(cuCtxSetCurrent(primary));
    tell_rest(gone, kept);
}

/* A handle comes again, and nothing that its first context left behind is the second one's. */
static void come_again(CUresult (*end)(CUcontext context))
{
    CUcontext first, second;
    CUcontext primary = retain();
    must(cuCtxCreate(&first, NULL, 0, 0));
    CUdeviceptr gone = block(), kept = async_block(NULL);
    for (int i = 0; i < 4; i++)
        must(cuMemFree(block()));
    must(cuCtxSynchronize());
    tell("end", end(first));
    must(cuCtxCreate(&second, NULL, 0, 0));
    printf("the handle again %d\n", second == first);
    tell("free of what the first one had", cuMemFree(gone));
    CUdeviceptr mine = block();
    CUstream stream;
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    struct vpmm_sim_spin *spin = vpmm_sim_spin(stream, false, mine, BYTES, 7);
    CUdeviceptr other = async_block(stream);
    must(cuMemFreeAsync(other, stream));
    vpmm_sim_spin_release(spin);
    must(cuCtxSynchronize());
    unsigned char byte = 0;
    must(cuMemcpyDtoH(&byte, mine + BYTES - 1, 1));
    printf("byte %d\n", byte);
    tell("free", cuMemFree(mine));
    tell("destroy", cuCtxDestroy(second));
    must(cuCtxSetCurrent(primary));
    tell("free of cudaMallocAsync memory", cuMemFree(kept));
}

static void scene_detached_again(void)
{
    come_again(cuCtxDetach);
}

static void scene_destroyed_again(void)
{
    come_again(cuCtxDestroy);
}

/* ---- the primary context ---- */

static CUgreenCtx green_make(void)
{
    CUgreenCtx green;
    CUcontext context;
    must(cuGreenCtxCreate(&green, NULL, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    must(cuCtxFromGreenCtx(&context, green));
    must(cuCtxSetCurrent(context));
    return green;
}

static void tell_active(void)
{
    unsigned flags;
    int active = -1;
    must(cuDevicePrimaryCtxGetState(0, &flags, &active));
    printf("active %d\n", active);
}

/* The program never retains the primary context. */
static void scene_green_alone(void)
{
    CUcontext own;
    must(cuCtxCreate(&own, NULL, 0, 0));
    CUgreenCtx first = green_make(), second = green_make();
    CUdeviceptr gone = block(), kept = async_block(NULL);
    must(cuCtxSynchronize());
    tell("destroy", cuGreenCtxDestroy(first));
    tell_active();
    tell("still there", cuMemsetD8(gone, 1, BYTES));
    must(cuCtxSynchronize());
    must(cuCtxSetCurrent(own));
    tell("destroy", cuGreenCtxDestroy(second));
    tell_active();
    tell_rest(gone, kept);
}

/* A green context outlives the program's last reference. */
static void scene_green_last(void)
{
    (void)retain();
    CUgreenCtx green = green_make();
    CUdeviceptr gone = block(), kept = async_block(NULL);
    must(cuCtxSynchronize());
    tell("release", cuDevicePrimaryCtxRelease(0));
    tell_active();
    tell("still there", cuMemsetD8(gone, 1, BYTES));
    must(cuCtxSynchronize());
    must(cuCtxSetCurrent(NULL));
    tell("destroy", cuGreenCtxDestroy(green));
    tell_active();
    (void)retain();
    tell_rest(gone, kept);
}

static atomic_bool is_retained;

/* Before anybody sees that the context has ended. */
static void retain_between(const char *name)
{
    if (strcmp(name, "cuDevicePrimaryCtxGetState") != 0 || atomic_exchange(&is_retained, true))
        return;
    CUcontext primary;
    must(cuDevicePrimaryCtxRetain(&primary, 0));
}

static void scene_retained_between(void)
{
    CUcontext before = retain(), after;
    CUdeviceptr gone = block(), kept = async_block(NULL);
    must(cuMemFree(block()));
    must(cuCtxSynchronize());
    vpmm_sim_hook_set(retain_between);
    tell("release", cuDevicePrimaryCtxRelease(0));
    retain_between("cuDevicePrimaryCtxGetState");
    vpmm_sim_hook_set(NULL);
    must(cuCtxGetCurrent(&after));
    printf("the same handle %d\n", before == after);
    tell_rest(gone, kept);
}

/* ---- beside other threads ---- */

static pthread_t waiter;
static atomic_bool has_begun;

/* The wait that the other thread's request, or bare CUDA's free before it, comes to. */
static void note_wait(const char *name)
{
    if (pthread_equal(pthread_self(), waiter) &&
        (strcmp(name, "cuEventSynchronize") == 0 || strcmp(name, "cuMemFree") == 0))
        atomic_store(&has_begun, true);
}

static CUcontext used;
static CUdeviceptr large;

static void *free_and_take(void *unused)
{
    (void)unused;
    waiter = pthread_self();
    must(cuCtxSetCurrent(used));
    vpmm_sim_hook_set(note_wait);
    CUresult freed = cuMemFree(large), taken = cuMemAlloc(&large, LARGE);
    tell("free of the block", freed);
    tell("malloc of its size", taken);
    return NULL;
}

/* What a thread waits for depends on what another one does after it has given up a reference. */
static void scene_release_beside_a_wait(void)
{
    pthread_t thread;
    CUstream stream;
    CUdeviceptr small;
    used = retain();
    (void)retain();
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    must(cuMemAlloc(&large, LARGE));
    struct vpmm_sim_spin *spin = vpmm_sim_spin(stream, false, large, 64, 1);
    if (pthread_create(&thread, NULL, free_and_take, NULL))
        exit(1);
    while (!atomic_load(&has_begun))
        (void)usleep(100);
    tell("release", cuDevicePrimaryCtxRelease(0));
    tell("async malloc", cuMemAllocAsync(&small, BYTES, stream));
    vpmm_sim_spin_release(spin);
    (void)pthread_join(thread, NULL);
    tell("free", cuMemFree(large));
    tell("free", cuMemFree(small));
}

static atomic_bool is_over;

static void *request(void *unused)
{
    (void)unused;
    while (!atomic_load(&is_over)) {
        CUcontext primary;
        CUdeviceptr address;
        if (cuDevicePrimaryCtxRetain(&primary, 0) || cuCtxSetCurrent(primary))
            continue;
        for (int i = 0; i < 8; i++) {
            if (cuMemAlloc(&address, BYTES) == CUDA_SUCCESS)
                (void)cuMemFree(address);
            if (cuMemAllocAsync(&address, BYTES, CU_STREAM_PER_THREAD) == CUDA_SUCCESS &&
                cuMemFreeAsync(address, CU_STREAM_PER_THREAD) != CUDA_SUCCESS)
                (void)cuMemFree(address);
        }
        (void)cuDevicePrimaryCtxRelease(0);
    }
    return NULL;
}

/* Nobody can tell what each request is answered; but nothing is lost, and all goes on afterwards.
 */
static void scene_reset_beside_requests(void)
{
    pthread_t threads[N_THREADS];
    (void)retain();
    for (int i = 0; i < N_THREADS; i++)
        if (pthread_create(&threads[i], NULL, request, NULL))
            exit(1);
    for (int i = 0; i < N_RESETS; i++) {
        must(cuDevicePrimaryCtxReset(0));
        (void)usleep(300);
    }
    atomic_store(&is_over, true);
    for (int i = 0; i < N_THREADS; i++)
        (void)pthread_join(threads[i], NULL);
    must(cuDevicePrimaryCtxReset(0));
    (void)retain();
    CUdeviceptr address = block();
    tell("memset", cuMemsetD8(address, 3, BYTES));
    tell("wait", cuCtxSynchronize());
    tell("free", cuMemFree(address));
}

#define SCENE(name)                                                                                \
    {                                                                                              \
#        name, scene_##name                                                                        \
    }
static const struct {
    const char *name;
    void (*run)(void);
} scenes[] = {
    SCENE(detach),
    SCENE(detached_again),
    SCENE(destroyed_again),
    SCENE(green_alone),
    SCENE(green_last),
    SCENE(retained_between),
    SCENE(release_beside_a_wait),
    SCENE(reset_beside_requests),
};

int main(int n, char **arguments)
{
    (void)alarm(HANGS_S);
    must(cuInit(0));
    for (size_t i = 0; n > 1 && i < sizeof scenes / sizeof *scenes; i++)
        if (strcmp(arguments[1], scenes[i].name) == 0)
            scenes[i].run();
    return 0;
}
