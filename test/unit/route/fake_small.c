/* SPDX-License-Identifier: MIT */
/* Stands in for src/lib/small: no heap has such a layer. */
#include "small/small.h"

#include <stdlib.h>

enum vpmm_status vpmm_small_create(const struct vpmm_small_params *params, struct vpmm_heap *heap,
                                   struct vpmm_order *order, const struct vpmm_memory *memory,
                                   struct vpmm_small **small_out)
{
    (void)params, (void)heap, (void)order, (void)memory, (void)small_out;
    return VPMM_NOT_SUPPORTED;
}

void vpmm_small_destroy(struct vpmm_small *small)
{
    if (small)
        abort();
}

enum vpmm_status vpmm_small_malloc(struct vpmm_small *small, const struct vpmm_request *request,
                                   uint64_t *address_out)
{
    (void)small, (void)request, (void)address_out;
    abort();
}

bool vpmm_small_malloc_warm(struct vpmm_small *small, const struct vpmm_request *request,
                            uint64_t *address_out)
{
    (void)small, (void)request, (void)address_out;
    abort();
}

bool vpmm_small_holds(const struct vpmm_small *small, uint64_t address)
{
    (void)small, (void)address;
    abort();
}

enum vpmm_status vpmm_small_free(struct vpmm_small *small, uint64_t address,
                                 const struct vpmm_stream *stream, enum vpmm_status *wait_out)
{
    (void)small, (void)address, (void)stream, (void)wait_out;
    abort();
}

enum vpmm_status vpmm_small_free_warm(struct vpmm_small *small, uint64_t address,
                                      const struct vpmm_stream *stream)
{
    (void)small, (void)address, (void)stream;
    abort();
}

bool vpmm_small_free_unknown(struct vpmm_small *small, uint64_t address)
{
    (void)small, (void)address;
    abort();
}

bool vpmm_small_give_up(struct vpmm_small *small, uint64_t address)
{
    (void)small, (void)address;
    abort();
}

bool vpmm_small_find(const struct vpmm_small *small, uint64_t address,
                     struct vpmm_region_view *view_out)
{
    (void)small, (void)address, (void)view_out;
    abort();
}

void vpmm_small_classes(const struct vpmm_small *small,
                        struct vpmm_small_class classes_out[VPMM_SMALL_CLASSES])
{
    (void)small, (void)classes_out;
    abort();
}

void vpmm_small_stream_gone(struct vpmm_small *small, const struct vpmm_stream *stream)
{
    (void)small, (void)stream;
    abort();
}

void vpmm_small_retire(struct vpmm_small *small, uint64_t address)
{
    (void)small, (void)address;
    abort();
}

void vpmm_small_context_gone(struct vpmm_small *small, uint64_t context_id)
{
    (void)small, (void)context_id;
    abort();
}

void vpmm_small_figures(const struct vpmm_small *small, struct vpmm_small_figures *figures_out)
{
    (void)small, (void)figures_out;
    abort();
}

uint64_t vpmm_small_layout(void)
{
    return 0;
}

const char *vpmm_small_audit(struct vpmm_small *small)
{
    (void)small;
    abort();
}

bool vpmm_heap_is_wasteful(const struct vpmm_heap *heap)
{
    (void)heap;
    return true;
}
