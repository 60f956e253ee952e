/* SPDX-License-Identifier: MIT */
/* Events: when they are complete, what they cover, what becomes of them when their stream or
 * context ends. */
#include "truth.h"

typedef CUresult(CUDAAPI *context_event_function)(CUcontext, CUevent);

static struct gate gate, second_gate;
static CUdeviceptr block;

static CUevent event_new(void)
{
    CUevent event;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    return event;
}

static CUstream stream_new(void)
{
    CUstream stream;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static void simple(void)
{
    CUevent event = event_new();
    CUstream s = stream_new(), t = stream_new();
    float ms;
    PART("record, query, synchronize");
    ANSWER(cuEventQuery(event));
    ANSWER(cuEventSynchronize(event));
    ANSWER(cuStreamWaitEvent(s, event, 0));
    ANSWER(cuStreamSynchronize(s));
    gate_close(&gate, s);
    ANSWER(cuEventRecord(event, s));
    ANSWER(cuEventQuery(event));
    ANSWER(cuStreamQuery(s));
    ANSWER(cuStreamQuery(t));
    ANSWER(cuStreamWaitEvent(t, event, 0));
    MUST(cuMemsetD8Async(block, 7, 64, t));
    ANSWER(cuStreamQuery(t));
    gate_open(&gate);
    ANSWER(cuEventSynchronize(event));
    ANSWER(cuEventQuery(event));
    ANSWER(cuStreamSynchronize(t));
    ANSWER(cuEventElapsedTime(&ms, event, event));
    ANSWER(cuEventDestroy(event));
    ANSWER(cuStreamDestroy(s));
    ANSWER(cuStreamDestroy(t));
}

/* A wait means the record made before it, not a later one. */
static void recorded_twice(void)
{
    CUevent event = event_new();
    CUstream s = stream_new(), t = stream_new();
    PART("recorded twice");
    gate_close(&gate, s);
    MUST(cuEventRecord(event, s));
    MUST(cuStreamWaitEvent(t, event, 0));
    gate_close(&second_gate, s);
    MUST(cuEventRecord(event, s));
    ANSWER(cuEventQuery(event));
    ANSWER(cuStreamQuery(t));
    gate_open(&gate);
    ANSWER(cuStreamSynchronize(t));
    ANSWER(cuEventQuery(event));
    gate_open(&second_gate);
    ANSWER(cuEventSynchronize(event));
    ANSWER(cuEventQuery(event));
    MUST(cuEventDestroy(event));
    MUST(cuStreamDestroy(s));
    MUST(cuStreamDestroy(t));
}

static void stream_destroyed(void)
{
    CUevent event = event_new(), whole = event_new(), pending = event_new();
    CUstream s = stream_new(), t = stream_new();
    PART("stream and event destroyed while work is pending");
    gate_close(&gate, s);
    MUST(cuEventRecord(event, s));
    MUST(cuEventRecord(pending, s));
    MUST(cuStreamWaitEvent(t, pending, 0));
    ANSWER(cuEventDestroy(pending));
    ANSWER(cuStreamQuery(t));
    ANSWER(cuStreamDestroy(s));
    ANSWER(cuEventQuery(event));
    ANSWER(cuEventRecord(whole, t));
    ANSWER(cuEventQuery(whole));
    gate_open(&gate);
    ANSWER(cuEventSynchronize(event));
    ANSWER(cuEventSynchronize(whole));
    MUST(cuCtxSynchronize());
    MUST(cuEventDestroy(event));
    MUST(cuEventDestroy(whole));
    MUST(cuStreamDestroy(t));
}

/* An event of a context covers all its streams, and nothing queued later. */
static void of_context(CUcontext context, CUcontext other)
{
    context_event_function record = NULL, wait = NULL;
    CUdriverProcAddressQueryResult status;
    CUevent event = event_new(), foreign, later = event_new();
    CUstream s = stream_new(), t = stream_new(), gone = stream_new();
    PART("an event of a context");
    ANSWER(cuGetProcAddress("cuCtxRecordEvent", (void **)&record, 12050, 0, &status));
    ANSWER(cuGetProcAddress("cuCtxWaitEvent", (void **)&wait, 12050, 0, &status));
    ANSWER(record(context, event));
    ANSWER(cuEventSynchronize(event));
    gate_close(&gate, s);
    ANSWER(record(context, event));
    ANSWER(cuEventQuery(event));
    gate_close(&second_gate, t);
    gate_open(&gate);
    ANSWER(cuEventSynchronize(event));
    ANSWER(cuStreamQuery(t));
    gate_open(&second_gate);
    MUST(cuCtxSynchronize());
    gate_close(&gate, gone);
    ANSWER(cuStreamDestroy(gone));
    ANSWER(record(context, event));
    ANSWER(cuEventQuery(event));
    gate_open(&gate);
    ANSWER(cuEventSynchronize(event));
    gate_close(&gate, CU_STREAM_PER_THREAD);
    ANSWER(record(context, event));
    ANSWER(cuEventQuery(event));
    MUST(cuStreamWaitEvent(s, event, 0));
    MUST(cuEventRecord(later, s));
    ANSWER(cuEventQuery(later));
    gate_open(&gate);
    ANSWER(cuEventSynchronize(later));
    gate_close(&gate, s);
    MUST(cuEventRecord(later, s));
    ANSWER(wait(context, later));
    MUST(cuMemsetD8Async(block, 7, 64, t));
    ANSWER(cuStreamQuery(t));
    gate_open(&gate);
    ANSWER(cuStreamSynchronize(t));
    MUST(cuCtxSetCurrent(other));
    MUST(cuEventCreate(&foreign, CU_EVENT_DISABLE_TIMING));
    MUST(cuCtxSetCurrent(context));
    ANSWER(record(context, foreign));
    ANSWER(record(other, foreign));
    ANSWER(record(NULL, event));
    gate_close(&gate, s);
    ANSWER(record(other, foreign));
    ANSWER(cuEventSynchronize(foreign));
    ANSWER(cuStreamQuery(s));
    ANSWER(cuEventRecord(foreign, s));
    ANSWER(cuStreamWaitEvent(s, foreign, 0));
    gate_open(&gate);
    MUST(cuCtxSynchronize());
    ANSWER(cuCtxDestroy(other));
    ANSWER(cuEventQuery(foreign));
    ANSWER(cuEventSynchronize(foreign));
}

int main(void)
{
    CUcontext context, other;
    truth_start();
    MUST(cuCtxGetCurrent(&context));
    MUST(cuCtxCreate_v2(&other, 0, 0));
    MUST(cuCtxSetCurrent(context));
    gate_init(&gate);
    gate_init(&second_gate);
    MUST(cuMemAlloc(&block, 4096));
    MUST(cuMemsetD8(block, 0, 4096));
    simple();
    recorded_twice();
    stream_destroyed();
    of_context(context, other);
    MUST(cuMemFree(block));
    return 0;
}
