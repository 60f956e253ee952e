/* SPDX-License-Identifier: MIT */
/* Streams that come and go: how many have a place for small blocks at one time. */
#include "scene.h"

static struct scene scene;
static CUstream stream;

/* So many streams have a place for small blocks at one time. */
#define PLACES 2048u

/* A block that comes and goes; without an audit, which walks all places. */
static CUstream pass_by(CUstream handle)
{
    struct vpmm_stream of;
    uint64_t address;
    enum vpmm_status waited;
    SAME(VPMM_OK, vpmm_order_stream(scene.f.order, (vpmm_stream_handle)handle, &of));
    const struct vpmm_request request = {
        .bytes = KIB, .context = of.context, .stream = &of, .mempool = scene.f.mempool};
    SAME(VPMM_OK, vpmm_small_malloc(scene.small, &request, &address));
    SAME(VPMM_OK, vpmm_small_free(scene.small, address, &of, &waited));
    return handle;
}

/* A page for each of them, and more. */
static int setup(void **state)
{
    struct fixture_params params;
    (void)state;
    scene_params(&params);
    params.sim.device_bytes = params.heap.root_bytes = 16 * GIB;
    params.sim.has_bytes = false;
    scene = (struct scene){.params = {.free_waits = true}};
    scene_setup_with(&scene, &params);
    stream = fixture_stream(&scene.f, CU_STREAM_NON_BLOCKING);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    scene_teardown(&scene);
    return 0;
}

/* As threads that end leave their streams behind: nobody says that these are gone. */
static void streams_that_hold_nothing_make_room_for_others(void **state)
{
    (void)state;
    uint64_t kept = scene_malloc(&scene, KIB, stream);
    CUstream second = pass_by(fixture_stream(&scene.f, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 2; i < PLACES; i++)
        (void)pass_by(fixture_stream(&scene.f, CU_STREAM_NON_BLOCKING));
    SAME(PLACES, scene_figures(&scene).racks);
    SAME(PLACES, scene_figures(&scene).pages);
    uint64_t other = scene_malloc(&scene, KIB, fixture_stream(&scene.f, CU_STREAM_NON_BLOCKING));
    SAME(2, scene_figures(&scene).pages);
    (void)pass_by(second);
    for (unsigned i = 0; i < PLACES; i++)
        (void)pass_by(fixture_stream(&scene.f, CU_STREAM_NON_BLOCKING));
    SAME(PLACES, scene_figures(&scene).racks);
    SAME(2, scene_figures(&scene).blocks);
    scene_free(&scene, other, stream);
    scene_free(&scene, kept, stream);
}

/* Nor are all emptied again and again where that does not help. */
static void streams_that_hold_blocks_keep_their_places(void **state)
{
    struct vpmm_stream of;
    static uint64_t blocks[PLACES], address;
    static CUstream streams[PLACES];
    enum vpmm_status waited;
    (void)state;
    for (unsigned i = 0; i < PLACES; i++) {
        streams[i] = fixture_stream(&scene.f, CU_STREAM_NON_BLOCKING);
        SAME(VPMM_OK, vpmm_order_stream(scene.f.order, (vpmm_stream_handle)streams[i], &of));
        const struct vpmm_request request = {
            .bytes = KIB, .context = of.context, .stream = &of, .mempool = scene.f.mempool};
        SAME(VPMM_OK, vpmm_small_malloc(scene.small, &request, &blocks[i]));
    }
    SAME(VPMM_NOT_READY, scene_try_malloc(&scene, KIB, stream, &address));
    SAME(VPMM_OK, vpmm_small_free(scene.small, blocks[0], &of, &waited));
    scene_free(&scene, scene_malloc(&scene, KIB, streams[0]), streams[0]);
    SAME(VPMM_NOT_READY, scene_try_malloc(&scene, KIB, stream, &address));
    for (unsigned i = 1; i < PLACES; i++) {
        SAME(VPMM_OK, vpmm_order_stream(scene.f.order, (vpmm_stream_handle)streams[i], &of));
        SAME(VPMM_OK, vpmm_small_free(scene.small, blocks[i], &of, &waited));
    }
    unsigned n_refused = 0;
    while (scene_try_malloc(&scene, KIB, stream, &address) && n_refused < PLACES)
        n_refused++;
    assert_in_range(n_refused, 1, PLACES - 1);
    scene_free(&scene, address, stream);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(streams_that_hold_nothing_make_room_for_others),
        TEST(streams_that_hold_blocks_keep_their_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
