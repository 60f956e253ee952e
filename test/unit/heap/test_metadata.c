/* SPDX-License-Identifier: MIT */
/* What pending frees take of host memory: a hundred thousand fences on a hundred streams. */
#include "fixture.h"

#include "../pool/counting.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define STREAMS 100
#define FENCES 100000u
#define FENCE_BYTES_MAX 128

static void pending_frees_on_a_hundred_streams(void **state)
{
    (void)state;
    static struct counting counting;
    struct fixture fixture;
    struct fixture_params params;
    struct vpmm_order *order;
    struct vpmm_stream streams[STREAMS];
    struct vpmm_order_totals totals;
    fixture_params_default(&params);
    fixture_setup(&fixture, &params);
    counting_init(&counting);
    assert_int_equal(vpmm_order_create(&fixture.driver, &counting.memory, &order), VPMM_OK);
    for (int i = 0; i < STREAMS; i++) {
        CUstream stream = fixture_stream(&fixture, CU_STREAM_NON_BLOCKING);
        assert_int_equal(vpmm_order_stream(order, (vpmm_stream_handle)stream, &streams[i]),
                         VPMM_OK);
    }
    uint64_t empty = counting_resident_bytes(&counting);
    for (unsigned i = 0; i < FENCES; i++)
        assert_int_not_equal(vpmm_order_fence_stream(order, &streams[i % STREAMS]),
                             VPMM_FENCE_NONE);
    vpmm_order_totals(order, &totals);
    uint64_t resident = counting_resident_bytes(&counting);
    print_message("%llu pending fences, %llu events, %d streams: %llu KiB resident (%llu when "
                  "empty), %llu MiB mapped; %llu bytes a fence\n",
                  (unsigned long long)totals.fences, (unsigned long long)totals.events, STREAMS,
                  (unsigned long long)resident >> 10, (unsigned long long)empty >> 10,
                  (unsigned long long)counting_mapped_bytes(&counting) >> 20,
                  (unsigned long long)((resident - empty) / FENCES));
    assert_int_equal(totals.fences, FENCES);
    assert_true(resident - empty <= (uint64_t)FENCES * FENCE_BYTES_MAX);
    (void)sim_drain(fixture.sim);
    assert_true(vpmm_order_poll(order));
    vpmm_order_totals(order, &totals);
    assert_int_equal(totals.fences, 0);
    vpmm_order_destroy(order);
    assert_int_equal(counting.n_mappings, 0);
    fixture_teardown(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pending_frees_on_a_hundred_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
