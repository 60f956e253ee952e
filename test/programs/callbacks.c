/* SPDX-License-Identifier: MIT */
/* What the driver answers inside a host function and a stream callback, whether a block survives a
 * free that was refused there, what a free of no allocation costs, and what may be asked about a
 * context whose blocking stream captures. */
#include "truth.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#define BYTES (6 * MIB)
#define NO_ALLOCATION ((CUdeviceptr)0x10)
#define ANSWERS_MAX 128
#define PATIENCE_MS 10000

/* Newer headers give cuStreamGetCtx another signature. */
typedef CUresult CUDAAPI get_context_fn(CUstream stream, CUcontext *context_out, void **green_out);

/* What a callback was told, in order. It prints nothing itself: a call that never returns is then
 * told by the thread that waits. */
struct scene {
    CUcontext context;
    CUstream blocking, other;
    CUevent event;
    CUdeviceptr plain, ordered;
    pthread_t program;
    get_context_fn *get_context;
    bool is_program_thread;
    bool had_context;
    struct {
        const char *what;
        CUresult answer;
    } answers[ANSWERS_MAX];
    atomic_int n_begun, n_ended;
    atomic_bool is_done;
};

static void begin(struct scene *scene, const char *what)
{
    scene->answers[atomic_load(&scene->n_begun)].what = what;
    atomic_fetch_add(&scene->n_begun, 1);
}

static void end(struct scene *scene, CUresult answer)
{
    scene->answers[atomic_load(&scene->n_ended)].answer = answer;
    atomic_fetch_add(&scene->n_ended, 1);
}

#define TELL(call) (begin(scene, #call), end(scene, (call)))

