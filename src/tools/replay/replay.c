/* SPDX-License-Identifier: MIT */
/* Replays a tape, pass by pass, and measures each call. Must not count the driver's own time as the
 * allocator's. */
#include "replay/replay.h"

#include "replay/allocator.h"
#include "replay/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)
#define H200_BYTES (143771 * MIB)
#define POINTS_MAX 2048

struct block {
    uint64_t address; /* 0: not live */
    uint64_t bytes;
    uint32_t stream;
    bool is_sync;
};

struct run {
    const struct vpmm_tape *tape;
    const struct vpmm_replay_options *options;
    struct vpmm_replay_device *device;
    struct vpmm_allocator *allocator;
    struct vpmm_replay_result *result;
    struct block *blocks; /* by the tape's numbers */
    uint64_t *call_ns;    /* of each call of a pass */
    char *message;

    /* Of the pass under way. */
    struct vpmm_replay_pass *pass;
    uint64_t live_bytes, held_bytes;
    size_t n_calls;
    size_t stride; /* calls from point to point; 0: no points are kept */
};

/* ---- points ---- */

static void keep_most(struct vpmm_replay_point *point, const struct vpmm_replay_point *other)
{
    if (other->live_bytes > point->live_bytes)
        point->live_bytes = other->live_bytes;
    if (other->held_bytes > point->held_bytes)
        point->held_bytes = other->held_bytes;
}

/* Every second one goes, and what it says beyond the one before is kept there. */
static void thin_out(struct vpmm_replay_result *result)
{
    for (size_t i = 0; i < POINTS_MAX / 2; i++) {
        result->points[i] = result->points[2 * i];
        keep_most(&result->points[i], &result->points[2 * i + 1]);
    }
    result->n_points = POINTS_MAX / 2;
}

/* Whether the call that was made last begins a point. */
static bool is_point_due(const struct run *run)
{
    return run->stride && (run->n_calls - 1) % run->stride == 0;
}

static void add_point(struct run *run, const struct vpmm_tape_op *op)
{
    struct vpmm_replay_result *result = run->result;
    const struct vpmm_replay_point now = {op->ns - run->tape->ops[0].ns, run->live_bytes,
                                          run->held_bytes};
    if (is_point_due(run)) {
        if (result->n_points == POINTS_MAX) {
            thin_out(result);
            run->stride *= 2;
        }
        result->points[result->n_points++] = now;
        return;
    }
    keep_most(&result->points[result->n_points - 1], &now);
}

/* ---- one call ---- */

static bool fail(struct run *run, const char *what, uint64_t bytes, enum vpmm_status status)
{
    int length = snprintf(run->message, VPMM_REPLAY_MESSAGE_BYTES, "%s", what);
    if (bytes)
        length += snprintf(run->message + length, VPMM_REPLAY_MESSAGE_BYTES - (size_t)length,
                           " of %llu bytes", (unsigned long long)bytes);
    (void)snprintf(run->message + length, VPMM_REPLAY_MESSAGE_BYTES - (size_t)length,
                   " failed on %s: %s", run->device->name, vpmm_status_text(status));
    return false;
}

static bool take(struct run *run, const struct vpmm_tape_op *op)
{
    struct block *block = &run->blocks[op->object];
    struct vpmm_replay_pass *pass = run->pass;
    enum vpmm_status status =
        run->allocator->take(run->allocator, op->amount, op->stream, op->is_sync, &block->address);
    if (status == VPMM_NO_MEMORY || status == VPMM_LIMITED) {
        block->address = 0;
        pass->refused++;
        if (op->amount > pass->refused_largest_bytes)
            pass->refused_largest_bytes = op->amount;
        return true;
    }
    if (status)
        return fail(run, "a malloc", op->amount, status);
    *block = (struct block){block->address, op->amount, op->stream, op->is_sync};
    run->live_bytes += op->amount;
    return true;
}

static bool give(struct run *run, struct block *block, uint32_t stream, bool is_sync)
{
    enum vpmm_status status = run->allocator->give(run->allocator, block->address, stream, is_sync);
    if (status)
        return fail(run, "a free", block->bytes, status);
    block->address = 0;
    run->live_bytes -= block->bytes;
    return true;
}

