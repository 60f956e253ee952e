/* SPDX-License-Identifier: MIT */
/* Private to driver/: the operations of the seam on streams of our own, copies and host memory. */
#ifndef VPMM_DRIVER_CUDA_HOST_H
#define VPMM_DRIVER_CUDA_HOST_H

#include "driver/cuda.h"

/* Sets those members of `driver`; NULL where `cuda` lacks the functions. */
void vpmm_cuda_fill_host(const struct vpmm_cuda *cuda, struct vpmm_driver *driver);

#endif