static void ask_identity(struct scene *scene)
{
    CUcontext context = NULL;
    CUdevice device;
    CUstreamCaptureStatus status;
    unsigned long long id;
    unsigned flags;
    int least, greatest, value;
    void *green;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    TELL(cuDriverGetVersion(&value));
    TELL(cuCtxGetCurrent(&context));
    TELL(cuCtxGetDevice(&device));
    TELL(cuCtxGetStreamPriorityRange(&least, &greatest));
    TELL(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
    TELL(cuStreamIsCapturing(scene->blocking, &status));
    TELL(cuStreamIsCapturing(CU_STREAM_LEGACY, &status));
    TELL(cuStreamGetId(scene->blocking, &id));
    TELL(cuStreamGetId(scene->other, &id));
    TELL(cuStreamGetFlags(scene->other, &flags));
    if (scene->get_context)
        TELL(scene->get_context(scene->other, &context, &green));
    TELL(cuThreadExchangeStreamCaptureMode(&mode));
    if (scene->answers[atomic_load(&scene->n_ended) - 1].answer == CUDA_SUCCESS)
        TELL(cuThreadExchangeStreamCaptureMode(&mode));
}

static void ask_order(struct scene *scene)
{
    CUevent event = NULL;
    TELL(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    TELL(cuEventQuery(scene->event));
    TELL(cuEventRecord(scene->event, scene->other));
    TELL(cuCtxRecordEvent(scene->context, scene->event));
    TELL(cuStreamWaitEvent(scene->other, scene->event, 0));
    TELL(cuStreamQuery(scene->other));
    if (event)
        TELL(cuEventDestroy(event));
}

static void ask_memory(struct scene *scene)
{
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr p = 0, reserved = 0;
    size_t free_bytes, total;
    TELL(cuMemGetInfo(&free_bytes, &total));
    TELL(cuMemAlloc(&p, 0));
    TELL(cuMemFree(0));
    TELL(cuMemFree(NO_ALLOCATION));
    TELL(cuMemFreeAsync(NO_ALLOCATION, scene->other));
    TELL(cuMemCreate(&handle, BYTES, &properties, 0));
    if (handle)
        TELL(cuMemRelease(handle));
    TELL(cuMemAddressReserve(&reserved, BYTES, 0, 0, 0));
    if (reserved)
        TELL(cuMemAddressFree(reserved, BYTES));
    TELL(cuMemAllocAsync(&p, BYTES, scene->other));
    if (p)
        TELL(cuMemFreeAsync(p, scene->other));
    TELL(cuMemFreeAsync(scene->ordered, scene->other));
    p = 0;
    TELL(cuMemAlloc(&p, BYTES));
    if (p)
        TELL(cuMemFree(p));
    TELL(cuMemFree(scene->plain));
}

static void run(struct scene *scene)
{
    CUcontext context = NULL;
    scene->is_program_thread = pthread_equal(pthread_self(), scene->program) != 0;
    scene->had_context = cuCtxGetCurrent(&context) == CUDA_SUCCESS && context != NULL;
    ask_identity(scene);
    ask_order(scene);
    ask_memory(scene);
    TELL(cuCtxSetCurrent(scene->context));
    if (scene->answers[atomic_load(&scene->n_ended) - 1].answer == CUDA_SUCCESS) {
        ask_identity(scene);
        ask_order(scene);
        ask_memory(scene);
    }
    atomic_store(&scene->is_done, true);
}

static void CUDA_CB run_function(void *scene)
{
    run(scene);
}

static void CUDA_CB run_callback(CUstream stream, CUresult status, void *scene)
{
    (void)stream;
    (void)status;
    run(scene);
}

/* False: a call in the callback has not returned. */
static bool await(struct scene *scene)
{
    for (int ms = 0; ms < PATIENCE_MS && !atomic_load(&scene->is_done); ms++)
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    int n = atomic_load(&scene->n_ended);
    for (int i = 0; i < n; i++)
        truth_answer(scene->answers[i].what, scene->answers[i].answer);
    if (atomic_load(&scene->is_done))
        return true;
    printf("%s: does not return\n", scene->answers[n].what);
    return false;
}

static void look(const char *part, CUcontext context, bool is_function)
{
    static struct scene scenes[2];
    struct scene *scene = &scenes[is_function];
    void *address = dlsym(RTLD_DEFAULT, "cuStreamGetCtx_v2");
    scene->context = context;
    scene->program = pthread_self();
    memcpy(&scene->get_context, &address, sizeof address);
    MUST(cuStreamCreate(&scene->blocking, CU_STREAM_DEFAULT));
    MUST(cuStreamCreate(&scene->other, CU_STREAM_NON_BLOCKING));
    MUST(cuEventCreate(&scene->event, CU_EVENT_DISABLE_TIMING));
    MUST(cuMemAlloc(&scene->plain, BYTES));
    MUST(cuMemAllocAsync(&scene->ordered, BYTES, scene->other));
    MUST(cuCtxSynchronize());
    PART(part);
    if (is_function)
        MUST(cuLaunchHostFunc(scene->blocking, run_function, scene));
    else
        MUST(cuStreamAddCallback(scene->blocking, run_callback, scene, 0));
    if (!await(scene)) {
        (void)fflush(stdout);
        _exit(0);
    }
    truth_ask("on a thread of the program", scene->is_program_thread);
    truth_ask("with a current context", scene->had_context);
    MUST(cuStreamSynchronize(scene->blocking));
    truth_answer("afterwards the free of the plain block", cuMemFree(scene->plain));
    truth_answer("of the ordered block", cuMemFreeAsync(scene->ordered, scene->other));
    MUST(cuCtxSynchronize());
    MUST(cuStreamDestroy(scene->blocking));
    MUST(cuStreamDestroy(scene->other));
}

/* It must not wait for work, or it is no question that may be asked at any time. */
static void no_allocation(void)
{
    struct gate gate;
    CUstream stream;
    PART("a free of no allocation behind work");
    gate_init(&gate);
    MUST(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    gate_close(&gate, stream);
    ANSWER(cuMemFree(NO_ALLOCATION));
    ANSWER(cuMemFreeAsync(NO_ALLOCATION, stream));
    ANSWER(cuMemAlloc(&(CUdeviceptr){0}, 0));
    truth_answer("the work", cuStreamQuery(stream));
    gate_open(&gate);
    MUST(cuStreamSynchronize(stream));
    MUST(cuStreamDestroy(stream));
}

/* ---- a context whose blocking stream captures ---- */

struct visit {
    CUcontext context;
    CUstreamCaptureMode mode; /* of the visiting thread */
};

static void *visit(void *argument)
{
    const struct visit *visit = argument;
    CUstreamCaptureMode mode = visit->mode;
    CUstreamCaptureStatus status;
    CUcontext context = NULL;
    CUdevice device;
    CUdeviceptr p = 0;
    void *green = NULL;
    get_context_fn *get_context;
    void *address = dlsym(RTLD_DEFAULT, "cuStreamGetCtx_v2");
    memcpy(&get_context, &address, sizeof address);
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    MUST(cuCtxSetCurrent(visit->context));
    ANSWER(cuCtxGetCurrent(&context));
    ANSWER(cuCtxGetDevice(&device));
    ANSWER(cuStreamIsCapturing(CU_STREAM_LEGACY, &status));
    ANSWER(cuStreamIsCapturing(CU_STREAM_PER_THREAD, &status));
    context = NULL;
    if (get_context)
        ANSWER(get_context(CU_STREAM_PER_THREAD, &context, &green));
    ASK(context == visit->context);
    if (visit->mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
        ANSWER(cuMemAlloc(&p, BYTES));
        ANSWER(cuMemFree(p));
    }
    return NULL;
}

static void first_contact(CUstreamCaptureMode mode, const char *part)
{
    struct visit arguments = {.mode = mode};
    CUstream stream;
    CUgraph graph = NULL;
    pthread_t thread;
    PART(part);
    MUST(cuCtxCreate_v2(&arguments.context, 0, 0));
    MUST(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    if (pthread_create(&thread, NULL, visit, &arguments) == 0)
        (void)pthread_join(thread, NULL);
    ANSWER(cuStreamEndCapture(stream, &graph));
    MUST(cuCtxDestroy(arguments.context));
}

int main(void)
{
    CUcontext context = NULL;
    (void)alarm(100);
    (void)truth_start();
    MUST(cuCtxGetCurrent(&context));
    no_allocation();
    first_contact(CU_STREAM_CAPTURE_MODE_RELAXED, "a relaxed thread beside a capture");
    first_contact(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, "a thread with a mode of its own");
    first_contact(CU_STREAM_CAPTURE_MODE_GLOBAL, "a thread in global mode");
    MUST(cuCtxSetCurrent(context));
    look("in a callback", context, false);
    look("in a host function", context, true);
    return 0;
}
