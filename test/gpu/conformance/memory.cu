/* SPDX-License-Identifier: MIT */
/* Every kind of memory in every size: what its allocation answers, what is said of its addresses,
 * where it ends, what its bytes are, and what its free answers, the second time too. */
#include "conformance.cuh"

namespace {

cudaStream_t stream;
cudaMemPool_t own_pool;

struct Kind {
    const char *name;
    cudaError_t (*make)(void **, size_t);
    cudaError_t (*unmake)(void *);
    bool has_pitch;
};

cudaError_t standard_pool_make(void **p, size_t bytes)
{
    cudaMemPool_t pool;
    MUST(cudaDeviceGetDefaultMemPool(&pool, 0));
    return cudaMallocFromPoolAsync(p, bytes, pool, stream);
}

cudaError_t pitch_make(void **p, size_t bytes)
{
    size_t pitch = 0, rows = 4, width = (bytes + rows - 1) / rows;
    cudaError_t status = cudaMallocPitch(p, &pitch, width, rows);
    printf("pitch %zu\n", pitch);
    return status;
}

cudaError_t volume_make(void **p, size_t bytes)
{
    cudaPitchedPtr whole = {};
    cudaError_t status = cudaMalloc3D(&whole, make_cudaExtent((bytes + 5) / 6, 2, 3));
    printf("pitch %zu, size %zu by %zu\n", whole.pitch, whole.xsize, whole.ysize);
    *p = whole.ptr;
    return status;
}

const Kind KINDS[] = {
    {"cudaMalloc", [](void **p, size_t n) { return cudaMalloc(p, n); }, cudaFree, false},
    {"cudaMallocAsync", [](void **p, size_t n) { return cudaMallocAsync(p, n, stream); },
     [](void *p) { return cudaFreeAsync(p, stream); }, false},
    {"cudaMallocAsync, legacy stream",
     [](void **p, size_t n) { return cudaMallocAsync(p, n, cudaStreamLegacy); },
     [](void *p) { return cudaFreeAsync(p, cudaStreamLegacy); }, false},
    {"cudaMallocAsync, stream of the thread",
     [](void **p, size_t n) { return cudaMallocAsync(p, n, cudaStreamPerThread); },
     [](void *p) { return cudaFreeAsync(p, cudaStreamPerThread); }, false},
    {"cudaMallocFromPoolAsync, default pool", standard_pool_make,
     [](void *p) { return cudaFreeAsync(p, stream); }, false},
    {"cudaMallocFromPoolAsync, own pool",
     [](void **p, size_t n) { return cudaMallocFromPoolAsync(p, n, own_pool, stream); },
     [](void *p) { return cudaFreeAsync(p, stream); }, false},
    {"cudaMallocPitch", pitch_make, cudaFree, true},
    {"cudaMalloc3D", volume_make, cudaFree, true},
    {"cudaMallocManaged", [](void **p, size_t n) { return cudaMallocManaged(p, n); }, cudaFree,
     false},
    {"cudaMallocHost", [](void **p, size_t n) { return cudaMallocHost(p, n); }, cudaFreeHost,
     false},
    {"cudaHostAlloc", [](void **p, size_t n) { return cudaHostAlloc(p, n, cudaHostAllocMapped); },
     cudaFreeHost, false},
};

/* Copies and memsets up to the last byte, and past it. */
void ends(void *p, size_t bytes)
{
    char word[8] = {};
    CALL(cudaMemset(p, 7, bytes));
    ASK(holds(p, bytes, 7));
    CALL(cudaMemset(at(p, bytes - 1), 9, 1));
    CALL(cudaMemset(p, 1, bytes + 1));
    CALL(cudaMemset(at(p, bytes - 1), 1, 2));
    CALL(cudaMemsetAsync(p, 1, bytes + 1, stream));
    CALL(cudaStreamSynchronize(stream));
    CALL(cudaMemcpy(at(p, bytes - 7), word, 8, cudaMemcpyHostToDevice));
    CALL(cudaMemcpy(word, at(p, bytes - 7), 8, cudaMemcpyDeviceToHost));
    CALL(cudaMemcpy(word, at(p, bytes - 8), 8, cudaMemcpyDeviceToHost));
}

/* Where the driver puts other allocations tells what a byte past the end of those is. */
bool is_host(const Kind &kind)
{
    return kind.unmake == cudaFreeHost || strcmp(kind.name, "cudaMallocManaged") == 0;
}

void block(const Kind &kind, size_t bytes)
{
    void *p = nullptr;
    section(kind.name, bytes);
    CALL(kind.make(&p, bytes));
    ASK(p != nullptr);
    CALL(cudaDeviceSynchronize());
    observe(p, p);
    section("from inside");
    observe(p, at(p, bytes / 2));
    runtime_attributes(p, at(p, bytes - 1));
    if (!kind.has_pitch && !is_host(kind)) {
        ends(p, bytes);
    }
    CALL(kind.unmake(at(p, bytes / 2)));
    CALL(kind.unmake(p));
    CALL(cudaDeviceSynchronize());
    CALL(kind.unmake(p));
    if (!is_host(kind) && bytes >= 2 * MIB) {
        section("after its free");
        observe_range(&driver_observer(), reinterpret_cast<CUdeviceptr>(p),
                      reinterpret_cast<CUdeviceptr>(p));
    }
}

} /* namespace */

int main()
{
    begin();
    stream = stream_make(cudaStreamNonBlocking);
    own_pool = pool_make();
    for (const Kind &kind : KINDS) {
        for (size_t bytes : SIZES) {
            block(kind, bytes);
        }
    }
    CALL(cudaMemPoolDestroy(own_pool));
    CALL(cudaStreamDestroy(stream));
    return 0;
}
