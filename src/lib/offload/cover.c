/* SPDX-License-Identifier: MIT */
/* Sorts tensors by their place in the file. Must not recurse or allocate. */
#include "offload/cover.h"

static bool is_before(const struct vpmm_tensor *a, const struct vpmm_tensor *b)
{
    return a->offset != b->offset ? a->offset < b->offset : a->bytes < b->bytes;
}

static void sift(const struct vpmm_tensor *tensors, uint32_t *order, uint32_t root, uint32_t n)
{
    for (uint32_t child; (child = 2 * root + 1) < n; root = child) {
        child += child + 1 < n && is_before(&tensors[order[child]], &tensors[order[child + 1]]);
        if (!is_before(&tensors[order[root]], &tensors[order[child]]))
            return;
        uint32_t moved = order[root];
        order[root] = order[child];
        order[child] = moved;
    }
}

/* A heap sort: neither memory nor depth depends on what is sorted. */
void cover_sort(const struct vpmm_tensor *tensors, uint32_t *order, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    for (uint32_t i = n / 2; i-- > 0;)
        sift(tensors, order, i, n);
    for (uint32_t end = n; end > 1; end--) {
        uint32_t last = order[end - 1];
        order[end - 1] = order[0];
        order[0] = last;
        sift(tensors, order, 0, end - 1);
    }
}
