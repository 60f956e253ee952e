/* SPDX-License-Identifier: MIT */
/* Memory pools: the default one named, one of the program's own named, one of the program's own
 * made current, and its attributes. Content is checked each time. */
#include "common.cuh"

namespace {

bool use(const char *what, void *p, size_t bytes, cudaStream_t stream)
{
    Tally *tally = tally_make();
    fill(p, bytes, bytes, stream);
    check(p, bytes, bytes, tally, stream);
    MUST(cudaFreeAsync(p, stream));
    return tally_end(what, tally);
}

} /* namespace */

int main()
{
    begin();
    cudaStream_t stream = stream_make(cudaStreamNonBlocking);
    cudaMemPool_t default_pool, own_pool, current;
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    MUST(cudaDeviceGetDefaultMemPool(&default_pool, 0));
    MUST(cudaMemPoolCreate(&own_pool, &props));

    bool good = true;
    void *p;
    for (int i = 1; i <= 8; i++) {
        MUST(cudaMallocFromPoolAsync(&p, i * 12 * MIB, default_pool, stream));
        good = use("default pool, named", p, i * 12 * MIB, stream) && good;
        MUST(cudaMallocFromPoolAsync(&p, i * 12 * MIB, own_pool, stream));
        good = use("own pool, named", p, i * 12 * MIB, stream) && good;
    }
    uint64_t most = UINT64_MAX, used_bytes = 0;
    MUST(cudaMemPoolSetAttribute(own_pool, cudaMemPoolAttrReleaseThreshold, &most));
    MUST(cudaMallocFromPoolAsync(&p, 64 * MIB, own_pool, stream));
    MUST(cudaMemPoolGetAttribute(own_pool, cudaMemPoolAttrUsedMemCurrent, &used_bytes));
    printf("own pool uses %llu\n", static_cast<unsigned long long>(used_bytes));
    MUST(cudaFreeAsync(p, stream));
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaMemPoolTrimTo(own_pool, 0));

    MUST(cudaDeviceSetMemPool(0, own_pool));
    MUST(cudaDeviceGetMemPool(&current, 0));
    MUST(cudaMallocAsync(&p, 48 * MIB, stream));
    MUST(cudaMemPoolGetAttribute(own_pool, cudaMemPoolAttrUsedMemCurrent, &used_bytes));
    printf("own pool is current: %d, uses %llu\n", current == own_pool,
           static_cast<unsigned long long>(used_bytes));
    good = use("own pool, current", p, 48 * MIB, stream) && good;
    MUST(cudaDeviceSetMemPool(0, default_pool));
    MUST(cudaMallocAsync(&p, 48 * MIB, stream));
    good = use("default pool again", p, 48 * MIB, stream) && good;

    MUST(cudaMemPoolSetAttribute(default_pool, cudaMemPoolAttrReleaseThreshold, &most));
    MUST(cudaMallocAsync(&p, 48 * MIB, stream));
    good = use("default pool, threshold set", p, 48 * MIB, stream) && good;
    MUST(cudaMemPoolTrimTo(default_pool, 0));
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaMemPoolDestroy(own_pool));
    MUST(cudaStreamDestroy(stream));
    return good ? 0 : 1;
}
