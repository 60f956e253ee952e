/* SPDX-License-Identifier: MIT */
/* Everything that one process has: made once, whole, by whichever thread publishes first, and never
 * destroyed. The router, and what is below it, lies in the arena where that can be had. Must not
 * make anything or call CUDA when the library is loaded. */
#define _GNU_SOURCE
#include "preload/entry.h"

#include "base/arena.h"
#include "base/space.h"
#include "config/config.h"
#include "driver/cuda.h"
#include "observe/log.h"
#include "preload/idle.h"
#include "preload/wrap_lookup.h"
#include "preload/neighbour.h"
#include "preload/original.h"
#include "preload/passing.h"
#include "preload/pitch.h"
#include "preload/signals.h"
#include "preload/wrap_stream.h"
#include "report/report.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct vpmm_world {
    struct vpmm_config config;
    struct vpmm_complaints complaints;
    struct vpmm_cuda cuda;
    struct vpmm_driver driver;
    struct vpmm_arena arena;
    bool has_arena;
    struct vpmm_router *router;
    struct vpmm_ipc *ipc; /* NULL: VPMM_IPC=0, or there was no memory for it */
    _Atomic(CUcontext) primaries[VPMM_DEVICES_MAX];
    struct vpmm_pitches pitches;
    struct vpmm_idler idler;
    struct vpmm_asker asker;
    struct vpmm_neighbours neighbours;
    struct vpmm_tracing tracing;
    atomic_uint n_dumps;            /* asked for since nobody was writing one */
    struct vpmm_report_dumps dumps; /* of whoever writes one */
    struct vpmm_signals signals;
};

struct vpmm_present vpmm_present;
/* The same in a child too, until it has become one. */
static _Atomic(struct vpmm_world *) made_world;
static struct vpmm_world passing; /* stands for one in which every wrapper passes through */
static struct vpmm_passed passed = {.reason = VPMM_ROUTE_OTHER};
static _Thread_local bool is_inside __attribute__((tls_model("initial-exec")));
static _Thread_local bool is_served __attribute__((tls_model("initial-exec")));
static _Thread_local struct vpmm_recorder_writer writer __attribute__((tls_model("initial-exec")));
struct vpmm_tracing vpmm_no_tracing;

static struct vpmm_world *world_or_null(void)
{
    struct vpmm_world *world = atomic_load_explicit(&vpmm_present.world, memory_order_acquire);
    return world == &passing ? NULL : world;
}

static bool has_pool(const struct vpmm_world *world)
{
    for (int device = 0; device < VPMM_DEVICES_MAX; device++)
        if (vpmm_router_heap(world->router, device))
            return true;
    return false;
}

/* Of threads interrupted at once one writes, and begins anew for those that came meanwhile. */
void vpmm_entry_dump(void)
{
    struct vpmm_world *world = world_or_null();
    unsigned seen = 1;
    if (!world || atomic_fetch_add(&world->n_dumps, 1) != 0)
        return;
    do
        vpmm_report_dump(&world->config, world->router, &world->dumps);
    while (!atomic_compare_exchange_strong(&world->n_dumps, &seen, 0));
}

bool vpmm_entry_absorb(const void *address)
{
    struct vpmm_world *world = world_or_null();
    return world && vpmm_recorder_absorb(&world->tracing.recorder, address);
}

/* In a forked child the parent's memory is not there, and neither is a lock that another thread
 * held. Its own children are no better off. */
static void become_child(void)
{
    struct vpmm_world *world = atomic_exchange(&made_world, NULL);
    is_inside = false;
    if (!world)
        return;
    bool had_pool = world == &passing || has_pool(world);
    vpmm_passed_forget(&passed);
    if (world != &passing) {
        vpmm_ipc_abandon(world->ipc);
        if (had_pool)
            vpmm_signals_remove(&world->signals);
        vpmm_idler_forget(&world->idler);
        vpmm_tracing_forget(&world->tracing);
        if (world->has_arena)
            vpmm_arena_abandon(&world->arena);
    }
    writer = (struct vpmm_recorder_writer){0};
    atomic_store(&vpmm_present.tracing, had_pool ? &vpmm_no_tracing : NULL);
    atomic_store(&made_world, had_pool ? &passing : NULL);
    atomic_store(&vpmm_present.order, NULL);
    atomic_store(&vpmm_present.world, had_pool ? &passing : NULL);
}

static void say_complaints(const struct vpmm_complaints *complaints)
{
    for (unsigned i = 0; i < complaints->n && i < VPMM_COMPLAINTS_MAX; i++)
        vpmm_log(VPMM_LOG_IS_WARNING, "%s", complaints->text[i]);
}

