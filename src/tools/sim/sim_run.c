/* SPDX-License-Identifier: MIT */
/* Does what an operation is: a kernel, a copy, a fill or a host function. Must not hold the
 * machine's lock while a function of the program runs. */
#include "sim/sim_internal.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK 65536u

static void fault(struct sim_view *view, const char *what, CUdeviceptr address, uint64_t bytes)
{
    if (view->quiet)
        return;
    misuse(view->sim, SIM_NO_ACCESS, "%s on device %d at [%#llx, + %llu): %s", view->work->name,
           view->device, (unsigned long long)address, (unsigned long long)bytes, what);
    if (view->sim->config.faults_stick)
        view->context->error = CUDA_ERROR_ILLEGAL_ADDRESS;
}

/* A kernel touches what it declared; copies and values declare what they touch by themselves. */
static bool is_declared(const struct work *work, CUdeviceptr address, uint64_t bytes, bool writes)
{
    if (work == NULL || work->ranges == NULL)
        return true;
    const struct sim_range *ranges = (const struct sim_range *)(void *)work->ranges->data;
    for (size_t i = 0; i < work->ranges->bytes / sizeof *ranges; i++)
        if (address >= ranges[i].address &&
            address + bytes <= ranges[i].address + ranges[i].bytes && (!writes || ranges[i].writes))
            return true;
    return false;
}

/* One of `out` and `in` is NULL. */
static bool touch(struct sim_view *view, CUdeviceptr address, unsigned char *out,
                  const unsigned char *in, uint64_t bytes)
{
    bool writes = in != NULL;
    if (!is_declared(view->work, address, bytes, writes)) {
        fault(view, "outside of what the kernel declared", address, bytes);
        return false;
    }
    for (uint64_t done = 0; done < bytes;) {
        struct segment segment;
        enum reach reach = space_find(view->sim, view->device, view->context, address + done,
                                      bytes - done, writes, &segment);
        bool forgiven = reach == REACH_DENIED && view->work != NULL &&
                        view->work->kind == WORK_COPY &&
                        (view->work->peer || space_plain(view->sim, address + done) != NULL);
        if (reach != REACH_OK && !forgiven) {
            fault(view, reach == REACH_NONE ? "no mapping" : "no access", address + done,
                  bytes - done);
            return false;
        }
        if (writes)
            store_write(view->sim, segment.store, segment.offset, in + done, segment.bytes);
        else
            store_read(segment.store, segment.offset, out + done, segment.bytes);
        done += segment.bytes;
    }
    return true;
}

bool sim_read(struct sim_view *view, CUdeviceptr address, void *bytes_out, size_t bytes)
{
    return touch(view, address, bytes_out, NULL, bytes);
}

bool sim_write(struct sim_view *view, CUdeviceptr address, const void *bytes, size_t n_bytes)
{
    return touch(view, address, NULL, bytes, n_bytes);
}

bool sim_peek(struct sim *sim, CUdevice device, CUdeviceptr address, void *bytes_out, size_t bytes)
{
    struct sim_view view = {.sim = sim, .device = device, .quiet = true};
    pthread_mutex_lock(&sim->lock);
    bool could = touch(&view, address, bytes_out, NULL, bytes);
    pthread_mutex_unlock(&sim->lock);
    return could;
}

static struct sim_view view_of(struct sim *sim, struct op *op)
{
    return (struct sim_view){
        .sim = sim, .context = op->context, .work = &op->work, .device = op->context->device};
}

/* Work that may not touch all it declared does nothing. */
static bool is_permitted(struct sim_view *view)
{
    bool permitted = true;
    const struct work *work = view->work;
    const struct sim_range *ranges = (const struct sim_range *)(void *)work->ranges->data;
    for (size_t i = 0; i < work->ranges->bytes / sizeof *ranges; i++) {
        enum reach reach = space_check(view->sim, view->device, view->context, ranges[i].address,
                                       ranges[i].bytes, ranges[i].writes);
        bool forgiven = reach == REACH_DENIED && work->kind == WORK_COPY &&
                        (work->peer || space_plain(view->sim, ranges[i].address) != NULL);
        if (reach == REACH_OK || forgiven)
            continue;
        fault(view, reach == REACH_NONE ? "no mapping" : "no access", ranges[i].address,
              ranges[i].bytes);
        permitted = false;
    }
    return permitted;
}

static uint64_t at_most_chunk(uint64_t n_bytes)
{
    return n_bytes < CHUNK ? n_bytes : CHUNK;
}

static void run_copy(struct sim_view *view)
{
    const struct work *work = view->work;
    unsigned char *chunk = allocate(CHUNK);
    for (uint64_t done = 0; done < work->n_bytes;) {
        uint64_t n = at_most_chunk(work->n_bytes - done);
        if (work->bytes != NULL)
            memcpy(chunk, work->bytes->data + done, n);
        else if (!space_is_device(work->from))
            memcpy(chunk, (const unsigned char *)(uintptr_t)work->from + done, n);
        else if (!sim_read(view, work->from + done, chunk, n))
            break;
        if (!space_is_device(work->to))
            memcpy((unsigned char *)(uintptr_t)work->to + done, chunk, n);
        else if (!sim_write(view, work->to + done, chunk, n))
            break;
        done += n;
    }
    free(chunk);
}

