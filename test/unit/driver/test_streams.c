/* SPDX-License-Identifier: MIT */
/* What the seam tells of a stream, and what it may ask the driver for that. */
#include "real.h"

#include <stdarg.h>
#include <stddef.h>
#include <fcntl.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>
#include <unistd.h>

static struct vpmm_cuda cuda;
static struct vpmm_driver driver;

static int setup(void **state)
{
    (void)state;
    memset(&real, 0, sizeof real);
    real.stack[real.depth++] = 1;
    return vpmm_cuda_init(&cuda, real_lookup, &real, &driver) != VPMM_OK;
}

static vpmm_context_handle context(uintptr_t number)
{
    return (vpmm_context_handle)number;
}

static vpmm_stream_handle stream(uintptr_t number)
{
    return (vpmm_stream_handle)number;
}

static void test_stream_facts(void **state)
{
    (void)state;
    struct vpmm_stream_facts facts;
    assert_int_equal(driver.stream_facts(driver.self, stream(7), &facts), VPMM_OK);
    assert_ptr_equal(facts.context, context(60));
    assert_int_equal(facts.id, 1007);
    assert_false(facts.is_legacy);
    assert_true(facts.is_blocking);
    assert_false(facts.is_capturing);
    real.stream_flags = CU_STREAM_NON_BLOCKING;
    assert_int_equal(driver.stream_facts(driver.self, stream(7), &facts), VPMM_OK);
    assert_false(facts.is_blocking);
    assert_int_equal(driver.stream_facts(driver.self, VPMM_STREAM_PER_THREAD, &facts), VPMM_OK);
    assert_true(facts.is_blocking);
    real.n_id_questions = real.n_context_questions = 1;
    real.capture = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    assert_int_equal(driver.stream_facts(driver.self, VPMM_STREAM_LEGACY, &facts), VPMM_OK);
    assert_true(facts.is_legacy);
    assert_false(facts.is_blocking);
    assert_true(facts.is_capturing);
    assert_int_equal(facts.id, 0);
    assert_int_equal(real.n_id_questions, 1);
    real.capture_result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    facts.id = 1;
    assert_int_equal(driver.stream_facts(driver.self, VPMM_STREAM_LEGACY, &facts), VPMM_CAPTURED);
    assert_int_equal(real.n_context_questions, 2);
    real.capture_result = CUDA_SUCCESS;
    real.next = CUDA_ERROR_INVALID_CONTEXT;
    assert_int_equal(driver.stream_facts(driver.self, VPMM_STREAM_LEGACY, &facts), VPMM_NO_CONTEXT);
    assert_int_equal(facts.id, 1);
}

static void test_stream_captures(void **state)
{
    (void)state;
    bool captures = true;
    int n_context_questions = real.n_context_questions, n_id_questions = real.n_id_questions;
    assert_int_equal(driver.stream_captures(driver.self, stream(7), &captures), VPMM_OK);
    assert_false(captures);
    real.capture = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    assert_int_equal(driver.stream_captures(driver.self, stream(7), &captures), VPMM_OK);
    assert_true(captures);
    assert_int_equal(real.n_context_questions, n_context_questions);
    assert_int_equal(real.n_id_questions, n_id_questions);
    real.capture_result = CUDA_ERROR_INVALID_HANDLE;
    assert_int_equal(driver.stream_captures(driver.self, stream(7), &captures), VPMM_INVALID);
}

/* One question: who asks knows that the stream does not capture. */
static void test_stream_id(void **state)
{
    (void)state;
    uint64_t id = 1;
    assert_int_equal(driver.stream_id(driver.self, stream(7), &id), VPMM_OK);
    assert_int_equal(id, 1007);
    assert_int_equal(real.n_context_questions, 0);
    assert_int_equal(real.n_id_questions, 1);
    id = 1;
    real.next = CUDA_ERROR_INVALID_HANDLE;
    assert_int_equal(driver.stream_id(driver.self, stream(7), &id), VPMM_INVALID);
    assert_int_equal(id, 1);
}

static void test_old_stream_facts(void **state)
{
    (void)state;
    struct vpmm_stream_facts facts;
    real.missing = "cuStreamGetCtx_v2";
    assert_int_equal(vpmm_cuda_init(&cuda, real_lookup, &real, &driver), VPMM_OK);
    assert_int_equal(driver.stream_facts(driver.self, stream(7), &facts), VPMM_OK);
    assert_ptr_equal(facts.context, context(50));
    real.missing = "cuStreamGetId";
    assert_int_equal(vpmm_cuda_init(&cuda, real_lookup, &real, &driver), VPMM_OK);
    assert_int_equal(driver.stream_facts(driver.self, stream(7), &facts), VPMM_OK);
    assert_int_equal(facts.id, 0);
    assert_null(driver.stream_id);
}

#define TEST(name) cmocka_unit_test_setup(name, setup)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_stream_facts),
        TEST(test_stream_captures),
        TEST(test_stream_id),
        TEST(test_old_stream_facts),
    };
    return cmocka_run_group_tests_name("driver/streams", tests, NULL, NULL);
}
