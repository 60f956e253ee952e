/* SPDX-License-Identifier: MIT */
/* Streams, events, host functions, waits for values, capture and graphs. Must not run a program's
 * function itself: the machine does, in its turn. */
#include "sim/libcuda/libcuda_machine.h"

#include <stdlib.h>

struct callback {
    CUstreamCallback function;
    void *data;
    CUstream stream;
};

static void CUDA_CB callback_run(void *argument)
{
    struct callback callback = *(struct callback *)argument;
    free(argument);
    callback.function(callback.stream, CUDA_SUCCESS, callback.data);
}

static CUresult add_callback(struct sim *sim, CUstream stream, CUstreamCallback function,
                             void *data)
{
    struct callback *callback = function ? malloc(sizeof(*callback)) : NULL;
    if (!callback)
        return function ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
    *callback = (struct callback){function, data, stream};
    CUresult result = sim_launch_host_func(sim, stream, callback_run, callback);
    if (result != CUDA_SUCCESS)
        free(callback);
    return result;
}

static CUresult capture_info(struct sim *sim, CUstream stream, CUstreamCaptureStatus *status_out,
                             cuuint64_t *id_out, CUgraph *graph_out, size_t *n_dependencies_out)
{
    if (graph_out || n_dependencies_out)
        return CUDA_ERROR_NOT_SUPPORTED;
    return sim_stream_get_capture_info(sim, stream, status_out, id_out);
}

static CUresult graph_nodes(struct sim *sim, CUgraph graph, const CUgraphNode *nodes, size_t *n)
{
    if (nodes)
        return CUDA_ERROR_NOT_SUPPORTED;
    return n ? sim_graph_count(sim, graph, n, NULL) : CUDA_ERROR_INVALID_VALUE;
}

CALL(cuStreamCreate, (CUstream * stream, unsigned flags), sim_stream_create(sim, flags, 0, stream))
CALL(cuStreamCreateWithPriority, (CUstream * stream, unsigned flags, int priority),
     sim_stream_create(sim, flags, priority, stream))
CALL(cuStreamDestroy, (CUstream stream), sim_stream_destroy(sim, stream))
CALL(cuStreamDestroy_v2, (CUstream stream), sim_stream_destroy(sim, stream))
STREAM_CALL(cuStreamQuery, (CUstream stream), sim_stream_query(sim, stream))
STREAM_CALL(cuStreamSynchronize, (CUstream stream), sim_stream_synchronize(sim, stream))
STREAM_CALL(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags),
            sim_stream_wait_event(sim, stream, event, flags))
STREAM_CALL(cuStreamGetCtx, (CUstream stream, CUcontext *context),
            sim_stream_get_ctx(sim, stream, context, NULL))
STREAM_CALL(cuStreamGetCtx_v2, (CUstream stream, CUcontext *context, CUgreenCtx *green),
            sim_stream_get_ctx(sim, stream, context, green))
STREAM_CALL(cuStreamGetId, (CUstream stream, unsigned long long *id),
            sim_stream_get_id(sim, stream, id))
STREAM_CALL(cuStreamGetFlags, (CUstream stream, unsigned *flags),
            sim_stream_get_flags(sim, stream, flags))
STREAM_CALL(cuStreamGetPriority, (CUstream stream, int *priority),
            sim_stream_get_priority(sim, stream, priority))
STREAM_CALL(cuStreamGetDevice, (CUstream stream, CUdevice *device),
            sim_stream_get_device(sim, stream, device))
STREAM_CALL(cuStreamAddCallback,
            (CUstream stream, CUstreamCallback callback, void *data, unsigned flags),
            flags ? CUDA_ERROR_INVALID_VALUE : add_callback(sim, stream, callback, data))
STREAM_CALL(cuLaunchHostFunc, (CUstream stream, CUhostFn function, void *data),
            sim_launch_host_func(sim, stream, function, data))

