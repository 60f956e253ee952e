/* SPDX-License-Identifier: MIT */
/* pipeline: a program whose calls are worth recording. Jobs pass through three stages on streams of
 * their own; each stage allocates its result on its stream, waits for the stage before by an event,
 * and frees what that made, so that most blocks are freed on another stream than they were
 * allocated on. A table that all stages read is replaced by cudaMalloc and cudaFree now and then.
 */
#include "bench.cuh"

namespace {

constexpr int N_LANES = 2, N_JOBS = 1500, TABLE_EVERY = 100;

struct Stage {
    cudaStream_t stream;
    cudaEvent_t done;
};

struct Lane {
    Stage read, compute, write;
};

Stage stage_make()
{
    Stage stage = {stream_make(cudaStreamNonBlocking), nullptr};
    MUST(cudaEventCreateWithFlags(&stage.done, cudaEventDisableTiming));
    return stage;
}

/* The result of one stage; its input is freed behind the work that reads it. */
void *run_stage(const Stage &stage, const Stage *before, void *input, size_t bytes, double us)
{
    void *result;
    MUST(cudaMallocAsync(&result, bytes, stage.stream));
    if (before != nullptr) {
        MUST(cudaStreamWaitEvent(stage.stream, before->done, 0));
    }
    use(result, us, stage.stream);
    if (input != nullptr) {
        use(input, 5, stage.stream);
        MUST(cudaFreeAsync(input, stage.stream));
    }
    MUST(cudaEventRecord(stage.done, stage.stream));
    return result;
}

void run_job(const Lane &lane, Random *random)
{
    size_t bytes = 2 * MIB + random->below(62 * MIB);
    void *raw = run_stage(lane.read, nullptr, nullptr, bytes, 30 + random->below(50));
    void *wide = run_stage(lane.compute, &lane.read, raw, 2 * bytes, 50 + random->below(200));
    void *narrow = run_stage(lane.write, &lane.compute, wide, bytes / 2 + 1, 20);
    MUST(cudaFreeAsync(narrow, lane.write.stream));
}

} /* namespace */

int main()
{
    begin();
    uint64_t threshold_bytes = UINT64_MAX;
    cudaMemPool_t pool;
    MUST(cudaDeviceGetDefaultMemPool(&pool, 0));
    MUST(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold_bytes));
    Lane lanes[N_LANES];
    for (Lane &lane : lanes) {
        lane = {stage_make(), stage_make(), stage_make()};
    }
    Random random(5);
    void *table = nullptr;
    double start_ns = now_ns();
    for (int i = 0; i < N_JOBS; i++) {
        if (i % TABLE_EVERY == 0) {
            MUST(cudaFree(table));
            MUST(cudaMalloc(&table, 64 * MIB + random.below(192 * MIB)));
            use(table, 10, lanes[0].read.stream);
        }
        run_job(lanes[i % N_LANES], &random);
    }
    MUST(cudaDeviceSynchronize());
    figure("job", (now_ns() - start_ns) / N_JOBS, "ns");
    MUST(cudaFree(table));
    return 0;
}
