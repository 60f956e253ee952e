/* SPDX-License-Identifier: MIT */
/* What an event tells those who wait for it. Threads record one event on several streams and wait
 * for it, without any order among them: whoever learns something learns it of the very record that
 * the driver waited for. */
#include "cases.h"

#include "order/order_internal.h"
#include "stage.h"

#define GROUP "snapshot"

/* Any handle: the driver is never asked about it. */
#define EVENT ((vpmm_event_handle)0x1000)

static struct world {
    struct gpu *device;
    struct vpmm_order *order;
    vpmm_atomic64 recorded; /* the stream of the last record, as the driver knows it */
    bool has_learnt;
} * world;

/* As the wrapper does it; each stream has frees of its own. */
static void record(uint64_t stream_id, bool is_recorded, bool has_points)
{
    struct vpmm_event_points points;
    vpmm_snapshot_begin(world->order, EVENT, &points);
    if (has_points)
        points.points[points.n++] = (struct vpmm_point){stream_id, 1};
    if (is_recorded)
        vpmm_atomic_store(&world->recorded, stream_id);
    vpmm_order_event_recorded(world->order, EVENT, &points, is_recorded);
}

static void prepare_unknown(void)
{
    world = schedule_room(sizeof *world);
    world->device = device_create(1);
    expect(!vpmm_order_create(&world->device->driver, &schedule_memory, &world->order));
    vpmm_snapshots_make(world->order);
}

static void prepare(void)
{
    prepare_unknown();
    record(1, true, true);
}

static void record_first(void)
{
    record(1, true, true);
}

static void record_second(void)
{
    record(2, true, true);
}

static void record_third_without_frees(void)
{
    record(3, true, false);
}

static void record_in_vain(void)
{
    record(4, false, true);
}

static void wait_for_event(void)
{
    struct vpmm_event_points points;
    vpmm_snapshot_look(world->order, EVENT, &points);
    uint64_t captured = vpmm_atomic_load(&world->recorded);
    if (points.n && vpmm_snapshot_is(world->order, EVENT, points.version)) {
        expect(points.points[0].stream_id == captured);
        world->has_learnt = true;
    }
}

/* What is known in the end is of the last record, too. */
static void check(void)
{
    wait_for_event();
    vpmm_order_destroy(world->order);
    device_expect_empty(world->device);
}

/* After records that came one after the other, something is known. */
static void check_learnt(void)
{
    record(2, true, true);
    wait_for_event();
    expect(world->has_learnt);
    check();
}

const struct schedule_case cases_snapshot[] = {
    SCHEDULE_TEST(one_record, prepare, {record_second, wait_for_event}, check),
    SCHEDULE_TEST(two_records, prepare, {record_first, record_second}, check_learnt),
    SCHEDULE_TEST(two_records_and_a_wait, prepare, {record_first, record_second, wait_for_event},
                  check),
    SCHEDULE_TEST(a_record_without_frees, prepare,
                  {record_second, record_third_without_frees, wait_for_event}, check),
    SCHEDULE_TEST(a_first_record, prepare_unknown,
                  {record_second, record_third_without_frees, wait_for_event}, check),
    SCHEDULE_TEST(a_record_in_vain, prepare, {record_second, record_in_vain, wait_for_event},
                  check),
    {0},
};
