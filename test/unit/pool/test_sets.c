/* SPDX-License-Identifier: MIT */
/* The ordered tree and the set of bits against the plainest versions of themselves, and the extent
 * policy. */
#include "base/bits.h"
#include "base/tree.h"
#include "pool/pool_policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define N 3000

struct record {
    uint64_t pages, address;
    struct vpmm_tree_node node;
    bool is_in;
};

static uint64_t random_state = 88172645463325252u;

static uint64_t below(uint64_t limit)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % limit;
}

static struct vpmm_tree_key key_of(const void *record)
{
    const struct record *entry = record;
    return (struct vpmm_tree_key){entry->pages / 10, entry->pages % 10, entry->address};
}

static bool record_is_below(const void *record, const struct vpmm_tree_key *key)
{
    return vpmm_tree_key_is_below(key_of(record), key);
}

static bool is_below(struct vpmm_tree_key a, struct vpmm_tree_key b)
{
    if (a.major != b.major)
        return a.major < b.major;
    return a.middle < b.middle || (a.middle == b.middle && a.minor < b.minor);
}

static void check_tree(const struct vpmm_tree *tree, struct vpmm_tree_key key)
{
    uint32_t first = 0;
    uint32_t last = 0;
    for (uint32_t i = 1; i <= N; i++) {
        const struct record *record = vpmm_table_at(tree->records, i);
        if (!record->is_in)
            continue;
        if (is_below(key_of(record), key)) {
            if (!last || is_below(key_of(vpmm_table_at(tree->records, last)), key_of(record)))
                last = i;
        } else if (!first ||
                   is_below(key_of(record), key_of(vpmm_table_at(tree->records, first)))) {
            first = i;
        }
    }
    assert_int_equal(vpmm_tree_first_from(tree, key), first);
    assert_int_equal(vpmm_tree_last_before(tree, key), last);
}

static unsigned depth(const struct vpmm_tree *tree, uint32_t number)
{
    if (!number)
        return 0;
    const struct record *record = vpmm_table_at(tree->records, number);
    unsigned left = depth(tree, record->node.left);
    unsigned right = depth(tree, record->node.right);
    return 1 + (left > right ? left : right);
}

static void a_tree_finds_what_a_list_finds(void **state)
{
    (void)state;
    struct vpmm_table table;
    assert_int_equal(vpmm_table_init(&table, sizeof(struct record), &vpmm_memory_system), VPMM_OK);
    struct vpmm_tree tree = {&table, offsetof(struct record, node), key_of, record_is_below, 0};
    for (uint32_t i = 1; i <= N; i++) {
        struct record *record = vpmm_table_at(&table, vpmm_table_take(&table));
        record->pages = below(50);
        record->address = i;
    }
    for (int i = 0; i < 6 * N; i++) {
        uint32_t number = 1 + (uint32_t)below(N);
        struct record *record = vpmm_table_at(&table, number);
        if (record->is_in)
            vpmm_tree_remove(&tree, number);
        else
            vpmm_tree_insert(&tree, number);
        record->is_in = !record->is_in;
        if (i % 16 == 0)
            check_tree(&tree, (struct vpmm_tree_key){below(6), below(10), below(N + 2)});
    }
    assert_in_range(depth(&tree, tree.top), 1, 50);
    vpmm_table_finish(&table);
}

static void check_bits(const struct vpmm_bits *bits, const bool *model, uint64_t n, uint64_t from)
{
    uint64_t first = from;
    while (first < n && !model[first])
        first++;
    uint64_t last = from;
    while (last > 0 && !model[last])
        last--;
    uint64_t member = n;
    bool found = vpmm_bits_last_to(bits, from, &member);
    assert_int_equal(vpmm_bits_first_from(bits, from), first);
    assert_int_equal(vpmm_bits_has(bits, from), model[from]);
    assert_int_equal(found, model[last]);
    assert_int_equal(member, found ? last : n);
}

static void bits_find_what_an_array_finds(void **state)
{
    (void)state;
    static bool model[300000];
    static const uint64_t sizes[] = {1, 2, 63, 64, 65, 4095, 4096, 4097, 262144, 262145, 300000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct vpmm_bits bits;
        uint64_t n = sizes[i];
        memset(model, 0, sizeof model);
        assert_int_equal(vpmm_bits_init(&bits, n, &vpmm_memory_system), VPMM_OK);
        for (int step = 0; step < 600; step++) {
            uint64_t number = below(4) ? below(n) : n - 1 - below(n < 70 ? n : 70);
            if (model[number])
                vpmm_bits_clear(&bits, number);
            else
                vpmm_bits_set(&bits, number);
            model[number] = !model[number];
            check_bits(&bits, model, n, below(n));
            check_bits(&bits, model, n, 0);
            check_bits(&bits, model, n, n - 1);
        }
        assert_int_equal(vpmm_bits_first_from(&bits, n), n);
        assert_false(vpmm_bits_has(&bits, n));
        vpmm_bits_finish(&bits);
    }
}

