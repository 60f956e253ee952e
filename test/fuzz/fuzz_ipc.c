/* SPDX-License-Identifier: MIT */
/* The first byte says what the others are: a handle, a request, a reply, or what one connection
 * sends. What is read is within its bounds, and written again it is the same bytes; a handle made
 * of any block that can be is read as that block; and nobody gets a lease without its seal. */
#include "input.h"

#include "ipc/ipc_internal.h"
#include "ipc/socket.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

static void read_handle(const uint8_t *data, size_t bytes)
{
    unsigned char handle[VPMM_IPC_HANDLE_BYTES] = {0}, again[VPMM_IPC_HANDLE_BYTES];
    struct vpmm_ipc_name name;
    memcpy(handle, data, bytes < sizeof handle ? bytes : sizeof handle);
    if (!vpmm_ipc_name_read(handle, &name)) {
        assert_true(vpmm_ipc_is_ours(handle) == vpmm_ipc_name_is_foreign(handle));
        return;
    }
    assert_false(vpmm_ipc_name_is_foreign(handle));
    assert_true(name.block.bytes > 0);
    assert_true(name.block.device >= 0 && name.block.device < VPMM_DEVICES_MAX);
    vpmm_ipc_name_write(&name, again);
    assert_true(memcmp(handle, again, sizeof handle) == 0);
}

static void write_handle(const uint8_t *data, size_t bytes)
{
    unsigned char handle[VPMM_IPC_HANDLE_BYTES];
    struct vpmm_ipc_name name = {0}, read = {0};
    memcpy(&name, data, bytes < sizeof name ? bytes : sizeof name);
    vpmm_ipc_name_write(&name, handle);
    bool can_be =
        name.block.bytes > 0 && name.block.device >= 0 && name.block.device < VPMM_DEVICES_MAX;
    assert_true(vpmm_ipc_name_read(handle, &read) == can_be);
    if (!can_be)
        return;
    assert_true(memcmp(read.seal, name.seal, sizeof read.seal) == 0);
    assert_true(read.process == name.process && read.door == name.door);
    assert_true(read.block.address == name.block.address);
    assert_true(read.block.id == name.block.id && read.block.bytes == name.block.bytes);
    assert_true(read.block.device == name.block.device);
}

static void read_request(const uint8_t *data, size_t bytes)
{
    struct vpmm_ipc_request request;
    if (!vpmm_ipc_request_read(data, bytes, &request))
        return;
    assert_true(bytes == sizeof request);
    assert_true(request.wish >= VPMM_IPC_LEASE && request.wish <= VPMM_IPC_RETURN);
    assert_true(request.block.device >= 0 && request.block.device < VPMM_DEVICES_MAX);
}

static void read_reply(const uint8_t *data, size_t bytes)
{
    struct vpmm_ipc_reply reply;
    if (!vpmm_ipc_reply_read(data, bytes, &reply))
        return;
    assert_true(reply.n <= VPMM_IPC_CHUNK && reply.status < VPMM_STATUS_COUNT);
    assert_true(bytes == vpmm_ipc_reply_bytes(reply.n));
    for (uint64_t i = 0; i < reply.n; i++)
        assert_true(reply.extent_bytes[i] > 0);
    assert_true(memcmp(&reply, data, bytes) == 0);
}

/* ---- what one connection sends ---- */

static uint64_t n_leases, n_leases_ever;

static enum vpmm_status lease(void *self, const struct vpmm_ipc_block *block, uint64_t *start_out,
                              uint64_t *end_out)
{
    (void)self;
    if (block->id == 0)
        return VPMM_NOT_FOUND;
    n_leases++;
    n_leases_ever++;
    *start_out = block->address;
    *end_out = block->address + block->bytes;
    return VPMM_OK;
}

static void unlease(void *self, const struct vpmm_ipc_block *block)
{
    (void)self;
    (void)block;
    assert_true(n_leases > 0);
    n_leases--;
}

static size_t extents(void *self, const struct vpmm_ipc_block *block, uint64_t from,
                      struct vpmm_ipc_extent *extents_out, size_t room)
{
    (void)self;
    (void)block;
    size_t n = from % (room + 1);
    for (size_t i = 0; i < n; i++)
        extents_out[i] = (struct vpmm_ipc_extent){i + 1, from, 1};
    return n;
}

static enum vpmm_status export_extent(void *self, vpmm_extent_handle handle, int *descriptor_out)
{
    (void)self;
    *descriptor_out = handle % 7 ? dup(STDIN_FILENO) : -1;
    return *descriptor_out < 0 ? VPMM_NO_MEMORY : VPMM_OK;
}

/* Each message: whether its seal is right, its wish, where it is cut, and its bytes. */
static size_t next_message(struct vpmm_ipc *ipc, struct input *input,
                           unsigned char message_out[sizeof(struct vpmm_ipc_request) + 1])
{
    uint64_t kind = input_byte(input);
    struct vpmm_ipc_block block = {input_byte(input), input_below(input, 4), 1,
                                   (int)input_below(input, 2)};
    struct vpmm_ipc_request request = vpmm_ipc_request_make((enum vpmm_ipc_wish)(1 + kind / 4 % 3),
                                                            &block, input_byte(input), NULL);
    if (kind % 2)
        vpmm_ipc_seal_make(ipc->key, &block, request.seal);
    memcpy(message_out, &request, sizeof request);
    message_out[sizeof request] = 0;
    if (kind % 4 < 2)
        return sizeof request;
    uint64_t at = input_byte(input);
    message_out[at % sizeof request] ^= (unsigned char)input_byte(input);
    return at < sizeof request + 1 ? at : sizeof request;
}

static bool is_dropped(struct vpmm_ipc *ipc, int reader, const unsigned char *message, size_t n)
{
    uint64_t before = n_leases_ever;
    bool is_sealed = vpmm_ipc_is_sealed(ipc, message, n);
    bool is_answered = vpmm_ipc_answer(ipc, 0, message, n);
    struct vpmm_ipc_reply reply;
    int descriptors[VPMM_IPC_CHUNK];
    size_t n_descriptors;
    assert_true(n_leases_ever == before || is_sealed);
    while (vpmm_ipc_receive_reply(reader, 0, &reply, descriptors, &n_descriptors) == VPMM_OK)
        while (n_descriptors > 0)
            (void)close(descriptors[--n_descriptors]);
    return !is_answered;
}

static void hear_connection(const uint8_t *data, size_t bytes)
{
    static struct vpmm_ipc ipc;
    static struct vpmm_ipc_server server;
    static const struct vpmm_ipc_lender lender = {NULL, NULL, lease, unlease, extents};
    struct vpmm_driver driver = {.extent_export = export_extent};
    struct input input = {data, data + bytes};
    unsigned char message[sizeof(struct vpmm_ipc_request) + 1];
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    ipc.driver = &driver;
    ipc.lender = lender;
    atomic_store(&ipc.server, &server);
    server.clients[0] = (struct vpmm_ipc_client){true, ends[0], -1, 0};
    for (bool is_over = false; !is_over && !input_is_over(&input);) {
        size_t n = next_message(&ipc, &input, message);
        is_over = is_dropped(&ipc, ends[1], message, n);
    }
    vpmm_ipc_end_loans(&ipc, 0);
    assert_int_equal(n_leases, 0);
    assert_int_equal(server.n_loans, 0);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static void (*const readers[])(const uint8_t *data, size_t bytes) = {
        read_handle, write_handle, read_request, read_reply, hear_connection};
    if (bytes > 0)
        readers[data[0] % 5](data + 1, bytes - 1);
    return 0;
}
