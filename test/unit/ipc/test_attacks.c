/* SPDX-License-Identifier: MIT */
/* Processes of the same user that have no handle: what they know is the name of the socket. */
#define _GNU_SOURCE
#include "scene.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define GUESSES 2000u
#define IDLE 300u
#define OPENINGS 50u

/* The door is all that the system shows of a socket, and nothing in it is part of the seal. */
static void the_name_of_the_socket_holds_no_secret(void **state)
{
    (void)state;
    struct vpmm_ipc_name name;
    char wanted[64], line[512];
    unsigned n_shown = 0;
    assert_true(vpmm_ipc_name_read(handle, &name));
    (void)snprintf(wanted, sizeof wanted, "@vpmm-%u-%08x\n", name.process, name.door);
    FILE *sockets = fopen("/proc/net/unix", "r");
    assert_non_null(sockets);
    while (fgets(line, sizeof line, sockets)) {
        const char *shown = strstr(line, "@vpmm-");
        n_shown += shown && strcmp(shown, wanted) == 0;
    }
    (void)fclose(sockets);
    assert_int_equal(n_shown, 1);
    assert_memory_not_equal(&exporter->door, exporter->key, sizeof exporter->door);
    assert_memory_not_equal(name.seal, exporter->key, sizeof name.seal);
}

/* Address and id are right in all of them. */
static void guesses_are_answered_by_nothing(void **state)
{
    (void)state;
    struct vpmm_ipc_request right = make_lease();
    for (unsigned i = 0; i < GUESSES; i++) {
        struct vpmm_ipc_request guess = right;
        int socket = connect_by_hand();
        if (i < 8 * VPMM_IPC_SEAL_BYTES)
            guess.seal[i / 8] ^= (unsigned char)(1u << i % 8);
        else
            memset(guess.seal, (int)i, sizeof guess.seal);
        send_request(socket, &guess);
        expect_end(socket);
        (void)close(socket);
    }
    assert_int_equal(vpmm_atomic_load(&lent.n_leases_ever), 0);
}

static void the_first_message_is_a_lease(void **state)
{
    (void)state;
    struct vpmm_ipc_request request = make_lease();
    const enum vpmm_ipc_wish wishes[] = {VPMM_IPC_EXTENTS, VPMM_IPC_RETURN};
    for (unsigned i = 0; i < 2; i++) {
        int socket = connect_by_hand();
        request.wish = (uint32_t)wishes[i];
        send_request(socket, &request);
        expect_end(socket);
        (void)close(socket);
    }
}

static void a_handle_opens_one_block_alone(void **state)
{
    (void)state;
    struct vpmm_ipc_request request = make_lease();
    int socket = connect_by_hand();
    send_request(socket, &request);
    assert_int_equal(receive_status(socket, 0), VPMM_OK);
    request.block.id++;
    send_request(socket, &request);
    expect_end(socket);
    assert_int_equal(vpmm_atomic_load(&lent.n_leases_ever), 1);
    (void)close(socket);
}

static void another_versions_messages_are_refused(void **state)
{
    (void)state;
    struct vpmm_ipc_request request = make_lease();
    int socket = connect_by_hand();
    request.magic = 0x4d4d5056u;
    send_request(socket, &request);
    expect_end(socket);
    assert_int_equal(vpmm_atomic_load(&lent.n_leases_ever), 0);
    (void)close(socket);
}

static uint64_t open_and_close(void)
{
    uint64_t address, begin_ms = vpmm_now_ms();
    assert_int_equal(vpmm_ipc_open(importer, handle, &opener, &address), VPMM_OK);
    uint64_t took_ms = vpmm_now_ms() - begin_ms;
    assert_int_equal(vpmm_ipc_close(importer, address, wait_for_work, NULL), VPMM_OK);
    return took_ms;
}

static bool has_ended(int socket)
{
    struct pollfd looked = {.fd = socket, .events = POLLIN};
    return poll(&looked, 1, 0) > 0;
}

/* All of them are still connected, as far as they know, when the opening begins. */
static void idle_connections_keep_nobody_out(void **state)
{
    (void)state;
    static int sockets[IDLE];
    unsigned n_ended = 0;
    for (unsigned i = 0; i < IDLE; i++)
        sockets[i] = connect_by_hand();
    printf("beside %u idle connections: %u ms\n", IDLE, (unsigned)open_and_close());
    for (unsigned i = 0; i < IDLE; i++)
        n_ended += has_ended(sockets[i]);
    assert_true(n_ended >= IDLE - VPMM_IPC_CALLERS_MAX);
    assert_true(has_ended(sockets[0]));
    for (unsigned i = 0; i < IDLE; i++)
        (void)close(sockets[i]);
}

