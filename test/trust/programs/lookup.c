/* SPDX-License-Identifier: MIT */
/* Finds the driver as the CUDA runtime does, by dlopen and cuGetProcAddress, calls none of its
 * functions, and says whether anybody answers SIGUSR1 before and after that. */
#define _GNU_SOURCE
#include <cuda.h>

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static void tell(const char *when)
{
    struct sigaction action;
    (void)sigaction(SIGUSR1, NULL, &action);
    printf("%s %s\n", when, action.sa_handler == SIG_DFL ? "default" : "answered");
    (void)fflush(stdout);
    if (action.sa_handler != SIG_DFL)
        (void)raise(SIGUSR1);
}

int main(void)
{
    CUresult (*look_up)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
    CUdriverProcAddressQueryResult what;
    void *found, *library = dlopen("libcuda.so.1", RTLD_NOW);
    tell("loaded");
    found = library ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    if (!found)
        return 1;
    memcpy(&look_up, &found, sizeof found);
    printf("look-up %d\n", (int)look_up("cuMemAlloc", &found, 12000, 0, &what));
    tell("looked up");
    return 0;
}
