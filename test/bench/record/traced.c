/* SPDX-License-Identifier: MIT */
/* A program for the recorder: it reaches the driver in every way there is and says nothing itself.
 * What it does, in order, stands in the recorder's test. */
#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(call) must((call) == CUDA_SUCCESS)
#define MIB ((size_t)1 << 20)
#define SMALL_BYTES 512

typedef CUresult malloc_async_fn(CUdeviceptr *address_out, size_t bytes, CUstream stream);
typedef CUresult look_up_fn(const char *symbol, void **function_out, int version, cuuint64_t flags,
                            CUdriverProcAddressQueryResult *status_out);
typedef CUresult free_fn(CUdeviceptr address);

static void must(int is_good)
{
    if (!is_good)
        _Exit(1);
}

static malloc_async_fn *look_up(const char *name, cuuint64_t flags)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *found;
    must(library != NULL);
    void *symbol = dlsym(library, "cuGetProcAddress_v2");
    look_up_fn *resolver;
    malloc_async_fn *function;
    memcpy(&resolver, &symbol, sizeof resolver);
    MUST(resolver(name, &found, 12000, flags, NULL));
    memcpy(&function, &found, sizeof function);
    return function;
}

/* Two streams, an order between them, a small request, and a free on the other one. */
static void use_streams(CUstream one, CUstream two)
{
    CUdeviceptr a, b;
    CUevent event;
    char word[8] = "";
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuMemAllocAsync(&a, 4 * MIB, one));
    MUST(cuMemcpyHtoDAsync(a, word, sizeof word, one));
    MUST(cuEventRecord(event, one));
    MUST(cuStreamWaitEvent(two, event, 0));
    MUST(look_up("cuMemAllocAsync", CU_GET_PROC_ADDRESS_DEFAULT)(&b, SMALL_BYTES, two));
    MUST(cuMemcpyDtoDAsync(b, a, sizeof word, two));
    MUST(cuMemFreeAsync(a, two));
    MUST(cuMemFreeAsync(b, two));
    must(cuMemFreeAsync(b + 1, two) != CUDA_SUCCESS);
    MUST(cuEventDestroy(event));
}

/* Nothing of a capture is recorded; the launch of its graph is. */
static void use_graph(CUstream stream, CUdeviceptr memory)
{
    CUgraph graph;
    CUgraphExec exec;
    MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuMemcpyDtoDAsync(memory, memory + 64, 8, stream));
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphInstantiate(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, stream));
    MUST(cuStreamSynchronize(stream));
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
}

int main(void)
{
    CUcontext context;
    CUstream one, two;
    CUdeviceptr plain, own;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAlloc(&plain, 3 * MIB));
    use_streams(one, two);
    use_graph(one, plain);
    MUST(look_up("cuMemAllocAsync", CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)(&own, 5 * MIB,
                                                                                   NULL));
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *symbol = dlsym(library, "cuMemFree_v2");
    free_fn *release;
    memcpy(&release, &symbol, sizeof release);
    MUST(release(plain));
    pid_t child = fork();
    if (child == 0)
        exit(0);
    must(waitpid(child, NULL, 0) == child);
    MUST(cuDevicePrimaryCtxRelease(0));
    return 0;
}
