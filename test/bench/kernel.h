/* SPDX-License-Identifier: MIT */
/* Work of a known length for the benchmark programs of the driver API. kernel.c loads it from PTX,
 * which the driver compiles; simulated.c stands in its place on the simulated device, where no time
 * passes. */
#ifndef VPMM_TEST_BENCH_KERNEL_H
#define VPMM_TEST_BENCH_KERNEL_H

#include <cuda.h>

#include <stdint.h>

/* Loads it into the current context; the program ends where it cannot be. To be called first. */
void kernel_load(void);

/* Writes the first word of `block`, and then runs for so long. */
void kernel_queue(CUstream stream, CUdeviceptr block, uint64_t ns);

#endif
