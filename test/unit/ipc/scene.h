/* SPDX-License-Identifier: MIT */
/* Two ends in one process, upon one simulated machine. The lender has one block of three extents,
 * the first of which begins before it. Teardown asserts that nothing is left mapped, held, leased
 * or open. */
#ifndef VPMM_TEST_UNIT_IPC_SCENE_H
#define VPMM_TEST_UNIT_IPC_SCENE_H

#include "ipc/ipc_internal.h"
#include "ipc/socket.h"
#include "sim/sim_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)
#define EXTENTS 3u
#define EXTENT_BYTES (4 * MIB)

extern const struct vpmm_ipc_block block;
extern const struct vpmm_ipc_lender lender;
extern const struct vpmm_ipc_opener opener;

/* Shared with the serving thread. */
struct lent {
    vpmm_atomic64 n_leases, n_leases_ever;
    vpmm_atomic32 is_there; /* the block */
    vpmm_atomic32 is_wrong; /* it tells of extents that are too large */
    vpmm_atomic32 is_held;  /* the serving thread waits where it takes a lease back */
    vpmm_extent_handle extents[EXTENTS];
};
extern struct lent lent;

extern struct sim *sim;
extern struct vpmm_driver driver;
extern struct vpmm_ipc *exporter, *importer;
extern unsigned char handle[VPMM_IPC_HANDLE_BYTES]; /* of the block, by the exporter */
extern unsigned n_descriptors;                      /* before there was anything */
extern unsigned n_waits;

int scene_set_up(void **state);
int scene_tear_down(void **state);
#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_set_up, scene_tear_down)

/* What vpmm_ipc_close is to call; it counts. */
enum vpmm_status wait_for_work(void *self, const struct vpmm_ipc_import *import);
unsigned count_descriptors(void);
/* A connection to the exporter, as anybody can make one who reads the name of its socket. */
int connect_by_hand(void);
/* The request with the seal of the handle. */
struct vpmm_ipc_request make_lease(void);
/* Leases the block over a connection of its own, and keeps it: whatever reached the exporter before
 * has been dealt with. */
int lease_by_hand(void);
void send_request(int socket, const struct vpmm_ipc_request *request);
/* The status of the reply, which brings so many descriptors; they are closed. */
enum vpmm_status receive_status(int socket, size_t n_expected);
/* Returns once the other side has closed the connection. */
void expect_end(int socket);
/* Returns once it is so: it is the serving thread that counts. */
void end_when(vpmm_atomic64 *count, uint64_t wanted);

#endif
