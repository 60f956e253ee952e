/* SPDX-License-Identifier: MIT */
/* What cuMemGetInfo says after each step, by the difference to the step before in pages of 2 MiB,
 * on a device that nobody else uses. */
#include "driver.h"

static CUstream stream;
static size_t before_bytes;

static void step(const char *what)
{
    size_t free_bytes = 0, total_bytes = 0;
    CUresult result = cuMemGetInfo(&free_bytes, &total_bytes);
    long long bytes = (long long)free_bytes - (long long)before_bytes;
    printf("%s: %s, %lld pages\n", what, truth_code(result),
           before_bytes ? bytes / (long long)(2 * MIB) : 0);
    before_bytes = free_bytes;
}

static void three(size_t bytes, bool is_ordered)
{
    CUdeviceptr held[3];
    part(is_ordered ? "cuMemAllocAsync" : "cuMemAlloc", bytes);
    step("before");
    for (int i = 0; i < 3; i++) {
        ANSWER(is_ordered ? cuMemAllocAsync(&held[i], bytes, stream) : cuMemAlloc(&held[i], bytes));
        step("taken");
    }
    for (int i = 0; i < 3; i++) {
        ANSWER(is_ordered ? cuMemFreeAsync(held[i], stream) : cuMemFree(held[i]));
        ANSWER(cuStreamSynchronize(stream));
        step("freed and synchronised");
    }
}

int main(void)
{
    static const size_t large[] = {2 * MIB, 64 * MIB, 512 * MIB};
    size_t free_bytes = 0, total_bytes = 0;
    truth_start();
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ANSWER(cuMemGetInfo(&free_bytes, &total_bytes));
    ASK(free_bytes <= total_bytes);
    VALUE(total_bytes);
    for (size_t i = 0; i < COUNT(large); i++) {
        three(large[i], false);
        three(large[i], true);
    }
    return 0;
}
