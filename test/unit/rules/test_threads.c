/* SPDX-License-Identifier: MIT */
/* Several threads on one heap, with content: each checks its own blocks, the device checks that all
 * accesses to a page are ordered, and the audit what is left. */
#include "blocks.h"

#include "base/atomic.h"

#include <string.h>

#define THREADS 8
#define OPERATIONS 300
#define BLOCKS 6

struct worker {
    struct fixture *fixture;
    pthread_t thread;
    uint64_t number, random;
    CUstream stream;
    CUdeviceptr small; /* from CUDA's own pool, beside the heap's */
    struct block blocks[BLOCKS];
    bool is_async[BLOCKS];
    uint64_t served, refused, troubles;
};

static uint64_t draw(struct worker *worker, uint64_t n)
{
    worker->random = worker->random * 6364136223846793005u + 1442695040888963407u;
    return (worker->random >> 33) % n;
}

static enum vpmm_status thread_malloc(struct fixture *f, uint64_t pages, CUstream stream,
                                      uint64_t *address_out)
{
    struct vpmm_stream resolved;
    struct vpmm_request request = {.bytes = pages * f->page_bytes, .context = f->context};
    if (stream) {
        enum vpmm_status status =
            vpmm_order_stream(f->order, (vpmm_stream_handle)stream, &resolved);
        if (status)
            return status;
        request.stream = &resolved;
    }
    return vpmm_heap_malloc(f->heap, &request, address_out);
}

static enum vpmm_status thread_free(struct fixture *f, uint64_t address, CUstream stream)
{
    struct vpmm_stream resolved;
    enum vpmm_status wait;
    enum vpmm_status status = VPMM_OK;
    if (stream)
        status = vpmm_order_stream(f->order, (vpmm_stream_handle)stream, &resolved);
    return status ? status : vpmm_heap_free(f->heap, address, stream ? &resolved : NULL, &wait);
}

static void give_up(struct worker *worker, int i)
{
    struct fixture *f = worker->fixture;
    block_check(f, worker->stream, &worker->blocks[i]);
    if (thread_free(f, worker->blocks[i].address, worker->is_async[i] ? worker->stream : NULL))
        worker->troubles++;
    worker->blocks[i].pages = 0;
}

static void take(struct worker *worker, int i)
{
    struct fixture *f = worker->fixture;
    struct block block = {0, 1 + draw(worker, 9), worker->number << 32 | worker->random >> 40};
    bool is_async = draw(worker, 3) > 0;
    enum vpmm_status status =
        thread_malloc(f, block.pages, is_async ? worker->stream : NULL, &block.address);
    if (status) {
        worker->refused++;
        worker->troubles += status != VPMM_NO_MEMORY;
        return;
    }
    worker->served++;
    block_write(f, worker->stream, &block, NULL);
    worker->blocks[i] = block;
    worker->is_async[i] = is_async;
}

/* Small memory, as programs mix it in: it is not the heap's. */
static void use_small(struct worker *worker)
{
    struct sim *sim = worker->fixture->sim;
    CUresult result =
        worker->small ? sim_mem_free_async(sim, worker->small, worker->stream) : CUDA_SUCCESS;
    worker->small = 0;
    if (result != CUDA_SUCCESS)
        worker->troubles++;
    (void)sim_mem_alloc_async(sim, 4096, worker->stream, &worker->small);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct sim *sim = worker->fixture->sim;
    if (sim_ctx_set_current(sim, worker->fixture->handle) != CUDA_SUCCESS ||
        sim_stream_create(sim, CU_STREAM_NON_BLOCKING, 0, &worker->stream) != CUDA_SUCCESS) {
        worker->troubles++;
        return NULL;
    }
    for (int n = 0; n < OPERATIONS; n++) {
        int i = (int)draw(worker, BLOCKS);
        if (worker->blocks[i].pages)
            give_up(worker, i);
        else
            take(worker, i);
        if (n % 16 == 0)
            use_small(worker);
        if (n % 32 == 31 && sim_stream_synchronize(sim, worker->stream) != CUDA_SUCCESS)
            worker->troubles++;
    }
    for (int i = 0; i < BLOCKS; i++)
        if (worker->blocks[i].pages)
            give_up(worker, i);
    if (worker->small && sim_mem_free_async(sim, worker->small, worker->stream) != CUDA_SUCCESS)
        worker->troubles++;
    return NULL;
}

