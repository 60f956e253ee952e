/* SPDX-License-Identifier: MIT */
/* The plan as arithmetic: random models at every budget. No plan exceeds its budget, what is in use
 * together shares no slot, and residents are spread through the pass. */
#include "offload/spread.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define ITEMS 24u

static uint64_t seed = 5;

static uint64_t draw(uint64_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (seed >> 33) % below;
}

static void check_budget(const struct vpmm_spread *spread)
{
    uint64_t held = spread->ring_chunks;
    for (uint32_t i = 0; i < spread->n_items; i++) {
        const struct vpmm_spread_item *item = &spread->items[i];
        held += item->is_resident ? item->n_chunks : 0;
        if (item->is_kept)
            assert_true(item->is_resident);
        if (!item->is_resident)
            assert_true(item->n_chunks <= spread->ring_chunks);
    }
    assert_true(held <= spread->budget_chunks);
    assert_int_equal(held, spread->ring_chunks + spread->resident_chunks);
}

static bool share(const struct vpmm_spread *spread, uint32_t a, uint32_t b)
{
    const struct vpmm_spread_item *first = &spread->items[a], *second = &spread->items[b];
    if (first->is_resident || second->is_resident || a == b)
        return false;
    for (uint64_t i = 0; i < first->n_chunks; i++)
        for (uint64_t j = 0; j < second->n_chunks; j++)
            if ((first->position + i) % spread->ring_chunks ==
                (second->position + j) % spread->ring_chunks)
                return true;
    return false;
}

static void check_spans(const struct vpmm_spread *spread)
{
    for (uint32_t i = 0; i < spread->n_steps; i++)
        for (uint32_t j = i + 1; j < spread->n_steps && j - i <= spread->steps[i].span; j++)
            assert_false(share(spread, spread->steps[i].item, spread->steps[j].item));
}

static void test_random(void **state)
{
    (void)state;
    for (int model = 0; model < 400; model++) {
        struct vpmm_spread_item items[ITEMS] = {0};
        struct vpmm_spread_step steps[2 * ITEMS];
        struct vpmm_spread spread = {.items = items, .n_items = ITEMS, .steps = steps};
        bool has_spans = model % 3 == 0;
        for (uint32_t i = 0; i < ITEMS; i++) {
            items[i].n_chunks = draw(8);
            items[i].is_kept = draw(12) == 0;
            if (items[i].n_chunks && !items[i].is_kept)
                steps[spread.n_steps++] = (struct vpmm_spread_step){i, 0};
            if (draw(10) == 0 && spread.n_steps) {
                steps[spread.n_steps] = steps[draw(spread.n_steps)];
                spread.n_steps++;
            }
        }
        for (uint32_t i = 0; has_spans && i < spread.n_steps; i++)
            steps[i].span = (uint32_t)(draw(4) ? 0 : draw(12));
        vpmm_spread_need(&spread);
        assert_true(spread.floor_chunks <= spread.smooth_chunks);
        assert_true(spread.smooth_chunks <= spread.all_chunks);
        for (uint64_t budget = 0; budget <= spread.all_chunks + 2; budget++) {
            spread.budget_chunks = budget;
            spread.ring_wish_chunks = draw(3) ? 0 : draw(20);
            spread.slack_chunks = draw(4);
            enum vpmm_status status = vpmm_spread_plan(&spread);
            assert_int_equal(status, budget < spread.floor_chunks ? VPMM_BELOW_FLOOR : VPMM_OK);
            if (status)
                continue;
            check_budget(&spread);
            check_spans(&spread);
        }
    }
}

/* A hundred layers, half of them resident: no ten in a row come to less than three or more than
 * seven. */
static void test_even(void **state)
{
    (void)state;
    struct vpmm_spread_item items[100] = {0};
    struct vpmm_spread_step steps[100];
    struct vpmm_spread spread = {
        .items = items, .n_items = 100, .steps = steps, .n_steps = 100, .budget_chunks = 1000};
    for (uint32_t i = 0; i < 100; i++) {
        items[i].n_chunks = 20;
        steps[i] = (struct vpmm_spread_step){i, 0};
    }
    assert_int_equal(vpmm_spread_plan(&spread), VPMM_OK);
    assert_true(spread.resident_chunks >= 46 * 20);
    for (uint32_t i = 0; i + 10 <= 100; i++) {
        uint32_t n = 0;
        for (uint32_t j = i; j < i + 10; j++)
            n += items[j].is_resident;
        assert_in_range(n, 3, 7);
    }
}

/* One group larger than all others is kept out of the ring where that makes it smaller. */
static void test_outlier(void **state)
{
    (void)state;
    struct vpmm_spread_item items[41] = {0};
    struct vpmm_spread_step steps[41];
    struct vpmm_spread spread = {
        .items = items, .n_items = 41, .steps = steps, .n_steps = 41, .budget_chunks = 300};
    for (uint32_t i = 0; i < 41; i++) {
        items[i].n_chunks = i == 40 ? 50 : 20;
        steps[i] = (struct vpmm_spread_step){i, 0};
    }
    assert_int_equal(vpmm_spread_plan(&spread), VPMM_OK);
    assert_true(items[40].is_resident);
    assert_true(spread.ring_chunks < 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_even),
        cmocka_unit_test(test_outlier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
