/* SPDX-License-Identifier: MIT */
/* Memory pools: those that the program makes, and which one of a device is current. */
#include "reference.h"

static const char *pool_create(struct reference *reference, const struct step *step)
{
    struct memory_pool *pool = &reference->pools[step->a];
    if (pool->was_alive || step->b >= DEVICES || !reference->contexts[step->b].was_alive)
        return "the pool has been, or the device is not in use";
    *pool = (struct memory_pool){.is_alive = true, .was_alive = true, .device = step->b};
    return NULL;
}

/* Of a graph's own memory nobody knows when the pool stops counting it. */
static bool has_scratch(const struct reference *reference)
{
    for (unsigned i = 0; i < GRAPHS_MAX; i++)
        for (unsigned j = 0; j < NODES_MAX; j++)
            if (reference->graphs[i].nodes[j].is_scratch ||
                reference->captures[i].graph.nodes[j].is_scratch)
                return true;
    return false;
}

/* Of a pool that the program made, or of the default one of a device in use. */
static const char *pool_look(struct reference *reference, const struct step *step)
{
    if (step->b >= DEVICES || step->a > POOLS_MAX)
        return "no such pool";
    bool is_known = step->a == POOLS_MAX ? reference->contexts[step->b].was_alive
                                         : reference->pools[step->a].is_alive &&
                                               reference->pools[step->a].device == step->b;
    if (!is_known)
        return "no such pool on the device";
    if (step->kind == STEP_POOL_USE)
        reference->current_pools[step->b] = step->a;
    else if (has_scratch(reference))
        return "a graph's memory may count";
    return NULL;
}

const char *pool_make(struct reference *reference, const struct step *step)
{
    if (reference->threads[step->thread].context == CONTEXTS_MAX ||
        capture_forbids(reference, step->thread))
        return "no context, or a capture forbids it";
    if (step->kind == STEP_POOL_USE || step->kind == STEP_POOL_USED)
        return pool_look(reference, step);
    if (step->a >= POOLS_MAX)
        return "no such pool";
    if (step->kind == STEP_POOL_CREATE)
        return pool_create(reference, step);
    struct memory_pool *pool = &reference->pools[step->a];
    if (!pool->is_alive)
        return "no such pool";
    if (step->kind == STEP_POOL_TRIM)
        return NULL;
    pool->is_alive = false;
    if (reference->current_pools[pool->device] == step->a)
        reference->current_pools[pool->device] = POOLS_MAX;
    return NULL;
}
