/* SPDX-License-Identifier: MIT */
/* Asks other processes for device memory, and gives it to those that ask. Must not ask more than
 * once in the pause between two appeals. */
#include "preload/neighbour.h"

#include "base/clock.h"
#include "preload/original.h"

#include <string.h>
#include <unistd.h>

typedef CUresult uuid_fn(CUuuid *uuid, CUdevice device);

/* The newer function tells the parts of a divided device apart. */
static bool find_uuid(int device, unsigned char uuid_out[VPMM_UUID_BYTES])
{
    CUuuid uuid;
    void *found = vpmm_original_lookup(NULL, "cuDeviceGetUuid_v2");
    uuid_fn *get_uuid;
    if (!found)
        found = vpmm_original_lookup(NULL, "cuDeviceGetUuid");
    memcpy(&get_uuid, &found, sizeof get_uuid);
    if (!get_uuid || get_uuid(&uuid, device) != CUDA_SUCCESS)
        return false;
    memcpy(uuid_out, uuid.bytes, VPMM_UUID_BYTES);
    return true;
}

bool vpmm_neighbours_ask(void *self, int device, uint64_t bytes)
{
    struct vpmm_asker *asker = self;
    unsigned char uuid[VPMM_UUID_BYTES];
    uint64_t now = vpmm_now_ms();
    uint64_t next_ms = vpmm_atomic_load(&asker->next_ms);
    if (now < next_ms || !vpmm_atomic_swap_if(&asker->next_ms, &next_ms, now + VPMM_ASK_PAUSE_MS))
        return false;
    return find_uuid(device, uuid) &&
           vpmm_appeals_ask(geteuid(), uuid, bytes, VPMM_ASK_LIMIT_MS) > 0;
}

uint64_t vpmm_neighbour_give(struct vpmm_router *router, const struct vpmm_appeal *appeal)
{
    uint64_t given = 0;
    for (int device = 0; device < VPMM_DEVICES_MAX; device++) {
        unsigned char uuid[VPMM_UUID_BYTES];
        struct vpmm_heap *heap = vpmm_router_heap(router, device);
        if (!heap || !find_uuid(device, uuid) || memcmp(uuid, appeal->uuid, sizeof uuid) != 0)
            continue;
        uint64_t held = vpmm_heap_held_bytes(heap);
        uint64_t keep = held > appeal->bytes ? held - appeal->bytes : 0;
        if (!vpmm_router_trim(router, heap, keep, &given))
            given = 0;
        break;
    }
    return given;
}