static void run_fill(struct sim_view *view)
{
    const struct work *work = view->work;
    uint64_t whole = at_most_chunk(work->n_bytes);
    unsigned char *chunk = allocate(CHUNK);
    for (unsigned i = 0; i < work->width; i++)
        chunk[i] = (unsigned char)(work->value >> 8 * i);
    for (uint64_t filled = work->width; filled < whole; filled *= 2)
        memcpy(chunk + filled, chunk, filled < whole - filled ? filled : whole - filled);
    for (uint64_t done = 0; done < work->n_bytes;) {
        uint64_t n = at_most_chunk(work->n_bytes - done);
        if (!sim_write(view, work->to + done, chunk, n))
            break;
        done += n;
    }
    free(chunk);
}

static bool value_is_reached(struct sim_view *view)
{
    const struct work *work = view->work;
    uint64_t found = 0;
    if (space_is_device(work->to)) {
        if (!sim_read(view, work->to, &found, work->width))
            return true;
    } else if (work->width == 8) {
        found = __atomic_load_n((const uint64_t *)(uintptr_t)work->to, __ATOMIC_ACQUIRE);
    } else {
        found = __atomic_load_n((const uint32_t *)(uintptr_t)work->to, __ATOMIC_ACQUIRE);
    }
    uint64_t value = work->width == 8 ? work->value : (uint32_t)work->value;
    switch (work->flags & 3u) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return work->width == 8 ? (int64_t)(found - value) >= 0
                                : (int32_t)((uint32_t)found - (uint32_t)value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return found == value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (found & value) != 0;
    default:
        return (~(found | value) & (work->width == 8 ? UINT64_MAX : UINT32_MAX)) != 0;
    }
}

static void run_write_value(struct sim_view *view)
{
    const struct work *work = view->work;
    if (space_is_device(work->to))
        (void)sim_write(view, work->to, &work->value, work->width);
    else if (work->width == 8)
        __atomic_store_n((uint64_t *)(uintptr_t)work->to, work->value, __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint32_t *)(uintptr_t)work->to, (uint32_t)work->value, __ATOMIC_RELEASE);
}

bool run_is_ready(struct sim *sim, struct op *op)
{
    if (op->context->error != CUDA_SUCCESS)
        return true;
    struct sim_view view = view_of(sim, op);
    if (op->work.kind == WORK_WAIT_VALUE)
        return value_is_reached(&view);
    return op->work.ready == NULL || op->work.ready(&view, op->work.argument);
}

static void run_now(struct sim *sim, struct op *op)
{
    struct sim_view view = view_of(sim, op);
    if (op->context->error != CUDA_SUCCESS && op->work.kind != WORK_FREE)
        return;
    switch (op->work.kind) {
    case WORK_KERNEL:
        if (is_permitted(&view) && op->work.run != NULL)
            op->work.run(&view, op->work.argument);
        break;
    case WORK_COPY:
        if (is_permitted(&view) && sim->config.has_bytes)
            run_copy(&view);
        break;
    case WORK_FILL:
        if (is_permitted(&view) && sim->config.has_bytes)
            run_fill(&view);
        break;
    case WORK_WRITE_VALUE:
        run_write_value(&view);
        break;
    case WORK_FREE:
        if (op->work.plain != NULL)
            plain_free_reached(sim, op->work.plain);
        op->work.plain = NULL;
        break;
    default:
        break;
    }
}

/* The lock is given up for the program's own function. */
static void run_host(struct sim *sim, struct op *op)
{
    op_hold(op);
    pthread_mutex_unlock(&sim->lock);
    struct os_thread *thread = thread_os(sim);
    thread->in_host_function = true;
    op->work.function(op->work.argument);
    thread->in_host_function = false;
    pthread_mutex_lock(&sim->lock);
    op_complete(sim, op);
    op_drop(op);
    if (sim->config.eager)
        op_settle(sim);
}

static void *worker_main(void *argument)
{
    struct sim *sim = argument;
    call_hide();
    pthread_mutex_lock(&sim->lock);
    while (!sim->worker_stop) {
        if (sim->n_host == 0) {
            pthread_cond_wait(&sim->moved, &sim->lock);
            continue;
        }
        struct op *op = sim->host_queue[0];
        sim->n_host--;
        memmove(sim->host_queue, sim->host_queue + 1, sim->n_host * sizeof(struct op *));
        run_host(sim, op);
    }
    pthread_mutex_unlock(&sim->lock);
    call_show();
    return NULL;
}

static bool worker_take(struct sim *sim, struct op *op)
{
    if (!sim->config.host_thread)
        return false;
    if (!sim->worker_runs && pthread_create(&sim->worker, NULL, worker_main, sim) != 0)
        return false;
    sim->worker_runs = true;
    sim->host_queue = grow(sim->host_queue, sizeof(struct op *), sim->n_host, &sim->host_room);
    sim->host_queue[sim->n_host++] = op;
    pthread_cond_broadcast(&sim->moved);
    return true;
}

void run_worker_stop(struct sim *sim)
{
    pthread_mutex_lock(&sim->lock);
    bool runs = sim->worker_runs;
    sim->worker_stop = true;
    pthread_cond_broadcast(&sim->moved);
    pthread_mutex_unlock(&sim->lock);
    if (runs)
        pthread_join(sim->worker, NULL);
}

void run_start(struct sim *sim, struct op *op)
{
    if (op->work.kind == WORK_HOST && op->context->error == CUDA_SUCCESS) {
        op->running = true;
        if (!worker_take(sim, op))
            run_host(sim, op);
        return;
    }
    run_now(sim, op);
    op_complete(sim, op);
}
