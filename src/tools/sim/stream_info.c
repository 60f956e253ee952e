/* SPDX-License-Identifier: MIT */
/* Answers questions about a stream. Must not answer of a capturing stream what the driver refuses
 * to. */
#include "sim/sim_internal.h"

static CUresult info_enter(struct sim *sim, const char *name, CUstream handle,
                           struct stream **stream_out)
{
    CUresult result = call_enter(sim, name);
    return result != CUDA_SUCCESS ? result : stream_of(sim, handle, stream_out);
}

CUresult sim_stream_get_ctx(struct sim *sim, CUstream handle, CUcontext *context_out,
                            CUgreenCtx *green_out)
{
    struct stream *stream;
    CUresult result = info_enter(sim, "cuStreamGetCtx", handle, &stream);
    if (result == CUDA_SUCCESS)
        result = capture_implicit(sim, stream, "cuStreamGetCtx");
    if (result == CUDA_SUCCESS) {
        *context_out = (CUcontext)(uintptr_t)stream->context->handle;
        if (green_out != NULL)
            *green_out = (CUgreenCtx)(uintptr_t)(stream->green == NULL ? 0 : stream->green->green);
    }
    return call_leave(sim, "cuStreamGetCtx", result);
}

CUresult sim_stream_get_id(struct sim *sim, CUstream handle, unsigned long long *id_out)
{
    struct stream *stream;
    CUresult result = info_enter(sim, "cuStreamGetId", handle, &stream);
    if (result == CUDA_SUCCESS && sim->config.driver_version < 12000)
        result = CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS)
        result = capture_implicit(sim, stream, "cuStreamGetId");
    if (result == CUDA_SUCCESS && stream->capture != NULL) {
        capture_break(sim, stream->capture, "cuStreamGetId");
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (result == CUDA_SUCCESS)
        *id_out = stream->id;
    return call_leave(sim, "cuStreamGetId", result);
}

CUresult sim_stream_get_flags(struct sim *sim, CUstream handle, unsigned *flags_out)
{
    struct stream *stream;
    CUresult result = info_enter(sim, "cuStreamGetFlags", handle, &stream);
    if (result == CUDA_SUCCESS)
        *flags_out = stream->flags;
    return call_leave(sim, "cuStreamGetFlags", result);
}

CUresult sim_stream_get_priority(struct sim *sim, CUstream handle, int *priority_out)
{
    struct stream *stream;
    CUresult result = info_enter(sim, "cuStreamGetPriority", handle, &stream);
    if (result == CUDA_SUCCESS)
        *priority_out = stream->priority;
    return call_leave(sim, "cuStreamGetPriority", result);
}

CUresult sim_stream_get_device(struct sim *sim, CUstream handle, CUdevice *device_out)
{
    struct stream *stream;
    CUresult result = info_enter(sim, "cuStreamGetDevice", handle, &stream);
    if (result == CUDA_SUCCESS)
        *device_out = stream->context->device;
    return call_leave(sim, "cuStreamGetDevice", result);
}

static CUresult capture_status(struct sim *sim, const struct stream *stream,
                               CUstreamCaptureStatus *status_out)
{
    if (status_out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->is_legacy && capture_any_blocking(sim, stream->context))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    *status_out = stream->capture == NULL   ? CU_STREAM_CAPTURE_STATUS_NONE
                  : stream->capture->broken ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                            : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}

CUresult sim_stream_is_capturing(struct sim *sim, CUstream handle,
                                 CUstreamCaptureStatus *status_out)
{
    struct stream *stream;
    CUresult result = info_enter(sim, "cuStreamIsCapturing", handle, &stream);
    if (result == CUDA_SUCCESS)
        result = capture_status(sim, stream, status_out);
    return call_leave(sim, "cuStreamIsCapturing", result);
}

CUresult sim_stream_get_capture_info(struct sim *sim, CUstream handle,
                                     CUstreamCaptureStatus *status_out, cuuint64_t *id_out)
{
    struct stream *stream;
    CUresult result = info_enter(sim, "cuStreamGetCaptureInfo", handle, &stream);
    if (result == CUDA_SUCCESS)
        result = capture_status(sim, stream, status_out);
    if (result == CUDA_SUCCESS && id_out != NULL)
        *id_out = stream->capture == NULL ? 0 : stream->capture->id;
    return call_leave(sim, "cuStreamGetCaptureInfo", result);
}