static void spans_of_bits_are_found_as_single_ones_are(void **state)
{
    (void)state;
    static bool model[20000];
    const uint64_t n = sizeof model;
    struct vpmm_bits bits;
    assert_int_equal(vpmm_bits_init(&bits, n, &vpmm_memory_system), VPMM_OK);
    for (int step = 0; step < 4000; step++) {
        uint64_t first = below(n);
        uint64_t most = below(8) ? 150 : 9000;
        uint64_t pages = 1 + below(n - first < most ? n - first : most);
        bool is_set = step / 40 % 2 == 0;
        if (is_set)
            vpmm_bits_set_span(&bits, first, pages);
        else
            vpmm_bits_clear_span(&bits, first, pages);
        memset(model + first, is_set, pages);
        check_bits(&bits, model, n, below(n));
        check_bits(&bits, model, n, first);
        check_bits(&bits, model, n, first + pages - 1);
        check_bits(&bits, model, n, 0);
        check_bits(&bits, model, n, n - 1);
    }
    vpmm_bits_finish(&bits);
}

static void new_memory_is_cut_exactly_into_powers_of_two(void **state)
{
    (void)state;
    for (uint64_t max = 0; max <= 9; max++) {
        struct vpmm_pool_params params = {(uint64_t)2 << 20, max, 0, 0};
        for (uint64_t pages = 1; pages < 3000; pages++) {
            uint64_t unit = vpmm_policy_unit(&params, 1, false, pages);
            uint64_t left = pages;
            uint64_t n = 0;
            for (; left; n++) {
                uint64_t cut = vpmm_policy_cut(unit, left);
                assert_true(cut > 0 && cut <= left && (cut & (cut - 1)) == 0);
                assert_true(max == 0 || cut <= max);
                left -= cut;
            }
            assert_int_equal(n, vpmm_policy_cuts(unit, pages));
            if (max == 0 && pages <= 64 && (pages & (pages - 1)) == 0)
                assert_int_equal(n, pages <= 16 ? 1 : 2);
        }
    }
}

static void extents_grow_with_the_request_up_to_a_limit(void **state)
{
    (void)state;
    struct vpmm_pool_params params = {(uint64_t)2 << 20, 0, 0, 0};
    uint64_t gib = 512;
    const uint64_t held = 64 * gib;
    assert_int_equal(vpmm_policy_unit(&params, held, false, gib / 4), gib / 16);
    assert_int_equal(vpmm_policy_unit(&params, held, false, gib), gib / 8);
    assert_int_equal(vpmm_policy_unit(&params, 31 * gib, false, gib), gib / 8);
    assert_int_equal(vpmm_policy_unit(&params, 31 * gib - 1, false, gib), gib / 16);
    assert_int_equal(vpmm_policy_unit(&params, held, false, 8 * gib), gib / 8);
    assert_int_equal(vpmm_policy_unit(&params, held, false, 16 * gib), 4 * gib);
    assert_int_equal(vpmm_policy_unit(&params, held, false, 400 * gib), 4 * gib);
    params.page_bytes = (uint64_t)8 << 30;
    assert_int_equal(vpmm_policy_unit(&params, 0, false, 100), 1);
}

/* What an eighth of the request or less is held before is nothing to speak of. */
static void the_first_large_request_is_cut_once(void **state)
{
    (void)state;
    struct vpmm_pool_params params = {(uint64_t)2 << 20, 0, 0, 0};
    uint64_t gib = 512;
    assert_int_equal(vpmm_policy_unit(&params, 0, false, gib), gib / 2);
    assert_int_equal(vpmm_policy_unit(&params, gib / 8, false, gib), gib / 2);
    assert_int_equal(vpmm_policy_unit(&params, gib / 8 + 1, false, gib), gib / 16);
    assert_int_equal(vpmm_policy_unit(&params, 0, false, gib / 2), gib / 4);
    assert_int_equal(vpmm_policy_unit(&params, 0, false, gib / 2 - 1), gib / 16);
    assert_int_equal(vpmm_policy_unit(&params, 0, false, 6 * gib), gib);
    assert_int_equal(vpmm_policy_unit(&params, 0, false, 8 * gib), 4 * gib);
}

static void large_blocks_of_one_size_in_a_row_are_cut_once(void **state)
{
    (void)state;
    struct vpmm_pool_params params = {(uint64_t)2 << 20, 0, 0, 0};
    struct vpmm_row row = {0, 0};
    uint64_t gib = 512;
    assert_int_equal(vpmm_policy_unit(&params, 20 * gib, true, gib), gib / 2);
    assert_int_equal(vpmm_policy_unit(&params, 20 * gib, true, gib / 4), gib / 16);
    for (int i = 0; i < 4; i++) {
        assert_false(vpmm_policy_row_has(&row, gib));
        vpmm_policy_row_note(&params, &row, gib);
        vpmm_policy_row_note(&params, &row, gib / 4);
    }
    assert_true(vpmm_policy_row_has(&row, gib));
    assert_false(vpmm_policy_row_has(&row, gib + 1));
    vpmm_policy_row_note(&params, &row, gib + 1);
    assert_false(vpmm_policy_row_has(&row, gib));
    vpmm_policy_row_note(&params, &row, gib);
    assert_false(vpmm_policy_row_has(&row, gib));
}

