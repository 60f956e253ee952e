/* SPDX-License-Identifier: MIT */
/* Ends the process where the pool breaks an invariant. Must not be built into the library that
 * users get: that never ends a program. */
#include "heap/heap_internal.h"

#include <stdio.h>
#include <stdlib.h>

void vpmm_heap_check(struct vpmm_heap *heap)
{
    vpmm_lanes_hold(heap);
    const char *broken = vpmm_pool_audit(heap->pool);
    if (!broken)
        broken = vpmm_lanes_audit(heap);
    vpmm_lanes_let_go(heap);
    if (!broken)
        return;
    (void)fprintf(stderr, "vpmm: audit of device %d: %s\n", heap->params.device, broken);
    abort();
}
