/* SPDX-License-Identifier: MIT */
/* A context's handle that comes back with another context. */
#include "fake.h"

#include "base/atomic.h"

#include <sched.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

static struct fake fake;
static struct vpmm_order *order;

static int setup(void **state)
{
    (void)state;
    fake_init(&fake);
    order = fake_order(&fake);
    return 0;
}

static int setup_without_ids(void **state)
{
    (void)setup(state);
    fake.driver.context_id = NULL;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fake_order_end(&fake, order);
    return 0;
}

static vpmm_atomic32 n_asking;

static void *ask_for_context(void *unused)
{
    struct vpmm_context *context;
    (void)unused;
    vpmm_atomic_add(&n_asking, 1);
    return vpmm_order_context(order, fake_context(0), &context) ? NULL : context;
}

/* The handle of a context that is being destroyed is given to a new one before we hear that the old
 * one is gone: whoever asks for it meanwhile gets the new one's record, by its id, or by waiting
 * where the driver has no ids. */
static void test_handle_reused_before_it_is_left(void **state)
{
    (void)state;
    for (uint32_t round = 1; round <= 20; round++) {
        pthread_t asker;
        struct vpmm_context *old = ask_for_context(NULL);
        void *found;
        vpmm_atomic_store(&n_asking, 0);
        struct vpmm_departure departure = vpmm_order_context_leaving(order, fake_context(0), true);
        fake_context_destroy(&fake, 0);
        fake_context_create(&fake, 0);
        assert_int_equal(pthread_create(&asker, NULL, ask_for_context, NULL), 0);
        while (!vpmm_atomic_load(&n_asking))
            (void)sched_yield();
        for (int i = 0; i < 100; i++)
            (void)sched_yield();
        vpmm_order_context_left(order, &departure, true);
        assert_int_equal(pthread_join(asker, &found), 0);
        assert_non_null(found);
        assert_ptr_not_equal(found, old);
        assert_false(vpmm_context_is_gone(found));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_handle_reused_before_it_is_left, setup, teardown),
        cmocka_unit_test_setup_teardown(test_handle_reused_before_it_is_left, setup_without_ids,
                                        teardown),
    };
    return cmocka_run_group_tests_name("order/reuse", tests, NULL, NULL);
}
