/* SPDX-License-Identifier: MIT */
#include "scene.h"

#include "order/order_program.h"

#include <string.h>

void scene_params(struct fixture_params *params)
{
    fixture_params_default(params);
    params->sim.device_bytes = 256 * MIB;
    params->sim.has_bytes = true;
    params->sim.check_races = true;
    params->heap.page_bytes = 2 * MIB;
    params->heap.root_bytes = GIB;
}

void scene_setup_with(struct scene *scene, const struct fixture_params *params)
{
    fixture_setup(&scene->f, params);
    SAME(VPMM_OK, vpmm_small_create(&scene->params, scene->f.heap, scene->f.order, &scene->f.memory,
                                    &scene->small));
}

void scene_setup(struct scene *scene)
{
    struct fixture_params params;
    scene_params(&params);
    scene_setup_with(scene, &params);
}

void scene_abandon(struct scene *scene)
{
    const struct vpmm_keeper nobody = {NULL, NULL, NULL, NULL, NULL, NULL};
    vpmm_heap_set_keeper(scene->f.heap, &nobody);
    vpmm_small_destroy(scene->small);
    fixture_teardown(&scene->f);
}

void scene_teardown(struct scene *scene)
{
    SAME(0, scene_figures(scene).blocks);
    (void)sim_drain(scene->f.sim);
    vpmm_heap_reap(scene->f.heap);
    scene_audit(scene);
    SAME(0, scene_figures(scene).waiting_blocks);
    SAME(0, scene_figures(scene).slabs);
    SAME(0, fixture_totals(&scene->f).live_pages);
    scene_abandon(scene);
}

static struct vpmm_stream resolve(struct scene *scene, CUstream handle)
{
    struct vpmm_stream stream;
    SAME(VPMM_OK, vpmm_order_stream(scene->f.order, (vpmm_stream_handle)handle, &stream));
    return stream;
}

enum vpmm_status scene_try_malloc(struct scene *scene, uint64_t bytes, CUstream handle,
                                  uint64_t *address_out)
{
    struct vpmm_stream stream;
    struct vpmm_request request = {.bytes = bytes, .context = scene->f.context};
    if (handle) {
        stream = resolve(scene, handle);
        request.stream = &stream;
        request.context = stream.context;
        request.mempool = scene->f.mempool;
    }
    enum vpmm_status status = vpmm_small_malloc(scene->small, &request, address_out);
    scene_audit(scene);
    return status;
}

uint64_t scene_malloc(struct scene *scene, uint64_t bytes, CUstream stream)
{
    uint64_t address = 0;
    SAME(VPMM_OK, scene_try_malloc(scene, bytes, stream, &address));
    assert_int_not_equal(address, 0);
    SAME(0, address % VPMM_GRAIN_BYTES);
    return address;
}

uint64_t scene_malloc_warm(struct scene *scene, uint64_t bytes, CUstream handle)
{
    struct vpmm_stream stream = resolve(scene, handle);
    const struct vpmm_request request = {
        .bytes = bytes, .context = stream.context, .stream = &stream, .mempool = scene->f.mempool};
    uint64_t address;
    bool is_served = vpmm_small_malloc_warm(scene->small, &request, &address);
    scene_audit(scene);
    return is_served ? address : 0;
}

enum vpmm_status scene_try_free(struct scene *scene, uint64_t address, CUstream handle)
{
    struct vpmm_stream stream;
    enum vpmm_status waited = VPMM_OK, status = VPMM_OK;
    if (handle)
        stream = resolve(scene, handle);
    if (!handle || vpmm_small_free_warm(scene->small, address, &stream))
        status = vpmm_small_free(scene->small, address, handle ? &stream : NULL, &waited);
    scene_audit(scene);
    return status ? status : waited;
}

void scene_free(struct scene *scene, uint64_t address, CUstream stream)
{
    SAME(VPMM_OK, scene_try_free(scene, address, stream));
}

void scene_audit(struct scene *scene)
{
    const char *broken = vpmm_small_audit(scene->small);
    if (broken)
        fail_msg("audit of small blocks: %s", broken);
    fixture_audit(&scene->f);
}

struct vpmm_small_figures scene_figures(struct scene *scene)
{
    struct vpmm_small_figures figures;
    vpmm_small_figures(scene->small, &figures);
    return figures;
}

static bool gate_is_open(struct sim_view *view, void *argument)
{
    (void)view;
    const volatile bool *const *gate = argument;
    return **gate;
}

void scene_work(struct scene *scene, CUstream stream, uint64_t address, uint64_t bytes,
                const volatile bool *gate)
{
    struct sim_range range = {address, bytes, true};
    struct sim_kernel kernel = {.name = "work",
                                .ready = gate ? gate_is_open : NULL,
                                .argument = &gate,
                                .argument_bytes = sizeof gate,
                                .ranges = &range,
                                .n_ranges = 1};
    SAME(CUDA_SUCCESS, sim_launch(scene->f.sim, stream, &kernel));
}
