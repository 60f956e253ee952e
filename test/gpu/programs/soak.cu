/* SPDX-License-Identifier: MIT */
/* Mixed ordinary work in one long-lived process, in rounds. In a round threads that end with it
 * allocate and free in both ways, small and large, hand blocks over, create and destroy streams,
 * capture and launch graphs, make and destroy contexts, trim CUDA's pools and ask for the free
 * memory. After each everything is freed and the device idle: the program waits at "idle", then
 * takes and returns nearly all free memory as one handle, for which a pool must give back what it
 * keeps, and waits at "trimmed". Argument: the seconds after which no new round begins (60). */
#include "blocks.cuh"

#include <cuda.h>

#include <atomic>
#include <mutex>
#include <string>
#include <thread>

namespace {

constexpr size_t SMALL_LEAST = 2 * MIB, SMALL_MOST = 64 * MIB, LARGE = 768 * MIB;
constexpr size_t BUDGET = 6 * GIB, GRAPH_BYTES = 40 * MIB;
constexpr int STEPS = 60, GRAPHS = 6, LAUNCHES = 4;

std::atomic<bool> all_good{true};

void note(bool is_good, const char *what)
{
    if (!is_good) {
        printf("%s: NOT GOOD\n", what);
        all_good = false;
    }
}

/* ---- blocks that change hands ---- */

std::mutex shelf_lock;
std::vector<Block> shelf;

void exchange(Keeper &keeper)
{
    Block mine;
    bool has_mine = keeper.give(mine);
    std::lock_guard<std::mutex> hold(shelf_lock);
    if (!shelf.empty()) {
        keeper.take(shelf.back());
        shelf.pop_back();
    }
    if (has_mine) {
        shelf.push_back(mine);
    }
}

void empty_shelf(uint64_t number)
{
    Keeper keeper(number, BUDGET, {cudaStreamLegacy});
    for (const Block &block : shelf) {
        keeper.take(block);
    }
    shelf.clear();
    if (keeper.allocated() != 0) {
        note(keeper.finish("shelf", 0), "blocks left on the shelf");
    } else {
        keeper.drop();
    }
}

/* ---- what threads do ---- */

/* On streams made for it, and on the thread's own or the legacy one. */
void churn(uint64_t number, cudaStream_t also)
{
    MUST(cudaSetDevice(0));
    cudaStream_t streams[] = {stream_make(cudaStreamNonBlocking),
                              stream_make(cudaStreamNonBlocking), also};
    Keeper keeper(number, BUDGET, {streams, streams + 3});
    keeper.fill_up(SMALL_LEAST, SMALL_MOST);
    keeper.renew_every(2);
    keeper.release_every(2);
    for (int i = 0; i < STEPS; i++) {
        keeper.step(SMALL_LEAST, SMALL_MOST, LARGE);
        if (i % 10 == 9) {
            exchange(keeper);
        }
    }
    keeper.verify_all();
    note(keeper.finish("churn", static_cast<int>(number % 16)), "churn");
    MUST(cudaStreamDestroy(streams[0]));
    MUST(cudaStreamDestroy(streams[1]));
}

/* The thread ends, and destroys its stream, with work and frees still queued there. (On its own
 * per-thread stream CUDA itself would not survive that: driver 580 never ends a thread that leaves
 * queued work there in a process that has used cudaMallocAsync.) */
void end_early(uint64_t number)
{
    MUST(cudaSetDevice(0));
    cudaStream_t left = stream_make(cudaStreamNonBlocking);
    for (int i = 0; i < 4; i++) {
        cudaStream_t stream = i < 2 ? left : cudaStreamPerThread;
        void *p;
        MUST(i % 2 == 0 ? cudaMalloc(&p, 96 * MIB) : cudaMallocAsync(&p, 96 * MIB, stream));
        spin(2, stream);
        fill(p, 96 * MIB, number, stream);
        MUST(cudaFreeAsync(p, stream));
    }
    MUST(cudaStreamSynchronize(cudaStreamPerThread));
    MUST(cudaStreamDestroy(left));
}

void graphs(uint64_t number)
{
    MUST(cudaSetDevice(0));
    cudaStream_t stream = stream_make(cudaStreamNonBlocking);
    Tally *tally;
    MUST(cudaMalloc(&tally, sizeof *tally));
    MUST(cudaMemsetAsync(tally, 0, sizeof *tally, stream));
    for (int i = 0; i < GRAPHS; i++) {
        void *before, *inside;
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        MUST(i % 2 == 0 ? cudaMalloc(&before, GRAPH_BYTES)
                        : cudaMallocAsync(&before, GRAPH_BYTES, stream));
        MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        fill(before, GRAPH_BYTES, number + i, stream);
        MUST(cudaMallocAsync(&inside, GRAPH_BYTES, stream));
        MUST(cudaMemcpyAsync(inside, before, GRAPH_BYTES, cudaMemcpyDeviceToDevice, stream));
        check(inside, GRAPH_BYTES, number + i, tally, stream);
        MUST(cudaFreeAsync(inside, stream));
        MUST(cudaStreamEndCapture(stream, &graph));
        MUST(cudaGraphInstantiate(&exec, graph, 0));
        MUST(cudaGraphDestroy(graph));
        for (int launch = 0; launch < LAUNCHES; launch++) {
            MUST(cudaGraphLaunch(exec, stream));
        }
        MUST(cudaFreeAsync(before, stream));
        MUST(cudaStreamSynchronize(stream));
        MUST(cudaGraphExecDestroy(exec));
    }
    Tally seen;
    MUST(cudaMemcpyAsync(&seen, tally, sizeof seen, cudaMemcpyDeviceToHost, stream));
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaFree(tally));
    note(seen.wrong == 0 && seen.sum != 0, "graphs");
    MUST(cudaStreamDestroy(stream));
}

