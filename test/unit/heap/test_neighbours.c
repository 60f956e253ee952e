/* SPDX-License-Identifier: MIT */
/* The last step of the ladder: asking other processes. A device of 64 pages, of which a neighbour
 * holds some; it gives them back when it is asked. */
#include "fixture.h"

#include "base/lock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct fixture f;
static CUstream stream;

static struct {
    uint64_t extent; /* what the neighbour holds */
    bool gives;
    unsigned n_asked;
    uint64_t asked_bytes;
} neighbour;

static bool ask(void *self, int device, uint64_t bytes)
{
    assert_ptr_equal(self, &neighbour);
    assert_int_equal(device, 0);
    assert_true(vpmm_lock_none_held());
    neighbour.n_asked++;
    neighbour.asked_bytes = bytes;
    if (!neighbour.gives)
        return false;
    assert_int_equal(f.driver.extent_release(f.driver.self, neighbour.extent), VPMM_OK);
    neighbour.extent = 0;
    return true;
}
static const struct vpmm_neighbours neighbours = {&neighbour, ask};

static void set_up_with(uint64_t neighbour_pages, uint64_t limit_bytes)
{
    struct fixture_params params;
    fixture_params_default(&params);
    params.heap.neighbours = &neighbours;
    params.heap.limit_bytes = limit_bytes;
    fixture_setup(&f, &params);
    stream = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    neighbour.n_asked = 0;
    neighbour.gives = true;
    assert_int_equal(
        f.driver.extent_create(f.driver.self, 0, neighbour_pages * f.page_bytes, &neighbour.extent),
        VPMM_OK);
}

static int set_up(void **state)
{
    (void)state;
    set_up_with(40, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (neighbour.extent)
        assert_int_equal(f.driver.extent_release(f.driver.self, neighbour.extent), VPMM_OK);
    fixture_teardown(&f);
    return 0;
}

static void what_they_give_serves_the_request(void **state)
{
    (void)state;
    CUstream streams[] = {NULL, stream};
    uint64_t p = fixture_malloc(&f, 50, streams[0]);
    assert_int_equal(neighbour.n_asked, 1);
    assert_int_equal(neighbour.asked_bytes, (50 - 24 + 1) * f.page_bytes);
    fixture_free(&f, p, streams[0]);
    fixture_cycle(&f, 60, streams[1]);
    assert_int_equal(neighbour.n_asked, 1);
}

static void where_they_give_nothing_the_request_fails(void **state)
{
    (void)state;
    uint64_t p;
    neighbour.gives = false;
    assert_int_equal(fixture_try_malloc(&f, 50, stream, &p), VPMM_NO_MEMORY);
    assert_int_equal(neighbour.n_asked, 1);
    assert_int_equal(fixture_totals(&f).held_pages, 0);
    fixture_cycle(&f, 24, stream);
    assert_int_equal(neighbour.n_asked, 1);
}

static void where_the_device_has_nothing_they_are_asked_for_all(void **state)
{
    uint64_t p;
    assert_int_equal(tear_down(state), 0);
    set_up_with(64, 0);
    neighbour.gives = false;
    assert_int_equal(fixture_try_malloc(&f, 9, stream, &p), VPMM_NO_MEMORY);
    assert_int_equal(neighbour.asked_bytes, 9 * f.page_bytes);
}

static void nobody_is_asked_while_ones_own_memory_will_do(void **state)
{
    (void)state;
    fixture_cycle(&f, 20, stream);
    CUstream other = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&f, 22, stream);
    fixture_work(&f, stream, p, 22, true, NULL);
    fixture_free(&f, p, stream);
    fixture_cycle(&f, 24, other);
    assert_int_equal(neighbour.n_asked, 0);
}

static void at_the_limit_nobody_is_asked(void **state)
{
    (void)state;
    uint64_t p;
    assert_int_equal(tear_down(state), 0);
    set_up_with(1, 20 * GIB);
    assert_int_equal(fixture_try_malloc(&f, 21, stream, &p), VPMM_LIMITED);
    assert_int_equal(neighbour.n_asked, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_they_give_serves_the_request),
        TEST(where_they_give_nothing_the_request_fails),
        TEST(where_the_device_has_nothing_they_are_asked_for_all),
        TEST(nobody_is_asked_while_ones_own_memory_will_do),
        TEST(at_the_limit_nobody_is_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
