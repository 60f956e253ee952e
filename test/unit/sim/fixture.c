/* SPDX-License-Identifier: MIT */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void record(void *self, enum sim_misuse misuse, const char *report)
{
    struct fixture *fixture = self;
    (void)misuse;
    snprintf(fixture->report, sizeof fixture->report, "%s", report);
}

struct fixture *fixture_new(void (*change)(struct sim_config *config))
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    struct sim_config config;
    assert_non_null(fixture);
    sim_config_default(&config);
    config.eager = false;
    config.on_misuse = record;
    config.self = fixture;
    config.hang_ms = 200;
    for (int i = 0; i < SIM_MISUSE_COUNT; i++)
        config.actions[i] = SIM_RECORD;
    if (change != NULL)
        change(&config);
    fixture->sim = sim_create(&config);
    assert_non_null(fixture->sim);
    OK(sim_ctx_create(fixture->sim, 0, 0, &fixture->context));
    return fixture;
}

static uint64_t misuses(struct fixture *fixture)
{
    uint64_t n = 0;
    for (int i = 0; i < SIM_MISUSE_COUNT; i++)
        n += sim_misuse_count(fixture->sim, (enum sim_misuse)i);
    return n;
}

void fixture_end(struct fixture *fixture)
{
    if (misuses(fixture) != fixture->n_taken)
        fail_msg("not expected: %s", fixture->report);
    sim_destroy(fixture->sim);
    free(fixture);
}

void misuse_taken(struct fixture *fixture, enum sim_misuse misuse)
{
    assert_int_equal(misuses(fixture), ++fixture->n_taken);
    assert_non_null(strstr(fixture->report, sim_misuse_name(misuse)));
}

void eager(struct sim_config *config)
{
    config->eager = true;
}

void two_devices(struct sim_config *config)
{
    config->n_devices = 2;
}

struct step {
    struct trail *trail;
    int number;
};

static void step_run(struct sim_view *view, void *argument)
{
    const struct step *step = argument;
    (void)view;
    step->trail->steps[step->trail->n++] = step->number;
}

CUresult step_queue(struct fixture *fixture, CUstream stream, struct trail *trail, int number)
{
    struct step step = {trail, number};
    struct sim_kernel kernel = {
        .name = "a step", .run = step_run, .argument = &step, .argument_bytes = sizeof step};
    return sim_launch(fixture->sim, stream, &kernel);
}

int step_at(const struct trail *trail, int number)
{
    for (int i = 0; i < trail->n; i++)
        if (trail->steps[i] == number)
            return i;
    return -1;
}

struct word {
    CUdeviceptr address;
    uint32_t value;
};

static void word_run(struct sim_view *view, void *argument)
{
    const struct word *word = argument;
    (void)sim_write(view, word->address, &word->value, sizeof word->value);
}

CUresult word_write(struct fixture *fixture, CUstream stream, CUdeviceptr address, uint32_t value)
{
    struct word word = {address, value};
    struct sim_range range = {address, sizeof value, true};
    struct sim_kernel kernel = {.name = "a word",
                                .run = word_run,
                                .argument = &word,
                                .argument_bytes = sizeof word,
                                .ranges = &range,
                                .n_ranges = 1};
    return sim_launch(fixture->sim, stream, &kernel);
}

uint32_t word_peek(struct fixture *fixture, CUdevice device, CUdeviceptr address)
{
    uint32_t value = 0;
    assert_true(sim_peek(fixture->sim, device, address, &value, sizeof value));
    return value;
}

CUstream stream_make(struct fixture *fixture, unsigned flags)
{
    CUstream stream;
    OK(sim_stream_create(fixture->sim, flags, 0, &stream));
    return stream;
}

CUevent event_make(struct fixture *fixture)
{
    CUevent event;
    OK(sim_event_create(fixture->sim, 0, &event));
    return event;
}

CUdeviceptr pages_reserve(struct fixture *fixture, unsigned n)
{
    CUdeviceptr address;
    OK(sim_mem_address_reserve(fixture->sim, n * PAGE, 0, 0, 0, &address));
    return address;
}

CUmemGenericAllocationHandle page_create(struct fixture *fixture, CUdevice device, unsigned n)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    OK(sim_mem_create(fixture->sim, n * PAGE, &prop, 0, &handle));
    return handle;
}

void page_access(struct fixture *fixture, CUdeviceptr address, uint64_t bytes, CUdevice device)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(sim_mem_set_access(fixture->sim, address, bytes, &access, 1));
}

struct sim_counts counts_of(struct fixture *fixture)
{
    struct sim_counts counts;
    sim_live_counts(fixture->sim, &counts);
    return counts;
}

struct capture_scene capture_scene_new(unsigned flags)
{
    struct capture_scene s = {.f = fixture_new(NULL)};
    s.stream = stream_make(s.f, flags);
    s.other = stream_make(s.f, CU_STREAM_NON_BLOCKING);
    s.event = event_make(s.f);
    s.spare = event_make(s.f);
    s.mapped = pages_reserve(s.f, 2);
    OK(sim_mem_map(s.f->sim, s.mapped, PAGE, 0, page_create(s.f, 0, 1), 0));
    page_access(s.f, s.mapped, PAGE, 0);
    OK(sim_mem_alloc(s.f->sim, PAGE, &s.plain));
    return s;
}
