/* SPDX-License-Identifier: MIT */
/* The seam over the machine: every operation, its statuses, and that no lock of ours is held. */
#include "fixture.h"

#include "base/lock.h"
#include "sim/sim_table.h"

#include <string.h>

struct scene {
    struct fixture *f;
    struct vpmm_driver driver;
    vpmm_context_handle context;
};

static struct scene scene_new(void (*change)(struct sim_config *config))
{
    struct scene s = {.f = fixture_new(change)};
    sim_table_fill(s.f->sim, &s.driver);
    s.context = (vpmm_context_handle)(void *)s.f->context;
    return s;
}

static vpmm_stream_handle stream_of(struct scene *s, unsigned flags)
{
    return (vpmm_stream_handle)(void *)stream_make(s->f, flags);
}

static void test_devices_and_contexts(void **state)
{
    struct scene s = scene_new(two_devices);
    struct vpmm_device_facts facts;
    vpmm_context_handle current;
    uint64_t free_bytes;
    uint64_t total;
    bool possible;
    int device;
    (void)state;
    assert_int_equal(s.driver.device_facts(s.driver.self, 1, &facts), VPMM_OK);
    assert_true(facts.has_vmm && facts.granularity_bytes == PAGE);
    assert_int_equal(s.driver.device_facts(s.driver.self, 2, &facts), VPMM_INVALID);
    assert_int_equal(s.driver.context_current(s.driver.self, &current), VPMM_OK);
    assert_ptr_equal(current, s.context);
    assert_int_equal(s.driver.context_device(s.driver.self, current, &device), VPMM_OK);
    assert_int_equal(device, 0);
    assert_int_equal(s.driver.memory_info(s.driver.self, &free_bytes, &total), VPMM_OK);
    assert_int_equal(free_bytes, total);
    assert_int_equal(s.driver.peer_possible(s.driver.self, 0, 1, &possible), VPMM_OK);
    assert_true(possible);
    assert_int_equal(s.driver.default_pool_trim(s.driver.self, 0), VPMM_OK);
    assert_int_equal(s.driver.context_synchronize(s.driver.self, current), VPMM_OK);
    OK(sim_ctx_set_current(s.f->sim, NULL));
    assert_int_equal(s.driver.context_current(s.driver.self, &current), VPMM_NO_CONTEXT);
    assert_int_equal(s.driver.memory_info(s.driver.self, &free_bytes, &total), VPMM_NO_CONTEXT);
    fixture_end(s.f);
}

static void test_memory(void **state)
{
    struct scene s = scene_new(two_devices);
    uint64_t address;
    vpmm_extent_handle extent;
    const int devices[] = {0, 1};
    (void)state;
    assert_int_equal(s.driver.address_reserve(s.driver.self, 4 * PAGE, &address), VPMM_OK);
    assert_int_equal(s.driver.extent_create(s.driver.self, 1, 2 * PAGE, &extent), VPMM_OK);
    assert_int_equal(s.driver.map(s.driver.self, address, PAGE, extent), VPMM_NOT_SUPPORTED);
    assert_int_equal(s.driver.map(s.driver.self, address, 2 * PAGE, extent), VPMM_OK);
    assert_int_equal(s.driver.set_access(s.driver.self, address, 2 * PAGE, devices, 2), VPMM_OK);
    assert_int_equal(s.driver.extent_release(s.driver.self, extent), VPMM_OK);
    assert_int_equal(word_peek(s.f, 0, address) + word_peek(s.f, 1, address), 0);
    assert_int_equal(counts_of(s.f).used_bytes[1], 2 * PAGE);
    assert_int_equal(s.driver.unmap(s.driver.self, address, 2 * PAGE), VPMM_OK);
    assert_int_equal(s.driver.address_free(s.driver.self, address, 4 * PAGE), VPMM_OK);
    assert_int_equal(counts_of(s.f).used_bytes[1], 0);
    assert_int_equal(s.driver.extent_create(s.driver.self, 0, (uint64_t)1 << 40, &extent),
                     VPMM_NO_MEMORY);
    assert_int_equal(s.driver.address_reserve(s.driver.self, (uint64_t)1 << 60, &address),
                     VPMM_NO_MEMORY);
    fixture_end(s.f);
}

