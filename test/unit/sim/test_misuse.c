/* SPDX-License-Identifier: MIT */
/* Every misuse is noticed, answered as CUDA would, and stops the program where nobody listens. */
#define _GNU_SOURCE
#include "fixture.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_mapping_over_a_mapping(void **state)
{
    struct fixture *f = fixture_new(NULL);
    CUdeviceptr base = pages_reserve(f, 4);
    (void)state;
    OK(sim_mem_map(f->sim, base + PAGE, PAGE, 0, page_create(f, 0, 1), 0));
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_map(f->sim, base, 2 * PAGE, 0, page_create(f, 0, 2), 0));
    misuse_taken(f, SIM_MAP_OVER);
    assert_int_equal(counts_of(f).mappings, 1);
    fixture_end(f);
}

static void test_part_of_a_mapping(void **state)
{
    struct fixture *f = fixture_new(NULL);
    CUdeviceptr base = pages_reserve(f, 4);
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    (void)state;
    OK(sim_mem_map(f->sim, base, 2 * PAGE, 0, page_create(f, 0, 2), 0));
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_unmap(f->sim, base, PAGE));
    misuse_taken(f, SIM_UNMAP_PART);
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_unmap(f->sim, base + PAGE, PAGE));
    misuse_taken(f, SIM_UNMAP_PART);
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_unmap(f->sim, base, 3 * PAGE));
    misuse_taken(f, SIM_UNMAP_PART);
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_set_access(f->sim, base, PAGE, &access, 1));
    misuse_taken(f, SIM_UNMAP_PART);
    assert_int_equal(counts_of(f).mappings, 1);
    fixture_end(f);
}

/* The driver does not mind, but whoever does it has lost count. */
static void test_unmapping_what_is_not_mapped(void **state)
{
    struct fixture *f = fixture_new(NULL);
    CUdeviceptr base = pages_reserve(f, 4);
    (void)state;
    OK(sim_mem_map(f->sim, base, 2 * PAGE, 0, page_create(f, 0, 2), 0));
    OK(sim_mem_unmap(f->sim, base, 2 * PAGE));
    OK(sim_mem_unmap(f->sim, base, 2 * PAGE));
    misuse_taken(f, SIM_UNMAP_PART);
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_unmap(f->sim, base, 5 * PAGE));
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_unmap(f->sim, base, 0));
    fixture_end(f);
}

static void test_unmapping_under_work(void **state)
{
    struct fixture *f = fixture_new(NULL);
    CUdeviceptr base = pages_reserve(f, 2);
    CUstream stream = stream_make(f, 0);
    (void)state;
    for (unsigned i = 0; i < 2; i++)
        OK(sim_mem_map(f->sim, base + i * PAGE, PAGE, 0, page_create(f, 0, 1), 0));
    page_access(f, base, 2 * PAGE, 0);
    OK(word_write(f, stream, base, 1));
    OK(sim_mem_unmap(f->sim, base + PAGE, PAGE));
    OK(sim_mem_unmap(f->sim, base, PAGE));
    misuse_taken(f, SIM_UNMAP_IN_USE);
    OK(sim_stream_synchronize(f->sim, stream));
    misuse_taken(f, SIM_NO_ACCESS);
    fixture_end(f);
}

static void test_freeing_what_is_in_use(void **state)
{
    struct fixture *f = fixture_new(NULL);
    CUdeviceptr base = pages_reserve(f, 1);
    CUdeviceptr ordered;
    (void)state;
    OK(sim_mem_map(f->sim, base, PAGE, 0, page_create(f, 0, 1), 0));
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_address_free(f->sim, base, PAGE));
    misuse_taken(f, SIM_FREE_IN_USE);
    OK(sim_mem_alloc_async(f->sim, PAGE, NULL, &ordered));
    OK(word_write(f, NULL, ordered, 1));
    OK(sim_mem_free(f->sim, ordered));
    misuse_taken(f, SIM_FREE_IN_USE);
    OK(sim_ctx_synchronize(f->sim));
    misuse_taken(f, SIM_NO_ACCESS);
    fixture_end(f);
}

static void stray(struct sim_view *view, void *argument)
{
    uint32_t word = 1;
    assert_false(sim_write(view, *(CUdeviceptr *)argument + 8, &word, sizeof word));
}

static void test_a_kernel_keeps_to_its_word(void **state)
{
    struct fixture *f = fixture_new(NULL);
    CUdeviceptr memory;
    (void)state;
    OK(sim_mem_alloc(f->sim, PAGE, &memory));
    struct sim_range ranges[] = {{memory, 8, true}, {memory + 8, 8, false}};
    struct sim_kernel kernel = {.name = "a stray kernel",
                                .run = stray,
                                .argument = &memory,
                                .ranges = ranges,
                                .n_ranges = 2};
    OK(sim_launch(f->sim, NULL, &kernel));
    OK(sim_ctx_synchronize(f->sim));
    misuse_taken(f, SIM_NO_ACCESS);
    fixture_end(f);
}

/* Also where it does nothing with it. */
static void test_a_kernel_needs_what_it_declares(void **state)
{
    struct fixture *f = fixture_new(NULL);
    struct sim_range range = {pages_reserve(f, 1), 8, false};
    struct sim_kernel kernel = {.name = "an idle kernel", .ranges = &range, .n_ranges = 1};
    (void)state;
    OK(sim_launch(f->sim, NULL, &kernel));
    OK(sim_ctx_synchronize(f->sim));
    misuse_taken(f, SIM_NO_ACCESS);
    fixture_end(f);
}

