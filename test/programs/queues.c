/* SPDX-License-Identifier: MIT */
/* What an allocation and a free queue. Each line tells of one call on one kind of stream while
 * something is held: is the stream itself held afterwards, is the legacy stream, and is work held
 * that another blocking and another non-blocking stream get after the call. */
#include "truth.h"

#include <pthread.h>
#include <time.h>

#define BLOCK (6 * MIB)
#define LARGE (48 * MIB)
#define SMALL (4 * KIB)

/* What is held while the call is made. */
enum hold {
    NOTHING,
    LEGACY,
    BLOCKING,
    NON_BLOCKING,
    PER_THREAD,
    OTHER_LEGACY,
    N_HOLDS
};
static const char *const hold_names[] = {"nothing",
                                         "the legacy stream",
                                         "another blocking stream",
                                         "another non-blocking stream",
                                         "the per-thread stream",
                                         "the legacy stream of another context"};

enum kind {
    ON_BLOCKING,
    ON_NON_BLOCKING,
    ON_LEGACY,
    ON_PER_THREAD,
    ON_FOREIGN,
    N_KINDS
};
static const char *const kind_names[] = {"blocking stream", "non-blocking stream", "legacy stream",
                                         "per-thread stream", "blocking stream of another context"};

static struct gate gate;
static CUcontext contexts[2];
static CUdeviceptr words; /* of the first context: 64 bytes each for three streams */

struct bench {
    CUstream stream; /* that the call is made on */
    CUstream held, later_blocking, later_apart, donor;
    CUevent event;
    CUdeviceptr block, made;
};

static CUstream stream_new(unsigned flags)
{
    CUstream stream;
    MUST(cuStreamCreate(&stream, flags));
    return stream;
}

/* ---- the calls ---- */

static void warm(struct bench *bench, size_t bytes, CUstream stream)
{
    CUdeviceptr p;
    MUST(cuMemAllocAsync(&p, bytes, stream));
    MUST(cuMemFreeAsync(p, stream));
    (void)bench;
}

static void prepare_same(struct bench *bench)
{
    warm(bench, BLOCK, bench->stream);
}
static void prepare_small(struct bench *bench)
{
    warm(bench, SMALL, bench->stream);
}
static void prepare_others(struct bench *bench)
{
    warm(bench, BLOCK, bench->donor);
}
static void prepare_block(struct bench *bench)
{
    MUST(cuMemAllocAsync(&bench->block, BLOCK, bench->stream));
}
static void prepare_small_block(struct bench *bench)
{
    MUST(cuMemAllocAsync(&bench->block, SMALL, bench->stream));
}
static void prepare_others_block(struct bench *bench)
{
    MUST(cuMemAllocAsync(&bench->block, BLOCK, bench->donor));
}
static void prepare_plain(struct bench *bench)
{
    MUST(cuMemAlloc(&bench->block, BLOCK));
}
static void prepare_none(struct bench *bench)
{
    (void)bench;
}
static CUresult call_none(struct bench *bench)
{
    (void)bench;
    return CUDA_SUCCESS;
}
static CUresult call_record(struct bench *bench)
{
    return cuEventRecord(bench->event, bench->stream);
}
static CUresult call_wait(struct bench *bench)
{
    return cuStreamWaitEvent(bench->stream, bench->event, 0);
}
static CUresult call_malloc(struct bench *bench)
{
    return cuMemAllocAsync(&bench->made, BLOCK, bench->stream);
}
static CUresult call_malloc_part(struct bench *bench)
{
    return cuMemAllocAsync(&bench->made, 3 * MIB, bench->stream);
}
static CUresult call_malloc_small(struct bench *bench)
{
    return cuMemAllocAsync(&bench->made, SMALL, bench->stream);
}
static CUresult call_malloc_large(struct bench *bench)
{
    return cuMemAllocAsync(&bench->made, LARGE, bench->stream);
}
static CUresult call_free(struct bench *bench)
{
    return cuMemFreeAsync(bench->block, bench->stream);
}
static CUresult call_plain_malloc(struct bench *bench)
{
    return cuMemAlloc(&bench->made, BLOCK);
}
static CUresult call_plain_free(struct bench *bench)
{
    return cuMemFree(bench->block);
}

static const struct call {
    const char *name;
    void (*prepare)(struct bench *bench);
    CUresult (*make)(struct bench *bench);
    bool frees;
} calls[] = {
    {"no call", prepare_none, call_none, false},
    {"cuEventRecord", prepare_none, call_record, false},
    {"cuStreamWaitEvent, complete", prepare_none, call_wait, false},
    {"cuMemAllocAsync, warm", prepare_same, call_malloc, false},
    {"cuMemAllocAsync, part of a warm one", prepare_same, call_malloc_part, false},
    {"cuMemAllocAsync, warm and small", prepare_small, call_malloc_small, false},
    {"cuMemAllocAsync, freed by another stream", prepare_others, call_malloc, false},
    {"cuMemAllocAsync, growing", prepare_none, call_malloc_large, false},
    {"cuMemFreeAsync", prepare_block, call_free, true},
    {"cuMemFreeAsync, small", prepare_small_block, call_free, true},
    {"cuMemFreeAsync, another stream's", prepare_others_block, call_free, true},
    {"cuMemFreeAsync of cuMemAlloc", prepare_plain, call_free, true},
    {"cuMemAlloc", prepare_none, call_plain_malloc, false},
    {"cuMemFree of cuMemAllocAsync", prepare_block, call_plain_free, true},
    {"cuMemFree", prepare_plain, call_plain_free, true},
};

/* ---- what is seen ---- */

