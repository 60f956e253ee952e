/* SPDX-License-Identifier: MIT */
/* A program that looks at its pools and asks them for something. The first argument names a scene;
 * each call of interest prints a line: what it was, its result in words, and figures in MiB. */
#define _GNU_SOURCE
#include <vpmm/vpmm.h>

#include <cuda.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

/* Of the simulated device. */
struct vpmm_sim_spin;
struct vpmm_sim_spin *vpmm_sim_spin(CUstream stream, bool per_thread, CUdeviceptr address,
                                    size_t bytes, unsigned char byte);
void vpmm_sim_spin_release(struct vpmm_sim_spin *spin);

static CUcontext context;

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
}

static CUstream make_stream(void)
{
    CUstream stream;
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static void snapshot(void)
{
    struct vpmm_snapshot now = {.size_bytes = sizeof now};
    enum vpmm_result result = vpmm_snapshot_take(0, &now);
    printf("snapshot: %s: live %zu requested %zu pending %zu outstanding %zu ready %zu held %zu\n",
           vpmm_result_text(result), now.live_bytes / MIB, now.requested_bytes / MIB,
           now.pending_bytes / MIB, now.outstanding_bytes / MIB, now.ready_bytes / MIB,
           now.held_bytes / MIB);
}

static void reap(void)
{
    uint64_t pending = 1;
    enum vpmm_result result = vpmm_reap(VPMM_EVERY_DEVICE, &pending);
    printf("reap: %s: pending %zu\n", vpmm_result_text(result), (size_t)pending / MIB);
}

static void trim(uint64_t keep_bytes)
{
    uint64_t given_back = 1;
    enum vpmm_result result = vpmm_trim(0, keep_bytes, &given_back);
    printf("trim: %s: given back %zu\n", vpmm_result_text(result), (size_t)given_back / MIB);
}

/* Everything, whatever is there. */
static void all(void)
{
    struct vpmm_requests requests = {.size_bytes = sizeof requests};
    const char *version = vpmm_loaded_version();
    (void)fflush(stdout);
    printf("version: %s\n", version ? version : "none");
    printf("devices: %d %d\n", vpmm_next_device(-1), vpmm_next_device(0));
    snapshot();
    enum vpmm_result result = vpmm_requests_count(VPMM_OF_MALLOC_ASYNC, &requests);
    printf("requests: %s: pool %zu small %zu\n", vpmm_result_text(result), (size_t)requests.pool,
           (size_t)requests.small);
    reap();
    trim(0);
    (void)fflush(stdout);
    result = vpmm_dump(STDOUT_FILENO, VPMM_AS_TEXT);
    printf("dump: %s\n", vpmm_result_text(result));
}

static void scene_cold(void)
{
    all();
}

/* A block that stays, one whose stream spins, and one that is complete. */
static void scene_warm(void)
{
    CUdeviceptr kept, pending, small;
    start();
    CUstream stream = make_stream();
    must(cuMemAlloc(&kept, 63 * MIB));
    must(cuMemAllocAsync(&pending, 32 * MIB, stream));
    must(cuMemAllocAsync(&small, 4096, stream));
    struct vpmm_sim_spin *spin = vpmm_sim_spin(stream, false, pending, 1, 1);
    must(cuMemFreeAsync(pending, stream));
    snapshot();
    trim(0);
    snapshot();
    vpmm_sim_spin_release(spin);
    all();
    must(cuMemFree(kept));
    must(cuMemFreeAsync(small, stream));
    must(cuStreamSynchronize(stream));
    reap();
    snapshot();
    trim(0);
    snapshot();
}

/* The fault that the environment asks for strikes the first wait. */
static void scene_failing(void)
{
    CUdeviceptr a, b;
    start();
    CUstream stream = make_stream();
    must(cuMemAllocAsync(&a, 32 * MIB, stream));
    must(cuMemAlloc(&b, 16 * MIB));
    struct vpmm_sim_spin *spin = vpmm_sim_spin(stream, false, a, 1, 1);
    must(cuMemFreeAsync(a, stream));
    reap();
    snapshot();
    vpmm_sim_spin_release(spin);
    reap();
    snapshot();
    must(cuMemFree(b));
}

static void scene_capture(void)
{
    CUdeviceptr before, during;
    CUgraph graph;
    start();
    CUstream stream = make_stream(), captured = make_stream();
    must(cuMemAllocAsync(&before, 32 * MIB, stream));
    must(cuMemAlloc(&during, 16 * MIB));
    must(cuMemFreeAsync(before, stream));
    must(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    must(cuMemFree(during));
    reap();
    trim(0);
    all();
    must(cuStreamEndCapture(captured, &graph));
    reap();
    snapshot();
    must(cuGraphDestroy(graph));
}

/* Where CUDA calls back no call of it is allowed. */
static void CUDA_CB call_back(void *self)
{
    (void)self;
    snapshot();
    printf("devices: %d\n", vpmm_next_device(-1));
    reap();
}

static void scene_callback(void)
{
    CUdeviceptr kept, freed;
    start();
    CUstream stream = make_stream();
    must(cuMemAlloc(&kept, 16 * MIB));
    must(cuMemAllocAsync(&freed, 32 * MIB, stream));
    must(cuMemFreeAsync(freed, stream));
    must(cuLaunchHostFunc(stream, call_back, NULL));
    must(cuStreamSynchronize(stream));
    reap();
    must(cuMemFree(kept));
}

static void *from_a_thread(void *self)
{
    (void)self;
    reap();
    snapshot();
    return NULL;
}

/* A thread without a context, and a child. */
static void scene_elsewhere(void)
{
    CUdeviceptr kept, freed;
    pthread_t thread;
    int status;
    start();
    CUstream stream = make_stream();
    must(cuMemAlloc(&kept, 16 * MIB));
    must(cuMemAllocAsync(&freed, 32 * MIB, stream));
    must(cuMemFreeAsync(freed, stream));
    if (pthread_create(&thread, NULL, from_a_thread, NULL) || pthread_join(thread, NULL))
        exit(1);
    (void)fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        all();
        (void)fflush(stdout);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        exit(1);
    must(cuMemFree(kept));
}

/* A pool on each of two devices. */
static void scene_devices(void)
{
    CUcontext second;
    CUdeviceptr a, b;
    uint64_t given_back;
    start();
    must(cuMemAlloc(&a, 16 * MIB));
    must(cuDevicePrimaryCtxRetain(&second, 1));
    must(cuCtxSetCurrent(second));
    must(cuMemAlloc(&b, 32 * MIB));
    printf("devices: %d %d %d\n", vpmm_next_device(-1), vpmm_next_device(0), vpmm_next_device(1));
    must(cuMemFree(a));
    must(cuMemFree(b));
    reap();
    enum vpmm_result result = vpmm_trim(1, 0, &given_back);
    printf("one: %s: %zu\n", vpmm_result_text(result), (size_t)given_back / MIB);
    result = vpmm_trim(VPMM_EVERY_DEVICE, 0, &given_back);
    printf("all: %s: %zu\n", vpmm_result_text(result), (size_t)given_back / MIB);
}

/* Where the machine keeps one of the others for long from closing what it has taken, that one
 * stands in the way for so long. */
static enum vpmm_result reap_beside_others(void)
{
    enum vpmm_result result = VPMM_BUSY;
    while (result == VPMM_BUSY)
        result = vpmm_reap(VPMM_EVERY_DEVICE, NULL);
    return result;
}

static void *ask_and_allocate(void *self)
{
    (void)self;
    must(cuCtxSetCurrent(context));
    CUstream stream = make_stream();
    for (int i = 0; i < 300; i++) {
        struct vpmm_snapshot now = {.size_bytes = sizeof now};
        CUdeviceptr async, sync;
        must(cuMemAllocAsync(&async, (size_t)(1 + i % 5) * 2 * MIB, stream));
        must(cuMemAlloc(&sync, (size_t)(1 + i % 3) * 4 * MIB));
        must(cuMemFreeAsync(async, stream));
        if (vpmm_snapshot_take(0, &now) || now.outstanding_bytes < 4 * MIB ||
            now.outstanding_bytes != now.live_bytes + now.pending_bytes ||
            (i % 7 == 0 && reap_beside_others()) || (i % 11 == 0 && vpmm_trim(0, 8 * MIB, NULL)))
            must(CUDA_ERROR_UNKNOWN);
        must(cuMemFree(sync));
    }
    return NULL;
}

static void scene_crowd(void)
{
    pthread_t threads[4];
    CUdeviceptr first;
    start();
    must(cuMemAlloc(&first, 2 * MIB));
    for (int i = 0; i < 4; i++)
        if (pthread_create(&threads[i], NULL, ask_and_allocate, NULL))
            exit(1);
    for (int i = 0; i < 4; i++)
        if (pthread_join(threads[i], NULL))
            exit(1);
    must(cuMemFree(first));
    reap();
    trim(0);
    snapshot();
}

/* Arguments that cannot be meant, and a struct of another release. */
static void scene_wrong(void)
{
    struct vpmm_snapshot none = {.size_bytes = 0};
    union {
        struct vpmm_snapshot snapshot;
        unsigned char bytes[sizeof(struct vpmm_snapshot) + 64];
    } room;
    CUdeviceptr kept;
    start();
    must(cuMemAlloc(&kept, 16 * MIB));
    printf("no size: %s\n", vpmm_result_text(vpmm_snapshot_take(0, &none)));
    printf("no struct: %s\n", vpmm_result_text(vpmm_snapshot_take(0, NULL)));
    printf("kind: %s\n", vpmm_result_text(vpmm_requests_count((enum vpmm_request_kind)7, NULL)));
    printf("form: %s\n", vpmm_result_text(vpmm_dump(1, (enum vpmm_form)7)));
    printf("descriptor: %s\n", vpmm_result_text(vpmm_dump(-1, VPMM_AS_TEXT)));
    printf("device: %s\n", vpmm_result_text(vpmm_trim(5, 0, NULL)));
    printf("text: %s\n", vpmm_result_text((enum vpmm_result)99));
    memset(&room, 0xff, sizeof room);
    room.snapshot.size_bytes = sizeof room;
    enum vpmm_result result = vpmm_snapshot_take(0, &room.snapshot);
    printf("larger: %s: live %zu, beyond %d\n", vpmm_result_text(result),
           (size_t)room.snapshot.live_bytes / MIB, room.bytes[sizeof room - 1]);
    memset(&room, 0xff, sizeof room);
    room.snapshot.size_bytes = offsetof(struct vpmm_snapshot, requested_bytes);
    result = vpmm_snapshot_take(0, &room.snapshot);
    printf("smaller: %s: live %zu, beyond %d\n", vpmm_result_text(result),
           (size_t)room.snapshot.live_bytes / MIB, room.snapshot.requested_bytes == UINT64_MAX);
    must(cuMemFree(kept));
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*play)(void);
    } scenes[] = {
        {"cold", scene_cold},       {"warm", scene_warm},         {"failing", scene_failing},
        {"capture", scene_capture}, {"callback", scene_callback}, {"elsewhere", scene_elsewhere},
        {"wrong", scene_wrong},     {"devices", scene_devices},   {"crowd", scene_crowd},
    };
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
        if (argc != 2 || strcmp(argv[1], scenes[i].name) != 0)
            continue;
        scenes[i].play();
        return 0;
    }
    return 2;
}
