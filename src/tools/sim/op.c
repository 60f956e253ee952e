/* SPDX-License-Identifier: MIT */
/* Queued operations: what each comes after, which one runs next, and waits for them. Must not run
 * an operation before all that it comes after is complete. */
#define _GNU_SOURCE
#include "sim/sim_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PAUSE_NS 200000
/* So much of a pause counts: a process that was stopped meanwhile waited for nothing. */
#define PAUSE_MAX_MS 10.0

double clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

struct op *op_new(struct context *context, struct stream *stream, struct work *work)
{
    struct op *op = allocate(sizeof *op);
    op->work = *work;
    op->stream = stream;
    op->context = context;
    op->refs = 1;
    return op;
}

struct op *op_hold(struct op *op)
{
    op->refs++;
    return op;
}

void op_drop(struct op *op)
{
    if (op == NULL || --op->refs != 0)
        return;
    work_finish(&op->work);
    free(op->before);
    free(op->after);
    free(op->segments);
    free(op->segment_writes);
    free(op);
}

void op_set(struct op **place, struct op *op)
{
    struct op *old = *place;
    *place = op == NULL ? NULL : op_hold(op);
    op_drop(old);
}

void op_follow(struct op *op, struct op *before)
{
    if (before == NULL || before->done || before == op)
        return;
    op->before = grow(op->before, sizeof(struct op *), op->n_before, &op->before_room);
    op->before[op->n_before++] = op_hold(before);
    before->after = grow(before->after, sizeof(struct op *), before->n_after, &before->after_room);
    before->after[before->n_after++] = op_hold(op);
    op->n_unmet++;
}

static void ready_add(struct sim *sim, struct op *op)
{
    sim->ready = grow(sim->ready, sizeof(struct op *), sim->n_ready, &sim->ready_room);
    sim->ready[sim->n_ready++] = op;
    op->ready_index = sim->n_ready;
}

static void ready_remove(struct sim *sim, struct op *op)
{
    struct op *last = sim->ready[--sim->n_ready];
    sim->ready[op->ready_index - 1] = last;
    last->ready_index = op->ready_index;
    op->ready_index = 0;
}

/* The machine's list holds the op until it is complete. */
void op_submit(struct sim *sim, struct op *op)
{
    op_hold(op);
    op_race_check(sim, op);
    op->next = sim->pending;
    if (op->next != NULL)
        op->next->previous = op;
    sim->pending = op;
    sim->n_pending++;
    if (op->n_unmet == 0)
        ready_add(sim, op);
}

void op_complete(struct sim *sim, struct op *op)
{
    op->done = true;
    op->running = false;
    op->done_ms = clock_ms();
    sim->progress++;
    if (op->ready_index != 0)
        ready_remove(sim, op);
    if (op->previous != NULL)
        op->previous->next = op->next;
    else
        sim->pending = op->next;
    if (op->next != NULL)
        op->next->previous = op->previous;
    sim->n_pending--;
    for (size_t i = 0; i < op->n_after; i++) {
        struct op *after = op->after[i];
        if (--after->n_unmet == 0 && !after->done)
            ready_add(sim, after);
        op_drop(after);
    }
    op->n_after = 0;
    for (size_t i = 0; i < op->n_before; i++)
        op_drop(op->before[i]);
    op->n_before = 0;
    work_finish(&op->work);
    pthread_cond_broadcast(&sim->moved);
    op_drop(op);
}

/* Of the ready ops that carry `mark` (0: all) one that may run now: the first, or one chosen by the
 * seed. */
static struct op *ready_choose(struct sim *sim, uint64_t mark)
{
    struct op *chosen = NULL;
    uint64_t n = 0;
    for (size_t i = 0; i < sim->n_ready; i++) {
        struct op *op = sim->ready[i];
        if ((mark != 0 && op->mark != mark) || op->running || !run_is_ready(sim, op))
            continue;
        n++;
        if (sim->config.eager)
            return op;
        if (sim_random(sim, n) == 0)
            chosen = op;
    }
    return chosen;
}

bool op_step(struct sim *sim, uint64_t mark)
{
    struct op *op = ready_choose(sim, mark);
    if (op == NULL)
        return false;
    run_start(sim, op);
    return true;
}

void op_settle(struct sim *sim)
{
    while (sim->n_ready > 0 && op_step(sim, 0))
        ;
}

static void mark_before(struct op *op, uint64_t mark, bool only_learnt)
{
    struct op **stack = NULL;
    size_t n = 0;
    size_t room = 0;
    stack = grow(stack, sizeof(struct op *), n, &room);
    stack[n++] = op;
    op->mark = mark;
    while (n > 0) {
        const struct op *top = stack[--n];
        for (size_t i = 0; i < top->n_before; i++) {
            struct op *before = top->before[i];
            bool is_hidden =
                only_learnt && before->work.kind == WORK_MARK && before->stream == NULL;
            if (before->done || before->mark == mark || is_hidden)
                continue;
            before->mark = mark;
            stack = grow(stack, sizeof(struct op *), n, &room);
            stack[n++] = before;
        }
    }
    free(stack);
}

void op_mark(struct op *op, uint64_t mark)
{
    mark_before(op, mark, false);
}