static void account(struct run *run, uint64_t start_ns, uint64_t inner_ns, uint64_t total_ns,
                    uint64_t n_calls)
{
    uint64_t spent_ns = vpmm_priced_clock_ns() - start_ns;
    const struct vpmm_priced *priced = &run->device->priced;
    uint64_t foreign_ns = priced->tally.inner_ns - inner_ns +
                          (priced->tally.n_calls - n_calls) * priced->overhead_ps / 1000;
    uint64_t own_ns = spent_ns > foreign_ns ? spent_ns - foreign_ns : 0;
    uint64_t driver_ns = priced->tally.total_ns - total_ns;
    uint64_t whole_ns = driver_ns + own_ns;
    run->pass->own_ns += own_ns;
    run->pass->driver_ns += driver_ns;
    run->pass->total_ns += whole_ns;
    if (whole_ns > run->pass->max_ns)
        run->pass->max_ns = whole_ns;
    run->call_ns[run->n_calls++] = whole_ns;
}

static void sample(struct run *run, const struct vpmm_tape_op *op)
{
    struct vpmm_replay_pass *pass = run->pass;
    bool is_peak = run->live_bytes > pass->live_peak_bytes;
    if (is_peak)
        pass->live_peak_bytes = run->live_bytes;
    if (is_peak || is_point_due(run) || !run->allocator->is_look_dear)
        run->held_bytes = run->allocator->held_bytes(run->allocator);
    if (run->held_bytes > pass->held_peak_bytes)
        pass->held_peak_bytes = run->held_bytes;
    if (run->stride)
        add_point(run, op);
}

static bool request(struct run *run, const struct vpmm_tape_op *op)
{
    struct block *block = &run->blocks[op->object];
    bool is_free = op->kind == VPMM_TAPE_FREE;
    const struct vpmm_priced_tally *tally = &run->device->priced.tally;
    if (is_free && block->address == 0)
        return true;
    if (is_free && run->options->lag_ns) {
        enum vpmm_status status = run->device->work(run->device, op->stream, run->options->lag_ns);
        if (status)
            return fail(run, "work", 0, status);
    }
    uint64_t inner_ns = tally->inner_ns, total_ns = tally->total_ns, n_calls = tally->n_calls;
    uint64_t start_ns = vpmm_priced_clock_ns();
    if (!(is_free ? give(run, block, op->stream, op->is_sync) : take(run, op)))
        return false;
    account(run, start_ns, inner_ns, total_ns, n_calls);
    if (!is_free)
        run->pass->last_malloc_ns = run->call_ns[run->n_calls - 1];
    sample(run, op);
    return true;
}

/* ---- one pass ---- */

static bool step(struct run *run, const struct vpmm_tape_op *op)
{
    struct vpmm_replay_device *device = run->device;
    enum vpmm_status status = VPMM_OK;
    device->go_to(device, op->ns);
    switch ((enum vpmm_tape_kind)op->kind) {
    case VPMM_TAPE_MALLOC:
    case VPMM_TAPE_FREE:
        return request(run, op);
    case VPMM_TAPE_WORK:
        status = device->work(device, op->stream, op->amount);
        break;
    case VPMM_TAPE_RECORD:
        status = run->allocator->record(run->allocator, op->object, op->stream);
        break;
    case VPMM_TAPE_FOLLOW:
        status = run->allocator->follow(run->allocator, op->object, op->stream);
        break;
    }
    return !status || fail(run, "work of the trace", 0, status);
}

static bool free_what_is_live(struct run *run)
{
    for (uint32_t i = 0; i < run->tape->n_allocations; i++) {
        struct block *block = &run->blocks[i];
        if (block->address && !give(run, block, block->stream, block->is_sync))
            return false;
    }
    enum vpmm_status status = run->device->drain(run->device);
    return !status || fail(run, "a wait for all work", 0, status);
}

static int compare(const void *a, const void *b)
{
    const uint64_t *left = a;
    const uint64_t *right = b;
    return (*left > *right) - (*left < *right);
}

static void find_quantiles(struct run *run)
{
    size_t n = run->n_calls;
    if (n == 0)
        return;
    qsort(run->call_ns, n, sizeof *run->call_ns, compare);
    run->pass->p50_ns = run->call_ns[n / 2];
    run->pass->p99_ns = run->call_ns[n - 1 - n / 100];
}

/* Both begin with what was counted before the pass. */
static void subtract(uint64_t *figures, const uint64_t *before, size_t bytes)
{
    for (size_t i = 0; i < bytes / sizeof *figures; i++)
        figures[i] -= before[i];
}

static bool run_ops(struct run *run)
{
    const struct vpmm_tape *tape = run->tape;
    const struct vpmm_replay_watcher *watcher = run->options->watcher;
    uint64_t n_before = (uint64_t)(run->pass - run->result->passes) * tape->n_ops;
    for (size_t i = 0; i < tape->n_ops; i++) {
        if (watcher)
            watcher->step(watcher->self, n_before + i, run->options->passes * tape->n_ops);
        if (!step(run, &tape->ops[i]))
            return false;
    }
    return true;
}

