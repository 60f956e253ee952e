/* SPDX-License-Identifier: MIT */
/* The wrappers that answer questions about memory, as bare CUDA answers them for a block of that
 * kind (cudaMalloc or cudaMallocAsync). Only the requested bytes of a live block are the program's:
 * about the rest of our addresses the original is asked as about memory that is not there. Must not
 * answer for them itself. */
#include "base/lock.h"
#include "preload/entry.h"
#include "preload/original.h"
#include "preload/wrap_stream.h"

#include <stdint.h>
#include <string.h>

/* Keeps our buffer ids apart from the driver's, which count up from 1. */
#define BUFFER_ID_OURS (1ULL << 63)

struct block {
    struct vpmm_region_view view;
    int device;
    bool is_import;
    uint64_t granule_bytes; /* of an import's device */
};

enum whose {
    NOT_OURS,
    OUR_BLOCK, /* among the requested bytes of a live block, or of one of another process that is
                  open here */
    NOBODYS,   /* in our address space: freed, never used, or behind the requested bytes */
};

/* Numbers imports apart from blocks. */
#define BUFFER_ID_IMPORT (1ULL << 62)

static enum whose look_at_imports(CUdeviceptr address, struct block *block_out)
{
    struct vpmm_ipc_import import;
    struct vpmm_ipc *ipc = vpmm_entry_ipc();
    switch (ipc ? vpmm_ipc_find(ipc, address, &import) : VPMM_IPC_ELSEWHERE) {
    case VPMM_IPC_IN_BLOCK:
        *block_out = (struct block){.view = {.address = import.address,
                                             .owner = {.bytes = import.bytes,
                                                       .id = import.id | BUFFER_ID_IMPORT,
                                                       .context_id = import.context_id}},
                                    .is_import = true,
                                    .granule_bytes = import.granule_bytes};
        return OUR_BLOCK;
    case VPMM_IPC_IN_MAPPING:
        return NOBODYS;
    default:
        return NOT_OURS;
    }
}

static enum whose look(struct vpmm_router *router, CUdeviceptr address, struct block *block_out)
{
    struct vpmm_region_view *view = &block_out->view;
    block_out->is_import = false;
    if (!vpmm_router_find(router, address, view, &block_out->device))
        return look_at_imports(address, block_out);
    bool is_block = view->state == VPMM_REGION_LIVE && address - view->address < view->owner.bytes;
    return is_block ? OUR_BLOCK : NOBODYS;
}

/* The address to name to the original. */
static CUdeviceptr named(enum whose whose, CUdeviceptr address)
{
    return whose == NOBODYS ? VPMM_NO_ALLOCATION : address;
}

static size_t least(size_t a, uint64_t b)
{
    return b < a ? (size_t)b : a;
}

CUresult vpmm_wrap_cuMemGetInfo_v2(size_t *free_out, size_t *total_out)
{
    CUresult result = VPMM_ORIGINAL(cuMemGetInfo_v2, free_out, total_out);
    bool is_asked = result == CUDA_SUCCESS && (free_out || total_out);
    struct vpmm_router *router = is_asked ? vpmm_enter() : NULL;
    if (!router)
        return result;
    size_t free_bytes = 0, total_bytes = 0;
    if (free_out && total_out) {
        free_bytes = *free_out;
        total_bytes = *total_out;
    } else {
        (void)VPMM_ORIGINAL(cuMemGetInfo_v2, &free_bytes, &total_bytes);
    }
    uint64_t ours = vpmm_router_reusable_bytes(router);
    if (total_bytes >= free_bytes) {
        uint64_t room = total_bytes - free_bytes;
        free_bytes += ours < room ? ours : room;
    }
    uint64_t limit, left;
    if (vpmm_router_limit(router, &limit, &left)) {
        free_bytes = least(free_bytes, left + ours);
        total_bytes = least(total_bytes, limit);
    }
    if (free_out)
        *free_out = free_bytes;
    if (total_out)
        *total_out = total_bytes;
    vpmm_leave();
    return result;
}

CUresult vpmm_wrap_cuMemGetAddressRange_v2(CUdeviceptr *base_out, size_t *bytes_out,
                                           CUdeviceptr address)
{
    struct block block;
    enum whose whose = NOT_OURS;
    CUresult result = CUDA_SUCCESS;
    struct vpmm_router *router = vpmm_enter_served();
    if (router) {
        whose = look(router, address, &block);
        vpmm_leave();
    }
    /* Without a context that serves, the original has the code. */
    if (whose != OUR_BLOCK || vpmm_context_answer() != CUDA_SUCCESS)
        result = VPMM_ORIGINAL(cuMemGetAddressRange_v2, base_out, bytes_out, named(whose, address));
    if (whose != OUR_BLOCK || result != CUDA_SUCCESS)
        return result;
    if (base_out)
        *base_out = block.view.address;
    if (bytes_out)
        *bytes_out = block.view.owner.bytes;
    return CUDA_SUCCESS;
}

