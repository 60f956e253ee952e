/* SPDX-License-Identifier: MIT */
/* Loads the library that its argument names as a plug-in would be loaded, uses it through dlsym,
 * and closes it again. Whatever handler is there then still has to work. */
#define _GNU_SOURCE
#include <cuda.h>

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define MIB (1ul << 20)

int main(int n, char **arguments)
{
    CUcontext context;
    CUdeviceptr block;
    CUresult (*allocate)(CUdeviceptr *, size_t);
    void *library = n > 1 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    void *found = library ? dlsym(library, "cuMemAlloc_v2") : NULL;
    struct sigaction action;
    if (!found || cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
        return 1;
    memcpy(&allocate, &found, sizeof found);
    printf("allocated %d\n", (int)allocate(&block, 8 * MIB));
    printf("closed %d\n", dlclose(library));
    (void)sigaction(SIGUSR1, NULL, &action);
    printf("answered %d\n", action.sa_handler != SIG_DFL);
    (void)fflush(stdout);
    if (action.sa_handler != SIG_DFL)
        (void)raise(SIGUSR1);
    printf("done\n");
    return 0;
}
