/* SPDX-License-Identifier: MIT */
/* The seam over a simulated machine: streams of our own, copies and host memory. Must not leave
 * another context current than it found. */
#include "sim/sim_table.h"

#include "base/lock.h"

static struct sim *enter(void *self, vpmm_context_handle context, const char *name,
                         enum vpmm_status *status_out)
{
    if (!vpmm_lock_none_held())
        sim_misuse_report(self, SIM_LOCK_HELD, "%s", name);
    *status_out = sim_table_status(sim_ctx_push_current(self, (CUcontext)(void *)context));
    return self;
}

static enum vpmm_status leave(struct sim *sim, CUresult result)
{
    (void)sim_ctx_pop_current(sim, NULL);
    return sim_table_status(result);
}

static enum vpmm_status stream_create(void *self, vpmm_context_handle context,
                                      vpmm_stream_handle *stream_out)
{
    enum vpmm_status status;
    struct sim *sim = enter(self, context, "stream_create", &status);
    if (status)
        return status;
    CUstream stream = NULL;
    status = leave(sim, sim_stream_create(sim, CU_STREAM_NON_BLOCKING, 0, &stream));
    if (!status)
        *stream_out = (vpmm_stream_handle)(void *)stream;
    return status;
}

static enum vpmm_status stream_destroy(void *self, vpmm_stream_handle stream)
{
    if (!vpmm_lock_none_held())
        sim_misuse_report(self, SIM_LOCK_HELD, "stream_destroy");
    return sim_table_status(sim_stream_destroy(self, (CUstream)(void *)stream));
}

static enum vpmm_status event_create_timed(void *self, vpmm_context_handle context,
                                           vpmm_event_handle *event_out)
{
    enum vpmm_status status;
    struct sim *sim = enter(self, context, "event_create_timed", &status);
    if (status)
        return status;
    CUevent event = NULL;
    status = leave(sim, sim_event_create(sim, CU_EVENT_DEFAULT, &event));
    if (!status)
        *event_out = (vpmm_event_handle)(void *)event;
    return status;
}

static enum vpmm_status event_elapsed(void *self, vpmm_event_handle begin, vpmm_event_handle end,
                                      uint64_t *ns_out)
{
    float ms = 0;
    if (!vpmm_lock_none_held())
        sim_misuse_report(self, SIM_LOCK_HELD, "event_elapsed");
    enum vpmm_status status = sim_table_status(
        sim_event_elapsed_time(self, (CUevent)(void *)begin, (CUevent)(void *)end, &ms));
    if (!status)
        *ns_out = ms > 0 ? (uint64_t)((double)ms * 1e6) : 0;
    return status;
}

static enum vpmm_status copy_in(void *self, vpmm_context_handle context, uint64_t address,
                                const void *from, uint64_t bytes, vpmm_stream_handle stream)
{
    enum vpmm_status status;
    struct sim *sim = enter(self, context, "copy_in", &status);
    if (status)
        return status;
    return leave(sim, sim_memcpy_async(sim, address, (CUdeviceptr)(uintptr_t)from, bytes,
                                       (CUstream)(void *)stream));
}

static enum vpmm_status host_register(void *self, vpmm_context_handle context, void *memory,
                                      uint64_t bytes, bool is_read_only)
{
    unsigned flags = CU_MEMHOSTREGISTER_PORTABLE;
    enum vpmm_status status;
    struct sim *sim = enter(self, context, "host_register", &status);
    if (status)
        return status;
    if (is_read_only)
        flags |= CU_MEMHOSTREGISTER_READ_ONLY;
    return leave(sim, sim_mem_host_register(sim, memory, bytes, flags));
}

static enum vpmm_status host_unregister(void *self, vpmm_context_handle context, void *memory)
{
    enum vpmm_status status;
    struct sim *sim = enter(self, context, "host_unregister", &status);
    return status ? status : leave(sim, sim_mem_host_unregister(sim, memory));
}

static enum vpmm_status host_alloc(void *self, vpmm_context_handle context, uint64_t bytes,
                                   void **memory_out)
{
    enum vpmm_status status;
    struct sim *sim = enter(self, context, "host_alloc", &status);
    return status ? status : leave(sim, sim_mem_host_alloc(sim, bytes, 0, memory_out));
}

static enum vpmm_status host_free(void *self, vpmm_context_handle context, void *memory)
{
    enum vpmm_status status;
    struct sim *sim = enter(self, context, "host_free", &status);
    return status ? status : leave(sim, sim_mem_free_host(sim, memory));
}

static enum vpmm_status extent_create_host(void *self, int device, uint64_t bytes,
                                           vpmm_extent_handle *extent_out)
{
    (void)device;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA}};
    CUmemGenericAllocationHandle handle = 0;
    if (!vpmm_lock_none_held())
        sim_misuse_report(self, SIM_LOCK_HELD, "extent_create_host");
    enum vpmm_status status = sim_table_status(sim_mem_create(self, bytes, &prop, 0, &handle));
    if (!status)
        *extent_out = handle;
    return status;
}

void sim_table_fill_host(struct vpmm_driver *driver)
{
    driver->stream_create = stream_create;
    driver->stream_destroy = stream_destroy;
    driver->event_create_timed = event_create_timed;
    driver->event_elapsed = event_elapsed;
    driver->copy_in = copy_in;
    driver->host_register = host_register;
    driver->host_unregister = host_unregister;
    driver->host_alloc = host_alloc;
    driver->host_free = host_free;
    driver->extent_create_host = extent_create_host;
}
