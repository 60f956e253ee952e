/* SPDX-License-Identifier: MIT */
/* Every call that takes device memory and is not the pool's to serve, on a driver that has none at
 * first. */
#include "preload/original.h"
#include "preload/relief.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct {
    CUresult result;
    unsigned n_refusals; /* still to come */
    unsigned n_calls, n_reliefs;
    unsigned reliefs_max;
    bool is_off;
    enum vpmm_api last;
} fake;
static struct vpmm_router *const router = (struct vpmm_router *)&fake;

static CUresult answer(enum vpmm_api api)
{
    fake.n_calls++;
    fake.last = api;
    if (!fake.n_refusals)
        return CUDA_SUCCESS;
    fake.n_refusals--;
    return fake.result;
}

#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wunused-function"
#define VPMM_API(name, base, version, spelling, parameters)                                        \
    static CUresult fake_##name parameters                                                         \
    {                                                                                              \
        return answer(VPMM_API_##name);                                                            \
    }
#include "preload/api.def"

vpmm_code *vpmm_original_at(enum vpmm_api api)
{
    static vpmm_code *const codes[] = {
#define VPMM_API(name, base, version, spelling, parameters)                                        \
    [VPMM_API_##name] = (vpmm_code *)fake_##name,
#include "preload/api.def"
    };
    return codes[api];
}

vpmm_atomic32 vpmm_has_blocking_stream;

struct vpmm_router *vpmm_enter(void)
{
    return fake.is_off ? NULL : router;
}

void vpmm_leave(void)
{
}

bool vpmm_router_relieve(struct vpmm_router *asked, int device, struct vpmm_relief *relief)
{
    assert_ptr_equal(asked, router);
    assert_int_equal(device, VPMM_DEVICE_OF_CONTEXT);
    assert_true(relief->may_poll);
    assert_false(relief->may_wait);
    assert_int_equal(relief->bytes, 0);
    assert_int_equal(relief->rounds++, fake.n_reliefs++);
    return fake.n_reliefs <= fake.reliefs_max;
}

#define ZEROS_1 0
#define ZEROS_2 0, ZEROS_1
#define ZEROS_3 0, ZEROS_2
#define ZEROS_4 0, ZEROS_3
#define ZEROS_5 0, ZEROS_4
#define ZEROS_8 0, 0, 0, ZEROS_5
#define CALLS(CALL)                                                                                \
    CALL(cuMemAllocManaged, 3)                                                                     \
    CALL(cuArrayCreate_v2, 2)                                                                      \
    CALL(cuArray3DCreate_v2, 2)                                                                    \
    CALL(cuMipmappedArrayCreate, 3)                                                                \
    CALL(cuModuleLoad, 2)                                                                          \
    CALL(cuModuleLoadData, 2)                                                                      \
    CALL(cuModuleLoadDataEx, 5)                                                                    \
    CALL(cuModuleLoadFatBinary, 2)                                                                 \
    CALL(cuLibraryLoadData, 8)                                                                     \
    CALL(cuLibraryLoadFromFile, 8)                                                                 \
    CALL(cuModuleGetFunction, 3)                                                                   \
    CALL(cuLibraryGetModule, 2)                                                                    \
    CALL(cuLibraryGetGlobal, 4)                                                                    \
    CALL(cuLibraryGetManaged, 4)                                                                   \
    CALL(cuKernelGetFunction, 2)                                                                   \
    CALL(cuFuncLoad, 1)                                                                            \
    CALL(cuCtxSetLimit, 2)                                                                         \
    CALL(cuGreenCtxStreamCreate, 4)                                                                \
    CALL(cuGraphInstantiateWithFlags, 3)                                                           \
    CALL(cuGraphInstantiateWithParams, 3)                                                          \
    CALL(cuGraphInstantiateWithParams_ptsz, 3)                                                     \
    CALL(cuGraphUpload, 2)                                                                         \
    CALL(cuGraphUpload_ptsz, 2)                                                                    \
    CALL(cuGraphLaunch, 2)                                                                         \
    CALL(cuGraphLaunch_ptsz, 2)                                                                    \
    CALL(cuStreamCreate, 2)                                                                        \
    CALL(cuStreamCreateWithPriority, 3)
#define DEFINE(name, n)                                                                            \
    static CUresult call_##name(void)                                                              \
    {                                                                                              \
        return vpmm_wrap_##name(ZEROS_##n);                                                        \
    }
CALLS(DEFINE)

#define ROW(name, n) {VPMM_API_##name, call_##name},
static const struct {
    enum vpmm_api api;
    CUresult (*call)(void);
} calls[] = {CALLS(ROW)};

/* What each call answers, and how often the driver and the pool are asked for it. */
static void check(CUresult refusal, unsigned n_refusals, unsigned reliefs_max, bool is_off,
                  CUresult expected, unsigned n_calls, unsigned n_reliefs)
{
    for (unsigned i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        fake.result = refusal;
        fake.n_refusals = n_refusals;
        fake.reliefs_max = reliefs_max;
        fake.is_off = is_off;
        fake.n_calls = fake.n_reliefs = 0;
        assert_int_equal(calls[i].call(), expected);
        assert_int_equal(fake.n_calls, n_calls);
        assert_int_equal(fake.n_reliefs, n_reliefs);
        assert_int_equal(fake.last, calls[i].api);
    }
}

static void what_succeeds_asks_nobody(void **state)
{
    (void)state;
    check(CUDA_SUCCESS, 0, 9, false, CUDA_SUCCESS, 1, 0);
}

static void lack_of_memory_is_relieved_as_long_as_that_helps(void **state)
{
    (void)state;
    check(CUDA_ERROR_OUT_OF_MEMORY, 1, 9, false, CUDA_SUCCESS, 2, 1);
    check(CUDA_ERROR_OUT_OF_MEMORY, 3, 9, false, CUDA_SUCCESS, 4, 3);
    check(CUDA_ERROR_OUT_OF_MEMORY, 99, 2, false, CUDA_ERROR_OUT_OF_MEMORY, 3, 3);
    check(CUDA_ERROR_OUT_OF_MEMORY, 99, 0, false, CUDA_ERROR_OUT_OF_MEMORY, 1, 1);
}

static void other_refusals_are_the_answer(void **state)
{
    (void)state;
    check(CUDA_ERROR_INVALID_VALUE, 1, 9, false, CUDA_ERROR_INVALID_VALUE, 1, 0);
    check(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 1, 9, false, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
          1, 0);
}

static void without_a_router_the_refusal_is_the_answer(void **state)
{
    (void)state;
    check(CUDA_ERROR_OUT_OF_MEMORY, 1, 9, true, CUDA_ERROR_OUT_OF_MEMORY, 1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_succeeds_asks_nobody),
        cmocka_unit_test(lack_of_memory_is_relieved_as_long_as_that_helps),
        cmocka_unit_test(other_refusals_are_the_answer),
        cmocka_unit_test(without_a_router_the_refusal_is_the_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
