/* SPDX-License-Identifier: MIT */
/* Makes a machine, ends it, and counts what lives in it. Must not run pending work when the machine
 * ends. */
#define _GNU_SOURCE
#include "sim/sim_internal.h"

#include <stdlib.h>
#include <string.h>

#define GIB ((uint64_t)1 << 30)
#define TIB ((uint64_t)1 << 40)

void sim_config_default(struct sim_config *config_out)
{
    *config_out = (struct sim_config){
        .n_devices = 1,
        .device_bytes = 16 * GIB,
        .granularity = 2u << 20,
        .driver_version = 13000,
        .has_vmm = true,
        .has_peers = true,
        .has_bytes = true,
        .eager = true,
        .hang_ms = 20000,
        .seed = 1,
        .va_bytes = 120 * TIB,
        .va_largest_bytes = 64 * TIB,
        .mappings_max = 524090,
    };
}

/* Its simulated thread stays, and so does what its per-thread streams have queued. */
static void thread_ended(void *value)
{
    struct os_thread *ended = value;
    struct sim *sim = ended->sim;
    call_hide();
    pthread_mutex_lock(&sim->lock);
    for (struct os_thread **at = &sim->os_threads; *at != NULL; at = &(*at)->next)
        if (*at == ended) {
            *at = ended->next;
            break;
        }
    pthread_mutex_unlock(&sim->lock);
    free(ended);
    call_show();
}

struct sim *sim_create(const struct sim_config *config)
{
    uint64_t granularity = config->granularity;
    if (config->n_devices < 1 || config->n_devices > SIM_DEVICES_MAX || granularity < 4096 ||
        (granularity & (granularity - 1)) != 0)
        return NULL;
    struct sim *sim = allocate(sizeof *sim);
    sim->config = *config;
    sim->random = config->seed * 0x9e3779b97f4a7c15u + 0x123456789abcdefu;
    sim->plain_next = SIM_ADDRESS_LOW + 128 * TIB;
    pthread_mutex_init(&sim->lock, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&sim->moved, &attributes);
    pthread_condattr_destroy(&attributes);
    if (pthread_key_create(&sim->key, thread_ended) != 0) {
        free(sim);
        return NULL;
    }
    for (int i = 0; i < config->n_devices; i++) {
        sim->devices[i].default_pool = pool_new(sim, i, true);
        sim->devices[i].pool = sim->devices[i].default_pool;
    }
    return sim;
}

/* Pending work names what it comes after and before: end each op as if complete, effects aside. */
static void work_discard(struct sim *sim)
{
    while (sim->pending != NULL) {
        struct op *op = sim->pending;
        op->work.plain = NULL;
        op->running = false;
        op_complete(sim, op);
    }
}

static void contexts_finish(struct sim *sim)
{
    while (sim->contexts != NULL) {
        struct context *context = sim->contexts;
        sim->contexts = context->next;
        op_set(&context->gate, NULL);
        free(context);
    }
    while (sim->streams != NULL) {
        struct stream *stream = sim->streams;
        sim->streams = stream->next;
        op_set(&stream->tail, NULL);
        op_set(&stream->records, NULL);
        free(stream->nodes);
        free(stream);
    }
}

static void graphs_finish(struct sim *sim)
{
    while (sim->captures != NULL)
        capture_end(sim, sim->captures);
    for (uint32_t i = 1; i < sim->registry.n; i++) {
        const struct slot *slot = &sim->registry.slots[i];
        if (slot->live && (slot->kind == OBJECT_GRAPH || slot->kind == OBJECT_EXEC))
            graph_drop(sim, slot->object);
    }
}

static void lists_finish(struct sim *sim)
{
    while (sim->threads != NULL) {
        struct thread *thread = sim->threads;
        sim->threads = thread->next;
        free(thread);
    }
    while (sim->os_threads != NULL) {
        struct os_thread *thread = sim->os_threads;
        sim->os_threads = thread->next;
        free(thread);
    }
    while (sim->pools != NULL) {
        struct pool *pool = sim->pools;
        sim->pools = pool->next;
        returned_end(pool);
        free(pool);
    }
    while (sim->host_ranges != NULL) {
        struct host_range *range = sim->host_ranges;
        sim->host_ranges = range->next;
        if (range->allocated)
            free((void *)range->address);
        free(range);
    }
}

void sim_destroy(struct sim *sim)
{
    if (sim == NULL)
        return;
    run_worker_stop(sim);
    work_discard(sim);
    graphs_finish(sim);
    while (sim->events != NULL)
        event_end(sim, sim->events);
    contexts_finish(sim);
    plain_finish(sim);
    memory_finish(sim);
    struct os_thread *own = pthread_getspecific(sim->key);
    if (own != NULL && own->self == NULL)
        free(own);
    pthread_key_delete(sim->key);
    lists_finish(sim);
    free(sim->registry.slots);
    for (size_t i = 0; i < sim->n_counts; i++)
        free(sim->counts[i].name);
    free(sim->counts);
    free(sim->ready);
    free(sim->host_queue);
    pthread_cond_destroy(&sim->moved);
    pthread_mutex_destroy(&sim->lock);
    free(sim);
}

const struct sim_config *sim_config(const struct sim *sim)
{
    return &sim->config;
}

uint64_t sim_random(struct sim *sim, uint64_t below)
{
    sim->random ^= sim->random << 13;
    sim->random ^= sim->random >> 7;
    sim->random ^= sim->random << 17;
    return sim->random % below;
}

static uint64_t captures_count(const struct sim *sim)
{
    uint64_t n = 0;
    for (const struct capture *capture = sim->captures; capture != NULL; capture = capture->next)
        n++;
    return n;
}

static uint64_t contexts_count(const struct sim *sim)
{
    uint64_t n = 0;
    for (const struct context *context = sim->contexts; context != NULL; context = context->next)
        n += context->alive && context->parent == NULL;
    return n;
}

static uint64_t events_count(const struct sim *sim)
{
    uint64_t n = 0;
    for (const struct event *event = sim->events; event != NULL; event = event->next)
        n += event->context->alive && event->generation == event->context->generation;
    return n;
}

void sim_live_counts(struct sim *sim, struct sim_counts *counts_out)
{
    pthread_mutex_lock(&sim->lock);
    const uint64_t *live = sim->registry.n_live;
    *counts_out = (struct sim_counts){
        .contexts = contexts_count(sim),
        .streams = live[OBJECT_STREAM],
        .events = events_count(sim),
        .reservations = sim->n_reservations,
        .mappings = sim->n_mappings,
        .handles = sim->n_handles,
        .handles_held = live[OBJECT_HANDLE],
        .plain = sim->n_plain,
        .async = sim->n_async,
        .pools = live[OBJECT_POOL] - (uint64_t)sim->config.n_devices,
        .graphs = live[OBJECT_GRAPH],
        .graph_execs = live[OBJECT_EXEC],
        .captures = captures_count(sim),
        .pending = sim->n_pending,
    };
    for (int i = 0; i < sim->config.n_devices; i++) {
        counts_out->used_bytes[i] = sim->devices[i].used;
        counts_out->used_peak_bytes[i] = sim->devices[i].peak;
    }
    pthread_mutex_unlock(&sim->lock);
}
