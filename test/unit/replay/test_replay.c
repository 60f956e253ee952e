/* SPDX-License-Identifier: MIT */
/* The figures of a replay, what it tells while it runs, and the smallest limit. */
#include "replay/replay.h"
#include "trace/reader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)

struct items {
    const struct vpmm_trace_item *items;
    size_t n, n_given;
};

static bool next(void *self, struct vpmm_trace_item *item_out)
{
    struct items *items = self;
    if (items->n_given == items->n)
        return false;
    *item_out = items->items[items->n_given++];
    return true;
}

static struct vpmm_tape read_tape(const struct vpmm_trace_item *items, size_t n)
{
    struct items all = {items, n, 0};
    const struct vpmm_tape_source source = {next, &all};
    const struct vpmm_tape_choice choice = {.least_bytes = 1, .device = -1};
    struct vpmm_tape tape;
    assert_int_equal(vpmm_tape_read(&source, &choice, &tape), VPMM_OK);
    return tape;
}

/* Two blocks, one of them freed behind a kernel. */
static struct vpmm_tape make_tape(void)
{
    static const struct vpmm_trace_item items[] = {
        {.entry = {.kind = VPMM_TRACE_MALLOC, .address = 1, .bytes = 4 * MIB}, .is_known = true},
        {.entry = {.kind = VPMM_TRACE_KERNEL, .bytes = 5000}, .moment_ns = 1000},
        {.entry = {.kind = VPMM_TRACE_FREE, .address = 1, .bytes = 4 * MIB},
         .moment_ns = 2000,
         .is_known = true},
        {.entry = {.kind = VPMM_TRACE_MALLOC, .address = 1, .bytes = 6 * MIB},
         .moment_ns = 3000,
         .is_known = true},
    };
    return read_tape(items, sizeof items / sizeof items[0]);
}

struct seen {
    uint64_t n_steps, n_all, n_limits;
    bool are_in_order;
};

static void note_step(void *self, uint64_t n_done, uint64_t n_all)
{
    struct seen *seen = self;
    seen->are_in_order &= n_done == seen->n_steps % n_all;
    seen->n_steps++;
    seen->n_all = n_all;
}

static void note_limit(void *self, uint64_t limit_bytes, bool completes)
{
    struct seen *seen = self;
    assert_true(completes == (limit_bytes >= 6 * MIB));
    seen->n_limits++;
}

static void test_each_operation_of_each_pass_is_told(void **state)
{
    struct seen seen = {.are_in_order = true};
    const struct vpmm_replay_watcher watcher = {note_step, note_limit, &seen};
    struct vpmm_tape tape = make_tape();
    struct vpmm_replay_options options;
    struct vpmm_replay_result result;
    char message[VPMM_REPLAY_MESSAGE_BYTES];
    uint64_t limit_bytes = 0;
    (void)state;
    vpmm_replay_options_init(&options);
    options.passes = 3;
    options.watcher = &watcher;
    assert_true(vpmm_replay_run(&tape, &options, &result, message));
    assert_int_equal(seen.n_steps, 12);
    assert_int_equal(seen.n_all, 12);
    assert_true(seen.are_in_order);
    assert_int_equal(result.passes[2].calls, 3);
    vpmm_replay_result_finish(&result);
    assert_true(vpmm_replay_find_limit(&tape, &options, &limit_bytes, message));
    assert_true(seen.n_limits > 0 && seen.are_in_order);
    assert_int_equal(limit_bytes, 6 * MIB);
    vpmm_tape_finish(&tape);
}