static void who_is_silent_is_dropped_in_the_end(void **state)
{
    (void)state;
    int silent = connect_by_hand(), rightful = connect_by_hand();
    struct vpmm_ipc_request request = make_lease();
    send_request(rightful, &request);
    assert_int_equal(receive_status(rightful, 0), VPMM_OK);
    uint64_t begin_ms = vpmm_now_ms();
    expect_end(silent);
    printf("silent for %u ms\n", (unsigned)(vpmm_now_ms() - begin_ms));
    assert_false(has_ended(rightful));
    (void)close(silent);
    (void)close(rightful);
}

static atomic_bool is_over;
static atomic_uint n_hostile;

/* Some say nothing, some nonsense, and some guess. */
static void *harass(void *self)
{
    struct vpmm_ipc_request guess = make_lease();
    struct vpmm_ipc_name name;
    (void)vpmm_ipc_name_read(handle, &name);
    unsigned char nonsense[7] = {0};
    (void)self;
    guess.seal[0] ^= 1;
    for (unsigned i = 0; !atomic_load(&is_over); i++) {
        int socket = vpmm_ipc_connect(name.process, name.door, vpmm_now_ms() + 10000);
        if (socket < 0)
            continue;
        if (i % 3 == 1)
            (void)vpmm_ipc_send(socket, nonsense, sizeof nonsense, NULL, 0);
        else if (i % 3 == 2)
            (void)vpmm_ipc_send(socket, &guess, sizeof guess, NULL, 0);
        (void)close(socket);
        atomic_fetch_add(&n_hostile, 1);
    }
    return NULL;
}

/* No pause between two of them: more than a thousand a second on any machine. */
static void a_storm_of_connections_keeps_nobody_out(void **state)
{
    (void)state;
    pthread_t thread;
    uint64_t longest_ms = 0;
    uint64_t begin_ms = vpmm_now_ms();
    atomic_store(&is_over, false);
    assert_int_equal(pthread_create(&thread, NULL, harass, NULL), 0);
    for (unsigned i = 0; i < OPENINGS || atomic_load(&n_hostile) < GUESSES; i++) {
        uint64_t took_ms = open_and_close();
        longest_ms = took_ms > longest_ms ? took_ms : longest_ms;
    }
    atomic_store(&is_over, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    printf("%u hostile connections in %u ms; the longest opening %u ms\n", atomic_load(&n_hostile),
           (unsigned)(vpmm_now_ms() - begin_ms), (unsigned)longest_ms);
}

#define DROPPED 3u

/* An exporter by hand, which drops the first callers and has an answer for the next: one that says
 * nothing of the driver here. */
static void *drop_some(void *self)
{
    const int *listening = self;
    for (unsigned i = 0; i <= DROPPED; i++) {
        struct pollfd waited = {.fd = *listening, .events = POLLIN};
        struct vpmm_ipc_request request;
        struct vpmm_ipc_reply reply = vpmm_ipc_reply_make(VPMM_SHUT_DOWN);
        (void)poll(&waited, 1, 10000);
        int socket = accept(*listening, NULL, NULL);
        if (i == DROPPED && recv(socket, &request, sizeof request, 0) == sizeof request)
            (void)vpmm_ipc_send(socket, &reply, vpmm_ipc_reply_bytes(0), NULL, 0);
        (void)close(socket);
    }
    return NULL;
}

static void who_is_dropped_for_lack_of_room_calls_again(void **state)
{
    (void)state;
    pthread_t thread;
    uint64_t address;
    unsigned char other[VPMM_IPC_HANDLE_BYTES];
    struct vpmm_ipc_name name;
    assert_true(vpmm_ipc_name_read(handle, &name));
    name.door ^= 1;
    int listening = vpmm_ipc_listen(name.process, name.door);
    assert_true(listening >= 0);
    vpmm_ipc_name_write(&name, other);
    assert_int_equal(pthread_create(&thread, NULL, drop_some, &listening), 0);
    assert_int_equal(vpmm_ipc_open(importer, other, &opener, &address), VPMM_FAILED);
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)close(listening);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_name_of_the_socket_holds_no_secret),
        TEST(guesses_are_answered_by_nothing),
        TEST(the_first_message_is_a_lease),
        TEST(a_handle_opens_one_block_alone),
        TEST(another_versions_messages_are_refused),
        TEST(idle_connections_keep_nobody_out),
        TEST(who_is_silent_is_dropped_in_the_end),
        TEST(a_storm_of_connections_keeps_nobody_out),
        TEST(who_is_dropped_for_lack_of_room_calls_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
