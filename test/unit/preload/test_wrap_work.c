/* SPDX-License-Identifier: MIT */
/* Every wrapper that only looks at the stream: its arguments reach the original as they are, and a
 * per-thread stream is seen in its place and nowhere else. */
#include "order/order.h"
#include "preload/original.h"
#include "preload/wrap_lookup.h"
#include "preload/wrap_work.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define WORDS_MAX 11
#define PER_THREAD ((uintptr_t)VPMM_STREAM_PER_THREAD)

static struct {
    enum vpmm_api api;
    uintptr_t words[WORDS_MAX];
    bool is_known;
} fake;

#define TAKE_1 fake.words[0] = a0;
#define TAKE_2 TAKE_1 fake.words[1] = a1;
#define TAKE_3 TAKE_2 fake.words[2] = a2;
#define TAKE_4 TAKE_3 fake.words[3] = a3;
#define TAKE_5 TAKE_4 fake.words[4] = a4;
#define TAKE_6 TAKE_5 fake.words[5] = a5;
#define TAKE_7 TAKE_6 fake.words[6] = a6;
#define TAKE_8 TAKE_7 fake.words[7] = a7;
#define TAKE_9 TAKE_8 fake.words[8] = a8;
#define TAKE_10 TAKE_9 fake.words[9] = a9;
#define TAKE_11 TAKE_10 fake.words[10] = a10;

#define PASS_1 words[0]
#define PASS_2 PASS_1, words[1]
#define PASS_3 PASS_2, words[2]
#define PASS_4 PASS_3, words[3]
#define PASS_5 PASS_4, words[4]
#define PASS_6 PASS_5, words[5]
#define PASS_7 PASS_6, words[6]
#define PASS_8 PASS_7, words[7]
#define PASS_9 PASS_8, words[8]
#define PASS_10 PASS_9, words[9]
#define PASS_11 PASS_10, words[10]

#define VPMM_STREAM(name, base, version, spelling, n, place)                                       \
    static CUresult fake_##name(VPMM_WORDS_##n)                                                    \
    {                                                                                              \
        fake.api = VPMM_API_##name;                                                                \
        TAKE_##n return CUDA_ERROR_TIMEOUT;                                                        \
    }                                                                                              \
    static CUresult call_##name(const uintptr_t *words)                                            \
    {                                                                                              \
        return vpmm_wrap_##name(PASS_##n);                                                         \
    }
#include "preload/api.def"

static CUresult fake_launch(const CUlaunchConfig *config, CUfunction function, void **arguments,
                            void **extra)
{
    fake.words[0] = (uintptr_t)config;
    fake.words[1] = (uintptr_t)function;
    fake.words[2] = (uintptr_t)arguments;
    fake.words[3] = (uintptr_t)extra;
    return CUDA_ERROR_TIMEOUT;
}

