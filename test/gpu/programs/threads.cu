/* SPDX-License-Identifier: MIT */
/* Eight threads allocate, fill, check and free at once, each on a stream of its own and on its
 * default stream; and blocks change hands between threads. */
#include "common.cuh"

#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr int N_THREADS = 8, ROUNDS = 150;

struct Parcel {
    void *p;
    size_t bytes;
    uint64_t seed;
};

std::mutex shelf_lock;
std::vector<Parcel> shelf;

/* Every content is checked by the thread that frees it, so the sum does not depend on who that is.
 */
void work(int me, Tally *tally)
{
    MUST(cudaSetDevice(0));
    cudaStream_t own = stream_make(cudaStreamNonBlocking);
    Random random(me);
    for (int i = 0; i < ROUNDS; i++) {
        cudaStream_t stream = random.below(4) == 0 ? cudaStreamPerThread : own;
        Parcel parcel = {nullptr, 2 * MIB + random.below(96 * MIB),
                         static_cast<uint64_t>(me) << 32 | static_cast<uint64_t>(i)};
        MUST(random.below(3) == 0 ? cudaMalloc(&parcel.p, parcel.bytes)
                                  : cudaMallocAsync(&parcel.p, parcel.bytes, stream));
        fill(parcel.p, parcel.bytes, parcel.seed, stream);
        MUST(cudaStreamSynchronize(stream));
        {
            std::lock_guard<std::mutex> hold(shelf_lock);
            shelf.push_back(parcel);
            std::swap(shelf[random.below(shelf.size())], shelf.back());
            parcel = shelf.back();
            shelf.pop_back();
        }
        check(parcel.p, parcel.bytes, parcel.seed, tally, stream);
        if (random.below(3) == 0) {
            MUST(cudaStreamSynchronize(stream));
            MUST(cudaFree(parcel.p));
        } else {
            MUST(cudaFreeAsync(parcel.p, stream));
        }
    }
    MUST(cudaStreamSynchronize(own));
    MUST(cudaStreamSynchronize(cudaStreamPerThread));
    MUST(cudaStreamDestroy(own));
}

} /* namespace */

int main()
{
    begin();
    Tally *tally = tally_make();
    std::vector<std::thread> threads;
    for (int i = 0; i < N_THREADS; i++) {
        threads.emplace_back(work, i, tally);
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    printf("left over: %zu\n", shelf.size());
    return tally_end("eight threads", tally) ? 0 : 1;
}
