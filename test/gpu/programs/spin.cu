/* SPDX-License-Identifier: MIT */
/* A kernel of 200 ms keeps writing to blocks that are freed behind it; a request larger than what
 * the device has left then takes their memory for another stream, whose content the old writer must
 * not touch. Blocks that were not freed keep theirs. */
#include "common.cuh"

#include <vector>

namespace {

constexpr uint64_t WRITER_NS = 200 * 1000 * 1000;

/* Until its time is over, writes into every 4 KiB of every block. */
__global__ void writer_kernel(uint64_t *const *blocks, size_t n, size_t words_each, uint64_t ns)
{
    uint64_t start = device_ns();
    size_t me = size_t{blockIdx.x} * blockDim.x + threadIdx.x,
           step = size_t{gridDim.x} * blockDim.x;
    for (uint64_t round = 0; device_ns() - start < ns; round++) {
        for (size_t i = me; i < n * words_each / 512; i += step) {
            size_t word = i * 512;
            blocks[word / words_each][word % words_each + round % 512] = 0xdeadu;
        }
    }
}

struct Way {
    const char *name;
    bool allocate_async, free_async, request_async;
};

struct Blocks {
    size_t bytes_each;
    std::vector<void *> kept, freed;
};

/* Most of the device in blocks of one size, every other of which will be freed. */
Blocks take_most(const Way &way, cudaStream_t stream)
{
    size_t total_bytes = device_bytes();
    Blocks blocks = {total_bytes / 70 / (2 * MIB) * (2 * MIB), {}, {}};
    for (size_t i = 0; i < total_bytes / 100 * 85 / blocks.bytes_each; i++) {
        void *p;
        MUST(way.allocate_async ? cudaMallocAsync(&p, blocks.bytes_each, stream)
                                : cudaMalloc(&p, blocks.bytes_each));
        (i % 2 == 0 ? blocks.kept : blocks.freed).push_back(p);
    }
    for (size_t i = 0; i < blocks.kept.size(); i++) {
        fill(blocks.kept[i], blocks.bytes_each, i, stream);
    }
    return blocks;
}

/* A program that is told that there is no memory may wait for the device and ask once more. */
void *request(const Way &way, size_t bytes, cudaStream_t stream)
{
    void *p = nullptr;
    cudaError_t status =
        way.request_async ? cudaMallocAsync(&p, bytes, stream) : cudaMalloc(&p, bytes);
    printf("# %s: first answer %s\n", way.name, cudaGetErrorName(status));
    if (status == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        MUST(cudaDeviceSynchronize());
        status = way.request_async ? cudaMallocAsync(&p, bytes, stream) : cudaMalloc(&p, bytes);
    }
    MUST(status);
    return p;
}

bool try_way(const Way &way)
{
    cudaStream_t old_stream = stream_make(cudaStreamNonBlocking);
    cudaStream_t new_stream = stream_make(cudaStreamNonBlocking);
    Tally *tally = tally_make();
    Blocks blocks = take_most(way, old_stream);

    size_t table_bytes = blocks.freed.size() * sizeof(void *);
    uint64_t **table;
    MUST(cudaMalloc(&table, table_bytes));
    MUST(cudaMemcpy(table, blocks.freed.data(), table_bytes, cudaMemcpyHostToDevice));
    writer_kernel<<<128, THREADS, 0, old_stream>>>(table, blocks.freed.size(),
                                                   blocks.bytes_each / 8, WRITER_NS);
    MUST(cudaGetLastError());
    double start_us = now_us();
    for (void *p : blocks.freed) {
        MUST(way.free_async ? cudaFreeAsync(p, old_stream) : cudaFree(p));
    }
    double freed_us = now_us();

    size_t bytes = device_bytes() / 100 * 28;
    void *p = request(way, bytes, new_stream);
    printf("# %s: frees %.0f us, request %.0f us\n", way.name, freed_us - start_us,
           now_us() - freed_us);
    fill(p, bytes, 77, new_stream);
    check(p, bytes, 77, tally, new_stream);
    MUST(cudaDeviceSynchronize());
    check(p, bytes, 77, tally, new_stream);
    for (size_t i = 0; i < blocks.kept.size(); i++) {
        check(blocks.kept[i], blocks.bytes_each, i, tally, old_stream);
    }
    MUST(cudaDeviceSynchronize());

    blocks.kept.push_back(p);
    for (void *kept : blocks.kept) {
        MUST(cudaFree(kept));
    }
    MUST(cudaFree(table));
    MUST(cudaDeviceSynchronize());
    MUST(cudaStreamDestroy(old_stream));
    MUST(cudaStreamDestroy(new_stream));
    return tally_end(way.name, tally);
}

} /* namespace */

int main()
{
    const Way ways[] = {
        {"cudaMallocAsync, cudaFreeAsync, then cudaMallocAsync", true, true, true},
        {"cudaMallocAsync, cudaFreeAsync, then cudaMalloc", true, true, false},
        {"cudaMalloc, cudaFree, then cudaMalloc", false, false, false},
        {"cudaMalloc, cudaFree, then cudaMallocAsync", false, false, true},
        {"cudaMalloc, cudaFreeAsync, then cudaMallocAsync", false, true, true},
    };
    begin();
    bool good = true;
    for (const Way &way : ways) {
        good = try_way(way) && good;
    }
    return good ? 0 : 1;
}
