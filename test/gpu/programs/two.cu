/* SPDX-License-Identifier: MIT */
/* Two devices: copies in both directions with either of them current, and kernels of one that read
 * and write the memory of the other after peer access was enabled. With cudaMalloc, or with
 * cudaMallocAsync (argument "async"), whose memory peer access does not cover. */
#include "common.cuh"

#include <cstring>
#include <vector>

namespace {

constexpr size_t BYTES = 96 * MIB;

bool same_as(const void *device_memory, const std::vector<uint64_t> &expected)
{
    std::vector<uint64_t> back(expected.size());
    MUST(cudaMemcpy(back.data(), device_memory, BYTES, cudaMemcpyDefault));
    return back == expected;
}

struct Copy {
    const char *name;
    cudaError_t (*copy)(void *to, int to_device, const void *from, int from_device);
};

const Copy COPIES[] = {
    {"cudaMemcpy, default", [](void *to, int, const void *from,
                               int) { return cudaMemcpy(to, from, BYTES, cudaMemcpyDefault); }},
    {"cudaMemcpy, device to device",
     [](void *to, int, const void *from, int) {
         return cudaMemcpy(to, from, BYTES, cudaMemcpyDeviceToDevice);
     }},
    {"cudaMemcpyAsync",
     [](void *to, int, const void *from, int) {
         return cudaMemcpyAsync(to, from, BYTES, cudaMemcpyDefault, nullptr);
     }},
    {"cudaMemcpyPeer",
     [](void *to, int to_device, const void *from, int from_device) {
         return cudaMemcpyPeer(to, to_device, from, from_device, BYTES);
     }},
};

bool copies(void *blocks[2], const std::vector<uint64_t> &expected)
{
    bool good = true;
    for (int current = 0; current < 2; current++) {
        for (int from = 0; from < 2; from++) {
            for (const Copy &way : COPIES) {
                MUST(cudaSetDevice(current));
                MUST(cudaMemcpy(blocks[from], expected.data(), BYTES, cudaMemcpyDefault));
                cudaError_t status = way.copy(blocks[1 - from], 1 - from, blocks[from], from);
                (void)cudaGetLastError();
                MUST(cudaDeviceSynchronize());
                bool same = status == cudaSuccess && same_as(blocks[1 - from], expected);
                printf("device %d current, %d to %d, %s: %s, %s\n", current, from, 1 - from,
                       way.name, cudaGetErrorName(status), same ? "same" : "differs");
                good = good && same;
                MUST(cudaSetDevice(1 - from));
                MUST(cudaMemset(blocks[1 - from], 0, BYTES));
                MUST(cudaDeviceSynchronize());
            }
        }
    }
    return good;
}

/* A kernel of `reader` reads and then writes the other device's block. */
bool kernels(void *blocks[2], int reader)
{
    int owner = 1 - reader;
    MUST(cudaSetDevice(owner));
    fill(blocks[owner], BYTES, 50 + owner, nullptr);
    MUST(cudaDeviceSynchronize());
    MUST(cudaSetDevice(reader));
    Tally *tally = tally_make();
    check(blocks[owner], BYTES, 50 + owner, tally, nullptr);
    fill(blocks[owner], BYTES, 60 + owner, nullptr);
    check(blocks[owner], BYTES, 60 + owner, tally, nullptr);
    return tally_end(
        reader == 0 ? "device 0 in the memory of device 1" : "device 1 in the memory of 0", tally);
}

bool with_blocks(bool use_async, const std::vector<uint64_t> &expected, bool use_kernels)
{
    void *blocks[2];
    for (int device = 0; device < 2; device++) {
        MUST(cudaSetDevice(device));
        MUST(use_async ? cudaMallocAsync(&blocks[device], BYTES, nullptr)
                       : cudaMalloc(&blocks[device], BYTES));
        MUST(cudaDeviceSynchronize());
    }
    bool good = copies(blocks, expected);
    if (use_kernels) {
        good = kernels(blocks, 0) && good;
        good = kernels(blocks, 1) && good;
    }
    for (int device = 0; device < 2; device++) {
        MUST(cudaSetDevice(device));
        MUST(cudaDeviceSynchronize());
        MUST(cudaFree(blocks[device]));
    }
    return good;
}

/* Bare CUDA lets neither a copy nor a kernel of the other device near stream-ordered memory before
 * its pool says so. */
void open_pools()
{
    for (int device = 0; device < 2; device++) {
        cudaMemPool_t pool;
        cudaMemAccessDesc access = {};
        access.location.type = cudaMemLocationTypeDevice;
        access.location.id = 1 - device;
        access.flags = cudaMemAccessFlagsProtReadWrite;
        MUST(cudaDeviceGetDefaultMemPool(&pool, device));
        MUST(cudaMemPoolSetAccess(pool, &access, 1));
    }
}

bool enable_peers()
{
    int can[2];
    for (int device = 0; device < 2; device++) {
        MUST(cudaDeviceCanAccessPeer(&can[device], device, 1 - device));
        if (can[device] != 0) {
            MUST(cudaSetDevice(device));
            MUST(cudaDeviceEnablePeerAccess(1 - device, 0));
        }
    }
    printf("peer access: %d %d\n", can[0], can[1]);
    return can[0] != 0 && can[1] != 0;
}

} /* namespace */

int main(int argc, char **argv)
{
    begin();
    bool use_async = argc > 1 && strcmp(argv[1], "async") == 0;
    std::vector<uint64_t> expected(BYTES / 8);
    for (size_t i = 0; i < expected.size(); i++) {
        expected[i] = mix(i);
    }
    if (use_async) {
        open_pools();
    }
    bool good = with_blocks(use_async, expected, false);
    bool has_peers = enable_peers();
    good = with_blocks(use_async, expected, has_peers) && good;
    return good ? 0 : 1;
}