/* CUDA's pools learn nothing from events that are recorded in, or waited for by, a whole context
 * (measured). */
void op_mark_learnt(struct op *op, uint64_t mark)
{
    mark_before(op, mark, true);
}

void op_run_markers(struct sim *sim, struct op *op)
{
    if (op == NULL || op->done)
        return;
    uint64_t mark = ++sim->mark;
    op_mark(op, mark);
    for (size_t i = 0; i < sim->n_ready;) {
        struct op *ready = sim->ready[i];
        bool may_run = ready->mark == mark && ready->work.kind == WORK_MARK && !ready->running &&
                       run_is_ready(sim, ready);
        if (may_run)
            run_start(sim, ready);
        i = may_run ? 0 : i + 1;
    }
}

static const struct op *first_undone(struct op **ops, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!ops[i]->done)
            return ops[i];
    return NULL;
}

/* Of a thread that is cancelled while it waits: it leaves the call as any other does. */
static void leave_call(void *lock)
{
    pthread_mutex_unlock(lock);
    call_show();
}

void moved_wait(struct sim *sim)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += PAUSE_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_cleanup_push(leave_call, &sim->lock);
    pthread_cond_timedwait(&sim->moved, &sim->lock, &until);
    pthread_cleanup_pop(0);
}

static CUresult errors_of(struct op **ops, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (ops[i]->context->error != CUDA_SUCCESS)
            return ops[i]->context->error;
    return CUDA_SUCCESS;
}

/* Runs what the targets need and nothing else, as long as that gets on; a device never stands
 * still, so where it does not (a wait for a value), other work goes on too. */
CUresult op_wait(struct sim *sim, struct op **ops, size_t n)
{
    uint64_t mark = 0;
    uint64_t progress = sim->progress;
    double last_ms = clock_ms();
    double idle_ms = 0;
    const struct op *undone;
    while ((undone = first_undone(ops, n)) != NULL) {
        if (mark == 0 || mark != sim->mark) {
            mark = ++sim->mark;
            for (size_t i = 0; i < n; i++)
                if (!ops[i]->done)
                    op_mark(ops[i], mark);
        }
        if (op_step(sim, mark) || op_step(sim, 0))
            continue;
        moved_wait(sim);
        double now_ms = clock_ms();
        idle_ms += now_ms - last_ms < PAUSE_MAX_MS ? now_ms - last_ms : PAUSE_MAX_MS;
        last_ms = now_ms;
        if (progress != sim->progress) {
            progress = sim->progress;
            idle_ms = 0;
        } else if (sim->config.hang_ms != 0 && idle_ms > sim->config.hang_ms) {
            misuse(sim, SIM_HANG, "waiting for %s", undone->work.name);
            return CUDA_ERROR_LAUNCH_TIMEOUT;
        }
    }
    pool_relax(sim);
    return errors_of(ops, n);
}

CUresult op_wait_one(struct sim *sim, struct op *op)
{
    return op_wait(sim, &op, 1);
}

CUresult op_wait_context(struct sim *sim, struct context *context)
{
    struct op **ops = NULL;
    size_t n = 0;
    size_t room = 0;
    context = context_root(context);
    for (struct op *op = sim->pending; op != NULL; op = op->next)
        if (op->context == context) {
            ops = grow(ops, sizeof(struct op *), n, &room);
            ops[n++] = op_hold(op);
        }
    CUresult result = op_wait(sim, ops, n);
    for (size_t i = 0; i < n; i++)
        op_drop(ops[i]);
    free(ops);
    return result != CUDA_SUCCESS ? result : context->error;
}

struct op *op_using(struct sim *sim, CUdeviceptr address, uint64_t bytes)
{
    for (struct op *op = sim->pending; op != NULL; op = op->next) {
        if (op->work.ranges == NULL)
            continue;
        const struct sim_range *ranges = (const struct sim_range *)(void *)op->work.ranges->data;
        size_t n = op->work.ranges->bytes / sizeof *ranges;
        for (size_t i = 0; i < n; i++)
            if (ranges[i].address < address + bytes &&
                address < ranges[i].address + ranges[i].bytes)
                return op;
    }
    return NULL;
}

bool sim_step(struct sim *sim)
{
    pthread_mutex_lock(&sim->lock);
    bool stepped = op_step(sim, 0);
    pthread_mutex_unlock(&sim->lock);
    return stepped;
}

uint64_t sim_drain(struct sim *sim)
{
    uint64_t n = 0;
    pthread_mutex_lock(&sim->lock);
    while (op_step(sim, 0))
        n++;
    pthread_mutex_unlock(&sim->lock);
    return n;
}

uint64_t sim_drain_stream(struct sim *sim, CUstream handle)
{
    uint64_t n = 0;
    struct stream *stream;
    pthread_mutex_lock(&sim->lock);
    if (stream_of(sim, handle, &stream) == CUDA_SUCCESS && stream->tail != NULL &&
        !stream->tail->done) {
        uint64_t mark = ++sim->mark;
        op_mark(stream->tail, mark);
        while (op_step(sim, mark))
            n++;
        op_run_markers(sim, stream->records);
    }
    pthread_mutex_unlock(&sim->lock);
    return n;
}
