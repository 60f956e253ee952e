/* SPDX-License-Identifier: MIT */
/* Finds what lies at an address, and who may touch it. Must not change what it finds. */
#define _GNU_SOURCE
#include "sim/sim_internal.h"

#include <search.h>

bool space_is_device(CUdeviceptr address)
{
    return address >= SIM_ADDRESS_LOW;
}

struct reservation *space_reservation(struct sim *sim, CUdeviceptr address)
{
    size_t low = 0;
    size_t high = sim->n_reservations;
    while (low < high) {
        size_t middle = (low + high) / 2;
        struct reservation *found = sim->reservations[middle];
        if (address < found->address)
            high = middle;
        else if (address - found->address >= found->bytes)
            low = middle + 1;
        else
            return found;
    }
    return NULL;
}

struct mapping *space_mapping(struct sim *sim, CUdeviceptr address)
{
    const struct reservation *reservation = space_reservation(sim, address);
    if (reservation == NULL)
        return NULL;
    return reservation->entries[(address - reservation->address) / sim->config.granularity];
}

static int plain_compare(const void *a, const void *b)
{
    const struct plain *one = a;
    const struct plain *other = b;
    if (one->address + one->bytes <= other->address)
        return -1;
    return other->address + other->bytes <= one->address;
}

struct plain *space_plain(struct sim *sim, CUdeviceptr address)
{
    struct plain key = {.address = address, .bytes = 1};
    struct plain **found = tfind(&key, &sim->plains, plain_compare);
    return found == NULL ? NULL : *found;
}

static unsigned plain_devices(const struct plain *plain, const struct context *context, bool writes)
{
    unsigned owner = 1u << plain->device;
    if (plain->pool != NULL)
        return owner | (writes ? plain->pool->writers : plain->pool->readers);
    if (context != NULL && (context->peers & owner) != 0)
        return owner | 1u << context->device;
    return owner;
}

enum reach space_find(struct sim *sim, int device, const struct context *context,
                      CUdeviceptr address, uint64_t bytes, bool writes, struct segment *segment_out)
{
    unsigned allowed;
    uint64_t room;
    const struct mapping *mapping = space_mapping(sim, address);
    struct plain *plain = mapping == NULL ? space_plain(sim, address) : NULL;
    if (mapping != NULL) {
        *segment_out = (struct segment){&mapping->handle->store, address - mapping->address, 0,
                                        mapping->handle->device};
        room = mapping->bytes - segment_out->offset;
        allowed = writes ? mapping->writers : mapping->readers;
    } else if (plain != NULL && !plain->parked) {
        *segment_out = (struct segment){&plain->store, address - plain->address, 0, plain->device};
        room = plain->bytes - segment_out->offset;
        allowed = plain_devices(plain, context, writes);
    } else {
        return REACH_NONE;
    }
    segment_out->bytes = bytes < room ? bytes : room;
    return (allowed & 1u << device) != 0 ? REACH_OK : REACH_DENIED;
}

enum reach space_check(struct sim *sim, int device, const struct context *context,
                       CUdeviceptr address, uint64_t bytes, bool writes)
{
    enum reach worst = REACH_OK;
    while (bytes > 0) {
        struct segment segment;
        enum reach reach = space_find(sim, device, context, address, bytes, writes, &segment);
        if (reach == REACH_NONE)
            return reach;
        if (reach == REACH_DENIED)
            worst = REACH_DENIED;
        address += segment.bytes;
        bytes -= segment.bytes;
    }
    return worst;
}