/* The fixture's memory counts what it gives, for one thread at a time. */
static struct vpmm_memory counted;
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;

static void *map_alone(void *self, size_t bytes)
{
    (void)pthread_mutex_lock(&counting);
    void *address = counted.map(self, bytes);
    (void)pthread_mutex_unlock(&counting);
    return address;
}

static void unmap_alone(void *self, void *address, size_t bytes)
{
    (void)pthread_mutex_lock(&counting);
    counted.unmap(self, address, bytes);
    (void)pthread_mutex_unlock(&counting);
}

static void count_alone(struct fixture *f)
{
    counted = f->memory;
    f->memory.map = map_alone;
    f->memory.unmap = unmap_alone;
}

static void run_threads(uint64_t n_threads, uint64_t device_bytes, uint64_t extent_pages_max)
{
    static struct worker workers[THREADS];
    struct fixture f;
    struct fixture_params params;
    uint64_t served = 0;
    rules_params(&params);
    params.sim.device_bytes = device_bytes;
    params.sim.query_progress = 2;
    params.heap.slack_bytes = 16 * MIB;
    params.heap.extent_pages_max = extent_pages_max;
    fixture_setup(&f, &params);
    count_alone(&f);
    memset(workers, 0, sizeof workers);
    for (uint64_t i = 0; i < n_threads; i++) {
        workers[i].fixture = &f;
        workers[i].number = i;
        workers[i].random = i + 1;
        SAME(0, pthread_create(&workers[i].thread, NULL, work, &workers[i]));
    }
    for (uint64_t i = 0; i < n_threads; i++) {
        SAME(0, pthread_join(workers[i].thread, NULL));
        SAME(0, workers[i].troubles);
        served += workers[i].served;
        print_message("thread %d: %d served, %d refused\n", (int)i, (int)workers[i].served,
                      (int)workers[i].refused);
    }
    assert_in_range(served, n_threads * OPERATIONS / 4, UINT64_MAX);
    SAME(CUDA_SUCCESS, sim_ctx_synchronize(f.sim));
    vpmm_heap_reap(f.heap);
    fixture_audit(&f);
    SAME(0, fixture_totals(&f).live_pages);
    SAME(0, fixture_totals(&f).zombie_pages);
    SAME(0, blocks_wrong());
    assert_in_range(blocks_checked(), served, UINT64_MAX);
    struct block all = {fixture_malloc(&f, device_bytes / f.page_bytes * 3 / 4, NULL),
                        device_bytes / f.page_bytes * 3 / 4, 99};
    fixture_free(&f, all.address, NULL);
    fixture_teardown(&f);
}

static void threads_mix_small_and_large_requests(void **state)
{
    (void)state;
    rules_forget();
    run_threads(4, 512 * MIB, 1);
}

static void threads_fill_the_device(void **state)
{
    (void)state;
    rules_forget();
    run_threads(THREADS, 160 * MIB, 0);
}

struct handing {
    struct fixture *fixture;
    struct block block;
    CUevent written;
    CUstream stream;
    enum vpmm_status status;
};

static void *take_over(void *argument)
{
    struct handing *handing = argument;
    struct fixture *f = handing->fixture;
    handing->status = VPMM_FAILED;
    if (sim_ctx_set_current(f->sim, f->handle) != CUDA_SUCCESS ||
        sim_stream_wait_event(f->sim, handing->stream, handing->written, 0) != CUDA_SUCCESS)
        return NULL;
    block_check(f, handing->stream, &handing->block);
    handing->status = thread_free(f, handing->block.address, handing->stream);
    return NULL;
}

