/* SPDX-License-Identifier: MIT */
/* The seam over a simulated machine. Must not be called with a lock of the library held: each
 * operation checks that. */
#include "sim/sim_table.h"

#include "base/lock.h"

#define TRY_STATUS(call)                                                                           \
    do {                                                                                           \
        enum vpmm_status try_status = (call);                                                      \
        if (try_status != VPMM_OK)                                                                 \
            return try_status;                                                                     \
    } while (0)

enum vpmm_status sim_table_status(CUresult code)
{
    switch (code) {
    case CUDA_SUCCESS:
        return VPMM_OK;
    case CUDA_ERROR_NOT_READY:
        return VPMM_NOT_READY;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return VPMM_NO_MEMORY;
    case CUDA_ERROR_INVALID_CONTEXT:
        return VPMM_NO_CONTEXT;
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
        return VPMM_CONTEXT_GONE;
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
    case CUDA_ERROR_STREAM_CAPTURE_ISOLATION:
    case CUDA_ERROR_STREAM_CAPTURE_MERGE:
    case CUDA_ERROR_CAPTURED_EVENT:
        return VPMM_CAPTURED;
    case CUDA_ERROR_NOT_SUPPORTED:
        return VPMM_NOT_SUPPORTED;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_INVALID_DEVICE:
        return VPMM_INVALID;
    case CUDA_ERROR_DEINITIALIZED:
        return VPMM_SHUT_DOWN;
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
        return VPMM_BROKEN;
    default:
        return VPMM_FAILED;
    }
}

static struct sim *enter(void *self, const char *name)
{
    if (!vpmm_lock_none_held())
        sim_misuse_report(self, SIM_LOCK_HELD, "%s", name);
    return self;
}

static CUstream stream_cast(vpmm_stream_handle stream)
{
    return (CUstream)(void *)stream;
}

static CUevent event_cast(vpmm_event_handle event)
{
    return (CUevent)(void *)event;
}

static CUcontext context_cast(vpmm_context_handle context)
{
    return (CUcontext)(void *)context;
}

static CUmemAllocationProp prop_of(int device)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
}

static enum vpmm_status device_facts(void *self, int device, struct vpmm_device_facts *facts_out)
{
    struct sim *sim = enter(self, "device_facts");
    size_t total;
    int has_vmm;
    TRY_STATUS(sim_table_status(sim_device_total_mem(sim, device, &total)));
    TRY_STATUS(sim_table_status(sim_device_get_attribute(
        sim, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device, &has_vmm)));
    *facts_out = (struct vpmm_device_facts){
        .total_bytes = total,
        .granularity_bytes = sim_config(sim)->granularity,
        .has_vmm = has_vmm != 0,
        .can_export = sim_config(sim)->has_bytes,
    };
    return VPMM_OK;
}

static enum vpmm_status memory_info(void *self, uint64_t *free_out, uint64_t *total_out)
{
    size_t free_bytes;
    size_t total;
    TRY_STATUS(sim_table_status(sim_mem_get_info(enter(self, "memory_info"), &free_bytes, &total)));
    *free_out = free_bytes;
    *total_out = total;
    return VPMM_OK;
}

static enum vpmm_status context_current(void *self, vpmm_context_handle *context_out)
{
    CUcontext context;
    TRY_STATUS(sim_table_status(sim_ctx_get_current(enter(self, "context_current"), &context)));
    if (context == NULL)
        return VPMM_NO_CONTEXT;
    *context_out = (vpmm_context_handle)(void *)context;
    return VPMM_OK;
}

static enum vpmm_status context_device(void *self, vpmm_context_handle context, int *device_out)
{
    return sim_table_status(
        sim_ctx_device_of(enter(self, "context_device"), context_cast(context), device_out));
}

static enum vpmm_status context_id(void *self, vpmm_context_handle context, uint64_t *id_out)
{
    unsigned long long id;
    CUresult result = sim_ctx_get_id(enter(self, "context_id"), context_cast(context), &id);
    if (result == CUDA_ERROR_INVALID_CONTEXT)
        return VPMM_CONTEXT_GONE;
    TRY_STATUS(sim_table_status(result));
    *id_out = id;
    return VPMM_OK;
}

static enum vpmm_status context_synchronize(void *self, vpmm_context_handle context)
{
    return sim_table_status(
        sim_ctx_synchronize_of(enter(self, "context_synchronize"), context_cast(context)));
}

static enum vpmm_status peer_possible(void *self, int device, int peer, bool *possible_out)
{
    int can;
    TRY_STATUS(sim_table_status(
        sim_device_can_access_peer(enter(self, "peer_possible"), device, peer, &can)));
    *possible_out = can != 0;
    return VPMM_OK;
}