static void test_each_pass_has_its_own_figures(void **state)
{
    struct vpmm_tape tape = make_tape();
    struct vpmm_replay_options options;
    struct vpmm_replay_result result;
    char message[VPMM_REPLAY_MESSAGE_BYTES];
    (void)state;
    vpmm_replay_options_init(&options);
    options.passes = 3;
    assert_true(vpmm_replay_run(&tape, &options, &result, message));
    assert_true(result.passes[0].tally.calls[VPMM_PRICE_CREATE] > 0);
    for (unsigned i = 0; i < result.n_passes; i++) {
        assert_int_equal(result.passes[i].calls, 3);
        assert_int_equal(result.passes[i].live_peak_bytes, 6 * MIB);
        assert_true(i == 0 || result.passes[i].tally.calls[VPMM_PRICE_CREATE] == 0);
    }
    vpmm_replay_result_finish(&result);
    vpmm_tape_finish(&tape);
}

/* One request for most of the device, and some hundred that are served from the cache. */
static void test_one_long_call_is_the_longest_alone(void **state)
{
    static struct vpmm_trace_item items[300];
    struct vpmm_replay_options options;
    struct vpmm_replay_result result;
    char message[VPMM_REPLAY_MESSAGE_BYTES];
    (void)state;
    for (unsigned i = 0; i < 300; i++) {
        items[i].entry.kind = i % 2 ? VPMM_TRACE_FREE : VPMM_TRACE_MALLOC;
        items[i].entry.address = 1;
        items[i].entry.bytes = i < 2 ? 131072 * MIB : 2 * MIB;
        items[i].is_known = true;
    }
    struct vpmm_tape tape = read_tape(items, 300);
    vpmm_replay_options_init(&options);
    assert_true(vpmm_replay_run(&tape, &options, &result, message));
    const struct vpmm_replay_pass *pass = result.passes;
    assert_int_equal(pass->calls, 300);
    assert_true(pass->p50_ns <= pass->p99_ns && pass->p99_ns < pass->max_ns);
    assert_true(pass->max_ns >= pass->tally.ns[VPMM_PRICE_CREATE]);
    assert_true(pass->max_ns <= pass->total_ns);
    vpmm_replay_result_finish(&result);
    vpmm_tape_finish(&tape);
}

/* Beside many small blocks that share a page, each of three streams frees 64 pages in turn. */
static void test_blocks_that_share_pages_raise_no_limit(void **state)
{
    enum {
        SMALL = 2000,
        LARGE = 64,
        STREAMS = 3
    };
    static struct vpmm_trace_item items[SMALL + 2 * LARGE * STREAMS];
    struct vpmm_replay_options options;
    char message[VPMM_REPLAY_MESSAGE_BYTES];
    uint64_t limit_bytes = 0;
    size_t n = 0;
    (void)state;
    for (uint64_t i = 0; i < SMALL; i++)
        items[n++].entry = (struct vpmm_trace_entry){.kind = VPMM_TRACE_MALLOC,
                                                     .address = 1000 + i,
                                                     .bytes = 512,
                                                     .flags = VPMM_TRACE_IS_ASYNC};
    for (uint64_t i = 0; i < (uint64_t)2 * LARGE * STREAMS; i++)
        items[n++].entry =
            (struct vpmm_trace_entry){.kind = i / LARGE % 2 ? VPMM_TRACE_FREE : VPMM_TRACE_MALLOC,
                                      .address = 1 + i % LARGE,
                                      .bytes = 2 * MIB,
                                      .stream = 1 + i / LARGE / 2,
                                      .flags = VPMM_TRACE_IS_ASYNC};
    for (size_t i = 0; i < n; i++)
        items[i].is_known = true;
    struct vpmm_tape tape = read_tape(items, n);
    assert_int_equal(tape.live_peak_bytes, SMALL * 512 + LARGE * 2 * MIB);
    vpmm_replay_options_init(&options);
    options.lag_ns = 1000000;
    assert_true(vpmm_replay_find_limit(&tape, &options, &limit_bytes, message));
    assert_int_equal(limit_bytes, (1 + LARGE) * 2 * MIB);
    vpmm_tape_finish(&tape);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_that_share_pages_raise_no_limit),
        cmocka_unit_test(test_each_pass_has_its_own_figures),
        cmocka_unit_test(test_one_long_call_is_the_longest_alone),
        cmocka_unit_test(test_each_operation_of_each_pass_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
