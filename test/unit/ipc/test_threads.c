/* SPDX-License-Identifier: MIT */
/* Threads that open and close the same block at once, in two contexts: each sees it while it has it
 * open, and nothing is left over. */
#define _GNU_SOURCE
#include "scene.h"

#include <pthread.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#define THREADS 4u
#define ROUNDS 200u

static atomic_uint n_wrong;
static atomic_uint n_last_closes;

static enum vpmm_status note_last(void *self, const struct vpmm_ipc_import *import)
{
    (void)self;
    (void)import;
    atomic_fetch_add(&n_last_closes, 1);
    return VPMM_OK;
}

static void *open_and_close(void *self)
{
    struct vpmm_ipc_opener own = opener;
    struct vpmm_ipc_import import;
    uint64_t address;
    own.context_id = (uintptr_t)self;
    for (unsigned i = 0; i < ROUNDS; i++) {
        bool is_right = vpmm_ipc_open(importer, handle, &own, &address) == VPMM_OK &&
                        vpmm_ipc_find(importer, address + MIB, &import) == VPMM_IPC_IN_BLOCK &&
                        import.address == address && import.context_id == own.context_id &&
                        vpmm_ipc_close(importer, address, note_last, NULL) == VPMM_OK;
        atomic_fetch_add(&n_wrong, !is_right);
    }
    return NULL;
}

static void threads_share_what_is_open(void **state)
{
    (void)state;
    static int contexts[2];
    pthread_t threads[THREADS];
    atomic_store(&n_wrong, 0);
    atomic_store(&n_last_closes, 0);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, open_and_close, &contexts[i % 2]), 0);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(atomic_load(&n_wrong), 0);
    end_when(&lent.n_leases, 0);
    assert_int_equal(vpmm_atomic_load(&lent.n_leases_ever), atomic_load(&n_last_closes));
    for (unsigned i = 0; i < VPMM_IPC_PEERS_MAX; i++)
        assert_int_equal(importer->peers[i].n, 0);
}

static atomic_bool is_done;

static void *open_elsewhere(void *elsewhere)
{
    uint64_t address;
    atomic_fetch_add(&n_wrong,
                     vpmm_ipc_open(importer, elsewhere, &opener, &address) != VPMM_INVALID);
    atomic_store(&is_done, true);
    return NULL;
}

/* An exporter by hand, which answers once the other handle was opened again. */
static void what_is_open_needs_no_wait_for_another_exporter(void **state)
{
    (void)state;
    pthread_t thread;
    uint64_t address, again;
    unsigned char other[VPMM_IPC_HANDLE_BYTES];
    struct vpmm_ipc_name name;
    assert_true(vpmm_ipc_name_read(handle, &name));
    name.door ^= 1;
    vpmm_ipc_name_write(&name, other);
    int listening = vpmm_ipc_listen(name.process, name.door);
    atomic_store(&n_wrong, 0);
    atomic_store(&is_done, false);
    assert_int_equal(vpmm_ipc_open(importer, handle, &opener, &address), VPMM_OK);
    assert_int_equal(pthread_create(&thread, NULL, open_elsewhere, other), 0);
    struct pollfd waited = {.fd = listening, .events = POLLIN};
    assert_int_equal(poll(&waited, 1, 10000), 1);
    assert_int_equal(vpmm_ipc_open(importer, handle, &opener, &again), VPMM_OK);
    bool had_to_wait = atomic_load(&is_done);
    int socket = accept(listening, NULL, NULL);
    (void)send(socket, &name, 1, MSG_NOSIGNAL);
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)close(socket);
    (void)close(listening);
    assert_false(had_to_wait);
    assert_int_equal(again, address);
    assert_int_equal(atomic_load(&n_wrong), 0);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(vpmm_ipc_close(importer, address, wait_for_work, NULL), VPMM_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(threads_share_what_is_open),
        TEST(what_is_open_needs_no_wait_for_another_exporter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
