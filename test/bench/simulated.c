/* SPDX-License-Identifier: MIT */
/* What stands behind the benchmark programs in tests on the simulated device: a kernel in the place
 * of kernel.c's, and a driver of which one call is slow. BENCH_SLOW names that call, and every one
 * of it then takes BENCH_SLOW_NS longer, which the figures must show. */
#define _GNU_SOURCE
#include "kernel.h"

#include "../programs/truth.h"

#include "sim/libcuda/control.h"

#include <time.h>

static const char *slow_name;
static int64_t slow_ns;

static int64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void before_call(const char *name)
{
    if (strcmp(name, slow_name) != 0)
        return;
    int64_t end_ns = now_ns() + slow_ns;
    while (now_ns() < end_ns) {
    }
}

__attribute__((constructor)) static void slow_down(void)
{
    const char *ns = getenv("BENCH_SLOW_NS");
    slow_name = getenv("BENCH_SLOW");
    slow_ns = ns ? strtoll(ns, NULL, 10) : 0;
    if (slow_name)
        vpmm_sim_hook_set(before_call);
}

void kernel_load(void)
{
}

void kernel_queue(CUstream stream, CUdeviceptr block, uint64_t ns)
{
    struct sim_range range = {block, sizeof(uint64_t), true};
    struct sim_kernel kernel = {.name = "use", .ranges = &range, .n_ranges = 1};
    (void)ns;
    MUST(vpmm_sim_launch(stream, &kernel));
}
