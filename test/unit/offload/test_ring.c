/* SPDX-License-Identifier: MIT */
/* How wide the ring is: the schedule of copies that a plan gives, as arithmetic, and when the ring
 * is made wider because of measured times. */
#include "offload/spread.h"
#include "scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- the schedule ---- */

#define STEPS_MAX 600u
#define PASSES 12u
#define WARM_PASSES 6u

struct model {
    struct vpmm_spread_item items[STEPS_MAX];
    struct vpmm_spread_step steps[STEPS_MAX];
    struct vpmm_spread spread;
};

/* Llama-shaped layers in chunks of 2 MiB: q, k, v, o, gate, up, down. */
static void fill(struct model *model, uint32_t n_layers)
{
    static const uint64_t shape[] = {64, 8, 8, 64, 224, 224, 224};
    memset(model, 0, sizeof *model);
    model->spread = (struct vpmm_spread){
        .items = model->items, .n_items = 7 * n_layers, .steps = model->steps, .slack_chunks = 16};
    for (uint32_t i = 0; i < 7 * n_layers; i++) {
        model->items[i].n_chunks = shape[i % 7];
        model->steps[model->spread.n_steps++] = (struct vpmm_spread_step){i, 0};
    }
}

/* The steady time of a pass where a chunk is copied in 1, and where a pass computes for `compute`.
 * Copies go in the order of steps, each when its slot's last user is done. */
static double pass_time(const struct model *model, double compute)
{
    const struct vpmm_spread *spread = &model->spread;
    double *free_at = calloc(spread->ring_chunks, sizeof *free_at);
    double link = 0, now = 0, begin = 0;
    for (uint32_t i = 0; i < PASSES * spread->n_steps; i++) {
        const struct vpmm_spread_item *item =
            &spread->items[spread->steps[i % spread->n_steps].item];
        uint64_t n = item->is_resident ? 0 : item->n_chunks;
        begin = i == WARM_PASSES * spread->n_steps ? now : begin;
        for (uint64_t c = 0; c < n; c++) {
            double slot = free_at[(item->position + c) % spread->ring_chunks];
            link = (link > slot ? link : slot) + 1;
        }
        now = n && link > now ? link : now;
        now += compute * (double)item->n_chunks / (double)spread->all_chunks;
        for (uint64_t c = 0; c < n; c++)
            free_at[(item->position + c) % spread->ring_chunks] = now;
    }
    free(free_at);
    return (now - begin) / (PASSES - WARM_PASSES);
}

/* The share of max(C, W - b), where computing takes `ratio` of W - b, in thousandths. */
static int share(struct model *model, double part, double ratio, bool is_wide)
{
    vpmm_spread_need(&model->spread);
    model->spread.budget_chunks = (uint64_t)(part * (double)model->spread.all_chunks);
    model->spread.ring_wish_chunks = 0;
    model->spread.is_wide = is_wide;
    assert_int_equal(vpmm_spread_plan(&model->spread), VPMM_OK);
    double least = (double)(model->spread.all_chunks - model->spread.budget_chunks);
    double most = ratio > 1 ? ratio * least : least;
    return (int)(1000 * most / pass_time(model, ratio * least));
}

static void test_schedule(void **state)
{
    (void)state;
    static const double parts[] = {0.75, 0.5, 0.25};
    static struct model model;
    for (size_t i = 0; i < 3; i++) {
        fill(&model, 80);
        assert_in_range(share(&model, parts[i], 0.04, false), 960, 1000);
        assert_in_range(share(&model, parts[i], 1, true), 930, 1000);
        fill(&model, 12);
        assert_in_range(share(&model, parts[i], 0.04, false), 880, 1000);
        assert_in_range(share(&model, parts[i], 1, true), 830, 1000);
        assert_true(share(&model, parts[i], 1, true) > share(&model, parts[i], 1, false));
    }
}

/* Computing takes three times as long as copying: copies hide, though the ring is narrow, where no
 * two large groups in a row are streamed. */
static void test_hidden_copies(void **state)
{
    (void)state;
    static struct model model;
    fill(&model, 12);
    assert_in_range(share(&model, 0.5, 3, false), 980, 1000);
    for (uint32_t i = 0; i + 1 < model.spread.n_items; i++)
        assert_true(model.items[i].is_resident || model.items[i + 1].is_resident ||
                    model.items[i].n_chunks + model.items[i + 1].n_chunks < 2 * 224);
}

/* ---- measured times ---- */

#define N 16u
#define EVENTS 1024u

/* The device's time on the program's stream and on that of copies, in which a byte takes 1 ns. */
static struct {
    struct vpmm_driver real;
    vpmm_stream_handle program;
    uint64_t program_ns, copies_ns, stall_ns;
    vpmm_event_handle events[EVENTS];
    uint64_t at_ns[EVENTS];
} device;

static uint64_t *time_of(vpmm_event_handle event)
{
    uint32_t i = 0;
    while (i < EVENTS - 1 && device.events[i] && device.events[i] != event)
        i++;
    device.events[i] = event;
    return &device.at_ns[i];
}

static enum vpmm_status record(void *self, vpmm_event_handle event, vpmm_stream_handle stream)
{
    *time_of(event) = stream == device.program ? device.program_ns : device.copies_ns;
    return device.real.event_record(self, event, stream);
}

static enum vpmm_status wait(void *self, vpmm_stream_handle stream, vpmm_event_handle event)
{
    if (stream == device.program)
        device.program_ns += device.stall_ns;
    return device.real.stream_wait(self, stream, event);
}

static enum vpmm_status copy(void *self, vpmm_context_handle context, uint64_t address,
                             const void *from, uint64_t bytes, vpmm_stream_handle stream)
{
    device.copies_ns += bytes;
    return device.real.copy_in(self, context, address, from, bytes, stream);
}