static struct vpmm_context *context_of(struct vpmm_router *router, const struct block *block)
{
    return vpmm_order_context_by_id(vpmm_router_order(router), block->view.owner.context_id);
}

/* The driver says NULL for mapped memory, which is right for cudaMallocAsync. */
static void rewrite_context(struct vpmm_router *router, const struct block *block, void *value)
{
    struct vpmm_context *context = context_of(router, block);
    if (block->view.owner.is_async || !context)
        return;
    vpmm_context_handle handle = vpmm_context_raw(context);
    memcpy(value, &handle, sizeof handle);
}

static void rewrite_pool(struct vpmm_router *router, const struct block *block, void *value)
{
    const struct vpmm_owner *owner = &block->view.owner;
    if (!owner->is_async)
        return;
    CUmemoryPool pool = (CUmemoryPool)(void *)vpmm_router_mempool_handle(router, owner->mempool);
    if (pool || VPMM_ORIGINAL(cuDeviceGetDefaultMemPool, &pool, block->device) == CUDA_SUCCESS)
        memcpy(value, &pool, sizeof pool);
}

/* The attribute says what cuIpcGetMemHandle will do. */
static void rewrite_ipc(struct vpmm_router *router, const struct block *block, void *value)
{
    int is_capable = !block->is_import && vpmm_entry_ipc() &&
                     vpmm_router_can_export(router, &block->view, block->device);
    memcpy(value, &is_capable, sizeof is_capable);
}

/* A block of bare CUDA lies in one mapping of whole granules; ours may lie over several. */
static void rewrite_mapping(struct vpmm_router *router, const struct block *block,
                            CUpointer_attribute attribute, void *value)
{
    size_t page_bytes = block->is_import
                            ? block->granule_bytes
                            : vpmm_heap_page_bytes(vpmm_router_heap(router, block->device));
    CUdeviceptr base = block->view.address;
    uint64_t end = base + block->view.owner.bytes;
    base -= block->view.is_part || block->is_import ? base % page_bytes : 0;
    size_t bytes = (end - base + page_bytes - 1) / page_bytes * page_bytes;
    if (attribute == CU_POINTER_ATTRIBUTE_MAPPING_SIZE)
        memcpy(value, &bytes, sizeof bytes);
    else
        memcpy(value, &base, sizeof base);
}

/* CU_CTX_SYNC_MEMOPS, which headers before CUDA 12.1 lack. */
#define CONTEXT_SYNCS 0x80u

/* Whether synchronous copies and fills of `context` are complete when they return; `is_wanted`: it
 * is made so. Only where it is not yet: to set flags, the driver may wait for calls of other
 * threads. */
static bool context_syncs(struct vpmm_router *router, const struct vpmm_context *context,
                          bool is_wanted)
{
    unsigned flags = 0;
    CUcontext popped;
    if (!context || !vpmm_order_context_lives(vpmm_router_order(router), context) ||
        VPMM_ORIGINAL(cuCtxPushCurrent_v2, (CUcontext)(void *)vpmm_context_raw(context)))
        return false;
    bool syncs = VPMM_ORIGINAL(cuCtxGetFlags, &flags) == CUDA_SUCCESS;
    if (syncs && !(flags & CONTEXT_SYNCS))
        syncs = is_wanted && VPMM_ORIGINAL(cuCtxSetFlags, flags | CONTEXT_SYNCS) == CUDA_SUCCESS;
    (void)VPMM_ORIGINAL(cuCtxPopCurrent_v2, &popped);
    return syncs;
}

static void rewrite_sync(struct vpmm_router *router, const struct block *block, void *value)
{
    int syncs = context_syncs(router, context_of(router, block), false);
    memcpy(value, &syncs, sizeof syncs);
}

/* Replaces what the driver said about our block by what the program would see without us. */
static void rewrite(struct vpmm_router *router, const struct block *block,
                    CUpointer_attribute attribute, void *value)
{
    const struct vpmm_region_view *view = &block->view;
    CUdeviceptr base = view->address;
    size_t bytes = view->owner.bytes;
    unsigned long long id = view->owner.id | BUFFER_ID_OURS;
    unsigned long long no_handle_types = 0;
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        memcpy(value, &base, sizeof base);
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        memcpy(value, &bytes, sizeof bytes);
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        memcpy(value, &id, sizeof id);
        break;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        rewrite_context(router, block, value);
        break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        rewrite_sync(router, block, value);
        break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        memcpy(value, &no_handle_types, sizeof no_handle_types);
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        rewrite_ipc(router, block, value);
        break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        rewrite_pool(router, block, value);
        break;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        /* What the driver says of mapped memory is right for cudaMalloc. */
        if (view->owner.is_async)
            memset(value, 0, sizeof(int));
        break;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        rewrite_mapping(router, block, attribute, value);
        break;
    default:
        break;
    }
}

