/* SPDX-License-Identifier: MIT */
/* What each call waits for: whether a kernel that was queued before it is done when it returns, and
 * in which order the streams go on. Kernels end by a word that the host writes, so that no time
 * decides: a call that must wait is made by a second thread, and the word comes after it began. */
#include "conformance.cuh"

#include <atomic>
#include <thread>

namespace {

constexpr size_t BYTES = 16 * MIB;

/* Holds a stream until `*gate` is no longer 0. */
__global__ void hold_kernel(volatile int *gate)
{
    while (*gate == 0) {
    }
}

volatile int *gate;
cudaStream_t busy, idle, blocking;
cudaMemPool_t own_pool;

struct Call {
    const char *name;
    cudaError_t (*make)(void *, void *);
};

void *fresh;
size_t scratch[2];

/* Each is given a block of cudaMalloc and one of cudaMallocAsync. */
const Call CALLS[] = {
    {"cudaMalloc", [](void *, void *) { return cudaMalloc(&fresh, BYTES); }},
    {"cudaMalloc, small", [](void *, void *) { return cudaMalloc(&fresh, 100); }},
    {"cudaMallocAsync on the busy stream",
     [](void *, void *) { return cudaMallocAsync(&fresh, BYTES, busy); }},
    {"cudaMallocAsync on the idle stream",
     [](void *, void *) { return cudaMallocAsync(&fresh, BYTES, idle); }},
    {"cudaMallocFromPoolAsync",
     [](void *, void *) { return cudaMallocFromPoolAsync(&fresh, BYTES, own_pool, idle); }},
    {"cudaFreeAsync of cudaMalloc memory on the busy stream",
     [](void *p, void *) { return cudaFreeAsync(p, busy); }},
    {"cudaFreeAsync of cudaMalloc memory on the idle stream",
     [](void *p, void *) { return cudaFreeAsync(p, idle); }},
    {"cudaFreeAsync on the busy stream", [](void *, void *q) { return cudaFreeAsync(q, busy); }},
    {"cudaFreeAsync on the idle stream", [](void *, void *q) { return cudaFreeAsync(q, idle); }},
    {"cudaFree of cudaMalloc memory", [](void *p, void *) { return cudaFree(p); }},
    {"cudaFree of cudaMallocAsync memory", [](void *, void *q) { return cudaFree(q); }},
    {"cudaMemGetInfo", [](void *, void *) { return cudaMemGetInfo(&scratch[0], &scratch[1]); }},
    {"cudaPointerGetAttributes",
     [](void *p, void *) {
         cudaPointerAttributes a;
         return cudaPointerGetAttributes(&a, p);
     }},
    {"cudaMemPoolTrimTo", [](void *, void *) { return cudaMemPoolTrimTo(own_pool, 0); }},
    {"cudaMemset on the legacy stream", [](void *p, void *) { return cudaMemset(p, 0, BYTES); }},
    {"cudaStreamSynchronize of the idle stream",
     [](void *, void *) { return cudaStreamSynchronize(idle); }},
};

/* True when the call returned although the busy stream was still held: the answer can only be had
 * by patience for a call that waits, so it gets half a second. */
bool returns_at_once(const Call &call, void *p, void *q, cudaError_t *answer)
{
    std::atomic<bool> done{false};
    std::thread caller([&] {
        *answer = call.make(p, q);
        done = true;
    });
    double end = now_us() + 500e3;
    while (!done && now_us() < end) {
        std::this_thread::yield();
    }
    bool at_once = done;
    *gate = 1;
    caller.join();
    return at_once;
}

void attempt(const Call &call, bool on_blocking)
{
    void *p, *q;
    cudaError_t answer = cudaSuccess;
    fresh = nullptr;
    MUST(cudaMalloc(&p, BYTES));
    MUST(cudaMallocAsync(&q, BYTES, idle));
    MUST(cudaDeviceSynchronize());
    *gate = 0;
    hold_kernel<<<1, 1, 0, busy>>>(gate);
    if (on_blocking) {
        hold_kernel<<<1, 1, 0, blocking>>>(gate);
    }
    MUST(cudaGetLastError());
    bool at_once = returns_at_once(call, p, q, &answer);
    cudaError_t stream_is = at_once ? cudaSuccess : cudaStreamQuery(busy);
    printf("%s: %s, %s\n", call.name, code(answer),
           at_once                          ? "returns at once"
           : stream_is == cudaErrorNotReady ? "returns late"
                                            : "waits for the kernel");
    MUST(cudaDeviceSynchronize());
    (void)cudaFree(fresh);
    (void)cudaFree(p);
    (void)cudaFree(q);
    (void)cudaGetLastError();
    MUST(cudaDeviceSynchronize());
}

} /* namespace */

int main()
{
    begin();
    void *word;
    MUST(cudaHostAlloc(&word, sizeof(int), cudaHostAllocMapped));
    gate = static_cast<volatile int *>(word);
    busy = stream_make(cudaStreamNonBlocking);
    idle = stream_make(cudaStreamNonBlocking);
    blocking = stream_make(cudaStreamDefault);
    own_pool = pool_make();
    for (bool on_blocking : {false, true}) {
        section(on_blocking ? "two kernels, one of them on a blocking stream" : "one kernel");
        for (const Call &call : CALLS) {
            attempt(call, on_blocking);
        }
    }
    return 0;
}
