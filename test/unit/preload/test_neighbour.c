/* SPDX-License-Identifier: MIT */
/* Which device another process means, what it is given, and how often others are asked. */
#define _POSIX_C_SOURCE 200809L
#include "preload/neighbour.h"
#include "preload/original.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define GIB ((uint64_t)1 << 30)
#define DEVICES 3

static struct {
    uint64_t now_ms;
    unsigned n_asks;
    uint64_t answer, asked_bytes;
    unsigned char asked_uuid;
    int trimmed_device;
    uint64_t keep_bytes;
    bool has_newer, refuses;
} fake;
static char heaps[DEVICES];
static struct vpmm_router *const router = (struct vpmm_router *)&fake;

int clock_gettime(clockid_t id, struct timespec *now_out)
{
    assert_int_equal(id, CLOCK_MONOTONIC);
    now_out->tv_sec = (time_t)(fake.now_ms / 1000);
    now_out->tv_nsec = (long)(fake.now_ms % 1000) * 1000000;
    return 0;
}

static CUresult newer(CUuuid *uuid, CUdevice device)
{
    memset(uuid, 100 + device, sizeof *uuid);
    return CUDA_SUCCESS;
}

static CUresult older(CUuuid *uuid, CUdevice device)
{
    memset(uuid, device, sizeof *uuid);
    return CUDA_SUCCESS;
}

void *vpmm_original_lookup(void *self, const char *name)
{
    CUresult (*found)(CUuuid *, CUdevice) = older;
    void *address;
    assert_null(self);
    if (strcmp(name, "cuDeviceGetUuid_v2") == 0)
        found = fake.has_newer ? newer : NULL;
    else
        assert_string_equal(name, "cuDeviceGetUuid");
    memcpy(&address, &found, sizeof address);
    return address;
}

uint64_t vpmm_appeals_ask(uint32_t user_id, const unsigned char uuid[VPMM_UUID_BYTES],
                          uint64_t bytes, uint64_t timeout_ms)
{
    assert_int_equal(user_id, geteuid());
    assert_int_equal(timeout_ms, 300);
    fake.n_asks++;
    fake.asked_uuid = uuid[0];
    fake.asked_bytes = bytes;
    return fake.answer;
}

/* The middle one has no heap. */
struct vpmm_heap *vpmm_router_heap(struct vpmm_router *asked, int device)
{
    assert_ptr_equal(asked, router);
    return device < DEVICES && device != 1 ? (struct vpmm_heap *)&heaps[device] : NULL;
}

uint64_t vpmm_heap_held_bytes(const struct vpmm_heap *heap)
{
    return heap == (struct vpmm_heap *)&heaps[2] ? 50 * GIB : GIB;
}

bool vpmm_router_trim(struct vpmm_router *asked, struct vpmm_heap *heap, uint64_t keep_bytes,
                      uint64_t *given_back_out)
{
    assert_ptr_equal(asked, router);
    fake.trimmed_device = (int)((char *)heap - heaps);
    fake.keep_bytes = keep_bytes;
    if (!fake.refuses)
        *given_back_out = 7;
    return !fake.refuses;
}

static int set_up(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    fake.now_ms = 5000;
    fake.has_newer = true;
    fake.trimmed_device = -1;
    return 0;
}

static void nobody_is_asked_again_within_a_second(void **state)
{
    struct vpmm_asker asker = {0};
    (void)state;
    fake.answer = 1;
    assert_true(vpmm_neighbours_ask(&asker, 2, 9 * GIB));
    assert_int_equal(fake.asked_uuid, 102);
    assert_int_equal(fake.asked_bytes, 9 * GIB);
    fake.now_ms += 999;
    assert_false(vpmm_neighbours_ask(&asker, 2, 9 * GIB));
    assert_int_equal(fake.n_asks, 1);
    fake.now_ms += 1;
    fake.answer = 0;
    assert_false(vpmm_neighbours_ask(&asker, 2, 9 * GIB));
    assert_int_equal(fake.n_asks, 2);
}

static uint64_t give(unsigned char uuid, uint64_t bytes)
{
    struct vpmm_appeal appeal = {.bytes = bytes};
    memset(appeal.uuid, uuid, sizeof appeal.uuid);
    return vpmm_neighbour_give(router, &appeal);
}

static void as_much_is_given_as_is_asked_for(void **state)
{
    (void)state;
    assert_int_equal(give(102, 20 * GIB), 7);
    assert_int_equal(fake.trimmed_device, 2);
    assert_int_equal(fake.keep_bytes, 30 * GIB);
    assert_int_equal(give(102, UINT64_MAX), 7);
    assert_int_equal(fake.keep_bytes, 0);
    fake.refuses = true;
    assert_int_equal(give(100, 1), 0);
    assert_int_equal(fake.trimmed_device, 0);
}

static void other_devices_give_nothing(void **state)
{
    (void)state;
    assert_int_equal(give(101, GIB), 0);
    assert_int_equal(give(103, GIB), 0);
    assert_int_equal(fake.trimmed_device, -1);
}

static void an_older_driver_names_devices_too(void **state)
{
    (void)state;
    fake.has_newer = false;
    assert_int_equal(give(102, GIB), 0);
    assert_int_equal(give(2, GIB), 7);
}

#define TEST(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nobody_is_asked_again_within_a_second),
        TEST(as_much_is_given_as_is_asked_for),
        TEST(other_devices_give_nothing),
        TEST(an_older_driver_names_devices_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
