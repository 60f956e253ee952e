/* SPDX-License-Identifier: MIT */
/* Allocations that are not mapped by the program. Must not put two of them side by side, so that a
 * step beyond the end of one is a fault. */
#define _GNU_SOURCE
#include "sim/sim_internal.h"

#include <search.h>
#include <stdlib.h>

#define SMALL_UNIT 512u
#define PITCH_UNIT 512u

static int plain_compare(const void *a, const void *b)
{
    const struct plain *one = a;
    const struct plain *other = b;
    return one->address < other->address ? -1 : one->address > other->address;
}

static struct span_bin *bin_of(struct sim *sim, uint64_t granules)
{
    for (size_t i = 0; i < sim->n_bins; i++)
        if (sim->bins[i].granules == granules)
            return &sim->bins[i];
    sim->bins = grow(sim->bins, sizeof *sim->bins, sim->n_bins, &sim->bins_room);
    sim->bins[sim->n_bins] = (struct span_bin){.granules = granules};
    return &sim->bins[sim->n_bins++];
}

/* An address freed last is used first, as the driver does it; one granule behind each stays empty.
 */
struct plain *plain_add(struct sim *sim, int device, uint64_t bytes, uint64_t charged)
{
    uint64_t granularity = sim->config.granularity;
    struct plain *plain = allocate(sizeof *plain);
    plain->bytes = bytes;
    plain->store.bytes = bytes;
    plain->charged = charged;
    plain->granules = (bytes + granularity - 1) / granularity + 1;
    plain->device = device;
    plain->id = ++sim->next_id;
    struct span_bin *bin = bin_of(sim, plain->granules);
    if (bin->n > 0) {
        plain->address = bin->addresses[--bin->n];
    } else {
        plain->address = sim->plain_next;
        sim->plain_next += plain->granules * granularity;
    }
    if (tsearch(plain, &sim->plains, plain_compare) == NULL)
        abort();
    return plain;
}

static void plain_unlist(struct sim *sim, struct plain *plain)
{
    struct span_bin *bin = bin_of(sim, plain->granules);
    bin->addresses = grow(bin->addresses, sizeof *bin->addresses, bin->n, &bin->room);
    bin->addresses[bin->n++] = plain->address;
    tdelete(plain, &sim->plains, plain_compare);
    store_finish(&plain->store);
    free(plain);
}

/* Small allocations share granules: the device is charged for as many as all of them fill. */
static uint64_t small_granules(const struct sim *sim, uint64_t bytes)
{
    uint64_t granularity = sim->config.granularity;
    return (bytes + granularity - 1) / granularity * granularity;
}

static bool plain_charge(struct sim *sim, int device, uint64_t bytes, uint64_t *charged_out)
{
    struct device *charged = &sim->devices[device];
    uint64_t granularity = sim->config.granularity;
    if (bytes > sim->config.device_bytes)
        return false;
    if (bytes >= granularity) {
        *charged_out = small_granules(sim, bytes);
        return device_charge(sim, device, *charged_out);
    }
    *charged_out = (bytes + SMALL_UNIT - 1) / SMALL_UNIT * SMALL_UNIT;
    uint64_t more =
        small_granules(sim, charged->small + *charged_out) - small_granules(sim, charged->small);
    if (!device_charge(sim, device, more))
        return false;
    charged->small += *charged_out;
    return true;
}

static void plain_refund(struct sim *sim, const struct plain *plain)
{
    struct device *charged = &sim->devices[plain->device];
    if (plain->bytes >= sim->config.granularity) {
        device_refund(sim, plain->device, plain->charged);
        return;
    }
    uint64_t before = small_granules(sim, charged->small);
    charged->small -= plain->charged;
    device_refund(sim, plain->device, before - small_granules(sim, charged->small));
}

void plain_end(struct sim *sim, struct plain *plain)
{
    if (plain->pool != NULL) {
        sim->n_async -= !plain->parked;
        pool_give(sim, plain);
    } else {
        plain_refund(sim, plain);
        sim->n_plain--;
    }
    plain_unlist(sim, plain);
}