/* Registered after the driver has registered what ends it, this runs before. */
static void end_threads(void)
{
    struct vpmm_world *world = world_or_null();
    if (!world)
        return;
    vpmm_idler_end(&world->idler);
    vpmm_ipc_end(world->ipc);
}

/* Threads of ours must end before the driver does: where that cannot be had, there are none. */
static void meet_first_heap(void *self)
{
    struct vpmm_world *world = self;
    say_complaints(&world->complaints);
    if (atexit(end_threads) != 0)
        vpmm_idler_end(&world->idler);
    if (world->config.idle_ms && !vpmm_idler_start(&world->idler, world->router, &world->config))
        vpmm_log(VPMM_LOG_IS_WARNING, "VPMM_IDLE_MS has no effect: no thread can be had for it");
}

static void meet_large_heap(void *self)
{
    struct vpmm_world *world = self;
    if (world->config.decay_ms && !vpmm_idler_start(&world->idler, world->router, &world->config))
        vpmm_log(VPMM_LOG_IS_INFO, "VPMM_DECAY_MS has no effect: no thread can be had for it");
}

static void discard(struct vpmm_world *world)
{
    vpmm_ipc_destroy(world->ipc);
    vpmm_router_destroy(world->router);
    vpmm_report_dumps_finish(&world->dumps, &vpmm_memory_system);
    if (world->has_arena)
        vpmm_arena_destroy(&world->arena);
    vpmm_memory_system.unmap(vpmm_memory_system.self, world, sizeof *world);
}

/* Reads the options, and makes the router if they and the driver allow it. */
static bool furnish(struct vpmm_world *world)
{
    const struct vpmm_first_heap first_heap = {world, meet_first_heap, meet_large_heap};
    vpmm_config_read(&world->config, &world->complaints, NULL);
    if (world->config.disable || !world->config.active)
        return vpmm_passed_because(&passed, VPMM_ROUTE_DISABLED);
    if (!vpmm_space_is_enough() || !vpmm_report_dumps_init(&world->dumps, &vpmm_memory_system))
        return false;
    if (vpmm_cuda_init(&world->cuda, vpmm_original_lookup, NULL, &world->driver) != VPMM_OK)
        return vpmm_passed_because(&passed, VPMM_ROUTE_NO_VMM);
    vpmm_log_set_level((int)world->config.log_level);
    world->has_arena = madvise(&vpmm_present, sizeof vpmm_present, MADV_WIPEONFORK) == 0 &&
                       vpmm_arena_create(&world->arena, VPMM_ARENA_BYTES, vpmm_report_version,
                                         vpmm_report_layout());
    const struct vpmm_memory *memory =
        world->has_arena ? &world->arena.memory : &vpmm_memory_system;
    if (vpmm_router_create(&world->config, &world->driver, memory, &first_heap, &world->router) !=
        VPMM_OK)
        return false;
    vpmm_watch_streams(vpmm_router_order(world->router));
    world->neighbours = (struct vpmm_neighbours){&world->asker, vpmm_neighbours_ask};
    if (world->config.decay_ms)
        vpmm_router_neighbours(world->router, &world->neighbours);
    if (world->config.trace_path[0])
        vpmm_router_watch(world->router, vpmm_tracing_watch(&world->tracing, world->router));
    struct vpmm_ipc_lender lender = vpmm_ipc_lender_of(world->router);
    if (world->config.ipc && vpmm_ipc_create(&world->driver, &vpmm_memory_system, &lender, geteuid,
                                             &world->ipc) != VPMM_OK)
        world->ipc = NULL;
    return true;
}

static struct vpmm_world *make_world(void)
{
    struct vpmm_world *world = vpmm_memory_system.map(vpmm_memory_system.self, sizeof *world);
    if (!world)
        return &passing;
    if (furnish(world))
        return world;
    discard(world);
    return &passing;
}

/* Everybody learns of it at once. */
static void publish(struct vpmm_world *world)
{
    if (world->has_arena)
        vpmm_arena_publish(&world->arena, world->router);
    atomic_store(&made_world, world);
    if (world->router)
        vpmm_signals_install(&world->signals, world->config.dump_signal,
                             world->config.trace_path[0] != 0);
}

/* The one that was made in this process; NULL: none yet. */
static struct vpmm_world *find_made(void)
{
    if (atomic_load(&made_world) && !atomic_load(&vpmm_present.world))
        become_child();
    return atomic_load_explicit(&vpmm_present.world, memory_order_acquire);
}

/* The world of this process, or NULL while no driver is loaded. Racing threads each make one, and
 * one is kept: without a lock, no fork can leave a child with a lock that nobody gives back. */
