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

#define CALL(name, ...)                                                                            \
    static CUresult call_##name(void)                                                              \
    {                                                                                              \
        return vpmm_wrap_##name(__VA_ARGS__);                                                      \
    }
CALL(cuMemAllocManaged, NULL, 1, 1)
CALL(cuArrayCreate_v2, NULL, NULL)
CALL(cuArray3DCreate_v2, NULL, NULL)
CALL(cuMipmappedArrayCreate, NULL, NULL, 1)
CALL(cuModuleLoad, NULL, "")
CALL(cuModuleLoadData, NULL, NULL)
CALL(cuModuleLoadDataEx, NULL, NULL, 0, NULL, NULL)
CALL(cuModuleLoadFatBinary, NULL, NULL)
CALL(cuLibraryLoadData, NULL, NULL, NULL, NULL, 0, NULL, NULL, 0)
CALL(cuLibraryLoadFromFile, NULL, "", NULL, NULL, 0, NULL, NULL, 0)
CALL(cuModuleGetFunction, NULL, NULL, "")
CALL(cuLibraryGetModule, NULL, NULL)
CALL(cuLibraryGetGlobal, NULL, NULL, NULL, "")
CALL(cuLibraryGetManaged, NULL, NULL, NULL, "")
CALL(cuKernelGetFunction, NULL, NULL)
CALL(cuFuncLoad, NULL)
CALL(cuCtxSetLimit, CU_LIMIT_STACK_SIZE, 0)
CALL(cuGreenCtxStreamCreate, NULL, NULL, CU_STREAM_NON_BLOCKING, 0)
CALL(cuGraphInstantiateWithFlags, NULL, NULL, 0)
CALL(cuGraphInstantiateWithParams, NULL, NULL, NULL)
CALL(cuGraphInstantiateWithParams_ptsz, NULL, NULL, NULL)
CALL(cuGraphUpload, NULL, NULL)
CALL(cuGraphUpload_ptsz, NULL, NULL)
CALL(cuGraphLaunch, NULL, NULL)
CALL(cuGraphLaunch_ptsz, NULL, NULL)
CALL(cuStreamCreate, NULL, 0)
CALL(cuStreamCreateWithPriority, NULL, 0, 0)

#define ROW(name)                                                                                  \
    {                                                                                              \
        VPMM_API_##name, call_##name                                                               \
    }
static const struct {
    enum vpmm_api api;
    CUresult (*call)(void);
} calls[] = {
    ROW(cuMemAllocManaged),
    ROW(cuArrayCreate_v2),
    ROW(cuArray3DCreate_v2),
    ROW(cuMipmappedArrayCreate),
    ROW(cuModuleLoad),
    ROW(cuModuleLoadData),
    ROW(cuModuleLoadDataEx),
    ROW(cuModuleLoadFatBinary),
    ROW(cuLibraryLoadData),
    ROW(cuLibraryLoadFromFile),
    ROW(cuModuleGetFunction),
    ROW(cuLibraryGetModule),
    ROW(cuLibraryGetGlobal),
    ROW(cuLibraryGetManaged),
    ROW(cuKernelGetFunction),
    ROW(cuFuncLoad),
    ROW(cuCtxSetLimit),
    ROW(cuGreenCtxStreamCreate),
    ROW(cuGraphInstantiateWithFlags),
    ROW(cuGraphInstantiateWithParams),
    ROW(cuGraphInstantiateWithParams_ptsz),
    ROW(cuGraphUpload),
    ROW(cuGraphUpload_ptsz),
    ROW(cuGraphLaunch),
    ROW(cuGraphLaunch_ptsz),
    ROW(cuStreamCreate),
    ROW(cuStreamCreateWithPriority),
};

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
