/* SPDX-License-Identifier: MIT */
/* Asks for pools before its first call of CUDA, in a thread with the smallest stack. Then it has
 * pools on all devices, and gives its signals an alternate stack: what the kernel puts there, whose
 * size differs between processors, and 4 KiB for the handler. A stack of 8 KiB, the least that a
 * runtime may choose, leaves more beside AVX-512 registers. Below lies nothing. */
#define _GNU_SOURCE
#include <vpmm/vpmm.h>

#include <cuda.h>

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096
#define HANDLER_BYTES 4096

static void must(int has_failed)
{
    if (has_failed)
        exit(1);
}

static void *ask(void *self)
{
    void *found = dlsym(RTLD_DEFAULT, "vpmm_interface_1");
    vpmm_interface_fn *interface;
    memcpy(&interface, &found, sizeof interface);
    must(!interface || interface()->next_device(VPMM_EVERY_DEVICE) != VPMM_EVERY_DEVICE);
    return self;
}

static void ask_on_small_stack(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    must(pthread_attr_init(&attributes));
    must(pthread_attr_setstacksize(&attributes, (size_t)sysconf(_SC_THREAD_STACK_MIN)));
    must(pthread_create(&thread, &attributes, ask, NULL));
    must(pthread_join(thread, NULL));
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

static volatile sig_atomic_t below_top;
static char *top;

static void measure(int number)
{
    (void)number;
    below_top = (sig_atomic_t)(top - (char *)__builtin_frame_address(0));
}

static size_t bytes_of_kernel(void)
{
    static char room[65536];
    const struct sigaction action = {.sa_handler = measure, .sa_flags = SA_ONSTACK};
    const stack_t stack = {.ss_sp = room, .ss_size = sizeof room};
    top = room + sizeof room;
    must(sigaction(SIGUSR2, &action, NULL) || sigaltstack(&stack, NULL) || raise(SIGUSR2));
    return (size_t)below_top;
}

int main(void)
{
    int n_devices;
    ask_on_small_stack();
    must(cuInit(0));
    must(cuDeviceGetCount(&n_devices));
    for (int i = 0; i < n_devices; i++)
        allocate_on(i);
    size_t n_bytes = bytes_of_kernel() + HANDLER_BYTES;
    char *room =
        mmap(NULL, 64 * PAGE + n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(room == MAP_FAILED || mprotect(room, 64 * PAGE, PROT_NONE));
    const stack_t stack = {.ss_sp = room + 64 * PAGE, .ss_size = n_bytes};
    must(sigaltstack(&stack, NULL));
    must(raise(SIGUSR1));
    puts("alive");
    return 0;
}