static bool run_pass(struct run *run, struct vpmm_replay_pass *pass)
{
    const struct vpmm_tape *tape = run->tape;
    struct vpmm_replay_device *device = run->device;
    struct vpmm_replay_counts counts;
    struct vpmm_priced_tally tally = device->priced.tally;
    uint64_t waited_ns = device->waited_ns(device);
    run->pass = pass;
    run->n_calls = 0;
    run->stride = pass == run->result->passes ? 1 : 0;
    run->allocator->counts(run->allocator, &counts);
    device->begin(device, tape->n_ops ? tape->ops[0].ns : 0);
    if (!run_ops(run))
        return false;
    pass->calls = run->n_calls;
    pass->waited_ns = device->waited_ns(device) - waited_ns;
    run->allocator->counts(run->allocator, &pass->counts);
    pass->tally = device->priced.tally;
    subtract((uint64_t *)&pass->counts, (uint64_t *)&counts, sizeof counts);
    subtract((uint64_t *)&pass->tally, (uint64_t *)&tally, sizeof tally);
    pass->owed_ns = run->allocator->owed_ns(run->allocator);
    find_quantiles(run);
    return free_what_is_live(run);
}

/* ---- a replay ---- */

void vpmm_replay_options_init(struct vpmm_replay_options *options_out)
{
    *options_out = (struct vpmm_replay_options){.through = VPMM_REPLAY_POOL,
                                                .gpu = VPMM_REPLAY_SIMULATED,
                                                .passes = 1,
                                                .device_bytes = H200_BYTES,
                                                .slack_bytes = 256 * MIB,
                                                .slack_percent = 2,
                                                .spare_percent = 18};
}

static bool furnish(struct run *run)
{
    struct vpmm_replay_result *result = run->result;
    run->blocks = calloc((size_t)run->tape->n_allocations + 1, sizeof *run->blocks);
    run->call_ns = calloc((size_t)run->tape->n_allocations + (size_t)run->tape->n_frees + 1,
                          sizeof *run->call_ns);
    result->passes = calloc(run->options->passes, sizeof *result->passes);
    result->points = calloc(POINTS_MAX, sizeof *result->points);
    if (run->blocks && run->call_ns && result->passes && result->points)
        return true;
    (void)snprintf(run->message, VPMM_REPLAY_MESSAGE_BYTES, "%s",
                   vpmm_status_text(VPMM_NO_METADATA));
    return false;
}

static bool run_passes(struct run *run)
{
    struct vpmm_replay_result *result = run->result;
    (void)snprintf(result->device, sizeof result->device, "%s", run->device->name);
    result->device_bytes = run->device->total_bytes;
    result->has_work = run->device->has_work;
    result->is_preloaded = run->device->is_preloaded;
    result->page_bytes = run->allocator->page_bytes;
    result->limit_bytes = run->allocator->limit_bytes;
    bool is_good = true;
    while (is_good && result->n_passes < run->options->passes)
        is_good = run_pass(run, &result->passes[result->n_passes++]);
    const char *broken = run->allocator->close(run->allocator);
    if (is_good && broken)
        (void)snprintf(run->message, VPMM_REPLAY_MESSAGE_BYTES,
                       "the pool is not in order after the replay: %s", broken);
    return is_good && !broken;
}

static bool open_and_run(struct run *run)
{
    const struct vpmm_replay_options *options = run->options;
    if (!furnish(run))
        return false;
    run->device = options->gpu == VPMM_REPLAY_SIMULATED
                      ? vpmm_replay_device_sim(run->tape, options->device_bytes, run->message)
                      : vpmm_replay_device_gpu(run->tape, options->gpu, run->message);
    if (!run->device)
        return false;
    run->allocator = options->through == VPMM_REPLAY_POOL
                         ? vpmm_allocator_pool(run->device, options, run->message)
                         : vpmm_allocator_bare(run->device, options, run->message);
    bool is_good = run->allocator && run_passes(run);
    run->device->close(run->device);
    return is_good;
}

bool vpmm_replay_run(const struct vpmm_tape *tape, const struct vpmm_replay_options *options,
                     struct vpmm_replay_result *result_out,
                     char message_out[static VPMM_REPLAY_MESSAGE_BYTES])
{
    struct run run = {.tape = tape, .options = options, .result = result_out};
    run.message = message_out;
    memset(result_out, 0, sizeof *result_out);
    bool is_good = open_and_run(&run);
    free(run.blocks);
    free(run.call_ns);
    if (!is_good)
        vpmm_replay_result_finish(result_out);
    return is_good;
}

void vpmm_replay_result_finish(struct vpmm_replay_result *result)
{
    free(result->passes);
    free(result->points);
    memset(result, 0, sizeof *result);
}
