/* SPDX-License-Identifier: MIT */
/* What is believed of a driver's pitches, and what it takes. */
#include "preload/original.h"
#include "preload/pitch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct {
    int unit, device;
    CUresult device_result, unit_result;
} fake;
static struct vpmm_pitches pitches;

static CUresult get_device(CUdevice *device_out)
{
    *device_out = fake.device;
    return fake.device_result;
}

static CUresult get_attribute(int *value_out, CUdevice_attribute attribute, CUdevice device)
{
    assert_int_equal(attribute, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
    assert_int_equal(device, fake.device);
    *value_out = fake.unit;
    return fake.unit_result;
}

vpmm_code *vpmm_original_at(enum vpmm_api api)
{
    if (api == VPMM_API_cuCtxGetDevice)
        return (vpmm_code *)get_device;
    assert_int_equal(api, VPMM_API_cuDeviceGetAttribute);
    return (vpmm_code *)get_attribute;
}

static int set_up(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    memset(&pitches, 0, sizeof pitches);
    fake.unit = 512;
    return 0;
}

static size_t pitch(size_t width_bytes, unsigned element_bytes)
{
    return vpmm_pitch_of(&pitches, width_bytes, element_bytes);
}

static void see(size_t width_bytes, unsigned element_bytes, size_t pitch_bytes)
{
    vpmm_pitch_seen(&pitches, width_bytes, element_bytes, pitch_bytes);
}

static void nothing_is_believed_unseen(void **state)
{
    (void)state;
    assert_int_equal(pitch(1000, 4), 0);
    see(1000, 4, 1024);
    assert_int_equal(pitch(1000, 4), 1024);
    assert_int_equal(pitch(1024, 4), 0);
    assert_int_equal(pitch(1000, 8), 0);
    see(2048, 4, 2048);
    assert_int_equal(pitch(1024, 4), 1024);
    fake.device = 1;
    assert_int_equal(pitch(1000, 4), 0);
}

static void a_row_is_rounded_up_to_the_unit(void **state)
{
    (void)state;
    static const size_t widths[][2] = {{1, 512},     {511, 512},     {512, 512},
                                       {513, 1024},  {66064, 66560}, {1 << 30, 1 << 30},
                                       {1000, 1024}, {4097, 4608}};
    see(1, 16, 512);
    see(512, 16, 512);
    for (unsigned i = 0; i < sizeof widths / sizeof widths[0]; i++)
        assert_int_equal(pitch(widths[i][0], 16), widths[i][1]);
    assert_int_equal(pitch(SIZE_MAX - 510, 16), 0);
    fake.device = VPMM_DEVICES_MAX - 1;
    fake.unit = 256;
    see(1, 8, 256);
    assert_int_equal(pitch(513, 8), 768);
}

static void what_the_driver_would_refuse_is_not_asked_for(void **state)
{
    (void)state;
    static const unsigned elements[] = {0, 1, 2, 3, 5, 12, 32};
    for (unsigned i = 0; i < sizeof elements / sizeof elements[0]; i++) {
        see(1000, elements[i], 1024);
        assert_int_equal(pitch(1000, elements[i]), 0);
    }
    see(1000, 4, 1024);
    fake.device_result = CUDA_ERROR_INVALID_CONTEXT;
    assert_int_equal(pitch(1000, 4), 0);
    fake.device_result = CUDA_SUCCESS;
    fake.unit_result = CUDA_ERROR_INVALID_VALUE;
    assert_int_equal(pitch(1000, 4), 0);
    fake.unit_result = CUDA_SUCCESS;
    fake.unit = 0;
    assert_int_equal(pitch(1000, 4), 0);
    fake.unit = 512;
    fake.device = VPMM_DEVICES_MAX;
    assert_int_equal(pitch(1000, 4), 0);
    fake.device = 0;
    assert_int_equal(pitch(1000, 4), 1024);
}

static void an_answer_that_breaks_the_rule_ends_it(void **state)
{
    (void)state;
    see(1000, 4, 1024);
    see(1024, 4, 1024);
    see(1000, 8, 1024);
    see(3000, 4, 4096);
    assert_int_equal(pitch(1000, 4), 0);
    assert_int_equal(pitch(1024, 4), 0);
    assert_int_equal(pitch(1000, 8), 1024);
    see(1000, 4, 1024);
    assert_int_equal(pitch(1000, 4), 0);
}

#define TEST(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_is_believed_unseen),
        TEST(a_row_is_rounded_up_to_the_unit),
        TEST(what_the_driver_would_refuse_is_not_asked_for),
        TEST(an_answer_that_breaks_the_rule_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