CUresult vpmm_wrap_cuPointerGetAttribute(void *value_out, CUpointer_attribute attribute,
                                         CUdeviceptr address)
{
    struct block block;
    struct vpmm_router *router = vpmm_enter();
    enum whose whose = router ? look(router, address, &block) : NOT_OURS;
    CUresult result =
        VPMM_ORIGINAL(cuPointerGetAttribute, value_out, attribute, named(whose, address));
    if (whose == OUR_BLOCK && result == CUDA_SUCCESS && value_out)
        rewrite(router, &block, attribute, value_out);
    if (router)
        vpmm_leave();
    return result;
}

CUresult vpmm_wrap_cuPointerGetAttributes(unsigned n, CUpointer_attribute *attributes,
                                          void **values_out, CUdeviceptr address)
{
    struct block block;
    struct vpmm_router *router = vpmm_enter();
    enum whose whose = router ? look(router, address, &block) : NOT_OURS;
    CUresult result =
        VPMM_ORIGINAL(cuPointerGetAttributes, n, attributes, values_out, named(whose, address));
    for (unsigned i = 0; whose == OUR_BLOCK && result == CUDA_SUCCESS && i < n; i++) {
        if (values_out[i])
            rewrite(router, &block, attributes[i], values_out[i]);
    }
    if (router)
        vpmm_leave();
    return result;
}

/* The driver keeps this promise about its own memory alone. For ours, the contexts that may use the
 * block give it: its own, and that of the thread that asks. Nothing is taken back. */
static bool keep_sync(struct vpmm_router *router, const struct block *block, const unsigned *value)
{
    struct vpmm_order *order = vpmm_router_order(router);
    const struct vpmm_context *owner = context_of(router, block);
    struct vpmm_context *current = NULL;
    if (!*value)
        return true;
    bool could_be_cancelled = vpmm_cancel_hold();
    bool has_owner = owner && !vpmm_context_is_gone(owner);
    bool has_current = vpmm_order_context(order, NULL, &current) == VPMM_OK;
    bool is_kept = has_owner ? context_syncs(router, owner, true) : has_current;
    if (has_current && current != owner)
        is_kept = context_syncs(router, current, true) && is_kept;
    vpmm_cancel_restore(could_be_cancelled);
    return is_kept;
}

CUresult vpmm_wrap_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                                         CUdeviceptr address)
{
    struct block block;
    enum whose whose = NOT_OURS;
    bool is_sync = value && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, is_kept = false;
    struct vpmm_router *router = vpmm_enter_served();
    if (router) {
        whose = look(router, address, &block);
        is_kept = whose == OUR_BLOCK && is_sync && keep_sync(router, &block, value);
        vpmm_leave();
    }
    if (is_kept)
        return CUDA_SUCCESS;
    /* Bare CUDA refuses other attributes of its own blocks, with another code than for mapped
     * memory. */
    if (whose == OUR_BLOCK && !is_sync)
        address = VPMM_NO_ALLOCATION;
    return VPMM_ORIGINAL(cuPointerSetAttribute, value, attribute, named(whose, address));
}

/* Bare CUDA has no such handle for memory of either kind; one of several extents would stand for
 * the wrong range. */
CUresult vpmm_wrap_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle_out,
                                               void *address)
{
    struct block block;
    struct vpmm_router *router = vpmm_enter_served();
    if (router) {
        enum whose whose = look(router, (uintptr_t)address, &block);
        vpmm_leave();
        if (whose != NOT_OURS)
            return CUDA_ERROR_INVALID_VALUE;
    }
    return VPMM_ORIGINAL(cuMemRetainAllocationHandle, handle_out, address);
}

static enum whose whose_is(CUdeviceptr address)
{
    struct block block;
    struct vpmm_router *router = vpmm_enter();
    enum whose whose = router ? look(router, address, &block) : NOT_OURS;
    if (router)
        vpmm_leave();
    return whose;
}

/* A block of bare CUDA is no mapping of the program's: the program can neither change its access
 * nor unmap it. Ours is mapped, and its next owner would find what was done to it. */
static CUdeviceptr as_mapping(CUdeviceptr address)
{
    return whose_is(address) == NOT_OURS ? address : VPMM_NO_ALLOCATION;
}

CUresult vpmm_wrap_cuMemGetAccess(unsigned long long *flags_out, const CUmemLocation *location,
                                  CUdeviceptr address)
{
    enum whose whose = whose_is(address);
    CUresult result = VPMM_ORIGINAL(cuMemGetAccess, flags_out, location, named(whose, address));
    /* Bare CUDA says so of its own blocks, and of each device (measured on driver 580). */
    if (whose == OUR_BLOCK && result == CUDA_SUCCESS)
        *flags_out = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return result;
}

CUresult vpmm_wrap_cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                                  size_t n)
{
    return VPMM_ORIGINAL(cuMemSetAccess, as_mapping(address), bytes, access, n);
}

CUresult vpmm_wrap_cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    return VPMM_ORIGINAL(cuMemUnmap, as_mapping(address), bytes);
}
