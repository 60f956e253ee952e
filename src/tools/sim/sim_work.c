/* SPDX-License-Identifier: MIT */
/* Kernels, host functions, copies, fills and values, as they are queued. Must not read pageable
 * host memory after the call: its owner may change it. */
#include "sim/sim_internal.h"

#include <stdlib.h>
#include <string.h>

struct blob *blob_new(const void *bytes, size_t n)
{
    struct blob *blob = allocate(sizeof *blob + n);
    blob->refs = 1;
    blob->bytes = n;
    if (n != 0)
        memcpy(blob->data, bytes, n);
    return blob;
}

static void blob_drop(struct blob *blob)
{
    if (blob != NULL && --blob->refs == 0)
        free(blob);
}

struct work work_copy(const struct work *work)
{
    if (work->ranges != NULL)
        work->ranges->refs++;
    if (work->bytes != NULL)
        work->bytes->refs++;
    return *work;
}

void work_finish(struct work *work)
{
    blob_drop(work->ranges);
    blob_drop(work->bytes);
    work->ranges = NULL;
    work->bytes = NULL;
}

void work_ranges_set(struct work *work, const struct sim_range *ranges, unsigned n)
{
    work->ranges = blob_new(ranges, n * sizeof *ranges);
}

/* Queues `work` (taken over) on a stream named by a program. */
static CUresult queue_on(struct sim *sim, CUstream handle, struct work *work, struct op **op_out)
{
    struct stream *stream;
    CUresult result = stream_of(sim, handle, &stream);
    if (result == CUDA_SUCCESS)
        result = stream->context->error;
    if (result != CUDA_SUCCESS) {
        work_finish(work);
        return result;
    }
    return stream_queue(sim, stream, work, op_out);
}

static CUresult launch(struct sim *sim, CUstream stream, const struct sim_kernel *kernel)
{
    struct context *current;
    TRY(context_now(sim, &current));
    struct work work = {
        .kind = WORK_KERNEL,
        .name = kernel->name != NULL ? kernel->name : "a kernel",
        .run = kernel->run,
        .ready = kernel->ready,
        .argument = kernel->argument,
    };
    work_ranges_set(&work, kernel->ranges, kernel->n_ranges);
    if (kernel->argument_bytes != 0) {
        work.bytes = blob_new(kernel->argument, kernel->argument_bytes);
        work.argument = work.bytes->data;
    }
    return queue_on(sim, stream, &work, NULL);
}

CUresult sim_launch(struct sim *sim, CUstream stream, const struct sim_kernel *kernel)
{
    CUresult result = call_enter(sim, "cuLaunchKernel");
    if (result == CUDA_SUCCESS)
        result = launch(sim, stream, kernel);
    return call_leave(sim, "cuLaunchKernel", result);
}

CUresult sim_launch_host_func(struct sim *sim, CUstream stream, CUhostFn function, void *data)
{
    CUresult result = call_enter(sim, "cuLaunchHostFunc");
    if (result == CUDA_SUCCESS && function == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        struct work work = {
            .kind = WORK_HOST, .name = "a host function", .function = function, .argument = data};
        result = queue_on(sim, stream, &work, NULL);
    }
    return call_leave(sim, "cuLaunchHostFunc", result);
}

/* Whether one end of a copy may be used by `context`: mapped memory needs access, plain memory only
 * to exist. */
static bool end_is_sound(struct sim *sim, const struct context *context, CUdeviceptr address,
                         uint64_t bytes, bool writes, bool peer)
{
    if (!space_is_device(address))
        return address != 0;
    const struct plain *plain = space_plain(sim, address);
    enum reach reach = space_check(sim, context->device, context, address, bytes, writes);
    if (plain != NULL && plain->freed)
        return false;
    return reach == REACH_OK || (reach == REACH_DENIED && (peer || plain != NULL));
}

static void copy_ranges(struct work *work)
{
    struct sim_range ranges[2];
    unsigned n = 0;
    if (space_is_device(work->to))
        ranges[n++] = (struct sim_range){work->to, work->n_bytes, true};
    if (space_is_device(work->from))
        ranges[n++] = (struct sim_range){work->from, work->n_bytes, false};
    work_ranges_set(work, ranges, n);
}

