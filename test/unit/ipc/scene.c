/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "scene.h"

#include <dirent.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

const struct vpmm_ipc_block block = {0x1000000 + MIB, 9, 10 * MIB - 24, 0};

struct lent lent;

struct sim *sim;
struct vpmm_driver driver;
struct vpmm_ipc *exporter, *importer;
unsigned char handle[VPMM_IPC_HANDLE_BYTES];
unsigned n_descriptors;
unsigned n_waits;

static void begin(void *self)
{
    (void)self;
}

static bool is_block(const struct vpmm_ipc_block *asked)
{
    return asked->address == block.address && asked->id == block.id &&
           vpmm_atomic_load(&lent.is_there);
}

static enum vpmm_status lease(void *self, const struct vpmm_ipc_block *asked, uint64_t *start_out,
                              uint64_t *end_out)
{
    (void)self;
    if (!is_block(asked))
        return VPMM_NOT_FOUND;
    *start_out = block.address - MIB;
    *end_out = *start_out + EXTENTS * EXTENT_BYTES;
    vpmm_atomic_add(&lent.n_leases, 1);
    vpmm_atomic_add(&lent.n_leases_ever, 1);
    return VPMM_OK;
}

static void unlease(void *self, const struct vpmm_ipc_block *asked)
{
    (void)self;
    (void)asked;
    while (vpmm_atomic_load(&lent.is_held))
        (void)sched_yield();
    vpmm_atomic_sub(&lent.n_leases, 1);
}

/* One at a time, so that several messages are needed. */
static size_t extents(void *self, const struct vpmm_ipc_block *asked, uint64_t from,
                      struct vpmm_ipc_extent *extents_out, size_t room)
{
    (void)self;
    (void)room;
    uint64_t i = (from - (asked->address - MIB)) / EXTENT_BYTES;
    if (i >= EXTENTS)
        return 0;
    extents_out[0] = (struct vpmm_ipc_extent){lent.extents[i], from, EXTENT_BYTES};
    extents_out[0].bytes *= vpmm_atomic_load(&lent.is_wrong) ? 16 : 1;
    return 1;
}

const struct vpmm_ipc_lender lender = {NULL, begin, lease, unlease, extents};

static int devices(void *self, int owner, int devices_out[VPMM_DEVICES_MAX])
{
    (void)self;
    devices_out[0] = owner;
    return 1;
}

const struct vpmm_ipc_opener opener = {NULL, 7, devices};

enum vpmm_status wait_for_work(void *self, const struct vpmm_ipc_import *import)
{
    (void)self;
    assert_int_equal(import->bytes, block.bytes);
    n_waits++;
    return VPMM_OK;
}

unsigned count_descriptors(void)
{
    unsigned n = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder))
        n++;
    (void)closedir(folder);
    return n;
}

int connect_by_hand(void)
{
    struct vpmm_ipc_name name;
    assert_true(vpmm_ipc_name_read(handle, &name));
    int socket = vpmm_ipc_connect(name.process, name.door, vpmm_now_ms() + 10000);
    assert_true(socket >= 0);
    return socket;
}

struct vpmm_ipc_request make_lease(void)
{
    struct vpmm_ipc_name name;
    assert_true(vpmm_ipc_name_read(handle, &name));
    return vpmm_ipc_request_make(VPMM_IPC_LEASE, &name.block, 0, name.seal);
}

void send_request(int socket, const struct vpmm_ipc_request *request)
{
    assert_true(vpmm_ipc_send(socket, request, sizeof *request, NULL, 0));
}

enum vpmm_status receive_status(int socket, size_t n_expected)
{
    struct vpmm_ipc_reply reply;
    int descriptors[VPMM_IPC_CHUNK];
    size_t n;
    assert_int_equal(vpmm_ipc_receive_reply(socket, vpmm_now_ms() + 10000, &reply, descriptors, &n),
                     VPMM_OK);
    assert_int_equal(n, n_expected);
    for (size_t i = 0; i < n; i++)
        (void)close(descriptors[i]);
    return (enum vpmm_status)reply.status;
}

int lease_by_hand(void)
{
    int socket = connect_by_hand();
    struct vpmm_ipc_request request = make_lease();
    send_request(socket, &request);
    assert_int_equal(receive_status(socket, 0), VPMM_OK);
    return socket;
}

void expect_end(int socket)
{
    char byte;
    assert_true(recv(socket, &byte, 1, 0) <= 0);
}

void end_when(vpmm_atomic64 *count, uint64_t wanted)
{
    uint64_t end_ms = vpmm_now_ms() + 60000;
    while (vpmm_atomic_load(count) != wanted)
        assert_true(vpmm_now_ms() < end_ms);
}

int scene_set_up(void **state)
{
    (void)state;
    struct sim_config config;
    sim_config_default(&config);
    memset(&lent, 0, sizeof lent);
    lent.is_there = 1;
    n_waits = 0;
    n_descriptors = count_descriptors();
    sim = sim_create(&config);
    sim_table_fill(sim, &driver);
    CUcontext context;
    if (sim_ctx_create(sim, 0, 0, &context) != CUDA_SUCCESS)
        return 1;
    for (unsigned i = 0; i < EXTENTS; i++)
        if (driver.extent_create(driver.self, 0, EXTENT_BYTES, &lent.extents[i]))
            return 1;
    return vpmm_ipc_create(&driver, &vpmm_memory_system, &lender, geteuid, &exporter) ||
           vpmm_ipc_create(&driver, &vpmm_memory_system, &lender, geteuid, &importer) ||
           vpmm_ipc_export(exporter, &block, handle);
}

int scene_tear_down(void **state)
{
    (void)state;
    struct sim_counts counts;
    vpmm_atomic_store(&lent.is_held, 0);
    vpmm_ipc_destroy(importer);
    vpmm_ipc_destroy(exporter);
    assert_int_equal(vpmm_atomic_load(&lent.n_leases), 0);
    for (unsigned i = 0; i < EXTENTS; i++)
        assert_int_equal(driver.extent_release(driver.self, lent.extents[i]), VPMM_OK);
    sim_live_counts(sim, &counts);
    assert_int_equal(counts.handles, 0);
    assert_int_equal(counts.reservations, 0);
    assert_int_equal(counts.mappings, 0);
    sim_destroy(sim);
    assert_int_equal(count_descriptors(), n_descriptors);
    return 0;
}
