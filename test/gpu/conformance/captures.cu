/* SPDX-License-Identifier: MIT */
/* One memory call at a time while a stream captures, in every mode, made by the capturing thread
 * and by another one: what it answers, whether the capture lives, and what graph comes out. */
#include "conformance.cuh"

#include <thread>

namespace {

constexpr size_t BYTES = 4 * MIB;

struct Scene {
    cudaStream_t captured, other;
    cudaMemPool_t pool;
    void *plain, *ordered, *managed, *got = nullptr;
    cudaEvent_t event;
};

struct Call {
    const char *name;
    cudaError_t (*make)(Scene &);
};

size_t scratch[2];

const Call CALLS[] = {
    {"nothing", [](Scene &) { return cudaSuccess; }},
    {"cudaMalloc", [](Scene &s) { return cudaMalloc(&s.got, BYTES); }},
    {"cudaMalloc, small", [](Scene &s) { return cudaMalloc(&s.got, 100); }},
    {"cudaMalloc of 0 bytes", [](Scene &s) { return cudaMalloc(&s.got, 0); }},
    {"cudaMallocPitch", [](Scene &s) { return cudaMallocPitch(&s.got, &scratch[0], 4096, 2048); }},
    {"cudaMallocManaged", [](Scene &s) { return cudaMallocManaged(&s.got, BYTES); }},
    {"cudaMallocHost", [](Scene &s) { return cudaMallocHost(&s.got, BYTES); }},
    {"cudaMallocAsync, captured",
     [](Scene &s) { return cudaMallocAsync(&s.got, BYTES, s.captured); }},
    {"cudaMallocAsync, small, captured",
     [](Scene &s) { return cudaMallocAsync(&s.got, 100, s.captured); }},
    {"cudaMallocAsync, other", [](Scene &s) { return cudaMallocAsync(&s.got, BYTES, s.other); }},
    {"cudaMallocAsync, small, other",
     [](Scene &s) { return cudaMallocAsync(&s.got, 100, s.other); }},
    {"cudaMallocAsync, legacy", [](Scene &s) { return cudaMallocAsync(&s.got, BYTES, nullptr); }},
    {"cudaMallocAsync, stream of the thread",
     [](Scene &s) { return cudaMallocAsync(&s.got, BYTES, cudaStreamPerThread); }},
    {"cudaMallocAsync, huge, captured",
     [](Scene &s) { return cudaMallocAsync(&s.got, size_t{1} << 50, s.captured); }},
    {"cudaMallocAsync, huge, other",
     [](Scene &s) { return cudaMallocAsync(&s.got, size_t{1} << 50, s.other); }},
    {"cudaMallocFromPoolAsync, captured",
     [](Scene &s) { return cudaMallocFromPoolAsync(&s.got, BYTES, s.pool, s.captured); }},
    {"cudaMallocFromPoolAsync, other",
     [](Scene &s) { return cudaMallocFromPoolAsync(&s.got, BYTES, s.pool, s.other); }},
    {"cudaFree of cudaMalloc memory", [](Scene &s) { return cudaFree(s.plain); }},
    {"cudaFree of cudaMallocAsync memory", [](Scene &s) { return cudaFree(s.ordered); }},
    {"cudaFree of managed memory", [](Scene &s) { return cudaFree(s.managed); }},
    {"cudaFree(0)", [](Scene &) { return cudaFree(nullptr); }},
    {"cudaFree of an interior address", [](Scene &s) { return cudaFree(at(s.plain, 64)); }},
    {"cudaFreeAsync of cudaMalloc memory, captured",
     [](Scene &s) { return cudaFreeAsync(s.plain, s.captured); }},
    {"cudaFreeAsync of cudaMalloc memory, other",
     [](Scene &s) { return cudaFreeAsync(s.plain, s.other); }},
    {"cudaFreeAsync of cudaMallocAsync memory, captured",
     [](Scene &s) { return cudaFreeAsync(s.ordered, s.captured); }},
    {"cudaFreeAsync of cudaMallocAsync memory, other",
     [](Scene &s) { return cudaFreeAsync(s.ordered, s.other); }},
    {"cudaFreeAsync of cudaMallocAsync memory, legacy",
     [](Scene &s) { return cudaFreeAsync(s.ordered, nullptr); }},
    {"cudaFreeAsync of an interior address, captured",
     [](Scene &s) { return cudaFreeAsync(at(s.ordered, 64), s.captured); }},
    {"cudaMemsetAsync, captured",
     [](Scene &s) { return cudaMemsetAsync(s.plain, 1, BYTES, s.captured); }},
    {"cudaMemsetAsync, other",
     [](Scene &s) { return cudaMemsetAsync(s.plain, 1, BYTES, s.other); }},
    {"cudaMemset", [](Scene &s) { return cudaMemset(s.plain, 1, BYTES); }},
    {"cudaMemcpyAsync, captured",
     [](Scene &s) {
         return cudaMemcpyAsync(s.plain, s.ordered, BYTES, cudaMemcpyDefault, s.captured);
     }},
    {"cudaMemGetInfo", [](Scene &) { return cudaMemGetInfo(&scratch[0], &scratch[1]); }},
    {"cudaPointerGetAttributes",
     [](Scene &s) {
         cudaPointerAttributes a;
         return cudaPointerGetAttributes(&a, s.plain);
     }},
    {"cudaMemPoolTrimTo", [](Scene &s) { return cudaMemPoolTrimTo(s.pool, 0); }},
    {"cudaMemPoolTrimTo, default pool",
     [](Scene &) {
         cudaMemPool_t standard;
         MUST(cudaDeviceGetDefaultMemPool(&standard, 0));
         return cudaMemPoolTrimTo(standard, 0);
     }},
    {"cudaMemPoolGetAttribute",
     [](Scene &) {
         cudaMemPool_t standard;
         MUST(cudaDeviceGetDefaultMemPool(&standard, 0));
         return cudaMemPoolGetAttribute(standard, cudaMemPoolAttrUsedMemCurrent, &scratch[0]);
     }},
    {"cudaStreamSynchronize, other", [](Scene &s) { return cudaStreamSynchronize(s.other); }},
    {"cudaStreamQuery, captured", [](Scene &s) { return cudaStreamQuery(s.captured); }},
    {"cudaDeviceSynchronize", [](Scene &) { return cudaDeviceSynchronize(); }},
    {"cudaEventQuery", [](Scene &s) { return cudaEventQuery(s.event); }},
    {"cudaEventRecord, other", [](Scene &s) { return cudaEventRecord(s.event, s.other); }},
    {"cudaStreamCreate",
     [](Scene &) {
         cudaStream_t fresh;
         cudaError_t status = cudaStreamCreateWithFlags(&fresh, cudaStreamNonBlocking);
         return status == cudaSuccess ? cudaStreamDestroy(fresh) : status;
     }},
    {"cudaMalloc, relaxed thread",
     [](Scene &s) {
         cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
         MUST(cudaThreadExchangeStreamCaptureMode(&mode));
         cudaError_t status = cudaMalloc(&s.got, BYTES);
         MUST(cudaThreadExchangeStreamCaptureMode(&mode));
         return status;
     }},
    {"cudaFree, relaxed thread",
     [](Scene &s) {
         cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
         MUST(cudaThreadExchangeStreamCaptureMode(&mode));
         cudaError_t status = cudaFree(s.plain);
         MUST(cudaThreadExchangeStreamCaptureMode(&mode));
         return status;
     }},
};

const struct {
    const char *name;
    cudaStreamCaptureMode mode;
} MODES[] = {
    {"global", cudaStreamCaptureModeGlobal},
    {"thread-local", cudaStreamCaptureModeThreadLocal},
    {"relaxed", cudaStreamCaptureModeRelaxed},
};

const char *status_name(cudaStreamCaptureStatus status)
{
    return status == cudaStreamCaptureStatusActive        ? "active"
           : status == cudaStreamCaptureStatusInvalidated ? "invalidated"
                                                          : "none";
}

void nodes_of(cudaGraph_t graph)
{
    cudaGraphNode_t nodes[16];
    size_t n = 16;
    MUST(cudaGraphGetNodes(graph, nodes, &n));
    printf(", nodes");
    for (size_t i = 0; i < n; i++) {
        cudaGraphNodeType type;
        MUST(cudaGraphNodeGetType(nodes[i], &type));
        printf(" %d", static_cast<int>(type));
    }
    MUST(cudaGraphDestroy(graph));
}

void scene_make(Scene &s, unsigned flags)
{
    s.captured = stream_make(flags);
    s.other = stream_make(cudaStreamNonBlocking);
    s.pool = pool_make();
    MUST(cudaMalloc(&s.plain, BYTES));
    MUST(cudaMallocAsync(&s.ordered, BYTES, s.other));
    MUST(cudaMallocManaged(&s.managed, BYTES));
    MUST(cudaEventCreateWithFlags(&s.event, cudaEventDisableTiming));
    MUST(cudaEventRecord(s.event, s.other));
    MUST(cudaDeviceSynchronize());
}

/* Some are gone already; a graph's own memory never was. */
void scene_end(Scene &s)
{
    MUST(cudaDeviceSynchronize());
    (void)cudaFree(s.plain);
    (void)cudaFree(s.ordered);
    (void)cudaFree(s.managed);
    if (s.got != nullptr && cudaFree(s.got) != cudaSuccess) {
        (void)cudaFreeHost(s.got);
    }
    (void)cudaGetLastError();
    MUST(cudaEventDestroy(s.event));
    MUST(cudaMemPoolDestroy(s.pool));
    MUST(cudaStreamDestroy(s.captured));
    MUST(cudaStreamDestroy(s.other));
}

void attempt(const Call &call, cudaStreamCaptureMode mode, unsigned flags, bool elsewhere)
{
    Scene s;
    cudaGraph_t graph = nullptr;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaError_t answer = cudaSuccess, last = cudaSuccess;
    scene_make(s, flags);
    MUST(cudaStreamBeginCapture(s.captured, mode));
    auto body = [&] {
        answer = call.make(s);
        last = cudaGetLastError();
    };
    if (elsewhere) {
        std::thread(body).join();
    } else {
        body();
    }
    cudaError_t asked = cudaStreamIsCapturing(s.captured, &status);
    cudaError_t ended = cudaStreamEndCapture(s.captured, &graph);
    cudaError_t left = cudaGetLastError();
    printf("%s: %s, last %s; then %s, %s; end %s, left %s", call.name, code(answer), code(last),
           code(asked), status_name(status), code(ended), code(left));
    if (graph != nullptr) {
        nodes_of(graph);
    }
    printf("\n");
    scene_end(s);
}

} /* namespace */

int main()
{
    begin();
    for (bool elsewhere : {false, true}) {
        for (unsigned flags : {cudaStreamNonBlocking, cudaStreamDefault}) {
            for (const auto &mode : MODES) {
                printf("\n[%s, %s stream, %s thread]\n", mode.name,
                       flags == cudaStreamDefault ? "blocking" : "non-blocking",
                       elsewhere ? "another" : "the same");
                for (const Call &call : CALLS) {
                    attempt(call, mode.mode, flags, elsewhere);
                }
            }
        }
    }
    return 0;
}
