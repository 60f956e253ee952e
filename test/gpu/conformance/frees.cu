/* SPDX-License-Identifier: MIT */
/* Every way to free beside every way to allocate, twice; then addresses that are nobody's to free,
 * and arguments that no allocation takes. */
#include "conformance.cuh"

namespace {

cudaStream_t stream, other;
cudaMemPool_t own_pool;

struct Allocation {
    const char *name;
    cudaError_t (*make)(void **, size_t);
};

const Allocation ALLOCATIONS[] = {
    {"cudaMalloc", [](void **p, size_t n) { return cudaMalloc(p, n); }},
    {"cudaMallocAsync", [](void **p, size_t n) { return cudaMallocAsync(p, n, stream); }},
    {"cudaMallocAsync, legacy stream",
     [](void **p, size_t n) { return cudaMallocAsync(p, n, nullptr); }},
    {"cudaMallocFromPoolAsync",
     [](void **p, size_t n) { return cudaMallocFromPoolAsync(p, n, own_pool, stream); }},
    {"cudaMallocManaged", [](void **p, size_t n) { return cudaMallocManaged(p, n); }},
    {"cudaMallocHost", [](void **p, size_t n) { return cudaMallocHost(p, n); }},
};

struct Free {
    const char *name;
    cudaError_t (*call)(void *);
};

const Free FREES[] = {
    {"cudaFree", cudaFree},
    {"cudaFreeAsync", [](void *p) { return cudaFreeAsync(p, stream); }},
    {"cudaFreeAsync on another stream", [](void *p) { return cudaFreeAsync(p, other); }},
    {"cudaFreeAsync on the legacy stream", [](void *p) { return cudaFreeAsync(p, nullptr); }},
    {"cudaFreeAsync on the stream of the thread",
     [](void *p) { return cudaFreeAsync(p, cudaStreamPerThread); }},
    {"cudaFreeHost", cudaFreeHost},
};

/* What neither frees by the free in question is freed by its own. */
void last_resort(void *p)
{
    if (cudaFree(p) != cudaSuccess) {
        (void)cudaFreeHost(p);
    }
    (void)cudaGetLastError();
    MUST(cudaDeviceSynchronize());
}

void pair(const Allocation &allocation, const Free &free, size_t bytes)
{
    void *p = nullptr;
    printf("%s, %s\n", allocation.name, free.name);
    if (CALL(allocation.make(&p, bytes)) != cudaSuccess) {
        return;
    }
    MUST(cudaDeviceSynchronize());
    cudaError_t first = CALL(free.call(p));
    CALL(cudaDeviceSynchronize());
    CALL(free.call(p));
    CALL(cudaFree(p));
    if (first != cudaSuccess) {
        last_resort(p);
    }
}

void foreign(const Free &free)
{
    int local = 0;
    static int global;
    void *heap = malloc(4096), *p, *q;
    section(free.name);
    CALL(free.call(nullptr));
    CALL(free.call(&local));
    CALL(free.call(&global));
    CALL(free.call(heap));
    CALL(free.call(reinterpret_cast<void *>(1)));
    CALL(free.call(reinterpret_cast<void *>(0x10000)));
    CALL(free.call(reinterpret_cast<void *>(UINT64_MAX)));
    MUST(cudaMalloc(&p, 16 * MIB));
    MUST(cudaMallocAsync(&q, 16 * MIB, stream));
    MUST(cudaStreamSynchronize(stream));
    CALL(free.call(at(p, 1)));
    CALL(free.call(at(p, 2 * MIB)));
    CALL(free.call(at(p, 16 * MIB - 1)));
    CALL(free.call(at(q, 1)));
    CALL(free.call(at(q, 2 * MIB)));
    CALL(cudaMemset(p, 3, 16 * MIB));
    ASK(holds(p, 16 * MIB, 3));
    CALL(cudaFree(p));
    CALL(cudaFree(q));
    ::free(heap);
}

void allocation_arguments()
{
    void *p = nullptr;
    size_t pitch = 0;
    cudaPitchedPtr volume = {};
    section("arguments");
    for (size_t bytes : {size_t{0}, size_t{1} << 50, SIZE_MAX, SIZE_MAX - 2 * MIB}) {
        printf("%zu bytes\n", bytes);
        for (const Allocation &allocation : ALLOCATIONS) {
            printf("%s\n", allocation.name);
            p = &p;
            CALL(allocation.make(&p, bytes));
            ASK(p == nullptr);
            ASK(p == &p);
            if (p != nullptr && p != &p) {
                last_resort(p);
            }
        }
    }
    CALL(cudaMalloc(static_cast<void **>(nullptr), 4 * MIB));
    CALL(cudaMalloc(static_cast<void **>(nullptr), 0));
    CALL(cudaMallocAsync(static_cast<void **>(nullptr), 4 * MIB, stream));
    CALL(cudaMallocFromPoolAsync(static_cast<void **>(nullptr), 4 * MIB, own_pool, stream));
    CALL(cudaMallocManaged(&p, 4 * MIB, 77));
    CALL(cudaMallocPitch(&p, &pitch, 0, 4));
    CALL(cudaMallocPitch(&p, &pitch, 4, 0));
    CALL(cudaMallocPitch(&p, &pitch, size_t{1} << 40, 1 << 10));
    CALL(cudaMalloc3D(&volume, make_cudaExtent(0, 2, 2)));
    CALL(cudaMalloc3D(&volume, make_cudaExtent(size_t{1} << 40, 1 << 10, 2)));
}

void arrays()
{
    cudaArray_t array = nullptr;
    cudaMipmappedArray_t mipmapped = nullptr;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    section("arrays");
    CALL(cudaMallocArray(&array, &format, 2048, 2048));
    CALL(cudaFree(array));
    CALL(cudaFreeArray(array));
    CALL(cudaMallocArray(&array, &format, 0, 0));
    CALL(cudaMalloc3DArray(&array, &format, make_cudaExtent(128, 128, 64)));
    CALL(cudaFreeArray(array));
    CALL(cudaMallocMipmappedArray(&mipmapped, &format, make_cudaExtent(2048, 2048, 0), 3));
    CALL(cudaFreeMipmappedArray(mipmapped));
    CALL(cudaFreeArray(nullptr));
}

} /* namespace */

int main()
{
    begin();
    stream = stream_make(cudaStreamNonBlocking);
    other = stream_make(cudaStreamDefault);
    own_pool = pool_make();
    for (size_t bytes : SIZES) {
        section("pairs", bytes);
        for (const Allocation &allocation : ALLOCATIONS) {
            for (const Free &free : FREES) {
                pair(allocation, free, bytes);
            }
        }
    }
    for (const Free &free : FREES) {
        foreign(free);
    }
    allocation_arguments();
    arrays();
    CALL(cudaMemPoolDestroy(own_pool));
    return 0;
}
