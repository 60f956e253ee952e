/* SPDX-License-Identifier: MIT */
/* Memory decays in one thread while another one asks for it. */
#include "fixture.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MANY 2048

static struct fixture f;

/* Without the audit, which no other thread may disturb. */
static void *peak_again_and_again(void *over)
{
    assert_int_equal(sim_ctx_set_current(f.sim, f.handle), CUDA_SUCCESS);
    for (uint64_t i = 0; i < 400; i++) {
        uint64_t pages = i % 20 == 0 ? MANY : 1 + i * 7 % 300;
        const struct vpmm_request request = {.bytes = pages * f.page_bytes, .context = f.context};
        enum vpmm_status wait;
        uint64_t address;
        assert_int_equal(vpmm_heap_malloc(f.heap, &request, &address), VPMM_OK);
        assert_int_equal(vpmm_heap_free(f.heap, address, NULL, &wait), VPMM_OK);
    }
    vpmm_atomic_store((vpmm_atomic32 *)over, 1);
    return NULL;
}

/* Windows so short that what one thread has just freed decays while it asks for it again. */
static void requests_go_on_meanwhile(void **state)
{
    (void)state;
    vpmm_atomic32 is_over = 0;
    pthread_t other;
    struct vpmm_heap_counts counts;
    fixture_setup_eager(&f);
    assert_int_equal(pthread_create(&other, NULL, peak_again_and_again, &is_over), 0);
    do {
        vpmm_heap_decay_look(f.heap, true);
        while (vpmm_heap_decay_slice(f.heap, 0))
            continue;
        vpmm_heap_counts(f.heap, &counts);
    } while (!vpmm_atomic_load(&is_over) || !counts.decayed_bytes);
    assert_int_equal(pthread_join(other, NULL), 0);
    fixture_audit(&f);
    assert_int_equal(fixture_totals(&f).live_pages, 0);
    fixture_teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_go_on_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
