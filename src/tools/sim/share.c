/* SPDX-License-Identifier: MIT */
/* Shares memory between simulated processes by descriptors and by legacy handles. Must not trust a
 * handle, because what it names may be gone. */
#define _GNU_SOURCE
#include "sim/sim_internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HANDLE_MAGIC 0x73696d2d69706300u

/* What a legacy handle holds. */
struct ipc_name {
    uint64_t magic, id, bytes;
    int process, descriptor;
};
_Static_assert(sizeof(struct ipc_name) <= sizeof(CUipcMemHandle), "a handle has room for the name");

/* ---- handles of physical memory ---- */

static CUresult export_handle(struct sim *sim, CUmemGenericAllocationHandle value,
                              int *descriptor_out)
{
    struct handle *handle;
    if (object_find(sim, OBJECT_HANDLE, value, &handle) != OBJECT_LIVE ||
        handle->prop.requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    const struct store_label label = {
        .magic = STORE_MAGIC, .bytes = handle->store.bytes, .prop = handle->prop};
    if (!sim->config.has_bytes || !store_share(&handle->store, &label))
        return CUDA_ERROR_OPERATING_SYSTEM;
    int descriptor = fcntl(handle->store.descriptor, F_DUPFD_CLOEXEC, 0);
    if (descriptor < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    *descriptor_out = descriptor;
    return CUDA_SUCCESS;
}

CUresult sim_mem_export(struct sim *sim, CUmemGenericAllocationHandle handle, int *descriptor_out)
{
    CUresult result = call_enter(sim, "cuMemExportToShareableHandle");
    if (result == CUDA_SUCCESS)
        result = export_handle(sim, handle, descriptor_out);
    return call_leave(sim, "cuMemExportToShareableHandle", result);
}

static CUresult import_handle(struct sim *sim, int descriptor,
                              CUmemGenericAllocationHandle *handle_out)
{
    struct store_label label;
    struct handle *handle = allocate(sizeof *handle);
    if (!store_adopt(&handle->store, descriptor, &label) ||
        label.prop.location.id >= sim->config.n_devices) {
        store_finish(&handle->store);
        free(handle);
        return CUDA_ERROR_INVALID_VALUE;
    }
    handle->device = label.prop.location.id;
    handle->prop = label.prop;
    handle->is_imported = true;
    handle->held = 1;
    handle->value = object_add(sim, OBJECT_HANDLE, handle);
    sim->n_handles++;
    *handle_out = handle->value;
    return CUDA_SUCCESS;
}

CUresult sim_mem_import(struct sim *sim, int descriptor, CUmemGenericAllocationHandle *handle_out)
{
    CUresult result = call_enter(sim, "cuMemImportFromShareableHandle");
    if (result == CUDA_SUCCESS)
        result = import_handle(sim, descriptor, handle_out);
    return call_leave(sim, "cuMemImportFromShareableHandle", result);
}

/* ---- legacy handles ---- */

/* An address within an allocation stands for all of it. */
static CUresult get_handle(struct sim *sim, CUdeviceptr address, CUipcMemHandle *handle_out)
{
    struct context *context;
    TRY(context_now(sim, &context));
    struct plain *plain = space_plain(sim, address);
    if (handle_out == NULL || plain == NULL || plain->freed || plain->pool != NULL ||
        plain->n_opens > 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct store_label label = {.magic = STORE_MAGIC, .bytes = plain->bytes, .id = plain->id};
    label.prop.location.id = plain->device;
    if (!sim->config.has_bytes || !store_share(&plain->store, &label))
        return CUDA_ERROR_OPERATING_SYSTEM;
    const struct ipc_name name = {HANDLE_MAGIC, plain->id, plain->bytes, getpid(),
                                  plain->store.descriptor};
    memset(handle_out, 0, sizeof *handle_out);
    memcpy(handle_out, &name, sizeof name);
    return CUDA_SUCCESS;
}

CUresult sim_ipc_get_mem_handle(struct sim *sim, CUdeviceptr address, CUipcMemHandle *handle_out)
{
    CUresult result = call_enter(sim, "cuIpcGetMemHandle");
    if (result == CUDA_SUCCESS)
        result = get_handle(sim, address, handle_out);
    return call_leave(sim, "cuIpcGetMemHandle", result);
}

/* The exporter's store; its descriptor may stand for something else by now. */
static bool adopt_named(const struct ipc_name *name, struct store *store,
                        struct store_label *label_out)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", name->process, name->descriptor);
    int descriptor = open(path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0)
        return false;
    bool is_adopted = store_adopt(store, descriptor, label_out);
    close(descriptor);
    if (is_adopted && (label_out->id != name->id || label_out->bytes != name->bytes)) {
        store_finish(store);
        is_adopted = false;
    }
    return is_adopted;
}

static CUresult open_handle(struct sim *sim, const struct ipc_name *name, unsigned flags,
                            CUdeviceptr *address_out)
{
    struct context *context;
    struct store store = {0};
    struct store_label label;
    TRY(context_now(sim, &context));
    if (address_out == NULL || name->magic != HANDLE_MAGIC ||
        (flags & ~(unsigned)CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (name->process == getpid())
        return CUDA_ERROR_INVALID_CONTEXT;
    context = context_root(context);
    struct plain *plain = plain_opened(sim, context, name->process, name->id);
    if (plain == NULL) {
        if (!adopt_named(name, &store, &label))
            return CUDA_ERROR_INVALID_VALUE;
        plain = plain_add(sim, label.prop.location.id, label.bytes, 0);
        plain->store = store;
        plain->context = context;
        plain->opened_process = name->process;
        plain->opened_id = name->id;
        sim->n_plain++;
    }
    plain->n_opens++;
    *address_out = plain->address;
    return CUDA_SUCCESS;
}

CUresult sim_ipc_open_mem_handle(struct sim *sim, const CUipcMemHandle *handle, unsigned flags,
                                 CUdeviceptr *address_out)
{
    struct ipc_name name;
    memcpy(&name, handle, sizeof name);
    CUresult result = call_enter(sim, "cuIpcOpenMemHandle");
    if (result == CUDA_SUCCESS)
        result = open_handle(sim, &name, flags, address_out);
    return call_leave(sim, "cuIpcOpenMemHandle", result);
}

static CUresult close_handle(struct sim *sim, CUdeviceptr address)
{
    struct context *context;
    TRY(context_now(sim, &context));
    struct plain *plain = space_plain(sim, address);
    if (plain == NULL || plain->address != address || plain->n_opens == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (plain->n_opens > 1) {
        plain->n_opens--;
        return CUDA_SUCCESS;
    }
    CUresult result = op_wait_context(sim, plain->context);
    plain = space_plain(sim, address);
    if (plain != NULL && --plain->n_opens == 0)
        plain_end(sim, plain);
    return result;
}

CUresult sim_ipc_close_mem_handle(struct sim *sim, CUdeviceptr address)
{
    CUresult result = call_enter(sim, "cuIpcCloseMemHandle");
    if (result == CUDA_SUCCESS)
        result = close_handle(sim, address);
    return call_leave(sim, "cuIpcCloseMemHandle", result);
}