static enum vpmm_status elapsed(void *self, vpmm_event_handle begin, vpmm_event_handle end,
                                uint64_t *ns_out)
{
    enum vpmm_status status = device.real.event_elapsed(self, begin, end, ns_out);
    *ns_out = *time_of(end) - *time_of(begin);
    return status;
}

static void setup(struct scene *scene, uint64_t ring_bytes)
{
    scene_setup(scene);
    memset(&device, 0, sizeof device);
    device.real = scene->driver;
    device.real.event_elapsed = scene->event_elapsed;
    device.program = scene_handle(scene->stream);
    scene->driver.event_record = record;
    scene->driver.stream_wait = wait;
    scene->driver.copy_in = copy;
    scene->driver.event_elapsed = elapsed;
    scene->params.ring_bytes = ring_bytes;
    scene_make(scene, 10);
    for (uint32_t i = 0; i < N; i++)
        scene->order[scene->n_steps++] = scene_add(scene, VPMM_OFFLOAD_STREAMED, 2 * CHUNK);
    scene_order(scene);
    scene_seal(scene);
}

/* Passes that compute for so long, and wait so long for each late copy. */
static void passes(struct scene *scene, uint32_t n, uint64_t compute_ns, uint64_t stall_ns)
{
    device.stall_ns = stall_ns;
    for (uint32_t pass = 0; pass < n; pass++) {
        assert_int_equal(vpmm_offload_begin(scene->offload, device.program), VPMM_OK);
        for (uint32_t i = 0; i < N; i++) {
            device.program_ns += compute_ns / N;
            assert_int_equal(scene_step(scene, i, scene->stream), VPMM_OK);
        }
        assert_int_equal(vpmm_offload_end(scene->offload, device.program), VPMM_OK);
        assert_int_equal(sim_ctx_synchronize(scene->sim), CUDA_SUCCESS);
        assert_true(scene_used(scene) <= scene_stats(scene).budget_bytes);
    }
}

#define COPIED (12 * 2 * CHUNK) /* about what a pass copies, in bytes and in ns */

static void test_wider(void **state)
{
    (void)state;
    struct scene scene;
    setup(&scene, 0);
    uint64_t narrow = scene_stats(&scene).ring_bytes;
    passes(&scene, 40, COPIED, COPIED / 10);
    struct vpmm_offload_stats stats = scene_stats(&scene);
    assert_true(stats.stall_ns > stats.pass_ns / 20);
    assert_true(narrow < 4 * CHUNK);
    assert_true(stats.ring_bytes >= 4 * CHUNK);
    passes(&scene, 40, COPIED, COPIED / 10);
    assert_int_equal(scene_stats(&scene).vmm_calls, stats.vmm_calls);
    assert_int_equal(scene_stats(&scene).host_waits, stats.host_waits);
    scene_teardown(&scene);
}

/* Copying dominates; nothing waits; or the size was asked for. */
static void test_as_it_is(void **state)
{
    static const struct {
        uint64_t compute_ns, stall_ns, ring_bytes;
    } cases[] = {{COPIED / 20, COPIED / 10, 0}, {COPIED, 0, 0}, {COPIED, COPIED / 10, 3 * CHUNK}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct scene scene;
        setup(&scene, cases[i].ring_bytes);
        uint64_t ring = scene_stats(&scene).ring_bytes, calls = scene_stats(&scene).vmm_calls;
        passes(&scene, 60, cases[i].compute_ns, cases[i].stall_ns);
        assert_true(scene_stats(&scene).timed_passes > 16);
        assert_int_equal(scene_stats(&scene).ring_bytes, ring);
        assert_int_equal(scene_stats(&scene).vmm_calls, calls);
        scene_teardown(&scene);
    }
}

/* Few passes compute for long, and do not wait; the others wait, and compute for a moment. No ring
 * helps either, whatever their sums look like. */
static void test_in_turn(void **state)
{
    (void)state;
    struct scene scene;
    setup(&scene, 0);
    uint64_t ring = scene_stats(&scene).ring_bytes;
    for (uint32_t turn = 0; turn < 10; turn++) {
        passes(&scene, 4, COPIED / 20, COPIED / 10);
        passes(&scene, 2, 10 * COPIED, 0);
    }
    struct vpmm_offload_stats stats = scene_stats(&scene);
    assert_true(stats.timed_passes > 16 && stats.stall_ns > stats.pass_ns / 20);
    assert_int_equal(stats.ring_bytes, ring);
    scene_teardown(&scene);
}

/* Once: what comes after the first passes of a plan moves nothing. */
static void test_judged_once(void **state)
{
    (void)state;
    struct scene scene;
    setup(&scene, 0);
    uint64_t ring = scene_stats(&scene).ring_bytes;
    passes(&scene, 40, COPIED / 20, COPIED / 10);
    passes(&scene, 40, COPIED, COPIED / 10);
    assert_int_equal(scene_stats(&scene).ring_bytes, ring);
    assert_int_equal(vpmm_offload_budget(scene.offload, 12 * CHUNK, NULL), VPMM_OK);
    passes(&scene, 40, COPIED, COPIED / 10);
    assert_true(scene_stats(&scene).ring_bytes >= 4 * CHUNK);
    assert_int_equal(vpmm_offload_budget(scene.offload, 10 * CHUNK, NULL), VPMM_OK);
    assert_int_equal(scene_stats(&scene).ring_bytes, ring);
    scene_teardown(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedule), cmocka_unit_test(test_hidden_copies),
        cmocka_unit_test(test_wider),    cmocka_unit_test(test_as_it_is),
        cmocka_unit_test(test_in_turn),  cmocka_unit_test(test_judged_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