static void test_streams(void **state)
{
    struct scene s = scene_new(NULL);
    struct vpmm_stream_facts facts;
    struct vpmm_stream_facts mine;
    vpmm_stream_handle stream = stream_of(&s, 0);
    CUgraph graph;
    (void)state;
    assert_int_equal(s.driver.stream_facts(s.driver.self, VPMM_STREAM_LEGACY, &facts), VPMM_OK);
    assert_true(facts.is_legacy && facts.context == s.context && !facts.is_capturing);
    assert_int_equal(s.driver.stream_facts(s.driver.self, VPMM_STREAM_PER_THREAD, &mine), VPMM_OK);
    assert_true(!mine.is_legacy && mine.id != facts.id);
    OK(sim_stream_begin_capture(s.f->sim, (CUstream)(void *)stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    assert_int_equal(s.driver.stream_facts(s.driver.self, stream, &mine), VPMM_OK);
    assert_true(mine.is_capturing && mine.context == s.context);
    assert_int_equal(s.driver.stream_facts(s.driver.self, VPMM_STREAM_LEGACY, &facts),
                     VPMM_CAPTURED);
    OK(sim_stream_end_capture(s.f->sim, (CUstream)(void *)stream, &graph));
    fixture_end(s.f);
}

static void test_events(void **state)
{
    struct scene s = scene_new(NULL);
    struct trail trail = {0};
    vpmm_stream_handle one = stream_of(&s, 1);
    vpmm_stream_handle two = stream_of(&s, 1);
    vpmm_event_handle event;
    CUcontext current;
    int mode;
    (void)state;
    assert_int_equal(s.driver.event_create(s.driver.self, s.context, &event), VPMM_OK);
    OK(step_queue(s.f, (CUstream)(void *)one, &trail, 1));
    assert_int_equal(s.driver.event_record(s.driver.self, event, one), VPMM_OK);
    assert_int_equal(s.driver.stream_wait(s.driver.self, two, event), VPMM_OK);
    assert_int_equal(s.driver.event_query(s.driver.self, event), VPMM_NOT_READY);
    assert_int_equal(s.driver.event_record_context(s.driver.self, event, s.context), VPMM_OK);
    assert_int_equal(s.driver.capture_relax(s.driver.self, &mode), VPMM_OK);
    assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_int_equal(s.driver.event_synchronize(s.driver.self, event), VPMM_OK);
    s.driver.capture_restore(s.driver.self, mode);
    assert_int_equal(trail.n, 1);
    assert_int_equal(s.driver.event_destroy(s.driver.self, event), VPMM_OK);
    OK(sim_ctx_get_current(s.f->sim, &current));
    assert_ptr_equal(current, s.f->context);
    OK(sim_ctx_destroy(s.f->sim, s.f->context));
    assert_int_equal(s.driver.event_create(s.driver.self, s.context, &event), VPMM_CONTEXT_GONE);
    misuse_taken(s.f, SIM_DEAD_CONTEXT);
    fixture_end(s.f);
}

static void older(struct sim_config *config)
{
    config->driver_version = 11080;
}

static void test_an_older_driver(void **state)
{
    struct scene s = scene_new(older);
    struct vpmm_stream_facts facts;
    (void)state;
    assert_null(s.driver.event_record_context);
    assert_int_equal(s.driver.stream_facts(s.driver.self, VPMM_STREAM_LEGACY, &facts), VPMM_OK);
    assert_int_equal(facts.id, 0);
    fixture_end(s.f);
}

static void test_no_lock_is_held(void **state)
{
    struct scene s = scene_new(NULL);
    struct vpmm_lock lock;
    uint64_t address;
    (void)state;
    vpmm_lock_init(&lock, VPMM_RANK_HEAP);
    vpmm_lock_take(&lock);
    bool known = !vpmm_lock_none_held();
    assert_int_equal(s.driver.address_reserve(s.driver.self, PAGE, &address), VPMM_OK);
    vpmm_lock_give(&lock);
    vpmm_lock_finish(&lock);
    if (known)
        misuse_taken(s.f, SIM_LOCK_HELD);
    fixture_end(s.f);
}

static void test_statuses(void **state)
{
    (void)state;
    assert_int_equal(sim_table_status(CUDA_ERROR_DEINITIALIZED), VPMM_SHUT_DOWN);
    assert_int_equal(sim_table_status(CUDA_ERROR_ILLEGAL_ADDRESS), VPMM_BROKEN);
    assert_int_equal(sim_table_status(CUDA_ERROR_CAPTURED_EVENT), VPMM_CAPTURED);
    assert_int_equal(sim_table_status(CUDA_ERROR_UNKNOWN), VPMM_FAILED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_devices_and_contexts),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_an_older_driver),
        cmocka_unit_test(test_no_lock_is_held),
        cmocka_unit_test(test_statuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
