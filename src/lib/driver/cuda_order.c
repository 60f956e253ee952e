/* SPDX-License-Identifier: MIT */
/* The operations of the seam on contexts, streams and events. Must not ask a capturing stream for
 * its id, because that ends the capture. */
#include "driver/cuda_internal.h"

static enum vpmm_status context_current(void *self, vpmm_context_handle *context_out)
{
    CUcontext context = NULL;
    enum vpmm_status status = vpmm_cuda_status(vpmm_cuda_of(self)->real_cuCtxGetCurrent(&context));
    if (status)
        return status;
    if (!context)
        return VPMM_NO_CONTEXT;
    *context_out = (vpmm_context_handle)context;
    return VPMM_OK;
}

static enum vpmm_status context_device(void *self, vpmm_context_handle context, int *device_out)
{
    const struct vpmm_cuda *cuda = vpmm_cuda_of(self);
    CUdevice device = 0;
    enum vpmm_status status;
    VPMM_CUDA_IN(status, cuda, context, cuda->real_cuCtxGetDevice(&device));
    if (!status)
        *device_out = device;
    return status;
}

/* Whatever the driver says of the handle of a context that is gone, it is gone. */
static enum vpmm_status context_id(void *self, vpmm_context_handle context, uint64_t *id_out)
{
    unsigned long long id = 0;
    enum vpmm_status status =
        vpmm_cuda_status(vpmm_cuda_of(self)->real_cuCtxGetId((CUcontext)context, &id));
    if (status == VPMM_NO_CONTEXT || status == VPMM_INVALID)
        return VPMM_CONTEXT_GONE;
    if (!status)
        *id_out = id;
    return status;
}

static enum vpmm_status context_synchronize(void *self, vpmm_context_handle context)
{
    const struct vpmm_cuda *cuda = vpmm_cuda_of(self);
    enum vpmm_status status;
    VPMM_CUDA_IN(status, cuda, context, cuda->real_cuCtxSynchronize());
    return status;
}

/* cuStreamGetCtx_v2 names the primary context of a green context's stream; cuStreamGetCtx would
 * name the green one, or refuse, but drivers without the former hardly have the latter kind of
 * context. */
static enum vpmm_status stream_context(const struct vpmm_cuda *cuda, CUstream stream,
                                       CUcontext *context_out)
{
    CUgreenCtx green = NULL;
    return vpmm_cuda_status(cuda->real_cuStreamGetCtx_v2
                                ? cuda->real_cuStreamGetCtx_v2(stream, context_out, &green)
                                : cuda->real_cuStreamGetCtx(stream, context_out));
}

/* Whether it synchronises with the legacy stream. */
static enum vpmm_status stream_blocks(const struct vpmm_cuda *cuda, vpmm_stream_handle stream,
                                      bool *is_blocking_out)
{
    unsigned flags = CU_STREAM_DEFAULT;
    enum vpmm_status status = VPMM_OK;
    if (stream == VPMM_STREAM_LEGACY)
        flags = CU_STREAM_NON_BLOCKING;
    else if (stream != VPMM_STREAM_PER_THREAD)
        status = vpmm_cuda_status(cuda->real_cuStreamGetFlags((CUstream)stream, &flags));
    *is_blocking_out = !(flags & CU_STREAM_NON_BLOCKING);
    return status;
}

static enum vpmm_status stream_captures(void *self, vpmm_stream_handle stream, bool *captures_out)
{
    CUstreamCaptureStatus capture;
    enum vpmm_status status =
        vpmm_cuda_status(vpmm_cuda_of(self)->real_cuStreamIsCapturing((CUstream)stream, &capture));
    if (!status)
        *captures_out = capture != CU_STREAM_CAPTURE_STATUS_NONE;
    return status;
}

/* cuStreamIsCapturing comes first, because it alone is harmless in every capture. Measured on
 * driver 580: cuStreamGetId of a capturing stream, and cuStreamGetCtx and cuStreamGetId of the
 * legacy stream while a blocking stream captures, are refused in every mode and end the capture. */