void plain_part(struct plain *plain)
{
    plain->freed = true;
    if (plain->pool == NULL)
        return;
    plain->pool->used -= plain->charged;
    plain->pool->busy += plain->charged;
}

void plain_free_reached(struct sim *sim, struct plain *plain)
{
    if (plain->graph == NULL) {
        plain_end(sim, plain);
        return;
    }
    plain->pool->busy -= plain->charged;
    plain->parked = true;
    store_finish(&plain->store);
    sim->n_async--;
}

CUresult plain_revive(struct sim *sim, struct plain *plain)
{
    struct pool *pool = plain->pool;
    if (!plain->freed || plain->graph_frees)
        return CUDA_SUCCESS;
    if (plain->parked) {
        TRY(pool_take(sim, pool, plain->charged));
        pool->n_live--;
        sim->n_async++;
    } else {
        pool->busy -= plain->charged;
        pool->used += plain->charged;
        for (struct op *op = sim->pending; op != NULL; op = op->next)
            if (op->work.plain == plain)
                op->work.plain = NULL;
    }
    plain->freed = plain->parked = false;
    return CUDA_SUCCESS;
}

struct plain_list {
    const struct context *context;
    struct plain **plains;
    size_t n, room;
};

static void list_add(const void *node, VISIT visit, void *closure)
{
    struct plain_list *list = closure;
    if (visit != preorder && visit != leaf)
        return;
    struct plain *plain = *(struct plain *const *)node;
    if (list->context != NULL && plain->context != list->context)
        return;
    list->plains = grow(list->plains, sizeof(struct plain *), list->n, &list->room);
    list->plains[list->n++] = plain;
}

struct plain *plain_opened(struct sim *sim, const struct context *context, int process, uint64_t id)
{
    struct plain_list list = {.context = context};
    struct plain *found = NULL;
    twalk_r(sim->plains, list_add, &list);
    for (size_t i = 0; i < list.n && found == NULL; i++)
        if (list.plains[i]->n_opens > 0 && list.plains[i]->opened_process == process &&
            list.plains[i]->opened_id == id)
            found = list.plains[i];
    free(list.plains);
    return found;
}

/* A free that another context's stream still has to reach finds nothing to do then. */
void plain_end_of_context(struct sim *sim, struct context *context)
{
    struct plain_list list = {.context = context};
    twalk_r(sim->plains, list_add, &list);
    for (struct op *op = sim->pending; op != NULL; op = op->next)
        if (op->work.plain != NULL && op->work.plain->context == context)
            op->work.plain = NULL;
    for (size_t i = 0; i < list.n; i++)
        plain_end(sim, list.plains[i]);
    free(list.plains);
}

void plain_finish(struct sim *sim)
{
    struct plain_list list = {0};
    twalk_r(sim->plains, list_add, &list);
    for (size_t i = 0; i < list.n; i++)
        plain_unlist(sim, list.plains[i]);
    free(list.plains);
    for (size_t i = 0; i < sim->n_bins; i++)
        free(sim->bins[i].addresses);
    free(sim->bins);
}

CUresult sim_mem_get_info(struct sim *sim, size_t *free_out, size_t *total_out)
{
    struct context *context = NULL;
    CUresult result = call_enter(sim, "cuMemGetInfo");
    if (result == CUDA_SUCCESS)
        result = context_now(sim, &context);
    if (result == CUDA_SUCCESS && free_out != NULL)
        *free_out = sim->config.device_bytes - sim->devices[context->device].used;
    if (result == CUDA_SUCCESS && total_out != NULL)
        *total_out = sim->config.device_bytes;
    return call_leave(sim, "cuMemGetInfo", result);
}

/* While a thread waits in cuMemFree, every cuMemAlloc in its context waits with it (measured). */
static CUresult wait_beside_frees(struct sim *sim, struct context **context_out)
{
    TRY(context_now(sim, context_out));
    while (context_root(*context_out)->n_freeing != 0) {
        moved_wait(sim);
        TRY(context_now(sim, context_out));
    }
    return CUDA_SUCCESS;
}

