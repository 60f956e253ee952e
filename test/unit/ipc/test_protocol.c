/* SPDX-License-Identifier: MIT */
/* Handles and messages: what is written is read, and nothing else is. */
#include "ipc/protocol.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static const struct vpmm_ipc_block block = {0x70000400000, 77, 5 << 20, 3};

static struct vpmm_ipc_name name_of(const struct vpmm_ipc_block *named)
{
    struct vpmm_ipc_name name = {.process = 4321, .door = 0xabcdef01, .block = *named};
    for (unsigned i = 0; i < VPMM_IPC_SEAL_BYTES; i++)
        name.seal[i] = (unsigned char)(200 + i);
    return name;
}

static void a_handle_says_what_it_names(void **state)
{
    (void)state;
    unsigned char handle[VPMM_IPC_HANDLE_BYTES];
    struct vpmm_ipc_name name = name_of(&block), read;
    vpmm_ipc_name_write(&name, handle);
    assert_true(vpmm_ipc_is_ours(handle));
    assert_true(vpmm_ipc_name_read(handle, &read));
    assert_memory_equal(read.seal, name.seal, sizeof name.seal);
    assert_int_equal(read.process, 4321);
    assert_int_equal(read.door, 0xabcdef01);
    assert_int_equal(read.block.address, block.address);
    assert_int_equal(read.block.id, block.id);
    assert_int_equal(read.block.bytes, block.bytes);
    assert_int_equal(read.block.device, block.device);
}

/* The version is in the bytes 8 and 9. */
static bool is_in_version(unsigned bit)
{
    return bit / 8 == 8 || bit / 8 == 9;
}

