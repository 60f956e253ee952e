/* SPDX-License-Identifier: MIT */
/* The five calls of the walkthrough (+10 +1 -10 +4 +11 pages on one stream), as an ordinary program
 * of CUDA's driver API makes them. It finds the driver as programs without a toolkit do, by dlopen,
 * and knows nothing of what may serve it: it only raises SIGUSR1 after each call when somebody in
 * the process handles that signal. */
#define _POSIX_C_SOURCE 200809L
#include <cuda.h>

#include <dlfcn.h>
#include <inttypes.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    CUresult (*init)(unsigned flags);
    CUresult (*device_get)(CUdevice *device, int ordinal);
    CUresult (*context_retain)(CUcontext *context, CUdevice device);
    CUresult (*context_release)(CUdevice device);
    CUresult (*context_set)(CUcontext context);
    CUresult (*stream_create)(CUstream *stream, unsigned flags);
    CUresult (*stream_synchronize)(CUstream stream);
    CUresult (*stream_destroy)(CUstream stream);
    CUresult (*alloc)(CUdeviceptr *address, size_t bytes, CUstream stream);
    CUresult (*release)(CUdeviceptr address, CUstream stream);
    CUresult (*fill)(CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream);
} cuda;

static const struct {
    const char *name;
    void *slot;
} functions[] = {
    {"cuInit", &cuda.init},
    {"cuDeviceGet", &cuda.device_get},
    {"cuDevicePrimaryCtxRetain", &cuda.context_retain},
    {"cuDevicePrimaryCtxRelease_v2", &cuda.context_release},
    {"cuCtxSetCurrent", &cuda.context_set},
    {"cuStreamCreate", &cuda.stream_create},
    {"cuStreamSynchronize", &cuda.stream_synchronize},
    {"cuStreamDestroy_v2", &cuda.stream_destroy},
    {"cuMemAllocAsync", &cuda.alloc},
    {"cuMemFreeAsync", &cuda.release},
    {"cuMemsetD8Async", &cuda.fill},
};

static void fail(const char *what)
{
    fprintf(stderr, "walkthrough: %s\n", what);
    exit(1);
}

static void must(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "walkthrough: %s answered %d\n", what, (int)result);
        exit(1);
    }
}
#define MUST(call) must((call), #call)

static void load_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver)
        fail(dlerror());
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        void *code = dlsym(driver, functions[i].name);
        if (!code)
            fail(dlerror());
        memcpy(functions[i].slot, &code, sizeof code);
    }
}

/* raise, not kill: the signal is handled in this thread, before the next call. */
static void tell(const char *call, CUdeviceptr address)
{
    struct sigaction action;
    printf("call %s 0x%" PRIx64 "\n", call, (uint64_t)address);
    fflush(stdout);
    if (sigaction(SIGUSR1, NULL, &action) == 0 && action.sa_handler != SIG_DFL &&
        action.sa_handler != SIG_IGN)
        raise(SIGUSR1);
}

static CUdeviceptr allocate(unsigned n_pages, size_t page_bytes, CUstream stream)
{
    CUdeviceptr address = 0;
    char call[16];
    MUST(cuda.alloc(&address, n_pages * page_bytes, stream));
    MUST(cuda.fill(address, (unsigned char)n_pages, 4096, stream));
    snprintf(call, sizeof call, "+%u", n_pages);
    tell(call, address);
    return address;
}

static void five_calls(size_t page_bytes, CUstream stream)
{
    CUdeviceptr ten = allocate(10, page_bytes, stream);
    CUdeviceptr one = allocate(1, page_bytes, stream);
    MUST(cuda.release(ten, stream));
    tell("-10", ten);
    CUdeviceptr four = allocate(4, page_bytes, stream);
    CUdeviceptr eleven = allocate(11, page_bytes, stream);
    MUST(cuda.release(one, stream));
    MUST(cuda.release(four, stream));
    MUST(cuda.release(eleven, stream));
    MUST(cuda.stream_synchronize(stream));
    tell("end", 0);
}

int main(int argc, char **argv)
{
    size_t page_bytes = argc == 2 ? strtoull(argv[1], NULL, 10) : 0;
    CUdevice device;
    CUcontext context;
    CUstream stream;
    if (page_bytes == 0) {
        fprintf(stderr, "usage: walkthrough BYTES-OF-A-PAGE\n");
        return 2;
    }
    load_driver();
    MUST(cuda.init(0));
    MUST(cuda.device_get(&device, 0));
    MUST(cuda.context_retain(&context, device));
    MUST(cuda.context_set(context));
    MUST(cuda.stream_create(&stream, CU_STREAM_NON_BLOCKING));
    five_calls(page_bytes, stream);
    MUST(cuda.stream_destroy(stream));
    MUST(cuda.context_release(device));
    return 0;
}