static void the_toll_of_moves_is_bounded_and_passes(void **state)
{
    (void)state;
    struct vpmm_pool_params params = {(uint64_t)2 << 20, 0, 0, 25};
    struct vpmm_toll toll = {0, 0};
    for (int i = 0; i < 96; i++) {
        assert_int_equal(vpmm_policy_spare(&params, &toll, 1000), 0);
        vpmm_policy_toll_take(&toll, 1);
    }
    assert_int_equal(vpmm_policy_spare(&params, &toll, 1000), 1250);
    for (int i = 0; i < 1000; i++)
        vpmm_policy_toll_take(&toll, UINT64_MAX);
    vpmm_policy_toll_ease(&toll, 96 * 128);
    vpmm_policy_toll_ease(&toll, 5);
    assert_int_equal(vpmm_policy_spare(&params, &toll, 1000), 1250);
    vpmm_policy_toll_ease(&toll, 96 * 128 + 1);
    assert_int_equal(vpmm_policy_spare(&params, &toll, 1000), 0);
    vpmm_policy_toll_ease(&toll, UINT64_MAX);
    assert_int_equal(toll.level, 0);
    vpmm_policy_toll_take(&toll, 0);
    assert_int_equal(toll.level, 0);
    for (int i = 0; i < 24; i++) {
        assert_int_equal(vpmm_policy_spare(&params, &toll, 1000), 0);
        vpmm_policy_toll_take(&toll, 5);
    }
    assert_int_equal(vpmm_policy_spare(&params, &toll, 1000), 1250);
}

/* A few pages more where that saves extents, never more than a small share of what is live. */
static void a_rest_is_rounded_up_where_that_saves_extents(void **state)
{
    (void)state;
    assert_int_equal(vpmm_policy_extra(32, 100000, 127), 1);
    assert_int_equal(vpmm_policy_extra(32, 100000, 128), 0);
    assert_int_equal(vpmm_policy_extra(32, 100000, 121), 7);
    assert_int_equal(vpmm_policy_extra(32, 100000, 96 + 17), 15);
    assert_int_equal(vpmm_policy_extra(64, 100000, 64 + 48), 16);
    assert_int_equal(vpmm_policy_extra(64, 100000, 64 + 47), 1);
    assert_int_equal(vpmm_policy_extra(32, 100000, 96 + 19), 13);
    assert_int_equal(vpmm_policy_extra(32, 100, 127), 1);
    assert_int_equal(vpmm_policy_extra(32, 99, 127), 0);
    assert_int_equal(vpmm_policy_extra(1, 100000, 127), 0);
}

static uint64_t pages_of(const struct vpmm_mix *mix)
{
    uint64_t pages = 0;
    for (unsigned i = 0; i < VPMM_CLASSES; i++)
        pages += mix->n[i] << i;
    return pages;
}

static uint64_t count_of(const struct vpmm_mix *mix)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < VPMM_CLASSES; i++)
        n += mix->n[i];
    return n;
}

static void a_harvest_leaves_nothing_out_and_takes_nothing_in_vain(void **state)
{
    (void)state;
    for (int i = 0; i < 20000; i++) {
        struct vpmm_mix mix = {{0}};
        for (unsigned class = 0; class < 6; class ++)
            mix.n[class] = below(3) ? below(5) : 0;
        uint64_t need = 1 + below(120);
        struct vpmm_harvest harvest;
        vpmm_policy_harvest(&mix, need, true, &harvest);
        uint64_t taken = pages_of(&harvest.take);
        assert_int_equal(taken + harvest.missing, need + harvest.excess);
        assert_int_equal(harvest.extents, count_of(&harvest.take));
        assert_true(harvest.missing == 0 || taken == pages_of(&mix));
        assert_true(harvest.excess == 0 || harvest.take.n[harvest.last_class] > 0);
        for (unsigned class = 0; class < 6; class ++) {
            assert_true(harvest.take.n[class] <= mix.n[class]);
            assert_true(harvest.take.n[class] == 0 || (uint64_t)1 << class > harvest.excess);
        }
        vpmm_policy_harvest(&mix, need, false, &harvest);
        assert_int_equal(harvest.excess, 0);
        assert_int_equal(pages_of(&harvest.take) + harvest.missing, need);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tree_finds_what_a_list_finds),
        cmocka_unit_test(bits_find_what_an_array_finds),
        cmocka_unit_test(spans_of_bits_are_found_as_single_ones_are),
        cmocka_unit_test(new_memory_is_cut_exactly_into_powers_of_two),
        cmocka_unit_test(extents_grow_with_the_request_up_to_a_limit),
        cmocka_unit_test(the_first_large_request_is_cut_once),
        cmocka_unit_test(large_blocks_of_one_size_in_a_row_are_cut_once),
        cmocka_unit_test(the_toll_of_moves_is_bounded_and_passes),
        cmocka_unit_test(a_rest_is_rounded_up_where_that_saves_extents),
        cmocka_unit_test(a_harvest_leaves_nothing_out_and_takes_nothing_in_vain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
