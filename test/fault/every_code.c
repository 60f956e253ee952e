/* SPDX-License-Identifier: MIT */
/* Every code that a driver call can answer, those that no header names among them, at every driver
 * call of a free and of an allocation, once and for good. The program gets the driver's answer and
 * keeps its block, or success and the block is free. It never gets success while the block is lost,
 * nor a refusal while the block is gone; and afterwards the pool serves as before.
 *
 * Each scene and fault has a process of its own, which walks all codes. Arguments: nothing, for all
 * scenes; how their names begin, for some; SCENE CALL NTH FOREVER CODE, for one run. */
#define _GNU_SOURCE
#include "every_code.h"

#include "driver/cuda.h"
#include "sim/libcuda/control.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CODES_END 1000
#define ID_OURS (1ULL << 63)
#define CHILD_LIMIT_S 120
#define COMPLAINTS_MAX 3
#define TOLD_BYTES 160

/* A fault: the `nth` use of `call` (NULL: of any call) from the scene's act on. */
struct injection {
    const char *call;
    unsigned nth;
    bool is_forever;
};

/* The library's calls; the originals that it asks have names of their own. */
static const char *const calls[] = {
    "cuCtxGetCurrent",
    "cuCtxGetDevice",
    "cuCtxGetStreamPriorityRange",
    "cuCtxPushCurrent",
    "cuCtxRecordEvent",
    "cuDeviceGetDefaultMemPool",
    "cuEventCreate",
    "cuEventDestroy",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuMemAddressReserve",
    "cuMemCreate",
    "cuMemGetInfo",
    "cuMemMap",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuStreamGetCtx",
    "cuStreamGetId",
    "cuStreamIsCapturing",
    "cuStreamWaitEvent",
    "cuThreadExchangeStreamCaptureMode",
};
#define N_CALLS (sizeof calls / sizeof *calls)

static const struct vpmm_interface *library;
static unsigned n_complaints;

static void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void complain(const char *format, ...)
{
    va_list arguments;
    if (n_complaints++ >= COMPLAINTS_MAX)
        return;
    va_start(arguments, format);
    (void)vfprintf(stderr, format, arguments);
    va_end(arguments);
    (void)fputc('\n', stderr);
}

void must(const char *what, CUresult result)
{
    if (result == CUDA_SUCCESS)
        return;
    (void)fprintf(stderr, "%s: %d without a fault\n", what, (int)result);
    exit(3);
}

bool is_pooled(CUdeviceptr address)
{
    unsigned long long id = 0;
    return cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address) == CUDA_SUCCESS &&
           id >= ID_OURS;
}

/* The code blames what the program passed: the original is asked about the program's own address,
 * and in place of a stream that bare CUDA would refuse as well it blames that. */
static bool blames_the_program(enum vpmm_status status)
{
    return status == VPMM_INVALID || status == VPMM_NO_CONTEXT || status == VPMM_CONTEXT_GONE ||
           status == VPMM_CAPTURED;
}

/* The device is beyond repair, or the driver: who hears of that frees nothing any more. */
static bool is_the_end(enum vpmm_status status)
{
    return status == VPMM_BROKEN || status == VPMM_SHUT_DOWN;
}

static void judge_free(const struct scene *scene, CUresult code, CUresult answer)
{
    enum vpmm_status status = vpmm_cuda_status(code);
    CUresult again = scene->act();
    bool is_gone = again != CUDA_SUCCESS;
    bool is_told = answer == code || (answer == CUDA_ERROR_INVALID_VALUE &&
                                      (blames_the_program(status) || is_the_end(status)));
    if (answer == CUDA_SUCCESS && !is_gone)
        complain("success, and the block is still there");
    if (answer != CUDA_SUCCESS && !is_told)
        complain("refused with %d", (int)answer);
    if (answer != CUDA_SUCCESS && is_gone && !is_the_end(status))
        complain("refused with %d, and the block is gone: %d", (int)answer, (int)again);
}

static void judge_malloc(const struct scene *scene, CUresult code, CUresult answer)
{
    if (answer != CUDA_SUCCESS && answer != code)
        complain("refused with %d", (int)answer);
    if (answer == CUDA_SUCCESS)
        must("the free of what was served", scene->undo());
}

/* The fault is gone. */
static void judge_rest(void)
{
    struct vpmm_snapshot snapshot = {.size_bytes = sizeof snapshot};
    CUdeviceptr p = 0;
    uint64_t pending;
    must("cuCtxSynchronize", cuCtxSynchronize());
    must("cuMemAllocAsync", cuMemAllocAsync(&p, 8 * MIB, NULL));
    if (!is_pooled(p))
        complain("the pool serves no more");
    must("cuMemFreeAsync", cuMemFreeAsync(p, NULL));
    must("cuMemAlloc", cuMemAlloc(&p, 8 * MIB));
    if (!is_pooled(p))
        complain("the pool serves cudaMalloc no more");
    must("cuMemFree", cuMemFree(p));
    must("cuCtxSynchronize", cuCtxSynchronize());
    if (library->reap(0, &pending) != VPMM_DONE)
        complain("not all can be reaped");
    if (library->snapshot_take(0, &snapshot) != VPMM_DONE)
        complain("there is no pool");
    if (snapshot.live_bytes || snapshot.lost_bytes || snapshot.busy_bytes || snapshot.pending_bytes)
        complain("%llu bytes live, %llu lost, %llu busy, %llu pending",
                 (unsigned long long)snapshot.live_bytes, (unsigned long long)snapshot.lost_bytes,
                 (unsigned long long)snapshot.busy_bytes,
                 (unsigned long long)snapshot.pending_bytes);
}