static CUresult plain_alloc(struct sim *sim, const char *name, uint64_t bytes,
                            CUdeviceptr *address_out)
{
    struct context *context;
    uint64_t charged;
    TRY(context_now(sim, &context));
    if (bytes == 0 || address_out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(capture_unsafe(sim, name));
    TRY(wait_beside_frees(sim, &context));
    if (!plain_charge(sim, context->device, bytes, &charged))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct plain *plain = plain_add(sim, context->device, bytes, charged);
    plain->context = context_root(context);
    sim->n_plain++;
    *address_out = plain->address;
    return CUDA_SUCCESS;
}

CUresult sim_mem_alloc(struct sim *sim, size_t bytes, CUdeviceptr *address_out)
{
    CUresult result = call_enter(sim, "cuMemAlloc");
    if (result == CUDA_SUCCESS)
        result = plain_alloc(sim, "cuMemAlloc", bytes, address_out);
    return call_leave_priced(sim, "cuMemAlloc", result, 1, bytes);
}

CUresult sim_mem_alloc_pitch(struct sim *sim, size_t width, size_t height, unsigned element_bytes,
                             size_t *pitch_out, CUdeviceptr *address_out)
{
    CUresult result = call_enter(sim, "cuMemAllocPitch");
    size_t pitch = (width + PITCH_UNIT - 1) / PITCH_UNIT * PITCH_UNIT;
    uint64_t bytes = 0;
    bool sound = element_bytes == 4 || element_bytes == 8 || element_bytes == 16;
    if (result == CUDA_SUCCESS && (!sound || pitch < width || pitch_out == NULL))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && __builtin_mul_overflow(pitch, height, &bytes))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        result = plain_alloc(sim, "cuMemAllocPitch", bytes, address_out);
    if (result == CUDA_SUCCESS)
        *pitch_out = pitch;
    return call_leave_priced(sim, "cuMemAllocPitch", result, 1, bytes);
}

static CUresult wait_in_free(struct sim *sim, struct context *owner)
{
    owner->n_freeing++;
    CUresult result = op_wait_context(sim, owner);
    owner->n_freeing--;
    pthread_cond_broadcast(&sim->moved);
    return result;
}

/* cuMemAlloc memory waits for the context that owns it; stream-ordered memory for nothing. */
static CUresult plain_free(struct sim *sim, CUdeviceptr address)
{
    struct context *current;
    if (context_now(sim, &current) == CUDA_ERROR_CONTEXT_IS_DESTROYED)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (address == 0)
        return CUDA_SUCCESS;
    TRY(capture_unsafe(sim, "cuMemFree"));
    struct plain *plain = space_plain(sim, address);
    if (plain == NULL || plain->address != address || plain->freed || plain->n_opens > 0)
        return CUDA_ERROR_INVALID_VALUE;
    plain_part(plain);
    if (plain->pool != NULL)
        plain->pool->late += plain->charged;
    uint64_t id = plain->id;
    CUresult result = plain->context == NULL ? CUDA_SUCCESS : wait_in_free(sim, plain->context);
    plain = space_plain(sim, address);
    if (plain == NULL || plain->id != id)
        return result; /* its context ended meanwhile */
    const struct op *user = op_using(sim, address, plain->bytes);
    if (user != NULL)
        misuse(sim, SIM_FREE_IN_USE, "cuMemFree(%#llx) while queued work (%s) uses it",
               (unsigned long long)address, user->work.name);
    plain_free_reached(sim, plain);
    return result;
}

CUresult sim_mem_free(struct sim *sim, CUdeviceptr address)
{
    CUresult result = call_enter(sim, "cuMemFree");
    if (result == CUDA_SUCCESS)
        result = plain_free(sim, address);
    return call_leave_priced(sim, "cuMemFree", result, 1, 0);
}
