/* SPDX-License-Identifier: MIT */
/* What is known of a driver's pitches, with drivers that follow the rule and drivers that do not.
 */
#include "preload/original.h"
#include "preload/pitch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct {
    size_t unit, wide_unit; /* of rows of up to 2 KiB, and of wider ones */
    int device;
    CUresult device_result, result;
    unsigned n_asked;
    size_t asked_bytes;
} fake;
static struct vpmm_pitches pitches;

static CUresult get_device(CUdevice *device_out)
{
    *device_out = fake.device;
    return fake.device_result;
}

static CUresult alloc_pitch(CUdeviceptr *address_out, size_t *pitch_out, size_t width_bytes,
                            size_t height, unsigned element_bytes)
{
    size_t unit = width_bytes > 2048 ? fake.wide_unit : fake.unit;
    assert_int_equal(height, 1);
    assert_true(element_bytes == 4 || element_bytes == 8 || element_bytes == 16);
    fake.n_asked++;
    if (fake.result)
        return fake.result;
    *address_out = 4096;
    *pitch_out = (width_bytes + unit - 1) / unit * unit;
    fake.asked_bytes += *pitch_out;
    return CUDA_SUCCESS;
}

vpmm_code *vpmm_original_at(enum vpmm_api api)
{
    if (api == VPMM_API_cuCtxGetDevice)
        return (vpmm_code *)get_device;
    assert_int_equal(api, VPMM_API_cuMemAllocPitch_v2);
    return (vpmm_code *)alloc_pitch;
}

static int set_up(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    memset(&pitches, 0, sizeof pitches);
    fake.unit = fake.wide_unit = 512;
    return 0;
}

static void a_row_is_rounded_up_to_the_unit(void **state)
{
    (void)state;
    static const size_t widths[][2] = {{1, 512},     {511, 512},     {512, 512},
                                       {513, 1024},  {66064, 66560}, {1 << 30, 1 << 30},
                                       {1000, 1024}, {4097, 4608}};
    for (unsigned i = 0; i < sizeof widths / sizeof widths[0]; i++)
        assert_int_equal(vpmm_pitch_of(&pitches, widths[i][0], 4), widths[i][1]);
    assert_int_equal(vpmm_pitch_of(&pitches, SIZE_MAX - 511, 4), 0);
    fake.unit = fake.wide_unit = 256;
    fake.device = 3;
    assert_int_equal(vpmm_pitch_of(&pitches, 513, 4), 768);
}

static void the_driver_is_asked_once_for_each_device_and_element_size(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++)
        for (unsigned element = 4; element <= 16; element *= 2)
            (void)vpmm_pitch_of(&pitches, 1000, element);
    assert_int_equal(fake.n_asked, 9);
    assert_in_range(fake.asked_bytes, 1, 256 << 10);
    fake.device = VPMM_DEVICES_MAX - 1;
    (void)vpmm_pitch_of(&pitches, 1000, 16);
    assert_int_equal(fake.n_asked, 12);
}

static void what_the_driver_would_refuse_is_not_asked_for(void **state)
{
    (void)state;
    static const unsigned elements[] = {0, 1, 2, 3, 5, 12, 32};
    for (unsigned i = 0; i < sizeof elements / sizeof elements[0]; i++)
        assert_int_equal(vpmm_pitch_of(&pitches, 1000, elements[i]), 0);
    fake.device_result = CUDA_ERROR_INVALID_CONTEXT;
    assert_int_equal(vpmm_pitch_of(&pitches, 1000, 4), 0);
    fake.device_result = CUDA_SUCCESS;
    fake.device = VPMM_DEVICES_MAX;
    assert_int_equal(vpmm_pitch_of(&pitches, 1000, 4), 0);
    assert_int_equal(fake.n_asked, 0);
}

static void a_driver_without_memory_is_asked_again(void **state)
{
    (void)state;
    fake.result = CUDA_ERROR_OUT_OF_MEMORY;
    assert_int_equal(vpmm_pitch_of(&pitches, 1000, 4), 0);
    fake.result = CUDA_SUCCESS;
    assert_int_equal(vpmm_pitch_of(&pitches, 1000, 4), 1024);
}

static void a_driver_without_that_rule_is_believed(void **state)
{
    (void)state;
    fake.wide_unit = 1024;
    assert_int_equal(vpmm_pitch_of(&pitches, 1000, 4), 0);
    fake.wide_unit = 512;
    assert_int_equal(vpmm_pitch_of(&pitches, 1000, 4), 0);
    assert_int_equal(vpmm_pitch_of(&pitches, 1000, 8), 1024);
    fake.device = 1;
    fake.wide_unit = 256;
    assert_int_equal(vpmm_pitch_of(&pitches, 1000, 4), 0);
    fake.unit = fake.wide_unit = 8192;
    assert_int_equal(vpmm_pitch_of(&pitches, 1000, 16), 0);
}

static void an_answer_that_breaks_the_rule_ends_it(void **state)
{
    (void)state;
    vpmm_pitch_seen(&pitches, 1000, 4, 2048);
    assert_int_equal(vpmm_pitch_of(&pitches, 1000, 4), 1024);
    vpmm_pitch_seen(&pitches, 3000, 4, 3072);
    vpmm_pitch_seen(&pitches, 3000, 3, 4096);
    assert_int_equal(vpmm_pitch_of(&pitches, 1000, 4), 1024);
    vpmm_pitch_seen(&pitches, 3000, 4, 4096);
    assert_int_equal(vpmm_pitch_of(&pitches, 1000, 4), 0);
    assert_int_equal(vpmm_pitch_of(&pitches, 1000, 8), 1024);
}

#define TEST(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_row_is_rounded_up_to_the_unit),
        TEST(the_driver_is_asked_once_for_each_device_and_element_size),
        TEST(what_the_driver_would_refuse_is_not_asked_for),
        TEST(a_driver_without_memory_is_asked_again),
        TEST(a_driver_without_that_rule_is_believed),
        TEST(an_answer_that_breaks_the_rule_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
