/* SPDX-License-Identifier: MIT */
/* The pitch of rows of many widths, in blocks of many heights, small and large: through the
 * runtime, and through the driver with each element size. Every row of some blocks is written and
 * read back. */
#include "common.cuh"

#include <cuda.h>

#include <vector>

namespace {

typedef CUresult (*AllocPitch)(CUdeviceptr *, size_t *, size_t, size_t, unsigned);

const size_t WIDTHS[] = {
    1,      4,       31,      32,      33,      64,      100,    128,   255,   256,    257,
    511,    512,     513,     1000,    1024,    1025,    1040,   1536,  2047,  2048,   2049,
    3000,   4095,    4096,    4097,    5000,    7680,    8191,   8192,  8193,  9999,   16384,
    16385,  32768,   32769,   65535,   65536,   65537,   65552,  66064, 99999, 131072, 131073,
    262145, 1000000, 1048576, 1048577, 2097152, 2097153, 4194305};
const size_t HEIGHTS[] = {1, 2, 3, 17, 64, 1000, 4096};
constexpr size_t MOST = 2 * GIB;

void by_runtime()
{
    for (size_t width : WIDTHS) {
        for (size_t height : HEIGHTS) {
            void *p;
            size_t pitch;
            if (width * height > MOST) {
                continue;
            }
            MUST(cudaMallocPitch(&p, &pitch, width, height));
            printf("%zu x %zu: pitch %zu\n", width, height, pitch);
            MUST(cudaFree(p));
        }
    }
}

void by_runtime_in_three_dimensions()
{
    for (size_t width : WIDTHS) {
        cudaPitchedPtr cube;
        if (width * 64 * 16 > MOST) {
            continue;
        }
        MUST(cudaMalloc3D(&cube, make_cudaExtent(width, 64, 16)));
        printf("%zu x 64 x 16: pitch %zu, x %zu, y %zu\n", width, cube.pitch, cube.xsize,
               cube.ysize);
        MUST(cudaFree(cube.ptr));
    }
}

bool by_driver()
{
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result;
    MUST(cudaGetDriverEntryPointByVersion("cuMemAllocPitch", &found, 3020, cudaEnableDefault,
                                          &result));
    auto alloc_pitch = reinterpret_cast<AllocPitch>(found);
    for (unsigned element : {4u, 8u, 16u}) {
        for (size_t width : WIDTHS) {
            for (size_t height : {size_t{1}, size_t{64}, size_t{4096}}) {
                CUdeviceptr p = 0;
                size_t pitch = 0;
                if (width * height > MOST) {
                    continue;
                }
                if (alloc_pitch(&p, &pitch, width, height, element) != CUDA_SUCCESS) {
                    printf("element %u, %zu x %zu: refused\n", element, width, height);
                    return false;
                }
                printf("element %u, %zu x %zu: pitch %zu\n", element, width, height, pitch);
                MUST(cudaFree(reinterpret_cast<void *>(p)));
            }
        }
    }
    return true;
}

bool rows_are_apart()
{
    constexpr size_t WIDTH = 1000, HEIGHT = 20000;
    std::vector<unsigned char> image(WIDTH * HEIGHT), back(image.size());
    void *p;
    size_t pitch;
    for (size_t i = 0; i < image.size(); i++) {
        image[i] = static_cast<unsigned char>(mix(i));
    }
    MUST(cudaMallocPitch(&p, &pitch, WIDTH, HEIGHT));
    MUST(cudaMemset2D(p, pitch, 0xff, pitch, HEIGHT));
    MUST(cudaMemcpy2D(p, pitch, image.data(), WIDTH, WIDTH, HEIGHT, cudaMemcpyHostToDevice));
    MUST(cudaMemcpy2D(back.data(), WIDTH, p, pitch, WIDTH, HEIGHT, cudaMemcpyDeviceToHost));
    MUST(cudaFree(p));
    printf("content %s\n", image == back ? "same" : "differs");
    return image == back;
}

} // namespace

int main()
{
    begin();
    by_runtime();
    by_runtime_in_three_dimensions();
    bool good = by_driver();
    good = rows_are_apart() && good;
    return good ? 0 : 1;
}