static void no_other_bytes_are_a_handle(void **state)
{
    (void)state;
    unsigned char handle[VPMM_IPC_HANDLE_BYTES] = {0};
    struct vpmm_ipc_name name = name_of(&block), read;
    assert_false(vpmm_ipc_is_ours(handle));
    vpmm_ipc_name_write(&name, handle);
    assert_false(vpmm_ipc_name_is_foreign(handle));
    for (unsigned bit = 0; bit < 8 * VPMM_IPC_HANDLE_BYTES; bit++) {
        handle[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_false(vpmm_ipc_name_read(handle, &read));
        assert_true(vpmm_ipc_name_is_foreign(handle) == is_in_version(bit));
        assert_true(vpmm_ipc_is_ours(handle) == is_in_version(bit));
        handle[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    assert_true(vpmm_ipc_is_ours(handle));
}

/* As version 1 began: eight bytes, the version, and the process. */
static void a_handle_of_version_1_is_known_and_not_read(void **state)
{
    (void)state;
    static const unsigned char begin[] = {0x56, 0x4d, 0x4d, 0x20, 0x20, 0x69, 0x70, 0x63,
                                          1,    0,    0,    0,    0xe1, 0x10, 0,    0};
    unsigned char handle[VPMM_IPC_HANDLE_BYTES] = {0};
    struct vpmm_ipc_name read;
    memcpy(handle, begin, sizeof begin);
    assert_true(vpmm_ipc_name_is_foreign(handle));
    assert_true(vpmm_ipc_is_ours(handle));
    assert_false(vpmm_ipc_name_read(handle, &read));
}

static const unsigned char key[VPMM_IPC_KEY_BYTES] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                      8, 9, 10, 11, 12, 13, 14, 15};

/* What `openssl mac -macopt hexkey:000102...0f -macopt size:16 SIPHASH` says of the bytes 0 to 15,
 * a 3 and seven zeros. */
static void a_seal_is_the_siphash_of_its_block(void **state)
{
    (void)state;
    static const unsigned char right[] = {0xd1, 0x43, 0xde, 0x68, 0x34, 0xd9, 0xb8, 0xb8,
                                          0xd2, 0x43, 0xe7, 0xe0, 0x8a, 0x23, 0x11, 0x98};
    const struct vpmm_ipc_block known = {0x0706050403020100, 0x0f0e0d0c0b0a0908, 1, 3};
    unsigned char seal[VPMM_IPC_SEAL_BYTES];
    vpmm_ipc_seal_make(key, &known, seal);
    assert_memory_equal(seal, right, sizeof right);
}

static void a_seal_fits_one_block_and_one_key(void **state)
{
    (void)state;
    const struct vpmm_ipc_block others[] = {{block.address + 1, block.id, block.bytes, 3},
                                            {block.address, block.id + 1, block.bytes, 3},
                                            {block.address, block.id, block.bytes, 2}};
    unsigned char seal[VPMM_IPC_SEAL_BYTES], other_key[VPMM_IPC_KEY_BYTES];
    vpmm_ipc_seal_make(key, &block, seal);
    assert_true(vpmm_ipc_seal_is(key, &block, seal));
    for (unsigned i = 0; i < 3; i++)
        assert_false(vpmm_ipc_seal_is(key, &others[i], seal));
    memcpy(other_key, key, sizeof other_key);
    other_key[15] ^= 1;
    assert_false(vpmm_ipc_seal_is(other_key, &block, seal));
    for (unsigned bit = 0; bit < 8 * VPMM_IPC_SEAL_BYTES; bit++) {
        seal[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_false(vpmm_ipc_seal_is(key, &block, seal));
        seal[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
}

static void impossible_blocks_have_no_handle(void **state)
{
    (void)state;
    unsigned char handle[VPMM_IPC_HANDLE_BYTES];
    const struct vpmm_ipc_block empty = {block.address, 1, 0, 0};
    const struct vpmm_ipc_block beyond = {block.address, 1, 1, VPMM_DEVICES_MAX};
    const struct vpmm_ipc_block below = {block.address, 1, 1, -1};
    const struct vpmm_ipc_block far = {block.address, 1, 1, 1 << 16};
    const struct vpmm_ipc_block *const blocks[] = {&empty, &beyond, &below, &far};
    for (unsigned i = 0; i < 4; i++) {
        struct vpmm_ipc_name name = name_of(blocks[i]);
        vpmm_ipc_name_write(&name, handle);
        assert_false(vpmm_ipc_is_ours(handle));
    }
}

static void requests_are_read_whole_or_not(void **state)
{
    (void)state;
    struct vpmm_ipc_request request = vpmm_ipc_request_make(VPMM_IPC_EXTENTS, &block, 12, key),
                            read;
    char longer[sizeof request + 1] = {0};
    memcpy(longer, &request, sizeof request);
    assert_true(vpmm_ipc_request_read(&request, sizeof request, &read));
    assert_int_equal(read.wish, VPMM_IPC_EXTENTS);
    assert_int_equal(read.block.id, block.id);
    assert_int_equal(read.from, 12);
    assert_memory_equal(read.seal, key, sizeof key);
    for (size_t n = 0; n <= sizeof longer; n++)
        assert_true(vpmm_ipc_request_read(longer, n, &read) == (n == sizeof request));
}

static void unknown_requests_are_refused(void **state)
{
    (void)state;
    struct vpmm_ipc_request read;
    for (unsigned wish = 0; wish < 6; wish++) {
        struct vpmm_ipc_request request =
            vpmm_ipc_request_make((enum vpmm_ipc_wish)wish, &block, 0, key);
        assert_true(vpmm_ipc_request_read(&request, sizeof request, &read) ==
                    (wish >= VPMM_IPC_LEASE && wish <= VPMM_IPC_RETURN));
    }
    struct vpmm_ipc_request request = vpmm_ipc_request_make(VPMM_IPC_LEASE, &block, 0, key);
    request.magic++;
    assert_false(vpmm_ipc_request_read(&request, sizeof request, &read));
    request = vpmm_ipc_request_make(VPMM_IPC_LEASE, &block, 0, key);
    request.block.device = -1;
    assert_false(vpmm_ipc_request_read(&request, sizeof request, &read));
}

static void replies_have_the_length_they_tell(void **state)
{
    (void)state;
    struct vpmm_ipc_reply reply = vpmm_ipc_reply_make(VPMM_OK), read;
    for (unsigned i = 0; i < VPMM_IPC_CHUNK; i++)
        reply.extent_bytes[i] = 4096;
    for (reply.n = 0; reply.n <= VPMM_IPC_CHUNK + 1; reply.n++)
        for (size_t n = 0; n <= sizeof reply; n++)
            assert_true(vpmm_ipc_reply_read(&reply, n, &read) ==
                        (reply.n <= VPMM_IPC_CHUNK && n == vpmm_ipc_reply_bytes(reply.n)));
    reply.n = UINT64_MAX / sizeof(uint64_t) + 1;
    assert_false(vpmm_ipc_reply_read(&reply, vpmm_ipc_reply_bytes(0), &read));
}

static void nonsense_in_replies_is_refused(void **state)
{
    (void)state;
    struct vpmm_ipc_reply reply = vpmm_ipc_reply_make((enum vpmm_status)VPMM_STATUS_COUNT), read;
    assert_false(vpmm_ipc_reply_read(&reply, vpmm_ipc_reply_bytes(0), &read));
    reply = vpmm_ipc_reply_make(VPMM_OK);
    reply.n = 2;
    reply.extent_bytes[0] = 1;
    assert_false(vpmm_ipc_reply_read(&reply, vpmm_ipc_reply_bytes(2), &read));
    reply.extent_bytes[1] = 1;
    assert_true(vpmm_ipc_reply_read(&reply, vpmm_ipc_reply_bytes(2), &read));
    reply.magic ^= 1;
    assert_false(vpmm_ipc_reply_read(&reply, vpmm_ipc_reply_bytes(2), &read));
    reply.magic ^= 1;
    reply.status = VPMM_FAILED;
    assert_false(vpmm_ipc_reply_read(&reply, vpmm_ipc_reply_bytes(2), &read));
    reply.n = 0;
    assert_true(vpmm_ipc_reply_read(&reply, vpmm_ipc_reply_bytes(0), &read));
}

static void a_lease_covers_its_block(void **state)
{
    (void)state;
    uint64_t start = block.address, end = block.address + block.bytes;
    assert_true(vpmm_ipc_holds(start, end, &block));
    assert_true(vpmm_ipc_holds(start - 1, end + 1, &block));
    assert_false(vpmm_ipc_holds(start + 1, end + 1, &block));
    assert_false(vpmm_ipc_holds(start, end - 1, &block));
    assert_false(vpmm_ipc_holds(start - 2, start - 1, &block));
    assert_false(vpmm_ipc_holds(end, start, &block));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_handle_says_what_it_names),
        cmocka_unit_test(no_other_bytes_are_a_handle),
        cmocka_unit_test(a_handle_of_version_1_is_known_and_not_read),
        cmocka_unit_test(a_seal_is_the_siphash_of_its_block),
        cmocka_unit_test(a_seal_fits_one_block_and_one_key),
        cmocka_unit_test(impossible_blocks_have_no_handle),
        cmocka_unit_test(requests_are_read_whole_or_not),
        cmocka_unit_test(unknown_requests_are_refused),
        cmocka_unit_test(replies_have_the_length_they_tell),
        cmocka_unit_test(nonsense_in_replies_is_refused),
        cmocka_unit_test(a_lease_covers_its_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
