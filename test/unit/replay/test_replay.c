/* SPDX-License-Identifier: MIT */
/* What a replay tells while it runs, and the smallest limit. */
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
    struct items all = {items, sizeof items / sizeof items[0], 0};
    const struct vpmm_tape_source source = {next, &all};
    const struct vpmm_tape_choice choice = {.least_bytes = 1, .device = -1};
    struct vpmm_tape tape;
    assert_int_equal(vpmm_tape_read(&source, &choice, &tape), VPMM_OK);
    return tape;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_operation_of_each_pass_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