/* Requests below a page, which share pages. */
void small(uint64_t number)
{
    MUST(cudaSetDevice(0));
    Random random(number);
    std::vector<void *> blocks;
    for (int i = 0; i < 400; i++) {
        void *p;
        size_t bytes = 1 + random.below(MIB);
        MUST(random.below(2) == 0 ? cudaMalloc(&p, bytes)
                                  : cudaMallocAsync(&p, bytes, cudaStreamPerThread));
        MUST(cudaMemsetAsync(p, 1, bytes, cudaStreamPerThread));
        blocks.push_back(p);
    }
    for (void *p : blocks) {
        MUST(cudaFreeAsync(p, cudaStreamPerThread));
    }
    MUST(cudaStreamSynchronize(cudaStreamPerThread));
}

void poll(const std::atomic<bool> &stop)
{
    MUST(cudaSetDevice(0));
    cudaMemPool_t pool;
    MUST(cudaDeviceGetDefaultMemPool(&pool, 0));
    while (!stop) {
        size_t free_bytes, total_bytes;
        MUST(cudaMemGetInfo(&free_bytes, &total_bytes));
        note(free_bytes <= total_bytes, "free memory");
        MUST(cudaMemPoolTrimTo(pool, 0));
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
}

/* ---- contexts of the driver API ---- */

struct Driver {
    CUresult (*create)(CUcontext *, unsigned, CUdevice);
    CUresult (*destroy)(CUcontext);
    CUresult (*alloc)(CUdeviceptr *, size_t);
    CUresult (*alloc_async)(CUdeviceptr *, size_t, CUstream);
    CUresult (*set)(CUdeviceptr, unsigned, size_t);
    CUresult (*read)(void *, CUdeviceptr, size_t);
    CUresult (*free)(CUdeviceptr);
    CUresult (*synchronize)(void);
    CUresult (*hold)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                     unsigned long long);
    CUresult (*release)(CUmemGenericAllocationHandle);
};
Driver driver;

template <typename F> void find(F &function, const char *name, unsigned version)
{
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result;
    MUST(cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result));
    if (found == nullptr) {
        printf("no %s\n", name);
        _Exit(1);
    }
    function = reinterpret_cast<F>(found);
}

void find_driver()
{
    find(driver.create, "cuCtxCreate", 3020);
    find(driver.destroy, "cuCtxDestroy", 4000);
    find(driver.alloc, "cuMemAlloc", 3020);
    find(driver.alloc_async, "cuMemAllocAsync", 11020);
    find(driver.set, "cuMemsetD32", 3020);
    find(driver.read, "cuMemcpyDtoH", 3020);
    find(driver.free, "cuMemFree", 3020);
    find(driver.synchronize, "cuCtxSynchronize", 2000);
    find(driver.hold, "cuMemCreate", 10020);
    find(driver.release, "cuMemRelease", 10020);
}