/* One thread allocates and writes on its stream, another reads and frees on its own: the fence is
 * of the second one, and the first does not get the pages before. */
static void a_block_is_handed_to_another_thread(void **state)
{
    (void)state;
    struct fixture f;
    pthread_t thread;
    volatile bool gate = false;
    rules_setup(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    struct handing handing = {&f, {fixture_malloc(&f, 4, a), 4, 1}, NULL, b, VPMM_FAILED};
    struct block spare = {fixture_malloc(&f, 1, b), 1, 2};
    SAME(CUDA_SUCCESS, sim_event_create(f.sim, CU_EVENT_DISABLE_TIMING, &handing.written));
    block_write(&f, a, &handing.block, NULL);
    SAME(CUDA_SUCCESS, sim_event_record(f.sim, handing.written, a));
    block_write(&f, b, &spare, &gate);
    SAME(0, pthread_create(&thread, NULL, take_over, &handing));
    SAME(0, pthread_join(thread, NULL));
    SAME(VPMM_OK, handing.status);
    struct block next = {fixture_malloc(&f, 4, a), 4, 3};
    assert_false(pages_overlap(&f, next.address, 4, handing.block.address, 4));
    gate = true;
    SAME(CUDA_SUCCESS, sim_ctx_synchronize(f.sim));
    SAME(handing.block.address, fixture_malloc(&f, 4, a));
    SAME(1, blocks_checked());
    SAME(0, blocks_wrong());
    fixture_free(&f, handing.block.address, a);
    fixture_free(&f, next.address, a);
    fixture_free(&f, spare.address, b);
    SAME(CUDA_SUCCESS, sim_event_destroy(f.sim, handing.written));
    fixture_teardown(&f);
}

static void *work_and_end(void *argument)
{
    struct handing *handing = argument;
    struct fixture *f = handing->fixture;
    handing->status = VPMM_FAILED;
    if (sim_ctx_set_current(f->sim, f->handle) != CUDA_SUCCESS ||
        thread_malloc(f, 4, CU_STREAM_PER_THREAD, &handing->block.address))
        return NULL;
    block_write(f, CU_STREAM_PER_THREAD, &handing->block, NULL);
    handing->status = thread_free(f, handing->block.address, CU_STREAM_PER_THREAD);
    return NULL;
}

/* The work that an ended thread left on its per-thread stream holds its pages, and its fence still
 * completes. */
static void work_of_an_ended_thread_holds_its_pages(void **state)
{
    (void)state;
    struct fixture f;
    pthread_t thread;
    rules_setup(&f);
    struct handing handing = {&f, {0, 4, 1}, NULL, NULL, VPMM_FAILED};
    SAME(0, pthread_create(&thread, NULL, work_and_end, &handing));
    SAME(0, pthread_join(thread, NULL));
    SAME(VPMM_OK, handing.status);
    uint64_t own = fixture_malloc(&f, 4, CU_STREAM_PER_THREAD);
    assert_false(pages_overlap(&f, own, 4, handing.block.address, 4));
    SAME(CUDA_SUCCESS, sim_ctx_synchronize(f.sim));
    SAME(handing.block.address, fixture_malloc(&f, 4, NULL));
    fixture_free(&f, handing.block.address, NULL);
    fixture_free(&f, own, NULL);
    fixture_teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_mix_small_and_large_requests),
        cmocka_unit_test(threads_fill_the_device),
        cmocka_unit_test(a_block_is_handed_to_another_thread),
        cmocka_unit_test(work_of_an_ended_thread_holds_its_pages),
    };
    return cmocka_run_group_tests_name("rules/threads", tests, NULL, NULL);
}