static struct vpmm_world *find_world(void)
{
    struct vpmm_world *world = find_made();
    if (world || !vpmm_original_find())
        return world;
    struct vpmm_world *made = make_world();
    if (made != &passing && pthread_atfork(NULL, NULL, become_child) != 0) {
        discard(made);
        made = &passing;
    }
    if (atomic_compare_exchange_strong(&vpmm_present.world, &world, made)) {
        if (made->router)
            atomic_store(&vpmm_present.order, vpmm_router_order(made->router));
        publish(made);
        return made;
    }
    if (made != &passing)
        discard(made);
    return world;
}

VPMM_NOINLINE static struct vpmm_router *enter_first(void)
{
    is_inside = true;
    struct vpmm_world *world = find_world();
    if (world && world->router)
        return world->router;
    is_inside = false;
    return NULL;
}

struct vpmm_router *vpmm_enter(void)
{
    if (is_inside)
        return NULL;
    struct vpmm_world *world = atomic_load_explicit(&vpmm_present.world, memory_order_acquire);
    if (!world || !world->router)
        return enter_first();
    is_inside = true;
    return world->router;
}

void vpmm_lookup_begins(void)
{
    if (vpmm_enter())
        vpmm_leave();
}

void vpmm_entry_passed(bool is_async)
{
    if (!is_inside)
        atomic_fetch_add_explicit(&passed.n[is_async], 1, memory_order_relaxed);
}

/* The driver runs host functions on threads of its own: who was served once is served always. */
VPMM_NOINLINE static bool is_refused(void)
{
    CUresult result = vpmm_context_answer();
    is_served = result == CUDA_SUCCESS;
    return result == CUDA_ERROR_NOT_PERMITTED || vpmm_cuda_status(result) == VPMM_FAILED;
}

struct vpmm_router *vpmm_enter_served(void)
{
    struct vpmm_router *router = vpmm_enter();
    if (!router || is_served || !is_refused())
        return router;
    vpmm_leave();
    return NULL;
}

/* A program may ask before its driver is loaded: then only its options tell. */
struct vpmm_router *vpmm_enter_made(bool *passes_out)
{
    struct vpmm_world *world = find_made();
    *passes_out = world ? !world->router : vpmm_passed_by_options();
    if (is_inside || !world || !world->router)
        return NULL;
    is_inside = true;
    return world->router;
}

bool vpmm_entry_is_inside(void)
{
    return is_inside;
}

void vpmm_leave(void)
{
    is_inside = false;
}

/* The first call of a process makes the world, and the trace with it. */
VPMM_NOINLINE static struct vpmm_tracing *find_tracing(void)
{
    is_inside = true;
    struct vpmm_world *world = find_world();
    enum vpmm_status status = world ? VPMM_INVALID : VPMM_NOT_READY;
    if (world && world->router && world->config.trace_path[0])
        status = vpmm_tracing_open(&world->tracing, &world->config);
    struct vpmm_tracing *tracing = status ? &vpmm_no_tracing : &world->tracing;
    if (status != VPMM_NOT_READY)
        atomic_store(&vpmm_present.tracing, tracing);
    is_inside = false;
    return tracing;
}

struct vpmm_tracing *vpmm_entry_tracing(void)
{
    if (is_inside)
        return NULL;
    struct vpmm_tracing *tracing = atomic_load(&vpmm_present.tracing);
    if (!tracing)
        tracing = find_tracing();
    return tracing == &vpmm_no_tracing ? NULL : tracing;
}

struct vpmm_recorder_writer *vpmm_entry_writer(void)
{
    return &writer;
}

void vpmm_stay(void)
{
    is_inside = true;
}

struct vpmm_ipc *vpmm_entry_ipc(void)
{
    struct vpmm_world *world = world_or_null();
    return world ? world->ipc : NULL;
}

void vpmm_entry_set_primary(CUdevice device, CUcontext context)
{
    struct vpmm_world *world = world_or_null();
    if (world && device >= 0 && device < VPMM_DEVICES_MAX)
        atomic_store(&world->primaries[device], context);
}

CUcontext vpmm_entry_primary(CUdevice device)
{
    struct vpmm_world *world = world_or_null();
    return world && device >= 0 && device < VPMM_DEVICES_MAX
               ? atomic_load(&world->primaries[device])
               : NULL;
}

struct vpmm_pitches *vpmm_entry_pitches(void)
{
    return &world_or_null()->pitches;
}

/* At exit: no driver call; no message but where what the user asked for cannot go. */
__attribute__((destructor)) static void finish(void)
{
    struct vpmm_world *world = world_or_null();
    if (!world) {
        vpmm_passed_report(&passed);
        return;
    }
    vpmm_ipc_end(world->ipc);
    if (world->config.stats)
        vpmm_report_stats(&world->config, world->router);
    vpmm_tracing_end(&world->tracing);
}