static enum vpmm_status stream_facts(void *self, vpmm_stream_handle stream,
                                     struct vpmm_stream_facts *facts_out)
{
    const struct vpmm_cuda *cuda = vpmm_cuda_of(self);
    CUcontext context = NULL;
    unsigned long long id = 0;
    bool is_capturing = false;
    enum vpmm_status status = stream_captures(self, stream, &is_capturing);
    if (!status)
        status = stream_context(cuda, (CUstream)stream, &context);
    if (!status && !is_capturing && cuda->real_cuStreamGetId)
        status = vpmm_cuda_status(cuda->real_cuStreamGetId((CUstream)stream, &id));
    bool is_blocking = false;
    if (!status && !is_capturing)
        status = stream_blocks(cuda, stream, &is_blocking);
    if (status)
        return status;
    *facts_out = (struct vpmm_stream_facts){
        .context = (vpmm_context_handle)context,
        .id = id,
        .is_legacy = stream == VPMM_STREAM_LEGACY,
        .is_blocking = is_blocking,
        .is_capturing = is_capturing,
    };
    return VPMM_OK;
}

static enum vpmm_status stream_id(void *self, vpmm_stream_handle stream, uint64_t *id_out)
{
    unsigned long long id = 0;
    enum vpmm_status status =
        vpmm_cuda_status(vpmm_cuda_of(self)->real_cuStreamGetId((CUstream)stream, &id));
    if (!status)
        *id_out = id;
    return status;
}

static enum vpmm_status stream_wait(void *self, vpmm_stream_handle stream, vpmm_event_handle event)
{
    return vpmm_cuda_status(
        vpmm_cuda_of(self)->real_cuStreamWaitEvent((CUstream)stream, (CUevent)event, 0));
}

enum vpmm_status vpmm_cuda_event_create(const struct vpmm_cuda *cuda, vpmm_context_handle context,
                                        unsigned flags, vpmm_event_handle *event_out)
{
    CUevent event = NULL;
    enum vpmm_status status;
    VPMM_CUDA_IN(status, cuda, context, cuda->real_cuEventCreate(&event, flags));
    if (!status)
        *event_out = (vpmm_event_handle)event;
    return status;
}

static enum vpmm_status event_create(void *self, vpmm_context_handle context,
                                     vpmm_event_handle *event_out)
{
    return vpmm_cuda_event_create(vpmm_cuda_of(self), context, CU_EVENT_DISABLE_TIMING, event_out);
}

static enum vpmm_status event_destroy(void *self, vpmm_event_handle event)
{
    return vpmm_cuda_status(vpmm_cuda_of(self)->real_cuEventDestroy_v2((CUevent)event));
}

static enum vpmm_status event_record(void *self, vpmm_event_handle event, vpmm_stream_handle stream)
{
    return vpmm_cuda_status(
        vpmm_cuda_of(self)->real_cuEventRecord((CUevent)event, (CUstream)stream));
}

static enum vpmm_status event_record_context(void *self, vpmm_event_handle event,
                                             vpmm_context_handle context)
{
    return vpmm_cuda_status(
        vpmm_cuda_of(self)->real_cuCtxRecordEvent((CUcontext)context, (CUevent)event));
}

static enum vpmm_status event_query(void *self, vpmm_event_handle event)
{
    return vpmm_cuda_status(vpmm_cuda_of(self)->real_cuEventQuery((CUevent)event));
}

static enum vpmm_status event_synchronize(void *self, vpmm_event_handle event)
{
    return vpmm_cuda_status(vpmm_cuda_of(self)->real_cuEventSynchronize((CUevent)event));
}

static enum vpmm_status capture_relax(void *self, int *mode_out)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    enum vpmm_status status =
        vpmm_cuda_status(vpmm_cuda_of(self)->real_cuThreadExchangeStreamCaptureMode(&mode));
    if (!status)
        *mode_out = (int)mode;
    return status;
}

static void capture_restore(void *self, int mode)
{
    CUstreamCaptureMode restored = (CUstreamCaptureMode)mode;
    (void)vpmm_cuda_of(self)->real_cuThreadExchangeStreamCaptureMode(&restored);
}

void vpmm_cuda_fill_order(const struct vpmm_cuda *cuda, struct vpmm_driver *driver)
{
    driver->context_current = context_current;
    driver->context_device = context_device;
    driver->context_id = cuda->real_cuCtxGetId ? context_id : NULL;
    driver->context_synchronize = context_synchronize;
    driver->stream_facts = stream_facts;
    driver->stream_captures = stream_captures;
    driver->stream_id = cuda->real_cuStreamGetId ? stream_id : NULL;
    driver->stream_wait = stream_wait;
    driver->event_create = event_create;
    driver->event_destroy = event_destroy;
    driver->event_record = event_record;
    driver->event_record_context = cuda->real_cuCtxRecordEvent ? event_record_context : NULL;
    driver->event_query = event_query;
    driver->event_synchronize = event_synchronize;
    driver->capture_relax = capture_relax;
    driver->capture_restore = capture_restore;
}
