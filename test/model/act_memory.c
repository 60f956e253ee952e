/* SPDX-License-Identifier: MIT */
/* Steps upon memory pools, and frees that are refused. */
#include "execute.h"

static CUresult pool_create(struct turn *turn, CUmemoryPool *pool)
{
    cuuint64_t threshold = turn_scaled(turn, turn->step->n);
    CUmemPoolProps props = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)turn->step->b},
    };
    CUresult answer = OF(cuMemPoolCreate)(pool, &props);
    return answer == CUDA_SUCCESS
               ? OF(cuMemPoolSetAttribute)(*pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold)
               : answer;
}

/* To trim to more than there is changes nothing but what a pool counts late. */
static CUresult pool_used(struct turn *turn, CUmemoryPool pool)
{
    struct run *run = turn->run;
    cuuint64_t used = 0;
    CUresult answer = OF(cuMemPoolTrimTo)(pool, SIZE_MAX);
    if (answer == CUDA_SUCCESS)
        answer = OF(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
    bool is_more = run->bare && run->n_extras;
    note_seen(turn, is_more ? run->bare->seen[turn->number] : used);
    return answer;
}

CUresult act_on_pool(struct turn *turn)
{
    const struct step *step = turn->step;
    CUmemoryPool *pool = &turn->run->pools[step->a % POOLS_MAX];
    CUmemoryPool standard = NULL;
    if (step->a == POOLS_MAX) {
        CUresult answer = OF(cuDeviceGetDefaultMemPool)(&standard, (int)step->b);
        if (answer != CUDA_SUCCESS)
            return answer;
        pool = &standard;
    }
    switch (step->kind) {
    case STEP_POOL_CREATE:
        return pool_create(turn, pool);
    case STEP_POOL_TRIM:
        return OF(cuMemPoolTrimTo)(*pool, turn_scaled(turn, step->n));
    case STEP_POOL_USE:
        return OF(cuDeviceSetMemPool)((int)step->b, *pool);
    case STEP_POOL_USED:
        return pool_used(turn, *pool);
    default:
        return OF(cuMemPoolDestroy)(*pool);
    }
}

/* Whether the address is part of a block again, in this run. */
static bool is_taken(const struct run *run, CUdeviceptr address)
{
    for (unsigned i = 0; i < BLOCKS_MAX; i++) {
        const struct block *block = &run->reference.blocks[i];
        if (block->state == BLOCK_LIVE && address >= run->addresses[i] &&
            address - run->addresses[i] < block->bytes * run->scale)
            return true;
    }
    for (unsigned i = 0; i < run->n_extras; i++)
        if (run->extras[i] == address)
            return true;
    return false;
}

CUresult free_wrongly(struct turn *turn)
{
    const struct step *step = turn->step;
    CUdeviceptr address = turn->run->addresses[step->a];
    CUresult answer;
    bool is_again = step->n == WRONG_AGAIN || step->n == WRONG_AGAIN_ASYNC;
    if (is_again && is_taken(turn->run, address))
        return CUDA_SUCCESS;
    if (step->n == WRONG_INSIDE || step->n == WRONG_INSIDE_ASYNC)
        address += turn_scaled(turn, turn->before.block.bytes / 2);
    if (step->n == WRONG_INSIDE || step->n == WRONG_AGAIN)
        answer = OF(cuMemFree_v2)(address);
    else
        answer = ON(cuMemFreeAsync)(address, turn_stream(turn));
    if (answer == CUDA_SUCCESS)
        fail(turn->number, "WRONG", "block %u was freed, which cannot be", step->a);
    return answer == CUDA_ERROR_INVALID_VALUE ? CUDA_SUCCESS : answer;
}