#define DRIVER_MUST(call) driver_must((call), #call, __LINE__)
void driver_must(CUresult result, const char *call, int line)
{
    if (result != CUDA_SUCCESS) {
        printf("soak.cu:%d: %s: %d\n", line, call, result);
        fflush(stdout);
        _Exit(1);
    }
}

/* One block is freed with its context, one after it. */
void contexts(unsigned value)
{
    CUcontext context;
    CUdeviceptr left, freed, outlives;
    DRIVER_MUST(driver.create(&context, 0, 0));
    DRIVER_MUST(driver.alloc(&left, 64 * MIB));
    DRIVER_MUST(driver.alloc(&freed, 96 * MIB));
    DRIVER_MUST(driver.alloc_async(&outlives, 48 * MIB, nullptr));
    const CUdeviceptr blocks[] = {left, freed, outlives};
    for (CUdeviceptr p : blocks) {
        std::vector<unsigned> end(64 * KIB);
        DRIVER_MUST(driver.set(p, value, 48 * MIB / 4));
        DRIVER_MUST(driver.read(end.data(), p + 48 * MIB - end.size() * 4, end.size() * 4));
        for (unsigned word : end) {
            if (word != value) {
                note(false, "memory of a second context");
                break;
            }
        }
    }
    DRIVER_MUST(driver.free(freed));
    DRIVER_MUST(driver.synchronize());
    DRIVER_MUST(driver.destroy(context));
    MUST(cudaSetDevice(0));
    MUST(cudaFree(reinterpret_cast<void *>(outlives)));
}

/* ---- rounds ---- */

void join_all(std::vector<std::thread> &threads)
{
    for (std::thread &thread : threads) {
        thread.join();
    }
    threads.clear();
}

void round_of(uint64_t number)
{
    std::vector<std::thread> threads;
    std::atomic<bool> stop{false};
    std::thread poller(poll, std::ref(stop));
    /* Beside captures, on streams that no capture minds. */
    for (uint64_t i = 1; i <= 3; i++) {
        threads.emplace_back(churn, number * 16 + i, cudaStreamPerThread);
    }
    threads.emplace_back(graphs, number);
    threads.emplace_back(end_early, number);
    join_all(threads);
    /* Without captures. */
    threads.emplace_back(churn, number * 16 + 4, cudaStreamLegacy);
    threads.emplace_back(churn, number * 16 + 5, cudaStreamPerThread);
    threads.emplace_back(small, number);
    threads.emplace_back(contexts, static_cast<unsigned>(number + 1));
    join_all(threads);
    stop = true;
    poller.join();
    empty_shelf(number * 16 + 6);
}

/* What the driver itself needs meanwhile is left. */
void take_and_return_all()
{
    size_t free_bytes, total_bytes;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    MUST(cudaMemGetInfo(&free_bytes, &total_bytes));
    size_t bytes = (free_bytes - GIB) / PAGE * PAGE;
    DRIVER_MUST(driver.hold(&handle, bytes, &properties, 0));
    DRIVER_MUST(driver.release(handle));
}

void be_idle()
{
    cudaMemPool_t pool;
    MUST(cudaDeviceSynchronize());
    MUST(cudaDeviceGraphMemTrim(0));
    MUST(cudaDeviceGetDefaultMemPool(&pool, 0));
    MUST(cudaMemPoolTrimTo(pool, 0));
    wait_for_word("idle");
    take_and_return_all();
    wait_for_word("trimmed");
}

} /* namespace */

int main(int argc, char **argv)
{
    begin();
    double end_us = now_us() + (argc > 1 ? std::stod(argv[1]) : 60.0) * 1e6;
    find_driver();
    uint64_t rounds = 0;
    do {
        round_of(++rounds);
        be_idle();
    } while (now_us() < end_us && all_good);
    printf("# rounds %llu\n", static_cast<unsigned long long>(rounds));
    printf("all as written: %s\n", all_good ? "yes" : "NO");
    return all_good ? 0 : 1;
}
