/* SPDX-License-Identifier: MIT */
/* What the end of a context does to blocks that others use, and to pages that are just given back.
 * The device reports work that nothing orders. */
#include "heap/heap_parts.h"
#include "scene.h"

#include <pthread.h>

#define BYTES 3000

static struct scene scene;
static CUstream here, there;
static CUcontext other;                     /* the context that ends */
static struct vpmm_context *own, *of_other; /* as the order has them */
static bool gate;

/* Between the taking of a page and its free another thread comes, once. */
static void (*meanwhile)(void);

enum vpmm_status __real_vpmm_heap_free_fenced(struct vpmm_heap *, uint64_t, uint64_t, vpmm_fence,
                                              uint64_t);
enum vpmm_status __wrap_vpmm_heap_free_fenced(struct vpmm_heap *, uint64_t, uint64_t, vpmm_fence,
                                              uint64_t);

static void *run_meanwhile(void *self)
{
    (void)self;
    void (*run)(void) = meanwhile;
    meanwhile = NULL;
    run();
    return NULL;
}

enum vpmm_status __wrap_vpmm_heap_free_fenced(struct vpmm_heap *heap, uint64_t address,
                                              uint64_t owner_id, vpmm_fence fence,
                                              uint64_t stream_id)
{
    pthread_t thread;
    if (meanwhile) {
        SAME(0, pthread_create(&thread, NULL, run_meanwhile, NULL));
        SAME(0, pthread_join(thread, NULL));
    }
    return __real_vpmm_heap_free_fenced(heap, address, owner_id, fence, stream_id);
}

static int setup(void **state)
{
    (void)state;
    gate = false;
    meanwhile = NULL;
    scene = (struct scene){.params = {.free_waits = true}};
    scene_setup(&scene);
    own = scene.f.context;
    here = fixture_stream(&scene.f, CU_STREAM_NON_BLOCKING);
    there = fixture_stream(&scene.f, CU_STREAM_NON_BLOCKING);
    SAME(CUDA_SUCCESS, sim_ctx_create(scene.f.sim, 0, 0, &other));
    SAME(VPMM_OK, vpmm_order_context(scene.f.order, NULL, &of_other));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    gate = true;
    scene_teardown(&scene);
    return 0;
}

static void be_in(CUcontext handle, struct vpmm_context *context)
{
    SAME(CUDA_SUCCESS, sim_ctx_set_current(scene.f.sim, handle));
    scene.f.context = context;
}

static void end_other(void)
{
    uint64_t id = vpmm_context_id(of_other);
    struct vpmm_departure departure =
        vpmm_order_context_leaving(scene.f.order, (vpmm_context_handle)other, true);
    SAME(CUDA_SUCCESS, sim_ctx_destroy(scene.f.sim, other));
    vpmm_order_context_left(scene.f.order, &departure, true);
    vpmm_small_context_gone(scene.small, id);
    vpmm_heap_context_gone(scene.f.heap, id);
    be_in(scene.f.handle, own);
}

static void what_another_context_freed_waits_for_its_work(void **state)
{
    (void)state;
    be_in(other, of_other);
    uint64_t block = scene_malloc(&scene, BYTES, NULL);
    be_in(scene.f.handle, own);
    scene_work(&scene, here, block, BYTES, &gate);
    scene_free(&scene, block, here);
    end_other();
    uint64_t next = scene_malloc(&scene, BYTES, there);
    assert_int_not_equal(next, block);
    scene_work(&scene, there, next, BYTES, NULL);
    scene_free(&scene, next, there);
}

/* Nothing of it is in use by others: its pages serve whoever comes next. */
static void what_the_context_had_alone_is_free_at_once(void **state)
{
    (void)state;
    be_in(other, of_other);
    uint64_t block = scene_malloc(&scene, BYTES, NULL);
    end_other();
    SAME(0, fixture_totals(&scene.f).live_pages);
    SAME(0, scene_figures(&scene).pages);
    assert_int_equal(scene_try_free(&scene, block, NULL), VPMM_INVALID);
}

static uint64_t of_next;

static void end_other_and_take_its_page(void)
{
    end_other();
    of_next = scene_malloc(&scene, BYTES, here);
    scene_work(&scene, here, of_next, BYTES, &gate);
}

/* A page that is being given back may become another owner's before its free. */
static void a_page_of_an_ended_context_is_not_freed_twice(void **state)
{
    (void)state;
    be_in(other, of_other);
    uint64_t block = scene_malloc(&scene, BYTES, NULL);
    scene_free(&scene, block, NULL);
    be_in(scene.f.handle, own);
    meanwhile = end_other_and_take_its_page;
    vpmm_heap_reap(scene.f.heap);
    SAME(block, of_next);
    SAME(1, fixture_totals(&scene.f).live_pages);
    uint64_t next = scene_malloc(&scene, BYTES, there);
    assert_int_not_equal(next, of_next);
    scene_work(&scene, there, next, BYTES, NULL);
    scene_free(&scene, next, there);
    scene_free(&scene, of_next, here);
}

/* A stream may take over the pages of one whose context has ended. What cudaFree waits for is then
 * the work of all contexts. */
static void cuda_free_in_an_adopted_page_waits_for_its_users(void **state)
{
    CUcontext third;
    uint64_t blocks[8], more[12], bytes = scene.f.page_bytes / 8;
    (void)state;
    be_in(other, of_other);
    CUstream old = fixture_stream(&scene.f, CU_STREAM_NON_BLOCKING);
    scene_free(&scene, scene_malloc(&scene, BYTES, old), old);
    uint64_t ended_id = vpmm_context_id(of_other);
    end_other();
    for (int i = 0; i < 8; i++)
        blocks[i] = scene_malloc(&scene, bytes, here);
    struct vpmm_region_view view;
    assert_true(vpmm_small_find(scene.small, blocks[3], &view));
    SAME(ended_id, view.owner.context_id);
    scene_work(&scene, there, blocks[3], bytes, &gate);
    SAME(CUDA_SUCCESS, sim_ctx_create(scene.f.sim, 0, 0, &third));
    scene_free(&scene, blocks[3], NULL);
    be_in(scene.f.handle, own);
    for (int i = 0; i < 12; i++) {
        more[i] = scene_malloc(&scene, bytes, here);
        assert_int_not_equal(more[i], blocks[3]);
        scene_work(&scene, here, more[i], bytes, NULL);
    }
    for (int i = 0; i < 12; i++)
        scene_free(&scene, more[i], here);
    for (int i = 0; i < 8; i++)
        if (i != 3)
            scene_free(&scene, blocks[i], here);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_another_context_freed_waits_for_its_work),
        TEST(what_the_context_had_alone_is_free_at_once),
        TEST(a_page_of_an_ended_context_is_not_freed_twice),
        TEST(cuda_free_in_an_adopted_page_waits_for_its_users),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
