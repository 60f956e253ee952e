/* SPDX-License-Identifier: MIT */
/* The program waits for a stream or a context. What was freed there is everybody's from then on,
 * without a query of ours. */
#include "fixture.h"

#include "order/order_program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define PAGES 4

/* One block goes from stream to stream, and the program waits in between. */
static void pass_on(struct fixture *f, bool waits_for_context)
{
    CUstream streams[] = {fixture_stream(f, CU_STREAM_NON_BLOCKING),
                          fixture_stream(f, CU_STREAM_NON_BLOCKING)};
    uint64_t first = 0;
    uint64_t n_queries = sim_calls(f->sim, "cuEventQuery");
    for (int round = 0; round < 20; round++) {
        CUstream stream = streams[round % 2];
        uint64_t p = fixture_malloc(f, PAGES, stream);
        if (!first)
            first = p;
        assert_int_equal(p, first);
        fixture_work(f, stream, p, PAGES, true, NULL);
        fixture_free(f, p, stream);
        struct vpmm_proof proof;
        if (waits_for_context)
            vpmm_order_prove_context(f->order, NULL, &proof);
        else
            vpmm_order_prove_stream(f->order, (vpmm_stream_handle)(void *)stream, &proof);
        assert_int_equal(waits_for_context ? sim_ctx_synchronize(f->sim)
                                           : sim_stream_synchronize(f->sim, stream),
                         CUDA_SUCCESS);
        vpmm_order_proven(f->order, &proof);
    }
    assert_int_equal(sim_calls(f->sim, "cuEventQuery"), n_queries);
}

static void test_waits_for_streams(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_cache(&f);
    pass_on(&f, false);
    fixture_teardown(&f);
}

static void test_waits_for_the_context(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_cache(&f);
    pass_on(&f, true);
    fixture_teardown(&f);
}

static void wait_for(struct fixture *f, CUstream stream)
{
    struct vpmm_proof proof;
    vpmm_order_prove_stream(f->order, (vpmm_stream_handle)(void *)stream, &proof);
    assert_int_equal(sim_stream_synchronize(f->sim, stream), CUDA_SUCCESS);
    vpmm_order_proven(f->order, &proof);
}

/* Nor is an event recorded for a batch that is still open then. */
static void test_an_open_batch_that_is_proven_complete(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_cache(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    /* A stream's first free has an event of its own. */
    fixture_cycle(&f, PAGES, a);
    uint64_t p = fixture_malloc(&f, PAGES, a);
    uint64_t n_records = fixture_records(&f);
    fixture_free(&f, p, a);
    wait_for(&f, a);
    assert_int_equal(fixture_malloc(&f, PAGES, b), p);
    assert_int_equal(fixture_records(&f), n_records);
    fixture_free(&f, p, b);
    fixture_teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waits_for_streams),
        cmocka_unit_test(test_waits_for_the_context),
        cmocka_unit_test(test_an_open_batch_that_is_proven_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
