/* SPDX-License-Identifier: MIT */
/* Private to driver/: the operations of the seam on devices, address space and extents. */
#ifndef VPMM_DRIVER_CUDA_MEMORY_H
#define VPMM_DRIVER_CUDA_MEMORY_H

#include "driver/cuda.h"

/* Sets those members of `driver`. */
void vpmm_cuda_fill_memory(const struct vpmm_cuda *cuda, struct vpmm_driver *driver);

#endif
