/* SPDX-License-Identifier: MIT */
/* events API FREES: what the host pays for a call that tells or asks of order, while so many blocks
 * of 2 MiB wait on a busy stream for their free: an event recorded on that stream, a wait of
 * another stream for it, a query of it; a query and a synchronisation of a third stream, which is
 * idle. A wait for a value that the host writes holds up the frees. Without frees nothing is
 * pending.
 *
 * Calls are timed in blocks of 1,000: the best and the median block, by the number of its calls. */
#define _GNU_SOURCE
#include "driver.h"

#define N_BLOCKS 11
#define N_CALLS 1000
#define FREES_MAX 1000

struct scene {
    int n_frees;
    CUstream busy, other, idle;
    CUevent event;
    struct gate gate;
};

static CUresult record(const struct scene *scene)
{
    return cuEventRecord(scene->event, scene->busy);
}

static CUresult wait(const struct scene *scene)
{
    return cuStreamWaitEvent(scene->other, scene->event, 0);
}

static CUresult query_event(const struct scene *scene)
{
    return cuEventQuery(scene->event);
}

static CUresult query_stream(const struct scene *scene)
{
    return cuStreamQuery(scene->idle);
}

static CUresult synchronize_stream(const struct scene *scene)
{
    return cuStreamSynchronize(scene->idle);
}

struct probe {
    const char *name;
    CUresult (*call)(const struct scene *scene);
    bool sees_frees; /* it answers CUDA_ERROR_NOT_READY while they wait */
};

static const struct probe probes[] = {
    {"record", record, false},
    {"wait", wait, false},
    {"event_query", query_event, true},
    {"stream_query", query_stream, false},
    {"stream_sync", synchronize_stream, false},
};

/* What the calls of one block meet: the frees wait, or all is complete. */
static void set(struct scene *scene)
{
    CUdeviceptr blocks[FREES_MAX];
    for (int i = 0; i < scene->n_frees; i++)
        MUST(cuMemAllocAsync(&blocks[i], 2 * MIB, scene->busy));
    if (scene->n_frees > 0)
        gate_close(&scene->gate, scene->busy);
    for (int i = 0; i < scene->n_frees; i++)
        MUST(cuMemFreeAsync(blocks[i], scene->busy));
    MUST(cuEventRecord(scene->event, scene->busy));
    if (scene->n_frees == 0)
        MUST(cuCtxSynchronize());
}

static void strike(struct scene *scene)
{
    CUresult wanted = scene->n_frees > 0 ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
    if (scene->n_frees > 0 && cuStreamQuery(scene->busy) != wanted)
        give_up("the frees did not wait");
    gate_open(&scene->gate);
    MUST(cuCtxSynchronize());
}

/* The time of one call. */
static double measure(struct scene *scene, const struct probe *probe)
{
    bool waits = probe->sees_frees && scene->n_frees > 0;
    CUresult wanted = waits ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
    int n_others = 0;
    set(scene);
    double start_ns = now_ns();
    for (int i = 0; i < N_CALLS; i++)
        n_others += probe->call(scene) != wanted;
    double ns = (now_ns() - start_ns) / N_CALLS;
    strike(scene);
    if (n_others > 0)
        give_up("a call that was timed did not answer as it should");
    return ns;
}

static void tell(struct scene *scene, const struct probe *probe)
{
    struct times times = times_make(N_BLOCKS);
    (void)measure(scene, probe);
    for (int i = 0; i < N_BLOCKS; i++)
        times_add(&times, measure(scene, probe));
    figure_of(probe->name, "_best", times_quantile(&times, 0), "ns");
    figure_of(probe->name, "_median", times_quantile(&times, 0.5), "ns");
    times_free(&times);
}

int main(int argc, char **argv)
{
    CUdeviceptr block;
    (void)begin(argc, argv);
    struct scene scene = {.n_frees = number_at(argc, argv, 2, 0),
                          .busy = stream_make(CU_STREAM_NON_BLOCKING),
                          .other = stream_make(CU_STREAM_NON_BLOCKING),
                          .idle = stream_make(CU_STREAM_NON_BLOCKING),
                          .event = event_make()};
    if (scene.n_frees > FREES_MAX)
        give_up("so many frees are too many");
    gate_init(&scene.gate);
    /* Even where nothing is pending, memory has been used on the stream. */
    MUST(cuMemAllocAsync(&block, 2 * MIB, scene.busy));
    MUST(cuMemFreeAsync(block, scene.busy));
    MUST(cuCtxSynchronize());
    for (size_t i = 0; i < sizeof probes / sizeof probes[0]; i++)
        tell(&scene, &probes[i]);
    MUST(cuEventDestroy(scene.event));
    MUST(cuStreamDestroy(scene.busy));
    MUST(cuStreamDestroy(scene.other));
    MUST(cuStreamDestroy(scene.idle));
    return 0;
}
