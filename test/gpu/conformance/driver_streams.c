/* SPDX-License-Identifier: MIT */
/* Streams and events around memory: blocks of each size taken on one stream, used on others and
 * freed on a third, in every order that events give; streams destroyed with frees pending. */
#include "driver.h"

#define N_STREAMS 5

static CUstream streams[N_STREAMS];
static const char *const stream_names[N_STREAMS] = {
    "non-blocking", "blocking", "with priority", "legacy", "of the thread",
};

static void make_streams(void)
{
    int least, greatest;
    ANSWER(cuCtxGetStreamPriorityRange(&least, &greatest));
    ANSWER(cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
    ANSWER(cuStreamCreate(&streams[1], CU_STREAM_DEFAULT));
    ANSWER(cuStreamCreateWithPriority(&streams[2], CU_STREAM_NON_BLOCKING, greatest));
    streams[3] = CU_STREAM_LEGACY;
    streams[4] = CU_STREAM_PER_THREAD;
}

static void order(CUstream before, CUstream after)
{
    CUevent event;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventRecord(event, before));
    MUST(cuStreamWaitEvent(after, event, 0));
    MUST(cuEventDestroy(event));
}

/* Taken on `of`, copied on `by`, freed on `last`. */
static void chain(int of, int by, int last, size_t bytes)
{
    CUdeviceptr p = 0, q = 0;
    printf("taken on %s, used on %s, freed on %s\n", stream_names[of], stream_names[by],
           stream_names[last]);
    ANSWER(cuMemAlloc(&q, bytes));
    ANSWER(cuMemAllocAsync(&p, bytes, streams[of]));
    ANSWER(cuMemsetD8Async(p, 0x5a, bytes, streams[of]));
    order(streams[of], streams[by]);
    ANSWER(cuMemcpyDtoDAsync(q, p, bytes, streams[by]));
    order(streams[by], streams[last]);
    ANSWER(cuMemFreeAsync(p, streams[last]));
    ANSWER(cuMemFreeAsync(p, streams[of]));
    ANSWER(cuStreamSynchronize(streams[last]));
    ANSWER(cuStreamQuery(streams[by]));
    truth_ask("the copy arrived", truth_holds(q, bytes, 0x5a));
    ANSWER(cuMemFreeAsync(q, streams[by]));
    ANSWER(cuCtxSynchronize());
    ANSWER(cuMemFree(q));
}

/* Work, a free and the end of its stream, all before the work is done. */
static void destroyed(struct gate *gate, size_t bytes)
{
    CUstream stream;
    CUdeviceptr p = 0, q = 0;
    CUevent event;
    part("a stream destroyed with a free pending", bytes);
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ANSWER(cuMemAllocAsync(&p, bytes, stream));
    ANSWER(cuMemAlloc(&q, bytes));
    gate_close(gate, stream);
    ANSWER(cuMemsetD8Async(p, 1, bytes, stream));
    ANSWER(cuMemcpyDtoDAsync(q, p, bytes, stream));
    ANSWER(cuMemFreeAsync(p, stream));
    ANSWER(cuEventRecord(event, stream));
    ANSWER(cuStreamQuery(stream));
    ANSWER(cuEventQuery(event));
    ANSWER(cuStreamDestroy(stream));
    ANSWER(cuMemFreeAsync(p, streams[0]));
    ANSWER(cuEventQuery(event));
    gate_open(gate);
    ANSWER(cuEventSynchronize(event));
    ANSWER(cuCtxSynchronize());
    truth_ask("the copy arrived", truth_holds(q, bytes, 1));
    ANSWER(cuMemFree(q));
    ANSWER(cuEventDestroy(event));
}

/* Frees do not complete work, and allocations on another stream do not wait for it. */
static void pending(struct gate *gate, int held, size_t bytes)
{
    CUdeviceptr p = 0, q = 0, r = 0;
    printf("\n[held is %s, %zu bytes]\n", stream_names[held], bytes);
    ANSWER(cuMemAllocAsync(&p, bytes, streams[held]));
    gate_close(gate, streams[held]);
    ANSWER(cuMemsetD8Async(p, 3, bytes, streams[held]));
    ANSWER(cuMemFreeAsync(p, streams[held]));
    ANSWER(cuStreamQuery(streams[held]));
    ANSWER(cuMemAllocAsync(&q, bytes, streams[held]));
    ANSWER(cuMemAllocAsync(&r, bytes, streams[0]));
    ANSWER(cuStreamQuery(streams[held]));
    ANSWER(cuMemsetD8Async(q, 4, bytes, streams[held]));
    ANSWER(cuMemsetD8Async(r, 5, bytes, streams[0]));
    order(streams[0], streams[held]);
    ANSWER(cuMemFreeAsync(r, streams[held]));
    ANSWER(cuStreamQuery(streams[held]));
    gate_open(gate);
    ANSWER(cuCtxSynchronize());
    truth_ask("it holds what was set last", truth_holds(q, bytes, 4));
    ANSWER(cuMemFreeAsync(q, streams[held]));
    ANSWER(cuStreamSynchronize(streams[held]));
}

static void events(void)
{
    CUevent timed, other, refused;
    float ms = -1;
    PART("events");
    ANSWER(cuEventCreate(&timed, CU_EVENT_DEFAULT));
    ANSWER(cuEventCreate(&other, CU_EVENT_DISABLE_TIMING));
    ANSWER(cuEventQuery(timed));
    ANSWER(cuEventSynchronize(timed));
    ANSWER(cuEventElapsedTime(&ms, timed, timed));
    ANSWER(cuEventRecord(timed, streams[0]));
    ANSWER(cuEventRecord(other, streams[1]));
    ANSWER(cuEventSynchronize(timed));
    ANSWER(cuEventElapsedTime(&ms, timed, timed));
    ANSWER(cuEventElapsedTime(&ms, timed, other));
    ANSWER(cuStreamWaitEvent(streams[3], timed, 0));
    ANSWER(cuStreamWaitEvent(streams[0], timed, 7));
    ANSWER(cuEventCreate(&refused, 0x100));
    ANSWER(cuEventDestroy(timed));
    ANSWER(cuEventDestroy(other));
}

int main(void)
{
    struct gate gate;
    truth_start();
    gate_init(&gate);
    make_streams();
    for (size_t i = 0; i < COUNT(sizes); i++) {
        part("chains", sizes[i]);
        for (int of = 0; of < N_STREAMS; of++)
            for (int by = 0; by < N_STREAMS; by++)
                if (of == by || sizes[i] <= 8 * MIB)
                    chain(of, by, (of + by) % N_STREAMS, sizes[i]);
        destroyed(&gate, sizes[i]);
        for (int held = 1; held < N_STREAMS; held++)
            pending(&gate, held, sizes[i]);
    }
    events();
    for (int i = 0; i < 3; i++)
        ANSWER(cuStreamDestroy(streams[i]));
    return 0;
}
