/* SPDX-License-Identifier: MIT */
/* A peer is added to what is mapped while no edit is under way, whichever of the two comes first.
 * These tests look into the heap, because its threads meet where no call of it tells. */
#include "fixture.h"

#include "base/lock.h"
#include "heap/heap_internal.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct {
    struct fixture f;
    const char *stops_before; /* the call that the main thread stops before, once */
    void (*at_stop)(void);
    pthread_t other;
    vpmm_atomic32 n_together; /* steps of the two that were seen at one time */
    vpmm_atomic32 is_held_up; /* the other thread waits, or it is done */
    enum vpmm_status status;  /* of what the other thread did */
    uint64_t address;
} meeting;

static _Thread_local bool is_main;
static _Thread_local bool adds_peer;
static _Thread_local bool grows;

static bool is_frozen(void)
{
    vpmm_lock_take(&meeting.f.heap->lock);
    bool frozen = meeting.f.heap->is_frozen;
    vpmm_lock_give(&meeting.f.heap->lock);
    return frozen;
}

static bool is_edited(void)
{
    vpmm_lock_take(&meeting.f.heap->lock);
    bool edited = meeting.f.heap->n_edits > 0;
    vpmm_lock_give(&meeting.f.heap->lock);
    return edited;
}

static void before_call(void *self, const char *name)
{
    (void)self;
    if (is_main && meeting.stops_before && strcmp(name, meeting.stops_before) == 0) {
        meeting.stops_before = NULL;
        meeting.at_stop();
    }
    if (adds_peer && strcmp(name, "cuMemSetAccess") == 0)
        vpmm_atomic_add(&meeting.n_together, is_edited());
    if (grows && strcmp(name, "cuMemCreate") == 0)
        vpmm_atomic_add(&meeting.n_together, is_frozen());
}

static void setup(const char *stops_before, void (*at_stop)(void))
{
    struct fixture_params params;
    fixture_params_default(&params);
    params.sim.n_devices = 2;
    params.sim.before_call = before_call;
    memset(&meeting, 0, sizeof meeting);
    is_main = true;
    fixture_setup(&meeting.f, &params);
    meeting.address = fixture_malloc(&meeting.f, 2, NULL);
    meeting.at_stop = at_stop;
    meeting.stops_before = stops_before;
}

void __real_vpmm_condition_wait(struct vpmm_condition *condition, struct vpmm_lock *lock);
void __wrap_vpmm_condition_wait(struct vpmm_condition *condition, struct vpmm_lock *lock);

/* The heap's own, told of. */
void __wrap_vpmm_condition_wait(struct vpmm_condition *condition, struct vpmm_lock *lock)
{
    if (adds_peer || grows)
        vpmm_atomic_store(&meeting.is_held_up, 1);
    __real_vpmm_condition_wait(condition, lock);
}

static void *add_peer(void *unused)
{
    (void)unused;
    adds_peer = true;
    meeting.status = vpmm_heap_add_peer(meeting.f.heap, 1);
    vpmm_atomic_store(&meeting.is_held_up, 1);
    return NULL;
}

/* The main thread goes on when the other one has come as far as it can. */
static void wait_for_the_other(void)
{
    while (!vpmm_atomic_load(&meeting.is_held_up))
        (void)sched_yield();
}

static void let_a_peer_be_added(void)
{
    assert_int_equal(pthread_create(&meeting.other, NULL, add_peer, NULL), 0);
    wait_for_the_other();
    assert_true(is_frozen());
}

static void a_peer_waits_for_the_edit_under_way(void **state)
{
    (void)state;
    setup("cuMemMap", let_a_peer_be_added);
    uint64_t p = fixture_malloc(&meeting.f, 4, NULL);
    assert_int_equal(pthread_join(meeting.other, NULL), 0);
    assert_int_equal(meeting.status, VPMM_OK);
    assert_int_equal(vpmm_atomic_load(&meeting.n_together), 0);
    fixture_free(&meeting.f, p, NULL);
    fixture_free(&meeting.f, meeting.address, NULL);
    fixture_teardown(&meeting.f);
}

static void *grow(void *unused)
{
    const struct vpmm_request request = {.bytes = 4 * GIB, .context = meeting.f.context};
    uint64_t address = 0;
    enum vpmm_status wait;
    (void)unused;
    grows = true;
    meeting.status = vpmm_heap_malloc(meeting.f.heap, &request, &address);
    if (!meeting.status)
        meeting.status = vpmm_heap_free(meeting.f.heap, address, NULL, &wait);
    vpmm_atomic_store(&meeting.is_held_up, 1);
    return NULL;
}

static void let_another_grow(void)
{
    assert_int_equal(pthread_create(&meeting.other, NULL, grow, NULL), 0);
    wait_for_the_other();
}

static void an_edit_waits_for_the_peer_that_is_being_added(void **state)
{
    (void)state;
    setup("cuMemSetAccess", let_another_grow);
    assert_int_equal(vpmm_heap_add_peer(meeting.f.heap, 1), VPMM_OK);
    assert_int_equal(pthread_join(meeting.other, NULL), 0);
    assert_int_equal(meeting.status, VPMM_OK);
    assert_int_equal(vpmm_atomic_load(&meeting.n_together), 0);
    fixture_free(&meeting.f, meeting.address, NULL);
    fixture_teardown(&meeting.f);
}

static void a_peer_that_cannot_be_added_holds_up_no_edit(void **state)
{
    (void)state;
    setup(NULL, NULL);
    sim_fault_set(meeting.f.sim, "cuMemSetAccess", 1, CUDA_ERROR_OUT_OF_MEMORY, false);
    assert_int_equal(vpmm_heap_add_peer(meeting.f.heap, 1), VPMM_NO_MEMORY);
    assert_false(is_frozen());
    assert_int_equal(meeting.f.heap->n_devices, 1);
    fixture_free(&meeting.f, meeting.address, NULL);
    fixture_teardown(&meeting.f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peer_waits_for_the_edit_under_way),
        cmocka_unit_test(an_edit_waits_for_the_peer_that_is_being_added),
        cmocka_unit_test(a_peer_that_cannot_be_added_holds_up_no_edit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