static const struct {
    enum vpmm_api api;
    bool is_per_thread;
    unsigned n, place;
    vpmm_code *code;
    CUresult (*call)(const uintptr_t *words);
} rows[] = {
#define IS_PLAIN false
#define IS_PTSZ true
#define VPMM_STREAM(name, base, version, spelling, n, place)                                       \
    {VPMM_API_##name, IS_##spelling, n, place, (vpmm_code *)fake_##name, call_##name},
#include "preload/api.def"
};
#define N_ROWS (sizeof rows / sizeof *rows)

static vpmm_code *find(enum vpmm_api api)
{
    if (api == VPMM_API_cuLaunchKernelEx || api == VPMM_API_cuLaunchKernelEx_ptsz)
        return (vpmm_code *)fake_launch;
    for (size_t i = 0; i < N_ROWS; i++)
        if (rows[i].api == api)
            return rows[i].code;
    return NULL;
}

vpmm_code *vpmm_original_at(enum vpmm_api api)
{
    return find(api);
}

vpmm_code *vpmm_original_known(enum vpmm_api api)
{
    return fake.is_known ? find(api) : NULL;
}

vpmm_dlsym_fn *vpmm_original_dlsym_next(void)
{
    return NULL;
}

const struct vpmm_api_row *vpmm_api_row(enum vpmm_api api)
{
    static const struct vpmm_api_row row = {.wrapper = (vpmm_code *)fake_launch};
    (void)api;
    return &row;
}

void vpmm_order_watch_streams(struct vpmm_order *order, const vpmm_atomic32 *has_blocking)
{
    (void)order;
    (void)has_blocking;
    fail();
}

static CUevent forgotten;

void vpmm_forget_event(CUevent event)
{
    forgotten = event;
}

/* Whether the call with a per-thread stream at `special` (or none: -1) shows one. */
static bool sees(size_t row, int special)
{
    uintptr_t words[WORDS_MAX];
    for (unsigned i = 0; i < WORDS_MAX; i++)
        words[i] = (int)i == special ? PER_THREAD : UINT64_C(0x1111111100000000) * i + 16 + i;
    fake.api = VPMM_API_COUNT;
    vpmm_atomic_store(&vpmm_has_blocking_stream, 0);
    assert_int_equal(rows[row].call(words), CUDA_ERROR_TIMEOUT);
    assert_int_equal(fake.api, rows[row].api);
    assert_memory_equal(fake.words, words, rows[row].n * sizeof *words);
    return vpmm_atomic_load(&vpmm_has_blocking_stream) != 0;
}

static void a_per_thread_stream_is_seen_in_its_place_alone(void **state)
{
    (void)state;
    assert_true(N_ROWS > 100);
    for (size_t i = 0; i < N_ROWS; i++) {
        fake.is_known = i % 2 == 0;
        bool is_per_thread = rows[i].is_per_thread;
        assert_int_equal(sees(i, -1), is_per_thread);
        for (unsigned place = 0; place < rows[i].n; place++)
            assert_int_equal(sees(i, (int)place), is_per_thread || place == rows[i].place);
    }
}

static void a_launch_tells_its_stream_in_what_it_points_to(void **state)
{
    (void)state;
    CUlaunchConfig config = {.gridDimX = 2, .hStream = CU_STREAM_LEGACY};
    void *arguments[1];
    vpmm_atomic_store(&vpmm_has_blocking_stream, 0);
    assert_int_equal(vpmm_wrap_cuLaunchKernelEx(NULL, NULL, arguments, NULL), CUDA_ERROR_TIMEOUT);
    assert_int_equal(vpmm_wrap_cuLaunchKernelEx(&config, NULL, arguments, NULL),
                     CUDA_ERROR_TIMEOUT);
    assert_int_equal(fake.words[0], (uintptr_t)&config);
    assert_int_equal(fake.words[2], (uintptr_t)arguments);
    assert_int_equal(vpmm_atomic_load(&vpmm_has_blocking_stream), 0);
    config.hStream = CU_STREAM_PER_THREAD;
    assert_int_equal(vpmm_wrap_cuLaunchKernelEx(&config, NULL, arguments, NULL),
                     CUDA_ERROR_TIMEOUT);
    assert_int_equal(vpmm_atomic_load(&vpmm_has_blocking_stream), 1);
    vpmm_atomic_store(&vpmm_has_blocking_stream, 0);
    config.hStream = NULL;
    assert_int_equal(vpmm_wrap_cuLaunchKernelEx_ptsz(&config, NULL, arguments, NULL),
                     CUDA_ERROR_TIMEOUT);
    assert_int_equal(vpmm_atomic_load(&vpmm_has_blocking_stream), 1);
}

/* 7 and 12 are those of a programmatic and of a launch's completion event. */
static void an_event_that_a_launch_records_is_forgotten(void **state)
{
    (void)state;
    CUevent event = (CUevent)(void *)fake.words;
    for (int id = 0; id < 16; id++) {
        CUlaunchAttribute attributes[2] = {{.id = CU_LAUNCH_ATTRIBUTE_IGNORE}};
        attributes[1].id = (CUlaunchAttributeID)id;
        attributes[1].value.programmaticEvent.event = event;
        const CUlaunchConfig config = {.attrs = attributes, .numAttrs = 2};
        CUevent expected = id == 7 || id == 12 ? event : NULL;
        forgotten = NULL;
        assert_int_equal(vpmm_wrap_cuLaunchKernelEx(&config, NULL, NULL, NULL), CUDA_ERROR_TIMEOUT);
        assert_ptr_equal(forgotten, expected);
        forgotten = NULL;
        assert_int_equal(vpmm_wrap_cuLaunchKernelEx_ptsz(&config, NULL, NULL, NULL),
                         CUDA_ERROR_TIMEOUT);
        assert_ptr_equal(forgotten, expected);
    }
}

static void launches_on_several_devices_may_name_any_stream(void **state)
{
    (void)state;
    vpmm_atomic_store(&vpmm_has_blocking_stream, 0);
    assert_int_equal(vpmm_wrap_cuLaunchCooperativeKernelMultiDevice(0, 0, 0),
                     CUDA_ERROR_NOT_INITIALIZED);
    assert_int_equal(vpmm_atomic_load(&vpmm_has_blocking_stream), 1);
}

static void only_a_blocking_creation_shows_one(void **state)
{
    (void)state;
    vpmm_atomic_store(&vpmm_has_blocking_stream, 0);
    vpmm_see_creation(CU_STREAM_NON_BLOCKING);
    assert_int_equal(vpmm_atomic_load(&vpmm_has_blocking_stream), 0);
    vpmm_see_creation(CU_STREAM_DEFAULT);
    assert_int_equal(vpmm_atomic_load(&vpmm_has_blocking_stream), 1);
}

/* Without a real dlsym nobody knows where the program's names lead. */
static void an_order_is_not_told_where_calls_may_go_unseen(void **state)
{
    (void)state;
    vpmm_watch_streams(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_per_thread_stream_is_seen_in_its_place_alone),
        cmocka_unit_test(a_launch_tells_its_stream_in_what_it_points_to),
        cmocka_unit_test(an_event_that_a_launch_records_is_forgotten),
        cmocka_unit_test(launches_on_several_devices_may_name_any_stream),
        cmocka_unit_test(only_a_blocking_creation_shows_one),
        cmocka_unit_test(an_order_is_not_told_where_calls_may_go_unseen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