/* Opens the gate where the call does not return by itself. */
struct watch {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool is_over, has_opened;
};

static void *watch_run(void *argument)
{
    struct watch *watch = argument;
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_nsec += 200 * 1000000L;
    end.tv_sec += end.tv_nsec / 1000000000L;
    end.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&watch->lock);
    while (!watch->is_over && pthread_cond_timedwait(&watch->ended, &watch->lock, &end) == 0)
        ;
    if (!watch->is_over) {
        watch->has_opened = true;
        gate_open(&gate);
    }
    pthread_mutex_unlock(&watch->lock);
    return NULL;
}

/* Whether the call waits for what is held. */
static bool make_watched(const struct call *call, struct bench *bench, CUresult *result_out)
{
    struct watch watch = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false};
    pthread_t thread;
    pthread_create(&thread, NULL, watch_run, &watch);
    *result_out = call->make(bench);
    pthread_mutex_lock(&watch.lock);
    watch.is_over = true;
    pthread_cond_signal(&watch.ended);
    pthread_mutex_unlock(&watch.lock);
    pthread_join(thread, NULL);
    return watch.has_opened;
}

static void tell(struct bench *bench, const struct call *call)
{
    const char *own = truth_state(bench->stream);
    MUST(cuMemsetD8Async(words, 2, 64, bench->later_blocking));
    MUST(cuMemsetD8Async(words + 64, 2, 64, bench->later_apart));
    const char *later = truth_state(bench->later_blocking);
    const char *apart = truth_state(bench->later_apart);
    printf("%s: own %s, later blocking %s, later non-blocking %s, legacy %s\n", call->name, own,
           later, apart, truth_state(CU_STREAM_LEGACY));
    fflush(stdout);
}

static CUstream stream_of(enum kind kind)
{
    CUstream stream;
    switch (kind) {
    case ON_LEGACY:
        return CU_STREAM_LEGACY;
    case ON_PER_THREAD:
        return CU_STREAM_PER_THREAD;
    case ON_FOREIGN:
        MUST(cuCtxSetCurrent(contexts[1]));
        stream = stream_new(CU_STREAM_DEFAULT);
        MUST(cuCtxSetCurrent(contexts[0]));
        return stream;
    default:
        return stream_new(kind == ON_BLOCKING ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
    }
}

static void close_gate(enum hold hold, CUstream held)
{
    if (hold == OTHER_LEGACY)
        MUST(cuCtxSetCurrent(contexts[1]));
    if (hold != NOTHING)
        gate_close(&gate, hold == LEGACY || hold == OTHER_LEGACY ? CU_STREAM_LEGACY
                          : hold == PER_THREAD                   ? CU_STREAM_PER_THREAD
                                                                 : held);
    MUST(cuCtxSetCurrent(contexts[0]));
}

static void synchronize_all(void)
{
    for (int i = 1; i >= 0; i--) {
        MUST(cuCtxSetCurrent(contexts[i]));
        MUST(cuCtxSynchronize());
    }
}

static void look(const struct call *call, enum kind kind, enum hold hold, CUmemoryPool pool)
{
    struct bench bench = {
        .stream = stream_of(kind),
        .held = stream_new(hold == BLOCKING ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING),
        .later_blocking = stream_new(CU_STREAM_DEFAULT),
        .later_apart = stream_new(CU_STREAM_NON_BLOCKING),
        .donor = stream_new(CU_STREAM_NON_BLOCKING)};
    CUresult result;
    MUST(cuMemPoolTrimTo(pool, 0));
    MUST(cuCtxSetCurrent(contexts[kind == ON_FOREIGN]));
    MUST(cuEventCreate(&bench.event, CU_EVENT_DISABLE_TIMING));
    MUST(cuCtxSetCurrent(contexts[0]));
    call->prepare(&bench);
    synchronize_all();
    close_gate(hold, bench.held);
    bool has_waited = make_watched(call, &bench, &result);
    if (has_waited)
        printf("%s: waits for it: %s\n", call->name, truth_code(result));
    else if (result != CUDA_SUCCESS)
        printf("%s: %s\n", call->name, truth_code(result));
    else
        tell(&bench, call);
    if (!has_waited)
        gate_open(&gate);
    synchronize_all();
    if (bench.made)
        MUST(cuMemFree(bench.made));
    if (bench.block && (!call->frees || result != CUDA_SUCCESS))
        MUST(cuMemFree(bench.block));
    MUST(cuEventDestroy(bench.event));
    if (kind != ON_LEGACY && kind != ON_PER_THREAD)
        MUST(cuStreamDestroy(bench.stream));
    MUST(cuStreamDestroy(bench.held));
    MUST(cuStreamDestroy(bench.later_blocking));
    MUST(cuStreamDestroy(bench.later_apart));
    MUST(cuStreamDestroy(bench.donor));
}

int main(void)
{
    CUmemoryPool pool;
    cuuint64_t all = UINT64_MAX;
    CUdevice device = truth_start();
    MUST(cuCtxGetCurrent(&contexts[0]));
    MUST(cuCtxCreate_v2(&contexts[1], 0, device));
    MUST(cuCtxSetCurrent(contexts[0]));
    MUST(cuDeviceGetDefaultMemPool(&pool, device));
    MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    gate_init(&gate);
    MUST(cuMemAlloc(&words, 4096));
    for (enum hold hold = 0; hold < N_HOLDS; hold++)
        for (enum kind kind = 0; kind < N_KINDS; kind++) {
            printf("\n[%s, while %s is held]\n", kind_names[kind], hold_names[hold]);
            for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
                look(&calls[i], kind, hold, pool);
        }
    MUST(cuMemFree(words));
    return 0;
}
