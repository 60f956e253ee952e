/* SPDX-License-Identifier: MIT */
/* An ordinary runtime program: every way to allocate and free device memory, in every pairing,
 * small and large, with its bytes checked; and memory of other kinds beside it. */
#include "common.cuh"

#include <cstring>
#include <vector>

namespace {

const size_t SIZES[] = {1,         100,           4096,         MIB - 1,  2 * MIB - 1,
                        2 * MIB,   2 * MIB + 1,   5 * MIB + 13, 20 * MIB, 33 * MIB + 7,
                        128 * MIB, 512 * MIB + 1, GIB};

bool pairings(cudaStream_t stream)
{
    Tally *tally = tally_make();
    uint64_t seed = 1;
    for (int way = 0; way < 4; way++) {
        for (size_t bytes : SIZES) {
            void *p;
            MUST((way & 1) != 0 ? cudaMallocAsync(&p, bytes, stream) : cudaMalloc(&p, bytes));
            fill(p, bytes, seed, stream);
            check(p, bytes, seed++, tally, stream);
            MUST(cudaStreamSynchronize(stream));
            MUST((way & 2) != 0 ? cudaFreeAsync(p, stream) : cudaFree(p));
        }
    }
    return tally_end("every pairing", tally);
}

bool pitched()
{
    const size_t width = 3001, height = 2048;
    std::vector<unsigned char> image(width * height), back(width * height);
    for (size_t i = 0; i < image.size(); i++) {
        image[i] = static_cast<unsigned char>(mix(i));
    }
    void *p;
    size_t pitch;
    MUST(cudaMallocPitch(&p, &pitch, width, height));
    MUST(cudaMemcpy2D(p, pitch, image.data(), width, width, height, cudaMemcpyHostToDevice));
    MUST(cudaMemcpy2D(back.data(), width, p, pitch, width, height, cudaMemcpyDeviceToHost));
    MUST(cudaFree(p));
    cudaPitchedPtr cube;
    MUST(cudaMalloc3D(&cube, make_cudaExtent(width, 128, 16)));
    MUST(cudaMemset3D(cube, 7, make_cudaExtent(width, 128, 16)));
    unsigned char seven[4] = {0};
    MUST(cudaMemcpy(seven, static_cast<char *>(cube.ptr) + 128 * 15 * cube.pitch, 4,
                    cudaMemcpyDeviceToHost));
    MUST(cudaFree(cube.ptr));
    bool same = memcmp(image.data(), back.data(), image.size()) == 0 && seven[3] == 7;
    printf("pitch %zu, cube pitch %zu, content %s\n", pitch, cube.pitch, same ? "same" : "differs");
    return same;
}

bool other_kinds()
{
    Tally *tally = tally_make();
    void *mapped, *host, *device;
    cudaArray_t array;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    MUST(cudaHostAlloc(&mapped, 16 * MIB, cudaHostAllocMapped));
    MUST(cudaMallocHost(&host, 16 * MIB));
    MUST(cudaMallocArray(&array, &format, 2048, 2048));
    MUST(cudaMalloc(&device, 16 * MIB));
    fill(mapped, 16 * MIB, 5, nullptr);
    MUST(cudaMemcpy(host, mapped, 16 * MIB, cudaMemcpyDefault));
    MUST(cudaMemcpy2DToArray(array, 0, 0, host, 8192, 8192, 2048, cudaMemcpyHostToDevice));
    MUST(cudaMemcpy2DFromArray(device, 8192, array, 0, 0, 8192, 2048, cudaMemcpyDeviceToDevice));
    check(device, 16 * MIB, 5, tally, nullptr);
    bool good = tally_end("through mapped, host, array and device memory", tally);
    MUST(cudaFreeHost(mapped));
    MUST(cudaFreeHost(host));
    MUST(cudaFreeArray(array));
    MUST(cudaFree(device));
    return good;
}

/* Copies that begin and end anywhere in blocks of several pages. */
bool copies()
{
    const size_t bytes = 64 * MIB;
    std::vector<unsigned char> image(bytes), back(bytes);
    for (size_t i = 0; i < bytes; i++) {
        image[i] = static_cast<unsigned char>(i * 2654435761u >> 13);
    }
    char *p, *q;
    MUST(cudaMalloc(&p, bytes));
    MUST(cudaMallocAsync(&q, bytes, nullptr));
    MUST(cudaMemcpy(p, image.data(), bytes, cudaMemcpyHostToDevice));
    MUST(cudaMemsetAsync(q, 0x11, bytes, nullptr));
    Random random(3);
    for (int i = 0; i < 200; i++) {
        size_t from = random.below(bytes), to = from + random.below(bytes - from + 1);
        MUST(cudaMemcpyAsync(q + from, p + from, to - from, cudaMemcpyDeviceToDevice, nullptr));
    }
    MUST(cudaMemcpyAsync(q, p, bytes / 2 + 1, cudaMemcpyDefault, nullptr));
    MUST(cudaMemcpyAsync(q + bytes / 2, p + bytes / 2, bytes / 2, cudaMemcpyDefault, nullptr));
    MUST(cudaMemcpy(back.data(), q, bytes, cudaMemcpyDeviceToHost));
    MUST(cudaFree(p));
    MUST(cudaFreeAsync(q, nullptr));
    bool same = memcmp(image.data(), back.data(), bytes) == 0;
    printf("copies: %s\n", same ? "same" : "differ");
    return same;
}

/* Events order the use of memory over two streams; the legacy stream follows the blocking one by
 * itself. */
bool events()
{
    cudaStream_t a = stream_make(cudaStreamNonBlocking), b = stream_make(cudaStreamDefault);
    Tally *tally = tally_make();
    for (int i = 0; i < 50; i++) {
        void *p;
        size_t bytes = (i % 7 + 1) * 24 * MIB;
        MUST(cudaMallocAsync(&p, bytes, a));
        fill(p, bytes, i, a);
        order_streams(a, b);
        check(p, bytes, i, tally, b);
        MUST(cudaFreeAsync(p, i % 3 == 0 ? cudaStreamLegacy : b));
    }
    MUST(cudaStreamDestroy(a));
    MUST(cudaStreamDestroy(b));
    return tally_end("events", tally);
}

} /* namespace */

int main()
{
    begin();
    void *nothing = &nothing;
    SHOW(cudaMalloc(&nothing, 0));
    printf("no bytes: %s\n", nothing == nullptr ? "null" : "an address");
    SHOW(cudaFree(nullptr));
    cudaStream_t stream = stream_make(cudaStreamDefault);
    bool good = pairings(nullptr);
    good = pairings(stream) && good;
    good = pairings(cudaStreamPerThread) && good;
    good = pitched() && good;
    good = other_kinds() && good;
    good = copies() && good;
    good = events() && good;
    MUST(cudaStreamDestroy(stream));
    return good ? 0 : 1;
}
