/* SPDX-License-Identifier: MIT */
/* Writes and reads handles and messages. Must not trust a word of what it reads. */
#include "ipc/protocol.h"

#include <string.h>

/* The first two fields lie where they always lay, so that each version knows the others' handles. A
 * message of another version has another magic number. */
#define HANDLE_MAGIC UINT64_C(0x63706920204d4d56)
#define HANDLE_VERSION 2u
#define MESSAGE_MAGIC 0x324d5056u

/* As it lies in the 64 bytes. */
struct layout {
    uint64_t magic;
    uint16_t version, device;
    uint32_t process, door, sum;
    unsigned char seal[VPMM_IPC_SEAL_BYTES];
    uint64_t address, id, bytes;
};
_Static_assert(sizeof(struct layout) == VPMM_IPC_HANDLE_BYTES, "a handle has no spare bytes");

/* FNV-1a of everything but the sum itself. */
static uint32_t sum_of(const struct layout *layout)
{
    struct layout summed = *layout;
    unsigned char bytes[sizeof *layout];
    uint32_t sum = 2166136261u;
    summed.sum = 0;
    memcpy(bytes, &summed, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++)
        sum = (sum ^ bytes[i]) * 16777619u;
    return sum;
}

static bool is_device(uint32_t device)
{
    return device < VPMM_DEVICES_MAX;
}

void vpmm_ipc_name_write(const struct vpmm_ipc_name *name,
                         unsigned char handle_out[VPMM_IPC_HANDLE_BYTES])
{
    uint32_t device = (uint32_t)name->block.device;
    struct layout layout = {
        .magic = HANDLE_MAGIC,
        .version = HANDLE_VERSION,
        .device = is_device(device) ? (uint16_t)device : UINT16_MAX,
        .process = name->process,
        .door = name->door,
        .address = name->block.address,
        .id = name->block.id,
        .bytes = name->block.bytes,
    };
    memcpy(layout.seal, name->seal, sizeof layout.seal);
    layout.sum = sum_of(&layout);
    memcpy(handle_out, &layout, sizeof layout);
}

bool vpmm_ipc_name_read(const unsigned char handle[VPMM_IPC_HANDLE_BYTES],
                        struct vpmm_ipc_name *name_out)
{
    struct layout layout;
    memcpy(&layout, handle, sizeof layout);
    if (layout.magic != HANDLE_MAGIC || layout.version != HANDLE_VERSION ||
        layout.sum != sum_of(&layout) || !is_device(layout.device) || layout.bytes == 0)
        return false;
    memcpy(name_out->seal, layout.seal, sizeof layout.seal);
    name_out->process = layout.process;
    name_out->door = layout.door;
    name_out->block =
        (struct vpmm_ipc_block){layout.address, layout.id, layout.bytes, layout.device};
    return true;
}

bool vpmm_ipc_name_is_foreign(const unsigned char handle[VPMM_IPC_HANDLE_BYTES])
{
    struct layout layout;
    memcpy(&layout, handle, sizeof layout);
    return layout.magic == HANDLE_MAGIC && layout.version != HANDLE_VERSION;
}

struct vpmm_ipc_request vpmm_ipc_request_make(enum vpmm_ipc_wish wish,
                                              const struct vpmm_ipc_block *block, uint64_t from,
                                              const unsigned char *seal)
{
    struct vpmm_ipc_request request;
    memset(&request, 0, sizeof request);
    request.magic = MESSAGE_MAGIC;
    request.wish = (uint32_t)wish;
    request.block.address = block->address;
    request.block.id = block->id;
    request.block.bytes = block->bytes;
    request.block.device = block->device;
    request.from = from;
    if (seal)
        memcpy(request.seal, seal, sizeof request.seal);
    return request;
}

bool vpmm_ipc_request_read(const void *bytes, size_t n, struct vpmm_ipc_request *request_out)
{
    struct vpmm_ipc_request request;
    if (n != sizeof request)
        return false;
    memcpy(&request, bytes, sizeof request);
    if (request.magic != MESSAGE_MAGIC || request.wish < VPMM_IPC_LEASE ||
        request.wish > VPMM_IPC_RETURN || !is_device((uint32_t)request.block.device))
        return false;
    *request_out = request;
    return true;
}

struct vpmm_ipc_reply vpmm_ipc_reply_make(enum vpmm_status status)
{
    struct vpmm_ipc_reply reply;
    memset(&reply, 0, sizeof reply);
    reply.magic = MESSAGE_MAGIC;
    reply.status = (uint32_t)status;
    return reply;
}

size_t vpmm_ipc_reply_bytes(uint64_t n)
{
    return offsetof(struct vpmm_ipc_reply, extent_bytes) + n * sizeof(uint64_t);
}

bool vpmm_ipc_reply_read(const void *bytes, size_t n, struct vpmm_ipc_reply *reply_out)
{
    struct vpmm_ipc_reply reply = {0};
    if (n < vpmm_ipc_reply_bytes(0) || n > sizeof reply)
        return false;
    memcpy(&reply, bytes, n);
    if (reply.magic != MESSAGE_MAGIC || reply.status >= VPMM_STATUS_COUNT ||
        reply.n > VPMM_IPC_CHUNK || (reply.n && reply.status) || n != vpmm_ipc_reply_bytes(reply.n))
        return false;
    for (uint64_t i = 0; i < reply.n; i++)
        if (reply.extent_bytes[i] == 0)
            return false;
    *reply_out = reply;
    return true;
}

bool vpmm_ipc_holds(uint64_t start, uint64_t end, const struct vpmm_ipc_block *block)
{
    return start <= block->address && block->address < end && block->bytes <= end - block->address;
}
