/* SPDX-License-Identifier: MIT */
/* Calls that take ten seconds by the system's clock, which is this program's own: nobody waits. */
#define _GNU_SOURCE
#include <cuda.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LONG_NS 10000000000
#define MIB (1ul << 20)

static atomic_llong time_ns;
/* The next look at the clock but one is that much later. */
static atomic_int is_due;

int clock_gettime(clockid_t clock, struct timespec *now)
{
    long long ns = atomic_fetch_add(&time_ns, 1);
    (void)clock;
    if (atomic_exchange(&is_due, 0))
        (void)atomic_fetch_add(&time_ns, LONG_NS);
    *now = (struct timespec){ns / 1000000000, ns % 1000000000};
    return 0;
}

static void must(CUresult result)
{
    if (result) {
        printf("unexpected %d\n", (int)result);
        exit(1);
    }
}

int main(void)
{
    CUcontext context;
    CUdeviceptr block;
    must(cuInit(0));
    must(cuDevicePrimaryCtxRetain(&context, 0));
    must(cuCtxSetCurrent(context));
    for (int i = 0; i < 2; i++) {
        atomic_store(&is_due, i);
        must(cuMemAlloc(&block, 2 * MIB));
        atomic_store(&is_due, i);
        must(cuMemFree(block));
    }
    return 0;
}
