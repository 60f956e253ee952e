/* SPDX-License-Identifier: MIT */
/* The first byte says what the others are: a handle, a request or a reply. What is read is within
 * its bounds, and written again it is the same bytes; and a handle made of any block that can be is
 * read as that block. */
#include "input.h"

#include "ipc/protocol.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static void read_handle(const uint8_t *data, size_t bytes)
{
    unsigned char handle[VPMM_IPC_HANDLE_BYTES] = {0}, again[VPMM_IPC_HANDLE_BYTES];
    struct vpmm_ipc_name name;
    memcpy(handle, data, bytes < sizeof handle ? bytes : sizeof handle);
    if (!vpmm_ipc_name_read(handle, &name))
        return;
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
    assert_true(memcmp(read.nonce, name.nonce, sizeof read.nonce) == 0);
    assert_true(read.process == name.process && read.block.address == name.block.address);
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static void (*const readers[])(const uint8_t *data, size_t bytes) = {read_handle, write_handle,
                                                                         read_request, read_reply};
    if (bytes > 0)
        readers[data[0] % 4](data + 1, bytes - 1);
    return 0;
}
