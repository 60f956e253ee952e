/* SPDX-License-Identifier: MIT */
/* What blocks hold on the simulated device, and the kernels that check and write it. */
#ifndef VPMM_TEST_MODEL_PATTERN_H
#define VPMM_TEST_MODEL_PATTERN_H

#include "execute.h"

/* A kernel's order. `number`: of the step that launched it. */
struct job {
    const struct api *api;
    unsigned number, block;
    CUdeviceptr address;
    uint64_t bytes;
    struct content expected, written;
    bool is_node; /* of a graph: any stamp of the block is expected, and the next one written */
    bool writes;
};

CUresult pattern_launch(struct turn *turn, CUstream stream, struct job job);
/* Fills and compares memory of the host. The first offset that differs, or UINT64_MAX. */
void pattern_write(unsigned char *bytes, uint64_t n, const struct content *content);
uint64_t pattern_differs(const unsigned char *bytes, const struct content *content);
/* Compares what the device holds at this moment, if `done` covers all uses of the block. */
void pattern_peek(struct run *run, unsigned number, const struct block *block,
                  const struct set *done);

#endif
