/* SPDX-License-Identifier: MIT */
#include "scene.h"

#include "sim/sim_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void *memory_map(void *self, size_t bytes)
{
    struct scene *scene = self;
    if (scene->maps_until_failure && --scene->maps_until_failure == 0)
        return NULL;
    void *address = vpmm_memory_system.map(NULL, bytes);
    scene->maps_outstanding += address != NULL;
    return address;
}

static void memory_unmap(void *self, void *address, size_t bytes)
{
    struct scene *scene = self;
    scene->maps_outstanding--;
    vpmm_memory_system.unmap(NULL, address, bytes);
}

static bool ledger_take(void *self, int device, uint64_t bytes)
{
    struct scene *scene = self;
    assert_int_equal(device, 0);
    if (scene->limit_bytes && scene->taken_bytes + bytes > scene->limit_bytes)
        return false;
    scene->taken_bytes += bytes;
    return true;
}

static void ledger_give(void *self, int device, uint64_t bytes)
{
    struct scene *scene = self;
    assert_int_equal(device, 0);
    assert_true(bytes <= scene->taken_bytes);
    scene->taken_bytes -= bytes;
}

uint64_t scene_random(struct scene *scene, uint64_t below)
{
    scene->random = scene->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (scene->random >> 33) % below;
}

void scene_setup(struct scene *scene)
{
    struct sim_config config;
    const char *seed = getenv("VPMM_TEST_SEED");
    memset(scene, 0, sizeof *scene);
    sim_config_default(&config);
    config.device_bytes = (uint64_t)64 << 20;
    config.granularity = CHUNK;
    config.eager = false;
    config.check_races = true;
    config.query_progress = 3;
    scene->random = config.seed = seed ? strtoull(seed, NULL, 10) : 1;
    scene->sim = sim_create(&config);
    assert_non_null(scene->sim);
    sim_table_fill(scene->sim, &scene->driver);
    scene->event_elapsed = scene->driver.event_elapsed;
    scene->driver.event_elapsed = NULL;
    scene->memory = (struct vpmm_memory){scene, memory_map, memory_unmap};
    assert_int_equal(sim_ctx_create(scene->sim, 0, 0, &scene->context), CUDA_SUCCESS);
    assert_int_equal(sim_stream_create(scene->sim, CU_STREAM_NON_BLOCKING, 0, &scene->stream),
                     CUDA_SUCCESS);
    scene->params = (struct vpmm_offload_params){
        .context = (vpmm_context_handle)(void *)scene->context,
        .root_bytes = (uint64_t)1 << 30,
        .message = scene->message,
        .message_room = sizeof scene->message,
        .ledger = {scene, ledger_take, ledger_give, NULL, NULL},
    };
}

uint64_t scene_used(struct scene *scene)
{
    struct sim_counts counts;
    sim_live_counts(scene->sim, &counts);
    return counts.used_bytes[0];
}

void scene_teardown(struct scene *scene)
{
    struct sim_counts counts;
    if (scene->offload)
        assert_int_equal(vpmm_offload_destroy(scene->offload), VPMM_OK);
    (void)sim_drain(scene->sim);
    sim_live_counts(scene->sim, &counts);
    assert_int_equal(counts.reservations, 0);
    assert_int_equal(counts.mappings, 0);
    assert_int_equal(counts.handles, 0);
    assert_int_equal(counts.streams, 1);
    assert_int_equal(counts.events, 0);
    assert_int_equal(counts.used_bytes[0], 0);
    assert_int_equal(scene->taken_bytes, 0);
    assert_int_equal(scene->maps_outstanding, 0);
    assert_int_equal(scene->n_wrong, 0);
    sim_destroy(scene->sim);
    for (uint32_t i = 0; i < scene->n_groups; i++) {
        void *bytes;
        memcpy(&bytes, &scene->expected[i], sizeof bytes);
        free(bytes);
    }
}

void scene_make(struct scene *scene, uint64_t budget_chunks)
{
    scene->params.budget_bytes = budget_chunks * CHUNK;
    assert_int_equal(
        vpmm_offload_create(&scene->params, &scene->driver, &scene->memory, &scene->offload),
        VPMM_OK);
}

