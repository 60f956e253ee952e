/* SPDX-License-Identifier: MIT */
/* Has pools on all devices, and gives its signals an alternate stack as small as a runtime may
 * choose, less what a processor with more registers would take of it. Below lies nothing. */
#define _GNU_SOURCE
#include <cuda.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PAGE 4096
#define STACK_BYTES (8192 - 2048)

static void must(int has_failed)
{
    if (has_failed)
        exit(1);
}

static void allocate_on(int ordinal)
{
    CUdevice device;
    CUcontext context;
    CUdeviceptr block;
    must(cuDeviceGet(&device, ordinal));
    must(cuDevicePrimaryCtxRetain(&context, device));
    must(cuCtxSetCurrent(context));
    must(cuMemAlloc(&block, 3 << 20));
    must(cuMemAlloc(&block, 3000));
}

int main(void)
{
    int n_devices;
    must(cuInit(0));
    must(cuDeviceGetCount(&n_devices));
    for (int i = 0; i < n_devices; i++)
        allocate_on(i);
    char *room = mmap(NULL, 65 * PAGE + STACK_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(room == MAP_FAILED || mprotect(room, 64 * PAGE, PROT_NONE));
    const stack_t stack = {.ss_sp = room + 64 * PAGE, .ss_size = STACK_BYTES};
    must(sigaltstack(&stack, NULL));
    must(raise(SIGUSR1));
    puts("alive");
    return 0;
}
