/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "execute.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void fail(size_t number, const char *what, const char *format, ...)
{
    char text[300];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "model: step %zu (%s): %s\n", number + 1, what, text);
    _exit(1);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    for (;;) {
        while (sem_wait(&worker->go))
            continue;
        if (worker->ends)
            return NULL;
        worker->run->answer = act(worker->run);
        sem_post(&worker->run->made);
    }
}

static CUresult start_thread(struct run *run, unsigned number)
{
    struct worker *worker = &run->workers[number];
    worker->run = run;
    worker->ends = false;
    sem_init(&worker->go, 0, 0);
    if (pthread_create(&worker->thread, NULL, work, worker))
        fail(run->number, "THREAD", "no thread");
    return CUDA_SUCCESS;
}

static CUresult end_thread(struct run *run, unsigned number)
{
    struct worker *worker = &run->workers[number];
    worker->ends = true;
    sem_post(&worker->go);
    pthread_join(worker->thread, NULL);
    return CUDA_SUCCESS;
}

/* On the step's own thread, while all others stand still. */
static CUresult act_on_thread(struct run *run, const struct step *step)
{
    run->step = step;
    if (step->kind == STEP_THREAD_START)
        return start_thread(run, step->a);
    if (step->kind == STEP_THREAD_END)
        return end_thread(run, step->a);
    if (step->thread == 0)
        return act(run);
    sem_post(&run->workers[step->thread].go);
    while (sem_wait(&run->made))
        continue;
    return run->answer;
}

static struct scene scene_of(const struct run *run, const struct step *step)
{
    const struct reference *reference = &run->reference;
    unsigned context = reference->threads[step->thread].context;
    struct scene scene = {
        .done = reference->done,
        .is_captured = step->b < STREAMS_MAX && reference->streams[step->b].capture != NOBODY,
        .landing = reference->n_landings,
        .device = context < CONTEXTS_MAX ? reference->contexts[context].device : 0,
    };
    if (step->a < BLOCKS_MAX)
        scene.block = reference->blocks[step->a];
    if (step->c < BLOCKS_MAX)
        scene.from = reference->blocks[step->c];
    return scene;
}

static bool is_stuck(const struct reference *reference)
{
    for (unsigned i = 0; i < reference->n_operations; i++)
        if (!reference->operations[i].is_clear)
            return true;
    return false;
}

static uint64_t driver_mallocs(const struct run *run)
{
    return run->api->vpmm_sim_calls("cuMemAlloc") + run->api->vpmm_sim_calls("cuMemAllocAsync");
}

static void count(struct run *run, const struct step *step, CUresult answer, bool passed_through)
{
    struct outcome *outcome = run->outcome;
    bool is_malloc = step->kind == STEP_MALLOC || step->kind == STEP_MALLOC_ASYNC;
    outcome->operations++;
    outcome->captures += step->kind == STEP_CAPTURE_END;
    outcome->launches += step->kind == STEP_LAUNCH;
    outcome->mallocs += is_malloc;
    outcome->served += is_malloc && answer == CUDA_SUCCESS && !passed_through;
    outcome->refused += is_malloc && answer != CUDA_SUCCESS;
    outcome->served_while_stuck += is_malloc && answer == CUDA_SUCCESS && is_stuck(&run->reference);
}

static void judge(struct run *run, const struct step *step, CUresult answer)
{
    bool is_malloc = step->kind == STEP_MALLOC || step->kind == STEP_MALLOC_ASYNC;
    bool may_be_refused = is_malloc || step->kind == STEP_SCRATCH;
    bool is_unjoined =
        step->kind == STEP_CAPTURE_END && answer == CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    uint16_t bare = run->bare ? run->bare->answers[run->number] : NOT_MADE;
    if (bare != NOT_MADE && bare != (uint16_t)answer)
        fail(run->number, "ANSWER", "%s is answered %d, and %u bare", step_name(step->kind),
             (int)answer, bare);
    if (answer == CUDA_ERROR_OUT_OF_MEMORY && is_malloc)
        reference_lose_block(&run->reference, step->a);
    else if (answer != CUDA_SUCCESS && !is_unjoined &&
             !(may_be_refused && answer == CUDA_ERROR_OUT_OF_MEMORY))
        fail(run->number, "REFUSED", "%s is answered %d", step_name(step->kind), (int)answer);
}

static void make(struct run *run, const struct step *step)
{
    if (run->number == ANSWERS_MAX)
        fail(run->number, "LENGTH", "the program does not end");
    uint16_t *answer = &run->outcome->answers[run->number];
    *answer = NOT_MADE;
    run->before = scene_of(run, step);
    if (!reference_make(&run->reference, step)) {
        bool is_skipped = run->bare && step->kind == STEP_SCRATCH &&
                          run->bare->answers[run->number] == (uint16_t)CUDA_ERROR_OUT_OF_MEMORY;
        if (step->kind == STEP_FREE)
            pattern_peek(run, step->a);
        uint64_t calls = driver_mallocs(run);
        CUresult result = is_skipped ? CUDA_ERROR_OUT_OF_MEMORY : act_on_thread(run, step);
        *answer = (uint16_t)result;
        judge(run, step, result);
        count(run, step, result, driver_mallocs(run) != calls);
    }
    run->outcome->n = ++run->number;
}

