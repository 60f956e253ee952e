/* SPDX-License-Identifier: MIT */
/* The heap of a device: several threads want it, one makes it, and sometimes that fails. */
#include "cases.h"

#include "observe/log.h"
#include "route/router.h"
#include "stage.h"

#define GROUP "route"

static struct world {
    struct gpu *device;
    struct vpmm_config config;
    struct vpmm_router *router;
    bool has_answer[SCHEDULE_THREADS];
    enum vpmm_status answers[SCHEDULE_THREADS];
    struct vpmm_heap *heaps[SCHEDULE_THREADS];
    int n_first;
} * world;

/* The library's messages are no part of this. */
void vpmm_log(enum vpmm_log_kind kind, const char *format, ...)
{
    (void)kind;
    (void)format;
}

bool vpmm_log_says(enum vpmm_log_kind kind)
{
    (void)kind;
    return false;
}

static void note_first(void *self)
{
    struct world *noting = self;
    expect(vpmm_router_heap(noting->router, 0) && vpmm_lock_none_held());
    noting->n_first++;
}

static void prepare(void)
{
    world = schedule_room(sizeof *world);
    world->device = device_create(4);
    world->config = (struct vpmm_config){.va_bytes = 8 * DEVICE_PAGE_BYTES,
                                         .extent_pages_max = 1,
                                         .slack = {.value = 4 * DEVICE_PAGE_BYTES},
                                         .active = true};
    struct vpmm_first_heap first = {world, note_first, NULL};
    expect(!vpmm_router_create(&world->config, &world->device->driver, &schedule_memory, &first,
                               &world->router));
    stage_count_order(vpmm_router_order(world->router));
}

static void prepare_failure(enum device_call call, uint32_t nth, enum vpmm_status status)
{
    prepare();
    world->device->fails = call;
    world->device->fails_nth = nth;
    world->device->failure = status;
}

static void prepare_no_addresses(void)
{
    prepare_failure(CALL_ADDRESS_RESERVE, 1, VPMM_FAILED);
}

static void prepare_no_facts(void)
{
    prepare_failure(CALL_DEVICE_FACTS, 1, VPMM_FAILED);
}

/* A heap there can never be made. */
static void prepare_not_supported(void)
{
    prepare_failure(CALL_ADDRESS_RESERVE, 1, VPMM_NOT_SUPPORTED);
}

static void want_heap(void)
{
    int thread = schedule_thread();
    enum vpmm_status status = vpmm_router_learn(world->router, 0);
    if (!status)
        status = vpmm_router_require_heap(world->router, 0, &world->heaps[thread]);
    world->has_answer[thread] = true;
    world->answers[thread] = status;
}

static int count(enum vpmm_status answer)
{
    int n = 0;
    for (int i = 0; i < SCHEDULE_THREADS; i++)
        n += world->has_answer[i] && world->answers[i] == answer;
    return n;
}

static void check_first(void)
{
    for (int i = 0; i < SCHEDULE_THREADS; i++)
        expect(!world->heaps[i] || world->heaps[i] == vpmm_router_heap(world->router, 0));
    expect(world->n_first == 1);
    vpmm_router_destroy(world->router);
    device_expect_empty(world->device);
    expect(schedule_maps() == 0);
}

static void check_two(void)
{
    expect(count(VPMM_OK) == 2);
    check_first();
}

static void check_three(void)
{
    expect(count(VPMM_OK) == 3);
    check_first();
}

/* Whoever met the failure is passed on; the next makes the heap. */
static void check_one_passed_on(void)
{
    expect(count(VPMM_FAILED) == 1 && count(VPMM_OK) == 1);
    check_first();
}

static void check_without(enum vpmm_status answer)
{
    expect(count(answer) == 2);
    expect(!vpmm_router_heap(world->router, 0) && world->n_first == 0);
    vpmm_router_destroy(world->router);
    expect(schedule_maps() == 0);
}

/* What has just failed is not tried again at once: both are passed on. */
static void check_both_passed_on(void)
{
    check_without(VPMM_FAILED);
}

/* Nobody tries again what can never be. */
static void check_none(void)
{
    check_without(VPMM_NOT_SUPPORTED);
}

const struct schedule_case cases_route[] = {
    SCHEDULE_TEST(two_want_it, prepare, {want_heap, want_heap}, check_two),
    SCHEDULE_TEST(three_want_it, prepare, {want_heap, want_heap, want_heap}, check_three),
    SCHEDULE_TEST(failed_creation, prepare_no_addresses, {want_heap, want_heap},
                  check_both_passed_on),
    SCHEDULE_TEST(failed_question, prepare_no_facts, {want_heap, want_heap}, check_one_passed_on),
    SCHEDULE_TEST(not_supported, prepare_not_supported, {want_heap, want_heap}, check_none),
    {0},
};
