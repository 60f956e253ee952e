/* SPDX-License-Identifier: MIT */
/* What a heap needs of its device and its settings, and what it says when it cannot be had. */
#include "fixture.h"

#include "heap/heap_internal.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* The facts that the driver shows instead of its own. */
static struct vpmm_device_facts shown;
static enum vpmm_status answer;

static enum vpmm_status show(void *self, int device, struct vpmm_device_facts *facts_out)
{
    (void)self;
    (void)device;
    *facts_out = shown;
    return answer;
}

static void setup(struct fixture *f)
{
    struct fixture_params params;
    fixture_params_default(&params);
    fixture_setup(f, &params);
    assert_int_equal(f->driver.device_facts(f->driver.self, 0, &shown), VPMM_OK);
    answer = VPMM_OK;
}

static enum vpmm_status create(struct fixture *f, const struct vpmm_heap_params *params,
                               struct vpmm_heap **heap_out)
{
    struct vpmm_driver driver = f->driver;
    driver.device_facts = show;
    uint64_t maps = vpmm_atomic_load(&f->maps_outstanding);
    enum vpmm_status status = vpmm_heap_create(params, &driver, f->order, &f->memory, heap_out);
    if (status)
        assert_int_equal(vpmm_atomic_load(&f->maps_outstanding), maps);
    return status;
}

static void a_device_that_cannot_serve_is_refused(void **state)
{
    (void)state;
    struct fixture f;
    struct vpmm_heap *heap = NULL;
    setup(&f);
    struct vpmm_heap_params params = f.heap->params;
    const struct vpmm_device_facts able = shown;

    answer = VPMM_FAILED;
    assert_int_equal(create(&f, &params, &heap), VPMM_FAILED);
    answer = VPMM_OK;
    shown.has_vmm = false;
    assert_int_equal(create(&f, &params, &heap), VPMM_NOT_SUPPORTED);
    shown = able;
    shown.granularity_bytes = 0;
    assert_int_equal(create(&f, &params, &heap), VPMM_NOT_SUPPORTED);
    shown = able;
    params.page_bytes = able.granularity_bytes + 1;
    assert_int_equal(create(&f, &params, &heap), VPMM_NOT_SUPPORTED);
    params.page_bytes = able.granularity_bytes;
    shown.total_bytes = able.granularity_bytes - 1;
    assert_int_equal(create(&f, &params, &heap), VPMM_NOT_SUPPORTED);
    assert_null(heap);
    fixture_teardown(&f);
}

static uint64_t largest_reservation;
static const struct vpmm_driver *device;

static enum vpmm_status reserve(void *self, uint64_t bytes, uint64_t *address_out)
{
    if (bytes > largest_reservation)
        return VPMM_NO_MEMORY;
    return device->address_reserve(self, bytes, address_out);
}

/* A root is as large as asked for. Where that cannot be had it shrinks to twice the device, or, if
 * less was asked for, to a page. */
static void a_root_shrinks_as_far_as_it_may(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    const uint64_t total = shown.total_bytes;
    const struct {
        uint64_t asked, largest, expected;
    } roots[] = {
        {3 * GIB, 3 * GIB, 3 * GIB},
        {3 * GIB, 3 * GIB - 1, GIB},
        {3 * GIB, GIB - 1, 0},
        {16 * total, 16 * total, 16 * total},
        {16 * total, 7 * total, 4 * total},
        {20 * total, 2 * total, 2 * total},
        {16 * total, 2 * total - 1, 0},
    };
    device = &f.driver;
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) {
        struct vpmm_heap *heap;
        struct vpmm_driver driver = f.driver;
        struct vpmm_heap_params params = f.heap->params;
        struct vpmm_region_view region;
        uint64_t cursor = 0;
        driver.address_reserve = reserve;
        largest_reservation = roots[i].largest;
        params.root_bytes = roots[i].asked;
        params.eager_pages = 0;
        enum vpmm_status status = vpmm_heap_create(&params, &driver, f.order, &f.memory, &heap);
        assert_int_equal(status, roots[i].expected ? VPMM_OK : VPMM_NO_MEMORY);
        if (status)
            continue;
        assert_true(vpmm_pool_next(vpmm_heap_pool(heap), &cursor, &region));
        assert_int_equal(region.state, VPMM_REGION_HOLE);
        assert_int_equal(region.pages * vpmm_heap_page_bytes(heap), roots[i].expected);
        vpmm_heap_destroy(heap);
    }
    fixture_teardown(&f);
}

static void *try_audit(void *argument)
{
    struct fixture *f = argument;
    const char *broken = "not looked at";
    bool could = vpmm_heap_try_audit(f->heap, &broken);
    return could && !broken ? f : NULL;
}

static bool can_audit(struct fixture *f)
{
    pthread_t thread;
    void *result;
    assert_int_equal(pthread_create(&thread, NULL, try_audit, f), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    return result != NULL;
}

static void an_audit_at_the_end_waits_for_nobody(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    assert_true(can_audit(&f));
    vpmm_lock_take(&f.heap->lock);
    assert_false(can_audit(&f));
    vpmm_lock_give(&f.heap->lock);
    assert_true(can_audit(&f));
    fixture_teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_that_cannot_serve_is_refused),
        cmocka_unit_test(a_root_shrinks_as_far_as_it_may),
        cmocka_unit_test(an_audit_at_the_end_waits_for_nobody),
    };
    return cmocka_run_group_tests_name("heap/create", tests, NULL, NULL);
}
