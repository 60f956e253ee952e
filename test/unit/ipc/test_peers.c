/* SPDX-License-Identifier: MIT */
/* Who is served, and what becomes of those who ask for what they may not have. */
#define _GNU_SOURCE
#include "scene.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static uint32_t another_user(void)
{
    return geteuid() + 1;
}

static void another_user_is_neither_served_nor_asked(void **state)
{
    (void)state;
    uint64_t address;
    struct vpmm_ipc *stranger;
    unsigned char strange[VPMM_IPC_HANDLE_BYTES];
    assert_int_equal(
        vpmm_ipc_create(&driver, &vpmm_memory_system, &lender, another_user, &stranger), VPMM_OK);
    assert_int_equal(vpmm_ipc_open(stranger, handle, &opener, &address), VPMM_NOT_FOUND);
    assert_int_equal(vpmm_ipc_export(stranger, &block, strange), VPMM_OK);
    assert_int_equal(vpmm_ipc_open(importer, strange, &opener, &address), VPMM_NOT_FOUND);
    assert_int_equal(vpmm_atomic_load(&lent.n_leases_ever), 0);
    vpmm_ipc_destroy(stranger);
}

static bool is_another_now;

static uint32_t user_now(void)
{
    return is_another_now ? another_user() : geteuid();
}

/* As after setuid, which threads of the same process share. */
static void who_becomes_this_user_is_served(void **state)
{
    (void)state;
    uint64_t address;
    struct vpmm_ipc *changed;
    unsigned char changing[VPMM_IPC_HANDLE_BYTES];
    is_another_now = true;
    assert_int_equal(vpmm_ipc_create(&driver, &vpmm_memory_system, &lender, user_now, &changed),
                     VPMM_OK);
    assert_int_equal(vpmm_ipc_open(changed, handle, &opener, &address), VPMM_NOT_FOUND);
    is_another_now = false;
    assert_int_equal(vpmm_ipc_export(changed, &block, changing), VPMM_OK);
    for (unsigned i = 0; i < 2; i++) {
        struct vpmm_ipc *with = i ? importer : changed;
        assert_int_equal(vpmm_ipc_open(with, i ? changing : handle, &opener, &address), VPMM_OK);
        assert_int_equal(vpmm_ipc_close(with, address, wait_for_work, NULL), VPMM_OK);
    }
    vpmm_ipc_destroy(changed);
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

/* The kernel has no descriptors of peers, as before Linux 6.5. */
static bool is_old;

int __real_getsockopt(int socket, int level, int name, void *value, socklen_t *bytes);
int __wrap_getsockopt(int socket, int level, int name, void *value, socklen_t *bytes);
int __wrap_getsockopt(int socket, int level, int name, void *value, socklen_t *bytes)
{
    if (is_old && name != SO_PEERCRED) {
        errno = ENOPROTOOPT;
        return -1;
    }
    return __real_getsockopt(socket, level, name, value, bytes);
}

static int lease_and_leave(const struct vpmm_ipc_request *request, bool waits)
{
    struct vpmm_ipc_name name;
    struct vpmm_ipc_reply reply;
    int descriptors[VPMM_IPC_CHUNK];
    size_t n;
    uint64_t deadline_ms = vpmm_now_ms() + 10000;
    (void)vpmm_ipc_name_read(handle, &name);
    int socket = vpmm_ipc_connect(name.process, name.door, deadline_ms);
    return vpmm_ipc_send(socket, request, sizeof *request, NULL, 0) &&
                   (!waits || !vpmm_ipc_receive_reply(socket, deadline_ms, &reply, descriptors, &n))
               ? 0
               : 1;
}

/* A process that leases the block and has ended; its child, which no handler heard of, keeps the
 * connection until the descriptor is closed that is returned. */
static int leave_child_connected(bool waits)
{
    struct vpmm_ipc_request request = make_lease();
    int life[2], status;
    char byte;
    assert_int_equal(pipe(life), 0);
    pid_t child = fork();
    if (child == 0) {
        (void)close(life[1]);
        int failed = lease_and_leave(&request, waits);
        if (fork() == 0)
            (void)!read(life[0], &byte, 1);
        _exit(failed);
    }
    (void)close(life[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    return life[1];
}

static void who_ended_before_it_was_met_is_not_served(void **state)
{
    (void)state;
    struct vpmm_ipc_request back = vpmm_ipc_request_make(VPMM_IPC_RETURN, &block, 0, NULL);
    int first = lease_by_hand();
    is_old = true;
    vpmm_atomic_store(&lent.is_held, 1);
    send_request(first, &back);
    int life = leave_child_connected(false);
    vpmm_atomic_store(&lent.is_held, 0);
    int last = lease_by_hand();
    is_old = false;
    assert_int_equal(vpmm_atomic_load(&lent.n_leases_ever), 2);
    (void)close(life);
    (void)close(first);
    (void)close(last);
}

/* This process lives on, and has nothing mapped. */
static void a_lease_that_is_not_heard_of_is_none(void **state)
{
    (void)state;
    struct vpmm_ipc_request request = make_lease();
    int deaf = connect_by_hand();
    assert_int_equal(shutdown(deaf, SHUT_RD), 0);
    send_request(deaf, &request);
    int other = lease_by_hand();
    assert_int_equal(vpmm_atomic_load(&lent.n_leases_ever), 2);
    assert_int_equal(vpmm_atomic_load(&lent.n_leases), 1);
    (void)close(deaf);
    (void)close(other);
}

static void the_end_of_a_process_counts_where_its_child_has_the_connection(void **state)
{
    (void)state;
    int life = leave_child_connected(true);
    int other = lease_by_hand();
    assert_int_equal(vpmm_atomic_load(&lent.n_leases_ever), 2);
    assert_int_equal(vpmm_atomic_load(&lent.n_leases), 1);
    (void)close(life);
    (void)close(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(another_user_is_neither_served_nor_asked),
        TEST(who_becomes_this_user_is_served),
        TEST(who_sends_nonsense_is_dropped),
        TEST(extents_are_for_those_who_hold_a_lease),
        TEST(a_lost_connection_ends_no_lease),
        TEST(who_ended_before_it_was_met_is_not_served),
        TEST(a_lease_that_is_not_heard_of_is_none),
        TEST(the_end_of_a_process_counts_where_its_child_has_the_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
