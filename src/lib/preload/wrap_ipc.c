/* SPDX-License-Identifier: MIT */
/* The wrappers of legacy IPC for memory. Handles of ours name blocks of the pool; all others, and
 * all other memory, are the driver's, and must not be answered here. */
#include "base/bytes.h"
#include "base/lock.h"
#include "observe/log.h"
#include "preload/entry.h"
#include "preload/original.h"
#include "preload/wrap_stream.h"

#include <stdatomic.h>
#include <string.h>

_Static_assert(sizeof(CUipcMemHandle) == VPMM_IPC_HANDLE_BYTES, "a handle of ours fills CUDA's");

/* ---- lending ---- */

static struct vpmm_exported exported_of(const struct vpmm_ipc_block *block)
{
    return (struct vpmm_exported){block->device, block->address, block->id, block->bytes, 0};
}

static void begin(void *self)
{
    (void)self;
    vpmm_stay();
}

static enum vpmm_status lease(void *self, const struct vpmm_ipc_block *block, uint64_t *start_out,
                              uint64_t *end_out)
{
    const struct vpmm_exported exported = exported_of(block);
    return vpmm_router_lease(self, &exported, start_out, end_out);
}

static void unlease(void *self, const struct vpmm_ipc_block *block)
{
    const struct vpmm_exported exported = exported_of(block);
    vpmm_router_unlease(self, &exported);
}

#define EXTENTS_AT_ONCE 64u

static size_t extents(void *self, const struct vpmm_ipc_block *block, uint64_t from,
                      struct vpmm_ipc_extent *extents_out, size_t room)
{
    struct vpmm_shown_extent shown[EXTENTS_AT_ONCE];
    const struct vpmm_exported exported = exported_of(block);
    uint64_t page_bytes = 0;
    size_t n = vpmm_router_leased_extents(
        self, &exported, from, shown, room < EXTENTS_AT_ONCE ? room : EXTENTS_AT_ONCE, &page_bytes);
    for (size_t i = 0; i < n; i++)
        extents_out[i] = (struct vpmm_ipc_extent){shown[i].handle, shown[i].address,
                                                  shown[i].pages * page_bytes};
    return n;
}

struct vpmm_ipc_lender vpmm_ipc_lender_of(struct vpmm_router *router)
{
    return (struct vpmm_ipc_lender){router, begin, lease, unlease, extents};
}

/* NULL too in a context that is broken or was destroyed, and without any: the original has the code
 * with which it refuses everything there. */
static struct vpmm_router *enter_in_context(void)
{
    struct vpmm_router *router = vpmm_enter_served();
    if (!router || vpmm_context_answer() == CUDA_SUCCESS)
        return router;
    vpmm_leave();
    return NULL;
}

/* ---- exporting ---- */

/* The first one is a warning: the others tell nothing new. */
static void tell_shared(const struct vpmm_exported *exported, bool is_refused)
{
    static atomic_bool was_told;
    char block[32], shared[32];
    enum vpmm_log_kind kind =
        atomic_exchange(&was_told, true) ? VPMM_LOG_IS_INFO : VPMM_LOG_IS_WARNING;
    (void)vpmm_bytes_print(exported->bytes, block, sizeof block);
    (void)vpmm_bytes_print(exported->shared_bytes, shared, sizeof shared);
    if (is_refused)
        vpmm_log(
            kind,
            "cudaIpcGetMemHandle fails: the block of %s shares physical memory with %s of other "
            "memory (VPMM_IPC_SHARED=refuse)",
            block, shared);
    else
        vpmm_log(kind,
                 "cudaIpcGetMemHandle: whoever opens this block of %s can reach %s of other memory "
                 "beside it. VPMM_IPC_SHARED=refuse keeps blocks apart",
                 block, shared);
}

