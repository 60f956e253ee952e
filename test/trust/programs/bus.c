/* SPDX-License-Identifier: MIT */
/* Allocates, and then gets a bus error of its own, from a file that it cuts under a mapping or from
 * a signal that it sends. The argument says what answers it: own, a handler from before the first
 * CUDA call; later, one from after it; none; sent; child, a child that asks for memory, too. */
#define _GNU_SOURCE
#include <cuda.h>

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ul << 20)

static void answer(int number)
{
    static const char text[] = "own handler\n";
    (void)number;
    if (write(STDOUT_FILENO, text, sizeof text - 1) < 0)
        _exit(1);
    _exit(0);
}

static bool allocate(void)
{
    CUdeviceptr block;
    return cuMemAlloc(&block, 8 * MIB) == CUDA_SUCCESS && cuMemFree(block) == CUDA_SUCCESS;
}

static void fault(void)
{
    int fd = memfd_create("cut", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 4096))
        exit(3);
    volatile char *bytes = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED || ftruncate(fd, 0))
        exit(4);
    *bytes = 1;
}

static void breed(void)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        (void)allocate();
        fault();
    }
    (void)waitpid(child, &status, 0);
    printf("child %d\n", WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status));
}

int main(int n, char **arguments)
{
    const char *scene = n > 1 ? arguments[1] : "";
    const struct rlimit no_core = {0, 0};
    CUcontext context;
    (void)setrlimit(RLIMIT_CORE, &no_core);
    if (strcmp(scene, "own") == 0)
        (void)signal(SIGBUS, answer);
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
        return 1;
    if (!allocate())
        return 2;
    if (strcmp(scene, "later") == 0)
        (void)signal(SIGBUS, answer);
    if (strcmp(scene, "child") == 0)
        breed();
    else if (strcmp(scene, "sent") == 0)
        (void)raise(SIGBUS);
    else
        fault();
    return 0;
}