/* False: the fault did not strike. */
static bool run(const struct scene *scene, const struct injection *injection, CUresult code)
{
    unsigned before = n_complaints;
    scene->prepare();
    vpmm_sim_fault_set(injection->call, injection->nth, code, injection->is_forever);
    CUresult answer = scene->act();
    bool has_struck = vpmm_sim_fault_struck(injection->call);
    vpmm_sim_fault_clear(NULL);
    if (scene->undo)
        judge_malloc(scene, code, answer);
    else
        judge_free(scene, code, answer);
    if (scene->finish)
        scene->finish();
    judge_rest();
    if (n_complaints != before && n_complaints <= COMPLAINTS_MAX)
        (void)fprintf(stderr, "  to repeat: \"%s\" %s %u %d %d\n", scene->name,
                      injection->call ? injection->call : "any", injection->nth,
                      injection->is_forever, (int)code);
    return has_struck;
}

static void start(void)
{
    CUcontext context;
    CUdeviceptr p = 0;
    (void)alarm(CHILD_LIMIT_S);
    (void)setenv("VPMM_SIM_STRICT", "1", 1);
    (void)setenv("VPMM_SIM_RACES", "1", 1);
    (void)setenv("VPMM_SIM_BYTES", "16G", 1);
    (void)setenv("VPMM_LOG", "none", 1);
    library = vpmm_interface_1();
    must("cuInit", cuInit(0));
    must("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&context, 0));
    must("cuCtxSetCurrent", cuCtxSetCurrent(context));
    must("cuMemAlloc", cuMemAlloc(&p, 8 * MIB));
    must("cuMemFree", cuMemFree(p));
    scenes_start();
}

/* In a process of its own: every code, or one. Its status is 0, 1: something is wrong, or 2: the
 * fault does not strike. */
static int walk(const struct scene *scene, const struct injection *injection, int only)
{
    int status;
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        start();
        bool has_struck = false;
        int first = only ? only : 1;
        int last = only ? only : CODES_END - 1;
        for (int code = first; code <= last; code++) {
            bool strikes = run(scene, injection, (CUresult)code);
            has_struck |= strikes;
            if (!strikes && code == first)
                break;
        }
        _exit(n_complaints ? 1 : has_struck ? 0 : 2);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return 1;
    if (WIFEXITED(status) && WEXITSTATUS(status) <= 2)
        return WEXITSTATUS(status);
    (void)fprintf(stderr, "\"%s\" %s %u %d: status %x\n", scene->name,
                  injection->call ? injection->call : "any", injection->nth, injection->is_forever,
                  (unsigned)status);
    return 1;
}

struct sum {
    unsigned n_walked, n_wrong;
};

static bool add(struct sum *sum, const struct scene *scene, const struct injection *injection)
{
    int status = walk(scene, injection, 0);
    sum->n_walked += status != 2;
    sum->n_wrong += status == 1;
    return status != 2;
}

static void walk_scene(const struct scene *scene, struct sum *sum)
{
    struct sum own = {0, 0};
    for (size_t i = 0; i < N_CALLS; i++)
        for (unsigned nth = 1;; nth++) {
            struct injection injection = {calls[i], nth, false};
            if (!add(&own, scene, &injection))
                break;
            injection.is_forever = true;
            (void)add(&own, scene, &injection);
        }
    for (unsigned nth = 1;; nth++) {
        struct injection injection = {NULL, nth, false};
        if (!add(&own, scene, &injection))
            break;
        injection.is_forever = true;
        (void)add(&own, scene, &injection);
    }
    printf("%s: %u faults of %d codes each, %u wrong\n", scene->name, own.n_walked, CODES_END - 1,
           own.n_wrong);
    sum->n_walked += own.n_walked;
    sum->n_wrong += own.n_wrong;
}

int main(int n, char **arguments)
{
    struct sum sum = {0, 0};
    bool is_one = n == 6;
    for (const struct scene *scene = scenes; scene->name; scene++) {
        size_t length = n > 1 ? strlen(arguments[1]) + is_one : 0;
        if (length && strncmp(arguments[1], scene->name, length) != 0)
            continue;
        if (!is_one) {
            walk_scene(scene, &sum);
            continue;
        }
        struct injection injection = {strcmp(arguments[2], "any") ? arguments[2] : NULL,
                                      (unsigned)atoi(arguments[3]), atoi(arguments[4]) != 0};
        return walk(scene, &injection, atoi(arguments[5]));
    }
    return sum.n_walked && !sum.n_wrong ? 0 : 1;
}
