/* SPDX-License-Identifier: MIT */
/* Private to this folder: the order of tensors in their file. It reads no bytes. */
#ifndef VPMM_OFFLOAD_COVER_H
#define VPMM_OFFLOAD_COVER_H

#include "offload/safetensors.h"

/* Fills in `order` with the numbers of `n` tensors, from 0, by their offsets. */
void cover_sort(const struct vpmm_tensor *tensors, uint32_t *order, uint32_t n);

#endif