static void test_releasing_twice(void **state)
{
    struct fixture *f = fixture_new(NULL);
    CUmemGenericAllocationHandle handle = page_create(f, 0, 1);
    CUdeviceptr base = pages_reserve(f, 2);
    (void)state;
    OK(sim_mem_release(f->sim, handle));
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_release(f->sim, handle));
    misuse_taken(f, SIM_DOUBLE_RELEASE);
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_map(f->sim, base, PAGE, 0, handle, 0));
    misuse_taken(f, SIM_DOUBLE_RELEASE);
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_address_free(f->sim, base, PAGE));
    misuse_taken(f, SIM_DOUBLE_RELEASE);
    OK(sim_mem_address_free(f->sim, base, 2 * PAGE));
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_address_free(f->sim, base, 2 * PAGE));
    misuse_taken(f, SIM_DOUBLE_RELEASE);
    fixture_end(f);
}

static void test_the_dead(void **state)
{
    struct fixture *f = fixture_new(NULL);
    CUstream stream = stream_make(f, 0);
    CUevent event = event_make(f);
    (void)state;
    OK(sim_stream_destroy(f->sim, stream));
    IS(CUDA_ERROR_INVALID_HANDLE, sim_event_record(f->sim, event, stream));
    misuse_taken(f, SIM_DEAD_STREAM);
    IS(CUDA_ERROR_INVALID_HANDLE, sim_stream_destroy(f->sim, stream));
    misuse_taken(f, SIM_DEAD_STREAM);
    OK(sim_event_destroy(f->sim, event));
    IS(CUDA_ERROR_INVALID_HANDLE, sim_event_query(f->sim, event));
    misuse_taken(f, SIM_DEAD_EVENT);
    IS(CUDA_ERROR_INVALID_HANDLE, sim_event_destroy(f->sim, event));
    misuse_taken(f, SIM_DEAD_EVENT);
    IS(CUDA_ERROR_INVALID_HANDLE, sim_event_query(f->sim, (CUevent)(uintptr_t)0x1234));
    IS(CUDA_ERROR_INVALID_HANDLE, sim_stream_query(f->sim, (CUstream)(uintptr_t)event));
    fixture_end(f);
}

static void races(struct sim_config *config)
{
    config->check_races = true;
}

/* Two addresses of one page: work on both is a race unless something orders it. */
static void test_races(void **state)
{
    struct fixture *f = fixture_new(races);
    CUdeviceptr base = pages_reserve(f, 2);
    CUmemGenericAllocationHandle handle = page_create(f, 0, 1);
    CUstream one = stream_make(f, CU_STREAM_NON_BLOCKING);
    CUstream two = stream_make(f, CU_STREAM_NON_BLOCKING);
    CUevent event = event_make(f);
    (void)state;
    for (unsigned i = 0; i < 2; i++)
        OK(sim_mem_map(f->sim, base + i * PAGE, PAGE, 0, handle, 0));
    page_access(f, base, 2 * PAGE, 0);
    OK(word_write(f, one, base, 1));
    OK(word_write(f, two, base + 4, 2));
    OK(sim_event_record(f->sim, event, one));
    OK(sim_stream_wait_event(f->sim, two, event, 0));
    OK(word_write(f, two, base + PAGE, 3));
    OK(word_write(f, one, base + PAGE + 4, 4));
    misuse_taken(f, SIM_RACE);
    OK(sim_ctx_synchronize(f->sim));
    OK(word_write(f, one, base + PAGE + 4, 4));
    fixture_end(f);
}

static void quiet(struct sim_config *config)
{
    config->actions[SIM_DOUBLE_RELEASE] = SIM_ANSWER;
}

static void test_a_class_can_be_only_answered(void **state)
{
    struct fixture *f = fixture_new(quiet);
    (void)state;
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_release(f->sim, 99));
    assert_string_equal(f->report, "");
    assert_int_equal(sim_misuse_count(f->sim, SIM_DOUBLE_RELEASE), 1);
    f->n_taken = 1;
    fixture_end(f);
}

/* The default: a report on stderr, and abort. */
static void test_misuse_stops(void **state)
{
    int ends[2];
    char report[300] = "";
    int status;
    (void)state;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        struct sim_config config;
        signal(SIGABRT, SIG_DFL);
        dup2(ends[1], 2);
        sim_config_default(&config);
        sim_mem_release(sim_create(&config), 99);
        _exit(0);
    }
    close(ends[1]);
    ssize_t n = read(ends[0], report, sizeof report - 1);
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(n > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(report, "DOUBLE_RELEASE"));
    assert_non_null(strstr(report, "cuMemRelease"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mapping_over_a_mapping),
        cmocka_unit_test(test_part_of_a_mapping),
        cmocka_unit_test(test_unmapping_what_is_not_mapped),
        cmocka_unit_test(test_unmapping_under_work),
        cmocka_unit_test(test_freeing_what_is_in_use),
        cmocka_unit_test(test_a_kernel_keeps_to_its_word),
        cmocka_unit_test(test_a_kernel_needs_what_it_declares),
        cmocka_unit_test(test_releasing_twice),
        cmocka_unit_test(test_the_dead),
        cmocka_unit_test(test_races),
        cmocka_unit_test(test_a_class_can_be_only_answered),
        cmocka_unit_test(test_misuse_stops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