static enum vpmm_status default_pool_trim(void *self, int device)
{
    struct sim *sim = enter(self, "default_pool_trim");
    CUmemoryPool pool;
    TRY_STATUS(sim_table_status(sim_device_get_default_mem_pool(sim, device, &pool)));
    return sim_table_status(sim_mem_pool_trim_to(sim, pool, 0));
}

static enum vpmm_status address_reserve(void *self, uint64_t bytes, uint64_t *address_out)
{
    CUdeviceptr address;
    TRY_STATUS(sim_table_status(
        sim_mem_address_reserve(enter(self, "address_reserve"), bytes, 0, 0, 0, &address)));
    *address_out = address;
    return VPMM_OK;
}

static enum vpmm_status address_free(void *self, uint64_t address, uint64_t bytes)
{
    return sim_table_status(sim_mem_address_free(enter(self, "address_free"), address, bytes));
}

static enum vpmm_status extent_create(void *self, int device, uint64_t bytes,
                                      vpmm_extent_handle *extent_out)
{
    CUmemAllocationProp prop = prop_of(device);
    CUmemGenericAllocationHandle handle;
    TRY_STATUS(
        sim_table_status(sim_mem_create(enter(self, "extent_create"), bytes, &prop, 0, &handle)));
    *extent_out = handle;
    return VPMM_OK;
}

static enum vpmm_status extent_release(void *self, vpmm_extent_handle extent)
{
    return sim_table_status(sim_mem_release(enter(self, "extent_release"), extent));
}

static enum vpmm_status map(void *self, uint64_t address, uint64_t bytes, vpmm_extent_handle extent)
{
    return sim_table_status(sim_mem_map(enter(self, "map"), address, bytes, 0, extent, 0));
}

static enum vpmm_status set_access(void *self, uint64_t address, uint64_t bytes, const int *devices,
                                   int n_devices)
{
    CUmemAccessDesc accesses[SIM_DEVICES_MAX];
    struct sim *sim = enter(self, "set_access");
    if (n_devices < 1 || n_devices > SIM_DEVICES_MAX)
        return VPMM_INVALID;
    for (int i = 0; i < n_devices; i++)
        accesses[i] = (CUmemAccessDesc){
            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = devices[i]},
            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
    return sim_table_status(sim_mem_set_access(sim, address, bytes, accesses, (size_t)n_devices));
}

static enum vpmm_status unmap(void *self, uint64_t address, uint64_t bytes)
{
    return sim_table_status(sim_mem_unmap(enter(self, "unmap"), address, bytes));
}

static enum vpmm_status extent_export(void *self, vpmm_extent_handle extent, int *descriptor_out)
{
    return sim_table_status(sim_mem_export(enter(self, "extent_export"), extent, descriptor_out));
}

static enum vpmm_status extent_import(void *self, int descriptor, vpmm_extent_handle *extent_out,
                                      int *device_out)
{
    struct sim *sim = enter(self, "extent_import");
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop;
    TRY_STATUS(sim_table_status(sim_mem_import(sim, descriptor, &handle)));
    TRY_STATUS(sim_table_status(sim_mem_get_allocation_properties(sim, handle, &prop)));
    *extent_out = handle;
    *device_out = prop.location.id;
    return VPMM_OK;
}

static enum vpmm_status stream_captures(void *self, vpmm_stream_handle handle, bool *captures_out)
{
    struct sim *sim = enter(self, "stream_captures");
    CUstreamCaptureStatus capturing;
    TRY_STATUS(sim_table_status(sim_stream_is_capturing(sim, stream_cast(handle), &capturing)));
    *captures_out = capturing != CU_STREAM_CAPTURE_STATUS_NONE;
    return VPMM_OK;
}

static enum vpmm_status stream_facts(void *self, vpmm_stream_handle handle,
                                     struct vpmm_stream_facts *facts_out)
{
    struct sim *sim = enter(self, "stream_facts");
    CUstream stream = stream_cast(handle);
    CUstreamCaptureStatus capturing;
    CUcontext context;
    unsigned long long id = 0;
    unsigned flags = CU_STREAM_NON_BLOCKING;
    TRY_STATUS(sim_table_status(sim_stream_is_capturing(sim, stream, &capturing)));
    TRY_STATUS(sim_table_status(sim_stream_get_ctx(sim, stream, &context, NULL)));
    bool is_capturing = capturing != CU_STREAM_CAPTURE_STATUS_NONE;
    if (!is_capturing && sim_config(sim)->driver_version >= 12000)
        TRY_STATUS(sim_table_status(sim_stream_get_id(sim, stream, &id)));
    bool is_legacy = handle == NULL || handle == VPMM_STREAM_LEGACY;
    if (!is_capturing && !is_legacy)
        TRY_STATUS(sim_table_status(sim_stream_get_flags(sim, stream, &flags)));
    *facts_out = (struct vpmm_stream_facts){
        .context = (vpmm_context_handle)(void *)context,
        .id = id,
        .is_legacy = is_legacy,
        .is_blocking = !(flags & CU_STREAM_NON_BLOCKING),
        .is_capturing = is_capturing,
    };
    return VPMM_OK;
}

