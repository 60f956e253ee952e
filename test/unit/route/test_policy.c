/* SPDX-License-Identifier: MIT */
/* The policy against a list of rules written down on its own, for every combination of what it
 * depends on. */
#include "route/route.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

enum {
    N_BOOLEANS = 10
};
#define THRESHOLD 100u
#define DEVICE 1000u
#define LIMIT 500u

/* Whether the answer `route` is allowed at all: its own cause is there. */
static bool has_cause(const struct vpmm_route_question *q, enum vpmm_route route)
{
    switch (route) {
    case VPMM_ROUTE_DISABLED:
        return q->is_disabled;
    case VPMM_ROUTE_NO_CONTEXT:
        return !q->has_context;
    case VPMM_ROUTE_CAPTURING:
        return q->is_capturing;
    case VPMM_ROUTE_NO_VMM:
        return !q->has_vmm;
    case VPMM_ROUTE_SMALL:
        return q->bytes < THRESHOLD;
    case VPMM_ROUTE_LARGE:
        return q->bytes > DEVICE;
    case VPMM_ROUTE_LIMITED:
        return q->bytes > q->limit_bytes;
    case VPMM_ROUTE_EXPLICIT_POOL:
        return q->is_async && q->names_explicit_pool;
    case VPMM_ROUTE_OTHER_POOL:
        return q->is_async && !q->names_our_pool && !q->names_explicit_pool;
    case VPMM_ROUTE_NO_PEER:
        return !q->is_async && !q->peers_possible;
    case VPMM_ROUTE_NO_IPC:
        return !q->is_async && !q->emulates_ipc;
    default:
        return false;
    }
}

/* First causes come before later ones: whoever reads a reason may know that none of those before it
 * applied. */
static const enum vpmm_route by_weight[] = {
    VPMM_ROUTE_DISABLED, VPMM_ROUTE_SMALL,  VPMM_ROUTE_NO_CONTEXT,    VPMM_ROUTE_CAPTURING,
    VPMM_ROUTE_NO_VMM,   VPMM_ROUTE_LARGE,  VPMM_ROUTE_EXPLICIT_POOL, VPMM_ROUTE_OTHER_POOL,
    VPMM_ROUTE_NO_PEER,  VPMM_ROUTE_NO_IPC, VPMM_ROUTE_LIMITED,
};

static void every_combination_has_its_first_cause_as_reason(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {LIMIT,     LIMIT + 1,     0,      1,          THRESHOLD - 1,
                                     THRESHOLD, THRESHOLD + 1, DEVICE, DEVICE + 1, UINT64_MAX};
    unsigned seen[VPMM_ROUTE_COUNT] = {0};
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (unsigned bits = 0; bits < 1u << N_BOOLEANS; bits++) {
            const struct vpmm_route_question q = {
                .bytes = sizes[i],
                .threshold_bytes = THRESHOLD,
                .device_bytes = DEVICE,
                .is_async = bits & 1,
                .is_capturing = bits >> 1 & 1,
                .has_context = bits >> 2 & 1,
                .has_vmm = bits >> 3 & 1,
                .names_our_pool = bits >> 4 & 1,
                .names_explicit_pool = bits >> 5 & 1,
                .peers_possible = bits >> 6 & 1,
                .is_disabled = bits >> 7 & 1,
                .limit_bytes = bits >> 8 & 1 ? LIMIT : UINT64_MAX,
                .emulates_ipc = bits >> 9 & 1,
            };
            enum vpmm_route expected = VPMM_ROUTE_POOL;
            for (unsigned w = sizeof by_weight / sizeof by_weight[0]; w-- > 0;)
                expected = has_cause(&q, by_weight[w]) ? by_weight[w] : expected;
            assert_int_equal(vpmm_route_decide(&q), expected);
            seen[expected]++;
        }
    for (unsigned route = 0; route < VPMM_ROUTE_COUNT; route++)
        assert_true((seen[route] > 0) ==
                    (route != VPMM_ROUTE_FULL && route != VPMM_ROUTE_POOL_LIMIT &&
                     route != VPMM_ROUTE_OTHER));
}

static void no_bytes_are_never_served(void **state)
{
    (void)state;
    const struct vpmm_route_question q = {.device_bytes = DEVICE,
                                          .has_context = true,
                                          .has_vmm = true,
                                          .peers_possible = true,
                                          .emulates_ipc = true};
    assert_int_equal(vpmm_route_decide(&q), VPMM_ROUTE_SMALL);
}

static void every_answer_has_a_text_of_its_own(void **state)
{
    (void)state;
    for (int i = 0; i < VPMM_ROUTE_COUNT; i++)
        for (int j = 0; j < i; j++)
            assert_string_not_equal(vpmm_route_text((enum vpmm_route)i),
                                    vpmm_route_text((enum vpmm_route)j));
    assert_string_equal(vpmm_route_text(VPMM_ROUTE_FULL), "out of memory");
    assert_string_equal(vpmm_route_text(VPMM_ROUTE_COUNT), "unknown answer");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_combination_has_its_first_cause_as_reason),
        cmocka_unit_test(no_bytes_are_never_served),
        cmocka_unit_test(every_answer_has_a_text_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