const unsigned char *scene_pattern(struct scene *scene, uint64_t bytes)
{
    unsigned char *made = malloc(bytes);
    assert_non_null(made);
    for (uint64_t i = 0; i < bytes; i++)
        made[i] = (unsigned char)scene_random(scene, 256);
    return made;
}

uint32_t scene_add(struct scene *scene, enum vpmm_offload_kind kind, uint64_t bytes)
{
    static const char *const names[] = {"streamed", "kept", "direct"};
    uint32_t group = scene->n_groups++;
    void *host;
    assert_true(group < GROUPS_MAX);
    struct vpmm_offload_weight weight = {names[kind], kind, group, bytes};
    scene->bytes[group] = bytes;
    scene->expected[group] = scene_pattern(scene, bytes);
    assert_int_equal(
        vpmm_offload_add(scene->offload, &weight, &scene->addresses[group], &scene->numbers[group]),
        VPMM_OK);
    assert_int_equal(vpmm_offload_host(scene->offload, scene->numbers[group], &host), VPMM_OK);
    memcpy(host, scene->expected[group], bytes);
    return group;
}

void scene_add_many(struct scene *scene, uint32_t n, uint64_t chunks_max)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t bytes = scene_random(scene, chunks_max * CHUNK) + 1;
        scene->order[scene->n_steps++] = scene_add(scene, VPMM_OFFLOAD_STREAMED, bytes);
    }
}

void scene_order(struct scene *scene)
{
    assert_int_equal(vpmm_offload_order(scene->offload, scene->order, scene->n_steps), VPMM_OK);
}

void scene_seal(struct scene *scene)
{
    enum vpmm_status status = vpmm_offload_seal(scene->offload, NULL);
    if (status)
        fail_msg("%s", scene->message);
}

void scene_stir(struct scene *scene)
{
    for (uint64_t n = scene_random(scene, 4); n > 0; n--)
        (void)sim_step(scene->sim);
}

struct reading {
    struct scene *scene;
    uint32_t group;
};

static void read_run(struct sim_view *view, void *argument)
{
    const struct reading *reading = argument;
    struct scene *scene = reading->scene;
    unsigned char *found = malloc(scene->bytes[reading->group]);
    bool is_read =
        sim_read(view, scene->addresses[reading->group], found, scene->bytes[reading->group]);
    scene->n_read++;
    scene->n_wrong += !is_read || memcmp(found, scene->expected[reading->group],
                                         scene->bytes[reading->group]) != 0;
    free(found);
}

void scene_read(struct scene *scene, uint32_t group, CUstream stream)
{
    struct reading reading = {scene, group};
    struct sim_range range = {scene->addresses[group], scene->bytes[group], false};
    struct sim_kernel kernel = {
        .name = "read",
        .run = read_run,
        .argument = &reading,
        .argument_bytes = sizeof reading,
        .ranges = &range,
        .n_ranges = 1,
    };
    assert_int_equal(sim_launch(scene->sim, stream, &kernel), CUDA_SUCCESS);
}

vpmm_stream_handle scene_handle(CUstream stream)
{
    return (vpmm_stream_handle)(void *)stream;
}

enum vpmm_status scene_step(struct scene *scene, uint32_t group, CUstream stream)
{
    enum vpmm_status status = vpmm_offload_use(scene->offload, group, scene_handle(stream));
    if (status)
        return status;
    scene_stir(scene);
    scene_read(scene, group, stream);
    scene_stir(scene);
    return vpmm_offload_done(scene->offload, group, scene_handle(stream));
}

enum vpmm_status scene_try_pass(struct scene *scene)
{
    enum vpmm_status status = vpmm_offload_begin(scene->offload, scene_handle(scene->stream));
    if (status)
        return status;
    for (uint32_t i = 0; !status && i < scene->n_steps; i++)
        status = scene_step(scene, scene->order[i], scene->stream);
    enum vpmm_status ended = vpmm_offload_end(scene->offload, scene_handle(scene->stream));
    return status ? status : ended;
}

void scene_pass(struct scene *scene)
{
    enum vpmm_status status = scene_try_pass(scene);
    if (status)
        fail_msg("%s: %s", vpmm_status_text(status), scene->message);
}

struct vpmm_offload_stats scene_stats(struct scene *scene)
{
    struct vpmm_offload_stats stats;
    vpmm_offload_stats(vpmm_offload_figures(scene->offload), &stats);
    return stats;
}