static void check_landings(const struct run *run)
{
    for (unsigned i = 0; i < run->reference.n_landings; i++) {
        uint64_t offset = pattern_differs(run->landings + i * HOST_BLOCK_BYTES, &run->landed[i]);
        if (offset != UINT64_MAX)
            fail(run->number, "BYTES", "a copy of block %u to the host differs at %" PRIu64,
                 run->landed_blocks[i], offset);
    }
}

/* What the current device could give a program. Asking lets the library record what a capture kept
 * it from recording, and the answer counts what is complete. */
static size_t free_bytes_of(const struct run *run, unsigned context)
{
    const struct api *api = run->api;
    CUmemoryPool pool;
    size_t free_bytes = 0, total_bytes;
    bool known = api->cuCtxSetCurrent(run->contexts[context]) == CUDA_SUCCESS &&
                 api->cuDeviceGetDefaultMemPool(
                     &pool, (int)run->reference.contexts[context].device) == CUDA_SUCCESS &&
                 api->cuMemPoolTrimTo(pool, 0) == CUDA_SUCCESS;
    for (int i = 0; i < 2 && known; i++) {
        known = api->cuMemGetInfo_v2(&free_bytes, &total_bytes) == CUDA_SUCCESS;
        (void)api->vpmm_sim_drain();
    }
    return known ? free_bytes : 0;
}

/* All is freed and complete: nothing may be missing, and nothing be left. */
static void check_end(struct run *run)
{
    struct sim_counts counts;
    for (unsigned i = 0; i < run->n_extras; i++)
        (void)run->api->cuMemFree_v2(run->extras[i]);
    (void)run->api->vpmm_sim_drain();
    run->api->vpmm_sim_live_counts(&counts);
    if (counts.plain || counts.async || counts.pending || counts.captures || counts.graph_execs)
        fail(run->number, "LEAK",
             "left: %" PRIu64 " plain and %" PRIu64 " asynchronous blocks, %" PRIu64 " operations",
             counts.plain, counts.async, counts.pending);
    for (unsigned i = 0; i < CONTEXTS_MAX; i++) {
        if (!run->reference.contexts[i].is_alive)
            continue;
        size_t free_bytes = free_bytes_of(run, i);
        if (free_bytes != run->program->setting.device_pages * GRANULE)
            fail(run->number, "LEAK", "device %u has %zu bytes free at the end",
                 run->reference.contexts[i].device, free_bytes);
    }
}

static void start(struct run *run)
{
    const struct api *api = run->api;
    CUmemoryPool pool;
    sem_init(&run->made, 0, 0);
    reference_start(&run->reference, &run->program->setting);
    if (api->cuInit(0) != CUDA_SUCCESS ||
        api->cuDevicePrimaryCtxRetain(&run->contexts[0], 0) != CUDA_SUCCESS ||
        api->cuCtxSetCurrent(run->contexts[0]) != CUDA_SUCCESS ||
        api->cuMemHostAlloc((void **)&run->flags, FLAGS_MAX * sizeof *run->flags, 0) !=
            CUDA_SUCCESS)
        fail(0, "START", "no driver");
    memset(run->flags, 0, FLAGS_MAX * sizeof *run->flags);
    for (int i = 0; i < DEVICES; i++) {
        CUmemAccessDesc access = {
            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = DEVICES - 1 - i},
            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        if (api->cuDeviceGetDefaultMemPool(&pool, i) != CUDA_SUCCESS ||
            api->cuMemPoolSetAccess(pool, &access, 1) != CUDA_SUCCESS)
            fail(0, "START", "no memory pool");
    }
}

/* What of the driver's work was the library's: all calls less the program's own. */
static void count_calls(struct run *run)
{
    struct outcome *outcome = run->outcome;
    uint64_t own_waits = 0, own_syncs = 0;
    for (size_t i = 0; i < run->program->n; i++) {
        bool was_made = outcome->answers[i] != NOT_MADE;
        own_waits += was_made && run->program->steps[i].kind == STEP_WAIT;
        own_syncs += was_made && run->program->steps[i].kind == STEP_SYNC_EVENT;
    }
    uint64_t n_maps = run->api->vpmm_sim_calls("cuMemMap");
    outcome->created = run->api->vpmm_sim_calls("cuMemCreate");
    if (n_maps < outcome->created)
        outcome->created = n_maps;
    outcome->moved = n_maps - outcome->created;
    outcome->unmapped = run->api->vpmm_sim_calls("cuMemUnmap");
    outcome->stream_waits = run->api->vpmm_sim_calls("cuStreamWaitEvent") - own_waits;
    outcome->host_waits = run->api->vpmm_sim_calls("cuEventSynchronize") - own_syncs;
}

void execute(const struct api *api, const struct program *program, const struct outcome *bare,
             struct outcome *outcome)
{
    struct run *run = calloc(1, sizeof *run);
    if (!run)
        abort();
    run->api = api;
    run->program = program;
    run->bare = bare;
    run->outcome = outcome;
    start(run);
    clock_be_virtual(api, program->setting.seed);
    for (size_t i = 0; i < program->n; i++)
        make(run, &program->steps[i]);
    struct step step;
    while (reference_end(&run->reference, &step))
        make(run, &step);
    check_landings(run);
    count_calls(run);
    check_end(run);
    for (unsigned i = 1; i < THREADS_MAX; i++)
        if (run->reference.threads[i].is_alive)
            (void)end_thread(run, i);
    free(run);
}