/* What lies in our address space and cannot be exported the driver refuses. */
static CUresult export_block(struct vpmm_router *router, struct vpmm_ipc *ipc, CUdeviceptr address,
                             CUipcMemHandle *handle_out, bool *is_final)
{
    struct vpmm_exported exported;
    enum vpmm_status found = VPMM_NOT_FOUND;
    if (handle_out && ipc)
        found = vpmm_router_export(router, address, &exported);
    *is_final = found != VPMM_NOT_FOUND;
    if (*is_final && exported.shared_bytes)
        tell_shared(&exported, found != VPMM_OK);
    if (found)
        return CUDA_ERROR_INVALID_VALUE;
    const struct vpmm_ipc_block block = {exported.address, exported.id, exported.bytes,
                                         exported.device};
    unsigned char bytes[VPMM_IPC_HANDLE_BYTES];
    enum vpmm_status status = vpmm_ipc_export(ipc, &block, bytes);
    if (status) {
        vpmm_log(VPMM_LOG_IS_WARNING, "cannot serve other processes that open memory: %s",
                 status == VPMM_NOT_SUPPORTED ? "this user has no number of its own in this user "
                                                "namespace. VPMM_IPC=0 leaves cudaMalloc to CUDA"
                                              : vpmm_status_text(status));
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(handle_out, bytes, sizeof bytes);
    return CUDA_SUCCESS;
}

CUresult vpmm_wrap_cuIpcGetMemHandle(CUipcMemHandle *handle_out, CUdeviceptr address)
{
    bool is_final = false;
    CUresult result = CUDA_SUCCESS;
    struct vpmm_router *router = enter_in_context();
    if (router) {
        bool could_be_cancelled = vpmm_cancel_hold();
        result = export_block(router, vpmm_entry_ipc(), address, handle_out, &is_final);
        vpmm_cancel_restore(could_be_cancelled);
        vpmm_leave();
    }
    return is_final ? result : VPMM_ORIGINAL(cuIpcGetMemHandle, handle_out, address);
}

/* ---- importing ---- */

struct opening {
    struct vpmm_router *router;
    int device;
};

static int devices(void *self, int owner, int devices_out[VPMM_DEVICES_MAX])
{
    const struct opening *opening = self;
    return vpmm_router_devices(opening->router, opening->device, owner, devices_out);
}

/* As driver 580 answers for a block that was freed and for a process's own handle; cuda.h names the
 * last for memory that cannot be mapped. */
static CUresult result_of(enum vpmm_status status)
{
    switch (status) {
    case VPMM_OK:
        return CUDA_SUCCESS;
    case VPMM_NO_CONTEXT:
    case VPMM_CONTEXT_GONE:
        return CUDA_ERROR_INVALID_CONTEXT;
    case VPMM_NOT_FOUND:
    case VPMM_NOT_SUPPORTED:
        return CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_MAP_FAILED;
    }
}

static enum vpmm_status open_block(struct vpmm_router *router, struct vpmm_ipc *ipc,
                                   const unsigned char *handle, CUdeviceptr *address_out)
{
    struct vpmm_context *context;
    uint64_t address;
    enum vpmm_status status = vpmm_order_context(vpmm_router_order(router), NULL, &context);
    if (status)
        return status;
    struct opening opening = {router, vpmm_context_device(context)};
    const struct vpmm_ipc_opener opener = {&opening, vpmm_context_id(context), devices};
    status = vpmm_ipc_open(ipc, handle, &opener, &address);
    if (!status)
        *address_out = address;
    else if (status == VPMM_NOT_SUPPORTED)
        vpmm_log(VPMM_LOG_IS_WARNING, "memory of another process cannot be opened: its VPMM is of "
                                      "another version. Use the same one in both");
    else if (status != VPMM_NO_CONTEXT)
        vpmm_log(VPMM_LOG_IS_INFO, "memory of another process cannot be opened: %s",
                 vpmm_status_text(status));
    return status;
}

/* False: the driver has to answer, who also has the code of a device that is broken. */
static bool serve_open(const CUipcMemHandle *handle, unsigned flags, CUdeviceptr *address_out,
                       CUresult *result_out)
{
    unsigned char bytes[VPMM_IPC_HANDLE_BYTES];
    memcpy(bytes, handle, sizeof bytes);
    bool is_ours = address_out && vpmm_ipc_is_ours(bytes) &&
                   (flags & ~(unsigned)CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == 0;
    struct vpmm_router *router = is_ours ? enter_in_context() : NULL;
    if (!router)
        return false;
    bool could_be_cancelled = vpmm_cancel_hold();
    struct vpmm_ipc *ipc = vpmm_entry_ipc();
    enum vpmm_status status = ipc ? open_block(router, ipc, bytes, address_out) : VPMM_BROKEN;
    vpmm_cancel_restore(could_be_cancelled);
    vpmm_leave();
    *result_out = result_of(status);
    return status != VPMM_BROKEN && status != VPMM_SHUT_DOWN;
}

CUresult vpmm_wrap_cuIpcOpenMemHandle(CUdeviceptr *address_out, CUipcMemHandle handle,
                                      unsigned flags)
{
    CUresult result;
    if (serve_open(&handle, flags, address_out, &result))
        return result;
    return VPMM_ORIGINAL(cuIpcOpenMemHandle, address_out, handle, flags);
}

CUresult vpmm_wrap_cuIpcOpenMemHandle_v2(CUdeviceptr *address_out, CUipcMemHandle handle,
                                         unsigned flags)
{
    CUresult result;
    if (serve_open(&handle, flags, address_out, &result))
        return result;
    return VPMM_ORIGINAL(cuIpcOpenMemHandle_v2, address_out, handle, flags);
}

/* An unmap under work that uses the memory would be a fault: what may use it is the work of the
 * context that opened it, and that of the one that closes it. */
static enum vpmm_status wait_for_users(void *self, const struct vpmm_ipc_import *import)
{
    struct vpmm_order *order = vpmm_router_order(self);
    struct vpmm_context *opener = vpmm_order_context_by_id(order, import->context_id);
    struct vpmm_context *closer;
    enum vpmm_status status = opener ? vpmm_order_drain_context(order, opener) : VPMM_OK;
    if (!status && vpmm_order_context(order, NULL, &closer) == VPMM_OK && closer != opener)
        status = vpmm_order_drain_context(order, closer);
    return status;
}

/* NOT_FOUND: the driver has to answer. It refuses a thread without a current context; of records
 * that we lack it knows nothing. */
static enum vpmm_status close_block(struct vpmm_router *router, struct vpmm_ipc *ipc,
                                    CUdeviceptr address)
{
    struct vpmm_context *context;
    enum vpmm_status status = vpmm_order_context(vpmm_router_order(router), NULL, &context);
    if (status && status != VPMM_NO_METADATA)
        return VPMM_NOT_FOUND;
    return vpmm_ipc_close(ipc, address, wait_for_users, router);
}

/* A device that is broken, or a driver that is gone, has its own code: the original tells it. */
CUresult vpmm_wrap_cuIpcCloseMemHandle(CUdeviceptr address)
{
    struct vpmm_router *router = vpmm_enter();
    bool could_be_cancelled = vpmm_cancel_hold();
    struct vpmm_ipc *ipc = router ? vpmm_entry_ipc() : NULL;
    enum vpmm_status status = ipc ? close_block(router, ipc, address) : VPMM_NOT_FOUND;
    vpmm_cancel_restore(could_be_cancelled);
    if (router)
        vpmm_leave();
    bool is_final = status != VPMM_NOT_FOUND && status != VPMM_BROKEN && status != VPMM_SHUT_DOWN;
    return is_final ? CUDA_SUCCESS : VPMM_ORIGINAL(cuIpcCloseMemHandle, address);
}
