/* SPDX-License-Identifier: MIT */
/* An exporter that does not read what it is sent: what it is to be told, it hears in the end. */
#define _GNU_SOURCE
#include "scene.h"

#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#define OPENED 24u
#define LEAST_ROOM 1
#define ROOM (1 << 18)

static uint64_t opened[OPENED];
static _Thread_local bool is_watching;
static unsigned n_early; /* descriptors that were closed while a peer still had them */

int __real_close(int descriptor);
int __wrap_close(int descriptor);
int __wrap_close(int descriptor)
{
    if (is_watching && importer->peers[0].socket == descriptor)
        n_early++;
    return __real_close(descriptor);
}

static void set_room(int bytes)
{
    assert_int_equal(
        setsockopt(importer->peers[0].socket, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes), 0);
}

static unsigned count_owed(void)
{
    unsigned n = 0;
    for (unsigned i = 0; i < OPENED; i++)
        n += importer->entries[i].state == VPMM_IPC_OWED;
    return n;
}

static enum vpmm_status open_as(unsigned number, uint64_t *address_out)
{
    struct vpmm_ipc_opener own = opener;
    own.context_id += number;
    return vpmm_ipc_open(importer, handle, &own, address_out);
}

/* More returns than there is room for; the exporter reads none but the first. */
static void close_unheard(void)
{
    struct vpmm_ipc_import import;
    for (unsigned i = 0; i < OPENED; i++)
        assert_int_equal(open_as(i, &opened[i]), VPMM_OK);
    set_room(LEAST_ROOM);
    vpmm_atomic_store(&lent.is_held, 1);
    for (unsigned i = 0; i < OPENED; i++) {
        assert_int_equal(vpmm_ipc_close(importer, opened[i], wait_for_work, NULL), VPMM_OK);
        assert_int_equal(vpmm_ipc_find(importer, opened[i], &import), VPMM_IPC_ELSEWHERE);
    }
    assert_int_equal(vpmm_atomic_load(&lent.n_leases), OPENED);
    assert_true(count_owed() > 0 && count_owed() < OPENED);
    assert_int_equal(importer->peers[0].n, count_owed());
}

static void expect_all_returned(void)
{
    assert_int_equal(count_owed(), 0);
    assert_int_equal(importer->peers[0].n, 0);
    assert_int_equal(importer->peers[0].socket, -1);
    end_when(&lent.n_leases, 0);
}

static void a_close_makes_up_for_returns_that_had_no_room(void **state)
{
    (void)state;
    close_unheard();
    set_room(ROOM);
    is_watching = true;
    enum vpmm_status status = vpmm_ipc_close(importer, 1, wait_for_work, NULL);
    is_watching = false;
    assert_int_equal(status, VPMM_NOT_FOUND);
    vpmm_atomic_store(&lent.is_held, 0);
    expect_all_returned();
    assert_int_equal(n_early, 0);
}

static void *go_on_when_somebody_opens(void *self)
{
    bool is_opening = false;
    (void)self;
    while (!is_opening) {
        vpmm_lock_take(&importer->lock);
        is_opening = importer->is_opening;
        vpmm_lock_give(&importer->lock);
        (void)sched_yield();
    }
    vpmm_atomic_store(&lent.is_held, 0);
    return NULL;
}

/* And waits where there is no room for its own wish, instead of connecting anew: what is owed over
 * a connection that is lost stays leased. */
static void an_opening_makes_up_for_returns_that_had_no_room(void **state)
{
    (void)state;
    pthread_t thread;
    uint64_t address;
    close_unheard();
    assert_int_equal(pthread_create(&thread, NULL, go_on_when_somebody_opens, NULL), 0);
    assert_int_equal(open_as(0, &address), VPMM_OK);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(importer->peers[0].connection, 1);
    set_room(ROOM);
    assert_int_equal(vpmm_ipc_close(importer, address, wait_for_work, NULL), VPMM_OK);
    expect_all_returned();
}

/* Nothing was asked, so no answer can come too late. */
static void a_wish_that_has_no_room_loses_no_connection(void **state)
{
    (void)state;
    struct vpmm_ipc_request request = make_lease();
    struct vpmm_ipc_reply reply;
    int descriptors[VPMM_IPC_CHUNK];
    size_t n;
    close_unheard();
    assert_int_equal(
        vpmm_ipc_peer_ask(importer, 0, &request, vpmm_now_ms() + 20, &reply, descriptors, &n),
        VPMM_NOT_READY);
    set_room(ROOM);
    assert_int_equal(vpmm_ipc_close(importer, 1, wait_for_work, NULL), VPMM_NOT_FOUND);
    vpmm_atomic_store(&lent.is_held, 0);
    expect_all_returned();
}

/* The exporter takes them for a stranger's, or for those of what was opened since. */
static void what_was_leased_over_a_lost_connection_is_not_returned_over_the_next(void **state)
{
    (void)state;
    uint64_t first, second;
    assert_int_equal(open_as(0, &first), VPMM_OK);
    (void)shutdown(importer->peers[0].socket, SHUT_RDWR);
    assert_int_equal(open_as(1, &second), VPMM_OK);
    assert_int_equal(importer->peers[0].connection, 2);
    assert_int_equal(vpmm_ipc_close(importer, first, wait_for_work, NULL), VPMM_OK);
    int other = lease_by_hand();
    assert_int_equal(vpmm_atomic_load(&lent.n_leases), 3);
    assert_int_equal(vpmm_ipc_close(importer, second, wait_for_work, NULL), VPMM_OK);
    end_when(&lent.n_leases, 2);
    (void)close(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_close_makes_up_for_returns_that_had_no_room),
        TEST(an_opening_makes_up_for_returns_that_had_no_room),
        TEST(a_wish_that_has_no_room_loses_no_connection),
        TEST(what_was_leased_over_a_lost_connection_is_not_returned_over_the_next),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
