/* SPDX-License-Identifier: MIT */
/* Who is served, and what becomes of those who ask for what they may not have. */
#define _GNU_SOURCE
#include "scene.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void another_user_is_neither_served_nor_asked(void **state)
{
    (void)state;
    uint64_t address;
    struct vpmm_ipc *stranger;
    unsigned char strange[VPMM_IPC_HANDLE_BYTES];
    assert_int_equal(
        vpmm_ipc_create(&driver, &vpmm_memory_system, &lender, geteuid() + 1, &stranger), VPMM_OK);
    assert_int_equal(vpmm_ipc_open(stranger, handle, &opener, &address), VPMM_NOT_FOUND);
    assert_int_equal(vpmm_ipc_export(stranger, &block, strange), VPMM_OK);
    assert_int_equal(vpmm_ipc_open(importer, strange, &opener, &address), VPMM_NOT_FOUND);
    assert_int_equal(vpmm_atomic_load(&lent.n_leases_ever), 0);
    vpmm_ipc_destroy(stranger);
}

static void who_sends_nonsense_is_dropped(void **state)
{
    (void)state;
    uint64_t address;
    char bytes[2 * sizeof(struct vpmm_ipc_request)] = {0};
    static const size_t sizes[] = {1, sizeof(struct vpmm_ipc_request), sizeof bytes};
    for (unsigned i = 0; i < 3; i++) {
        int socket = connect_by_hand();
        assert_true(vpmm_ipc_send(socket, bytes, sizes[i], NULL, 0));
        expect_end(socket);
        (void)close(socket);
    }
    assert_int_equal(vpmm_ipc_open(importer, handle, &opener, &address), VPMM_OK);
    assert_int_equal(vpmm_ipc_close(importer, address, wait_for_work, NULL), VPMM_OK);
}

/* A second block that the exporter has, under the same door. */
static void extents_are_for_those_who_hold_a_lease(void **state)
{
    (void)state;
    struct vpmm_ipc_block other = block;
    struct vpmm_ipc_request request = make_lease();
    int socket = connect_by_hand();
    send_request(socket, &request);
    assert_int_equal(receive_status(socket, 0), VPMM_OK);
    other.id++;
    request = vpmm_ipc_request_make(VPMM_IPC_EXTENTS, &other, block.address - MIB, NULL);
    send_request(socket, &request);
    assert_int_equal(receive_status(socket, 0), VPMM_INVALID);
    request = vpmm_ipc_request_make(VPMM_IPC_EXTENTS, &block, block.address - MIB, NULL);
    send_request(socket, &request);
    assert_int_equal(receive_status(socket, 1), VPMM_OK);
    request = vpmm_ipc_request_make(VPMM_IPC_RETURN, &block, 0, NULL);
    send_request(socket, &request);
    request = vpmm_ipc_request_make(VPMM_IPC_EXTENTS, &block, block.address - MIB, NULL);
    send_request(socket, &request);
    assert_int_equal(receive_status(socket, 0), VPMM_INVALID);
    assert_int_equal(vpmm_atomic_load(&lent.n_leases), 0);
    (void)close(socket);
}

/* This process lives on, and may use what it had mapped. */
static void a_lost_connection_ends_no_lease(void **state)
{
    (void)state;
    uint64_t address, second;
    assert_int_equal(vpmm_ipc_open(importer, handle, &opener, &address), VPMM_OK);
    (void)shutdown(importer->peers[0].socket, SHUT_RDWR);
    vpmm_atomic_store(&lent.is_there, 0);
    assert_int_equal(vpmm_ipc_open(importer, handle, &opener, &second), VPMM_OK);
    assert_int_equal(address, second);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(vpmm_ipc_close(importer, address, wait_for_work, NULL), VPMM_OK);
    int socket = connect_by_hand();
    struct vpmm_ipc_request request = make_lease();
    send_request(socket, &request);
    assert_int_equal(receive_status(socket, 0), VPMM_NOT_FOUND);
    assert_int_equal(vpmm_atomic_load(&lent.n_leases), 1);
    (void)close(socket);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(another_user_is_neither_served_nor_asked),
        TEST(who_sends_nonsense_is_dropped),
        TEST(extents_are_for_those_who_hold_a_lease),
        TEST(a_lost_connection_ends_no_lease),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
