/* SPDX-License-Identifier: MIT */
/* The end of a context by the runtime: what is left of memory of each kind after cudaDeviceReset,
 * and that everything works again after it. */
#include "conformance.cuh"

namespace {

void work()
{
    void *plain, *ordered;
    cudaStream_t stream;
    CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (size_t bytes : SIZES) {
        CALL(cudaMalloc(&plain, bytes));
        CALL(cudaMallocAsync(&ordered, bytes, stream));
        CALL(cudaMemsetAsync(ordered, 3, bytes, stream));
        CALL(cudaMemcpyAsync(plain, ordered, bytes, cudaMemcpyDefault, stream));
        CALL(cudaStreamSynchronize(stream));
        ASK(holds(plain, bytes, 3));
        CALL(cudaFreeAsync(ordered, stream));
        CALL(cudaFree(plain));
    }
    CALL(cudaStreamDestroy(stream));
}

/* Where a small block lay, the new context may have put something of its own. */
void leave_behind(size_t bytes)
{
    void *plain, *ordered, *managed, *host;
    section("left behind", bytes);
    CALL(cudaMalloc(&plain, bytes));
    CALL(cudaMallocAsync(&ordered, bytes, nullptr));
    CALL(cudaMallocManaged(&managed, bytes));
    CALL(cudaMallocHost(&host, bytes));
    CALL(cudaDeviceSynchronize());
    CALL(cudaDeviceReset());
    CALL(cudaFree(plain));
    if (bytes > 2 * MIB) {
        CALL(cudaMemset(plain, 1, 16));
    }
    runtime_attributes(plain, plain);
    CALL(cudaMemset(ordered, 1, 16));
    CALL(cudaDeviceSynchronize());
    runtime_attributes(ordered, ordered);
    CALL(cudaFree(ordered));
    CALL(cudaFree(managed));
    CALL(cudaFreeHost(host));
    CALL(cudaDeviceSynchronize());
    work();
}

void primary()
{
    auto retain = DRIVER(cuDevicePrimaryCtxRetain);
    auto release = driver<decltype(&cuDevicePrimaryCtxRelease)>("cuDevicePrimaryCtxRelease");
    auto state = DRIVER(cuDevicePrimaryCtxGetState);
    auto name = driver_observer().error_name;
    CUcontext context;
    unsigned flags;
    int active = 0;
    auto say = [name](const char *what, CUresult result) {
        const char *text = "";
        name(result, &text);
        printf("%s: %s\n", what, text);
    };
    section("the primary context");
    say("retain", retain(&context, 0));
    say("release", release(0));
    say("state", state(0, &flags, &active));
    VALUE(active);
    void *p;
    CALL(cudaMalloc(&p, 16 * MIB));
    say("release what the runtime retains", release(0));
    say("state", state(0, &flags, &active));
    VALUE(active);
    CALL(cudaMemset(p, 1, 16));
    CALL(cudaDeviceReset());
    work();
}

} /* namespace */

int main()
{
    begin();
    work();
    for (size_t bytes : SIZES) {
        leave_behind(bytes);
    }
    CALL(cudaDeviceReset());
    CALL(cudaDeviceReset());
    CALL(cudaInitDevice(0, 0, 0));
    work();
    primary();
    return 0;
}
