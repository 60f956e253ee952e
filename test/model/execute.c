/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "execute.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The legacy stream's answer may count work of blocking streams that have ended. */
static bool has_ended_streams(const struct reference *reference, unsigned context)
{
    for (unsigned i = 0; i < STREAMS_MAX; i++) {
        const struct stream *stream = &reference->streams[i];
        if (stream->context == context && stream->is_blocking && !stream->is_alive)
            return true;
    }
    return false;
}

/* What a query asks for was waited for before. */
static bool is_over(const struct reference *reference, const struct step *step)
{
    if (step->kind == STEP_QUERY_EVENT && step->a < EVENTS_MAX)
        return set_has_all(&reference->done, &reference->events[step->a].set);
    if (step->kind != STEP_QUERY_STREAM || step->b >= STREAMS_MAX)
        return false;
    const struct stream *stream = &reference->streams[step->b];
    if (!stream->is_legacy)
        return set_has_all(&reference->done, &stream->tail);
    struct set before = order_before(reference, step->b);
    return !has_ended_streams(reference, stream->context) && set_has_all(&reference->done, &before);
}

static struct scene scene_of(const struct run *run, const struct step *step)
{
    const struct reference *reference = &run->reference;
    unsigned context = reference->threads[step->thread].context;
    struct scene scene = {
        .done = reference->done,
        .is_captured = step->b < STREAMS_MAX && reference->streams[step->b].capture != NOBODY,
        .is_over = is_over(reference, step),
        .is_new = step->a < CONTEXTS_MAX && !reference->contexts[step->a].is_alive,
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

static void count(struct run *run, size_t number, const struct step *step, CUresult answer,
                  bool passed_through)
{
    struct outcome *outcome = run->outcome;
    bool is_malloc = step_is_malloc(step->kind) || step->kind == STEP_EXCHANGE;
    outcome->passed[number] = is_malloc && answer == CUDA_SUCCESS && passed_through;
    outcome->operations++;
    outcome->captures += step->kind == STEP_CAPTURE_END;
    outcome->launches += step->kind == STEP_LAUNCH;
    outcome->mallocs += is_malloc;
    outcome->served += is_malloc && answer == CUDA_SUCCESS && !passed_through;
    outcome->refused += is_malloc && answer != CUDA_SUCCESS;
    outcome->served_while_stuck += is_malloc && answer == CUDA_SUCCESS && is_stuck(&run->reference);
}

static bool may_answer(const struct step *step, CUresult answer)
{
    switch (step->kind) {
    case STEP_CAPTURE_END:
        return answer == CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    case STEP_QUERY_STREAM:
    case STEP_QUERY_EVENT:
        return answer == CUDA_ERROR_NOT_READY;
    default:
        return answer == CUDA_ERROR_OUT_OF_MEMORY &&
               (step_is_malloc(step->kind) || step->kind == STEP_EXCHANGE ||
                step->kind == STEP_SCRATCH);
    }
}

/* The answer of step `number`, which may have been away while others were made. */
static void judge(struct run *run, size_t number, const struct step *step, CUresult answer)
{
    uint16_t bare = run->bare ? run->bare->answers[number] : NOT_MADE;
    run->outcome->answers[number] = (uint16_t)answer;
    if (bare != NOT_MADE && bare != (uint16_t)answer)
        fail(number, "ANSWER", "%s is answered %d, and %u bare", step_name(step->kind), (int)answer,
             bare);
    if (answer == CUDA_SUCCESS)
        return;
    if (!run->bare && step->kind == STEP_LAUNCH && answer == CUDA_ERROR_OUT_OF_MEMORY)
        fail(number, "SHORT", "there is no memory for the graph");
    if (!may_answer(step, answer))
        fail(number, "REFUSED", "%s is answered %d", step_name(step->kind), (int)answer);
    if (answer == CUDA_ERROR_OUT_OF_MEMORY)
        reference_lose(&run->reference, step);
}

void note_seen(struct turn *turn, uint64_t seen)
{
    struct run *run = turn->run;
    run->outcome->seen[turn->number] = seen;
    if (run->bare && run->bare->seen[turn->number] != seen)
        fail(turn->number, "ORDER", "%s sees %#" PRIx64 ", and %#" PRIx64 " bare",
             step_name(turn->step->kind), seen, run->bare->seen[turn->number]);
}

/* The step on its own thread. */
static void make_on_thread(struct turn *turn)
{
    struct run *run = turn->run;
    const struct step *step = turn->step;
    CUresult answer;
    uint64_t calls = device_mallocs(run);
    if (step->kind == STEP_THREAD_START || step->kind == STEP_THREAD_END) {
        if (step->kind == STEP_THREAD_START)
            turns_start_thread(run, step->a);
        else
            turns_end_thread(run, step->a);
        judge(run, run->number, step, CUDA_SUCCESS);
        return;
    }
    bool is_made = turns_make(turn, &answer);
    bool is_away = run->reference.threads[step->thread].is_away;
    /* Only cudaFree may return before what it waits for bare. */
    if (is_away && step->kind != STEP_FREE && step->kind != STEP_EXCHANGE)
        note_seen(turn, is_made);
    if (is_away)
        return;
    judge(run, run->number, step, answer);
    count(run, turn->number, step, answer, device_mallocs(run) != calls);
}

static void bring_back(struct run *run, const bool *were_away)
{
    for (unsigned i = 1; i < THREADS_MAX; i++) {
        const struct worker *worker = &run->workers[i];
        if (!were_away[i] || run->reference.threads[i].is_away)
            continue;
        CUresult answer = turns_finish(run, i);
        judge(run, worker->turn.number, &worker->step, answer);
        count(run, worker->turn.number, &worker->step, answer, false);
    }
}

static void make(struct run *run, const struct step *step)
{
    if (run->number == ANSWERS_MAX)
        fail(run->number, "LENGTH", "the program does not end");
    uint16_t *answer = &run->outcome->answers[run->number];
    bool were_away[THREADS_MAX];
    for (unsigned i = 0; i < THREADS_MAX; i++)
        were_away[i] = run->reference.threads[i].is_away;
    *answer = NOT_MADE;
    struct turn turn = {
        .run = run, .step = step, .before = scene_of(run, step), .number = run->number};
    if (!reference_make(&run->reference, step)) {
        bool is_skipped = run->bare && step->kind == STEP_SCRATCH &&
                          run->bare->answers[run->number] == (uint16_t)CUDA_ERROR_OUT_OF_MEMORY;
        if (step->kind == STEP_FREE)
            device_check_freed(&turn);
        if (is_skipped)
            judge(run, run->number, step, CUDA_ERROR_OUT_OF_MEMORY);
        else
            make_on_thread(&turn);
        bring_back(run, were_away);
        if (memcmp(&turn.before.done, &run->reference.done, sizeof turn.before.done) != 0)
            device_check_known(run);
    }
    run->outcome->n = ++run->number;
}

static void start(struct run *run)
{
    const struct api *api = run->api;
    CUmemoryPool pool;
    reference_start(&run->reference, &run->program->setting);
    if (api->cuInit(0) != CUDA_SUCCESS ||
        api->cuDevicePrimaryCtxRetain(&run->contexts[0], 0) != CUDA_SUCCESS ||
        (device_holds_primary() && api->cuDevicePrimaryCtxRelease_v2(0) != CUDA_SUCCESS) ||
        api->cuCtxSetCurrent(run->contexts[0]) != CUDA_SUCCESS)
        fail(0, "START", "no driver");
    device_start(run);
    for (int i = 0; i < DEVICES && run->scale == 1; i++) {
        CUmemAccessDesc access = {
            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = DEVICES - 1 - i},
            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        if (api->cuDeviceGetDefaultMemPool(&pool, i) != CUDA_SUCCESS ||
            api->cuMemPoolSetAccess(pool, &access, 1) != CUDA_SUCCESS)
            fail(0, "START", "no memory pool");
    }
}

void execute(const struct api *api, const struct program *program, const struct outcome *bare,
             struct outcome *outcome, uint64_t scale)
{
    struct run *run = calloc(1, sizeof *run);
    if (!run)
        abort();
    run->api = api;
    run->program = program;
    run->bare = bare;
    run->outcome = outcome;
    run->scale = scale;
    start(run);
    for (size_t i = 0; i < program->n; i++)
        make(run, &program->steps[i]);
    struct step step;
    while (reference_end(&run->reference, &step))
        make(run, &step);
    device_check_known(run);
    device_end(run);
    for (unsigned i = 1; i < THREADS_MAX; i++)
        if (run->reference.threads[i].is_alive)
            turns_end_thread(run, i);
    free(run);
}