CALL(cuEventCreate, (CUevent * event, unsigned flags), sim_event_create(sim, flags, event))
CALL(cuEventDestroy, (CUevent event), sim_event_destroy(sim, event))
CALL(cuEventDestroy_v2, (CUevent event), sim_event_destroy(sim, event))
STREAM_CALL(cuEventRecord, (CUevent event, CUstream stream), sim_event_record(sim, event, stream))
STREAM_CALL(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned flags),
            flags ? CUDA_ERROR_INVALID_VALUE : sim_event_record(sim, event, stream))
CALL(cuEventQuery, (CUevent event), sim_event_query(sim, event))
CALL(cuEventSynchronize, (CUevent event), sim_event_synchronize(sim, event))
CALL(cuEventElapsedTime, (float *ms, CUevent start, CUevent end),
     sim_event_elapsed_time(sim, start, end, ms))
CALL(cuEventElapsedTime_v2, (float *ms, CUevent start, CUevent end),
     sim_event_elapsed_time(sim, start, end, ms))

#define VALUE_CALLS(suffix)                                                                        \
    STREAM_CALL(cuStreamWaitValue32##suffix,                                                       \
                (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags),          \
                sim_stream_wait_value(sim, stream, address, value, 4, flags))                      \
    STREAM_CALL(cuStreamWaitValue64##suffix,                                                       \
                (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags),          \
                sim_stream_wait_value(sim, stream, address, value, 8, flags))                      \
    STREAM_CALL(cuStreamWriteValue32##suffix,                                                      \
                (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags),          \
                sim_stream_write_value(sim, stream, address, value, 4, flags))                     \
    STREAM_CALL(cuStreamWriteValue64##suffix,                                                      \
                (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags),          \
                sim_stream_write_value(sim, stream, address, value, 8, flags))
VALUE_CALLS()
VALUE_CALLS(_v2)

STREAM_CALL(cuStreamBeginCapture, (CUstream stream),
            sim_stream_begin_capture(sim, stream, CU_STREAM_CAPTURE_MODE_GLOBAL))
STREAM_CALL(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode),
            sim_stream_begin_capture(sim, stream, mode))
STREAM_CALL(cuStreamEndCapture, (CUstream stream, CUgraph *graph),
            sim_stream_end_capture(sim, stream, graph))
STREAM_CALL(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus *status),
            sim_stream_is_capturing(sim, stream, status))
STREAM_CALL(cuStreamGetCaptureInfo,
            (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id),
            capture_info(sim, stream, status, id, NULL, NULL))
STREAM_CALL(cuStreamGetCaptureInfo_v2,
            (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
             const CUgraphNode **nodes, size_t *n),
            capture_info(sim, stream, status, id, graph, nodes ? n : NULL))
#if CUDA_VERSION >= 12030
STREAM_CALL(cuStreamGetCaptureInfo_v3,
            (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
             const CUgraphNode **nodes, const CUgraphEdgeData **edges, size_t *n),
            capture_info(sim, stream, status, id, graph, nodes || edges ? n : NULL))
#endif
CALL(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode),
     sim_thread_exchange_stream_capture_mode(sim, mode))

CALL(cuGraphDestroy, (CUgraph graph), sim_graph_destroy(sim, graph))
CALL(cuGraphGetNodes, (CUgraph graph, CUgraphNode *nodes, size_t *n),
     graph_nodes(sim, graph, nodes, n))
CALL(cuGraphInstantiate,
     (CUgraphExec * exec, CUgraph graph, CUgraphNode *error_node, char *log, size_t log_bytes),
     error_node &&log &&log_bytes ? CUDA_ERROR_NOT_SUPPORTED
                                  : sim_graph_instantiate(sim, graph, 0, exec))
CALL(cuGraphInstantiate_v2,
     (CUgraphExec * exec, CUgraph graph, CUgraphNode *error_node, char *log, size_t log_bytes),
     error_node &&log &&log_bytes ? CUDA_ERROR_NOT_SUPPORTED
                                  : sim_graph_instantiate(sim, graph, 0, exec))
CALL(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags),
     sim_graph_instantiate(sim, graph, flags, exec))
CALL(cuGraphExecDestroy, (CUgraphExec exec), sim_graph_exec_destroy(sim, exec))
STREAM_CALL(cuGraphLaunch, (CUgraphExec exec, CUstream stream), sim_graph_launch(sim, exec, stream))