static enum vpmm_status stream_id(void *self, vpmm_stream_handle handle, uint64_t *id_out)
{
    struct sim *sim = enter(self, "stream_id");
    unsigned long long id;
    TRY_STATUS(sim_table_status(sim_stream_get_id(sim, stream_cast(handle), &id)));
    *id_out = id;
    return VPMM_OK;
}

static enum vpmm_status stream_wait(void *self, vpmm_stream_handle stream, vpmm_event_handle event)
{
    return sim_table_status(sim_stream_wait_event(enter(self, "stream_wait"), stream_cast(stream),
                                                  event_cast(event), 0));
}

static enum vpmm_status event_create(void *self, vpmm_context_handle context,
                                     vpmm_event_handle *event_out)
{
    struct sim *sim = enter(self, "event_create");
    CUevent event;
    TRY_STATUS(sim_table_status(sim_ctx_push_current(sim, context_cast(context))));
    CUresult result = sim_event_create(sim, CU_EVENT_DISABLE_TIMING, &event);
    (void)sim_ctx_pop_current(sim, NULL);
    TRY_STATUS(sim_table_status(result));
    *event_out = (vpmm_event_handle)(void *)event;
    return VPMM_OK;
}

static enum vpmm_status event_destroy(void *self, vpmm_event_handle event)
{
    return sim_table_status(sim_event_destroy(enter(self, "event_destroy"), event_cast(event)));
}

static enum vpmm_status event_record(void *self, vpmm_event_handle event, vpmm_stream_handle stream)
{
    return sim_table_status(
        sim_event_record(enter(self, "event_record"), event_cast(event), stream_cast(stream)));
}

static enum vpmm_status event_record_context(void *self, vpmm_event_handle event,
                                             vpmm_context_handle context)
{
    return sim_table_status(sim_ctx_record_event(enter(self, "event_record_context"),
                                                 context_cast(context), event_cast(event)));
}

static enum vpmm_status event_query(void *self, vpmm_event_handle event)
{
    return sim_table_status(sim_event_query(enter(self, "event_query"), event_cast(event)));
}

static enum vpmm_status event_synchronize(void *self, vpmm_event_handle event)
{
    return sim_table_status(
        sim_event_synchronize(enter(self, "event_synchronize"), event_cast(event)));
}

static enum vpmm_status capture_relax(void *self, int *mode_out)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    TRY_STATUS(sim_table_status(
        sim_thread_exchange_stream_capture_mode(enter(self, "capture_relax"), &mode)));
    *mode_out = (int)mode;
    return VPMM_OK;
}

static void capture_restore(void *self, int mode)
{
    CUstreamCaptureMode exchanged = (CUstreamCaptureMode)mode;
    (void)sim_thread_exchange_stream_capture_mode(enter(self, "capture_restore"), &exchanged);
}

void sim_table_fill(struct sim *sim, struct vpmm_driver *driver_out)
{
    *driver_out = (struct vpmm_driver){
        .self = sim,
        .device_facts = device_facts,
        .memory_info = memory_info,
        .context_current = context_current,
        .context_device = context_device,
        .context_id = context_id,
        .context_synchronize = context_synchronize,
        .peer_possible = peer_possible,
        .default_pool_trim = default_pool_trim,
        .address_reserve = address_reserve,
        .address_free = address_free,
        .extent_create = extent_create,
        .extent_release = extent_release,
        .map = map,
        .set_access = set_access,
        .unmap = unmap,
        .extent_export = extent_export,
        .extent_import = extent_import,
        .stream_facts = stream_facts,
        .stream_captures = stream_captures,
        .stream_id = stream_id,
        .stream_wait = stream_wait,
        .event_create = event_create,
        .event_destroy = event_destroy,
        .event_record = event_record,
        .event_record_context = event_record_context,
        .event_query = event_query,
        .event_synchronize = event_synchronize,
        .capture_relax = capture_relax,
        .capture_restore = capture_restore,
    };
    sim_table_fill_host(driver_out);
    if (sim_config(sim)->driver_version < 12050)
        driver_out->event_record_context = NULL;
    if (sim_config(sim)->driver_version < 12000) {
        driver_out->stream_id = NULL;
        driver_out->context_id = NULL;
    }
}