/* Pageable host memory: a source is read at once, a target is waited for. */
static CUresult copy(struct sim *sim, struct work *work, CUstream handle, bool wait)
{
    struct stream *stream;
    struct context *current;
    struct op *op = NULL;
    TRY(context_now(sim, &current));
    TRY(stream_of(sim, handle, &stream));
    TRY(stream->context->error);
    if (wait && stream->capture != NULL) {
        capture_break(sim, stream->capture, work->name);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (work->n_bytes == 0)
        return CUDA_SUCCESS;
    if (!end_is_sound(sim, stream->context, work->to, work->n_bytes, true, work->peer) ||
        !end_is_sound(sim, stream->context, work->from, work->n_bytes, false, work->peer))
        return CUDA_ERROR_INVALID_VALUE;
    copy_ranges(work);
    if (stream->capture == NULL && !space_is_device(work->from) &&
        !host_is_pinned(sim, work->from, work->n_bytes))
        work->bytes = blob_new((const void *)(uintptr_t)work->from, work->n_bytes);
    bool pageable_to = !space_is_device(work->to) && !host_is_pinned(sim, work->to, work->n_bytes);
    TRY(stream_queue(sim, stream, work, &op));
    /* The host does not wait for a copy on the device (measured: test/programs/copies.c). */
    wait = wait && (!space_is_device(work->to) || !space_is_device(work->from));
    CUresult result = CUDA_SUCCESS;
    if (op != NULL && (wait || pageable_to))
        result = op_wait_one(sim, op);
    op_drop(op);
    return result;
}

CUresult sim_memcpy(struct sim *sim, CUdeviceptr to, CUdeviceptr from, size_t bytes,
                    CUstream stream)
{
    struct work work = {
        .kind = WORK_COPY, .name = "cuMemcpy", .to = to, .from = from, .n_bytes = bytes};
    CUresult result = call_enter(sim, "cuMemcpy");
    if (result == CUDA_SUCCESS)
        result = copy(sim, &work, stream, true);
    return call_leave_priced(sim, "cuMemcpy", result, 0, bytes);
}

CUresult sim_memcpy_async(struct sim *sim, CUdeviceptr to, CUdeviceptr from, size_t bytes,
                          CUstream stream)
{
    struct work work = {
        .kind = WORK_COPY, .name = "cuMemcpyAsync", .to = to, .from = from, .n_bytes = bytes};
    CUresult result = call_enter(sim, "cuMemcpyAsync");
    if (result == CUDA_SUCCESS)
        result = copy(sim, &work, stream, false);
    return call_leave_priced(sim, "cuMemcpyAsync", result, 0, bytes);
}

CUresult sim_memcpy_peer(struct sim *sim, CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                         CUcontext from_context, size_t bytes, CUstream stream, bool wait)
{
    const char *name = wait ? "cuMemcpyPeer" : "cuMemcpyPeerAsync";
    struct context *context;
    struct work work = {
        .kind = WORK_COPY, .name = name, .to = to, .from = from, .n_bytes = bytes, .peer = true};
    CUresult result = call_enter(sim, name);
    if (result == CUDA_SUCCESS)
        result = context_of(sim, to_context, &context);
    if (result == CUDA_SUCCESS)
        result = context_of(sim, from_context, &context);
    if (result == CUDA_SUCCESS)
        result = copy(sim, &work, stream, wait);
    return call_leave_priced(sim, name, result, 0, bytes);
}

static CUresult fill(struct sim *sim, CUdeviceptr to, unsigned value, unsigned width, size_t n,
                     CUstream handle)
{
    struct stream *stream;
    uint64_t bytes;
    TRY(stream_serving(sim, handle, &stream));
    if (to % width != 0 || __builtin_mul_overflow(n, (size_t)width, &bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (n == 0)
        return CUDA_SUCCESS;
    const struct plain *plain = space_plain(sim, to);
    if ((plain != NULL && plain->freed) ||
        space_check(sim, stream->context->device, stream->context, to, bytes, true) != REACH_OK)
        return CUDA_ERROR_INVALID_VALUE;
    struct work work = {.kind = WORK_FILL,
                        .name = "cuMemset",
                        .to = to,
                        .n_bytes = bytes,
                        .value = value,
                        .width = width};
    work_ranges_set(&work, &(struct sim_range){to, bytes, true}, 1);
    return stream_queue(sim, stream, &work, NULL);
}

CUresult sim_memset(struct sim *sim, CUdeviceptr to, unsigned value, unsigned width, size_t n,
                    CUstream stream)
{
    CUresult result = call_enter(sim, "cuMemset");
    if (result == CUDA_SUCCESS)
        result = fill(sim, to, value, width, n, stream);
    return call_leave_priced(sim, "cuMemset", result, 0, n * width);
}

static CUresult queue_value(struct sim *sim, CUstream stream, struct work *work, bool writes)
{
    struct context *current;
    TRY(context_now(sim, &current));
    if (work->to == 0 || work->to % work->width != 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_range range = {work->to, work->width, writes};
    work_ranges_set(work, &range, space_is_device(work->to) ? 1 : 0);
    return queue_on(sim, stream, work, NULL);
}

CUresult sim_stream_wait_value(struct sim *sim, CUstream stream, CUdeviceptr address,
                               uint64_t value, unsigned width, unsigned flags)
{
    const char *name = width == 8 ? "cuStreamWaitValue64" : "cuStreamWaitValue32";
    struct work work = {.kind = WORK_WAIT_VALUE,
                        .name = name,
                        .to = address,
                        .value = value,
                        .width = width,
                        .flags = flags};
    CUresult result = call_enter(sim, name);
    if (result == CUDA_SUCCESS)
        result = queue_value(sim, stream, &work, false);
    return call_leave(sim, name, result);
}

CUresult sim_stream_write_value(struct sim *sim, CUstream stream, CUdeviceptr address,
                                uint64_t value, unsigned width, unsigned flags)
{
    const char *name = width == 8 ? "cuStreamWriteValue64" : "cuStreamWriteValue32";
    struct work work = {.kind = WORK_WRITE_VALUE,
                        .name = name,
                        .to = address,
                        .value = value,
                        .width = width,
                        .flags = flags};
    CUresult result = call_enter(sim, name);
    if (result == CUDA_SUCCESS)
        result = queue_value(sim, stream, &work, true);
    return call_leave(sim, name, result);
}
