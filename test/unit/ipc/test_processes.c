/* SPDX-License-Identifier: MIT */
/* Opening and closing what another end exports: what is seen, counted, found and undone. */
#define _GNU_SOURCE
#include "scene.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void an_opened_block_shows_the_exporters_bytes(void **state)
{
    (void)state;
    uint64_t address, own, last = block.address + block.bytes - 1;
    unsigned char byte = 7;
    uint64_t in_last = (last - (block.address - MIB)) % EXTENT_BYTES;
    assert_int_equal(driver.address_reserve(driver.self, EXTENT_BYTES, &own), VPMM_OK);
    assert_int_equal(driver.map(driver.self, own, EXTENT_BYTES, lent.extents[EXTENTS - 1]),
                     VPMM_OK);
    const int device = 0;
    assert_int_equal(driver.set_access(driver.self, own, EXTENT_BYTES, &device, 1), VPMM_OK);
    assert_int_equal(sim_memset(sim, own + in_last, 42, 1, 1, NULL), CUDA_SUCCESS);
    assert_int_equal(sim_ctx_synchronize(sim), CUDA_SUCCESS);
    assert_int_equal(vpmm_ipc_open(importer, handle, &opener, &address), VPMM_OK);
    assert_true(sim_peek(sim, 0, address + block.bytes - 1, &byte, 1));
    assert_int_equal(byte, 42);
    assert_int_equal(vpmm_ipc_close(importer, address, wait_for_work, NULL), VPMM_OK);
    assert_int_equal(driver.unmap(driver.self, own, EXTENT_BYTES), VPMM_OK);
    assert_int_equal(driver.address_free(driver.self, own, EXTENT_BYTES), VPMM_OK);
}

static void openings_are_counted(void **state)
{
    (void)state;
    uint64_t first, second, third;
    struct vpmm_ipc_opener other = opener;
    other.context_id = opener.context_id + 1;
    assert_int_equal(vpmm_ipc_open(importer, handle, &opener, &first), VPMM_OK);
    assert_int_equal(vpmm_ipc_open(importer, handle, &opener, &second), VPMM_OK);
    assert_int_equal(vpmm_ipc_open(importer, handle, &other, &third), VPMM_OK);
    assert_int_equal(first, second);
    assert_int_not_equal(first, third);
    assert_int_equal(vpmm_atomic_load(&lent.n_leases_ever), 2);
    assert_int_equal(vpmm_ipc_close(importer, first + 1, wait_for_work, NULL), VPMM_NOT_FOUND);
    assert_int_equal(vpmm_ipc_close(importer, first, wait_for_work, NULL), VPMM_OK);
    assert_int_equal(n_waits, 0);
    assert_int_equal(vpmm_ipc_close(importer, first, wait_for_work, NULL), VPMM_OK);
    assert_int_equal(n_waits, 1);
    assert_int_equal(vpmm_ipc_close(importer, first, wait_for_work, NULL), VPMM_NOT_FOUND);
    end_when(&lent.n_leases, 1);
    vpmm_ipc_context_gone(importer, other.context_id);
    end_when(&lent.n_leases, 0);
}

static enum vpmm_status capture_in_the_way(void *self, const struct vpmm_ipc_import *import)
{
    (void)self;
    (void)import;
    return VPMM_CAPTURED;
}

/* What may still be in use stays mapped, and leased, until a later close can wait for it. */
static void a_close_that_cannot_wait_is_made_up_for(void **state)
{
    (void)state;
    uint64_t first, second;
    struct vpmm_ipc_import import;
    struct vpmm_ipc_opener other = opener;
    other.context_id = opener.context_id + 1;
    assert_int_equal(vpmm_ipc_open(importer, handle, &opener, &first), VPMM_OK);
    assert_int_equal(vpmm_ipc_open(importer, handle, &other, &second), VPMM_OK);
    assert_int_equal(vpmm_ipc_close(importer, first, capture_in_the_way, NULL), VPMM_OK);
    assert_int_equal(vpmm_ipc_find(importer, first, &import), VPMM_IPC_IN_MAPPING);
    assert_int_equal(vpmm_ipc_close(importer, first, wait_for_work, NULL), VPMM_NOT_FOUND);
    assert_int_equal(n_waits, 1);
    end_when(&lent.n_leases, 1);
    assert_int_equal(vpmm_ipc_find(importer, first, &import), VPMM_IPC_ELSEWHERE);
    assert_int_equal(vpmm_ipc_close(importer, second, wait_for_work, NULL), VPMM_OK);
    end_when(&lent.n_leases, 0);
}

static void what_is_open_is_found(void **state)
{
    (void)state;
    uint64_t address;
    struct vpmm_ipc_import import;
    assert_int_equal(vpmm_ipc_open(importer, handle, &opener, &address), VPMM_OK);
    const struct {
        uint64_t at;
        enum vpmm_ipc_place place;
    } places[] = {{address, VPMM_IPC_IN_BLOCK},
                  {address + block.bytes - 1, VPMM_IPC_IN_BLOCK},
                  {address + block.bytes, VPMM_IPC_IN_MAPPING},
                  {address - 1, VPMM_IPC_IN_MAPPING},
                  {address - MIB - 1, VPMM_IPC_ELSEWHERE},
                  {address - MIB + EXTENTS * EXTENT_BYTES, VPMM_IPC_ELSEWHERE}};
    for (unsigned i = 0; i < sizeof places / sizeof places[0]; i++)
        assert_int_equal(vpmm_ipc_find(importer, places[i].at, &import), places[i].place);
    assert_int_equal(import.address, address);
    assert_int_equal(import.granule_bytes, 2 * MIB);
    assert_int_equal(import.context_id, opener.context_id);
    assert_int_equal(vpmm_ipc_close(importer, address, wait_for_work, NULL), VPMM_OK);
    assert_int_equal(vpmm_ipc_find(importer, address, &import), VPMM_IPC_ELSEWHERE);
}

static enum vpmm_status (*free_address)(void *self, uint64_t address, uint64_t bytes);
static unsigned n_forgotten;

static enum vpmm_status look_and_free(void *self, uint64_t address, uint64_t bytes)
{
    struct vpmm_ipc_import import;
    n_forgotten += vpmm_ipc_find(importer, address, &import) == VPMM_IPC_ELSEWHERE;
    return free_address(self, address, bytes);
}

/* From then on the next block may lie there. */
static void an_address_is_forgotten_before_it_is_given_back(void **state)
{
    (void)state;
    uint64_t address;
    free_address = driver.address_free;
    driver.address_free = look_and_free;
    assert_int_equal(vpmm_ipc_open(importer, handle, &opener, &address), VPMM_OK);
    assert_int_equal(vpmm_ipc_close(importer, address, wait_for_work, NULL), VPMM_OK);
    assert_int_equal(n_forgotten, 1);
}

static void what_cannot_be_opened(void **state)
{
    (void)state;
    uint64_t address;
    unsigned char other[VPMM_IPC_HANDLE_BYTES];
    struct vpmm_ipc_name name;
    assert_int_equal(vpmm_ipc_open(exporter, handle, &opener, &address), VPMM_NO_CONTEXT);
    memset(other, 0, sizeof other);
    assert_int_equal(vpmm_ipc_open(importer, other, &opener, &address), VPMM_INVALID);
    assert_true(vpmm_ipc_name_read(handle, &name));
    name.block.bytes = 12 * MIB;
    vpmm_ipc_name_write(&name, other);
    assert_int_equal(vpmm_ipc_open(importer, other, &opener, &address), VPMM_INVALID);
    name.block.id++;
    vpmm_ipc_seal_make(exporter->key, &name.block, name.seal);
    vpmm_ipc_name_write(&name, other);
    assert_int_equal(vpmm_ipc_open(importer, other, &opener, &address), VPMM_NOT_FOUND);
    name.door ^= 1;
    vpmm_ipc_name_write(&name, other);
    assert_int_equal(vpmm_ipc_open(importer, other, &opener, &address), VPMM_NOT_FOUND);
    other[8] ^= 2;
    assert_int_equal(vpmm_ipc_open(importer, other, &opener, &address), VPMM_NOT_SUPPORTED);
    vpmm_atomic_store(&lent.is_there, 0);
    assert_int_equal(vpmm_ipc_open(importer, handle, &opener, &address), VPMM_NOT_FOUND);
}

static void extents_beyond_the_lease_are_not_mapped(void **state)
{
    (void)state;
    uint64_t address;
    vpmm_atomic_store(&lent.is_wrong, 1);
    assert_int_equal(vpmm_ipc_open(importer, handle, &opener, &address), VPMM_INVALID);
    assert_int_equal(sim_calls(sim, "cuMemImportFromShareableHandle"), 0);
    end_when(&lent.n_leases, 0);
    vpmm_atomic_store(&lent.is_wrong, 0);
    assert_int_equal(vpmm_ipc_open(importer, handle, &opener, &address), VPMM_OK);
    assert_int_equal(vpmm_ipc_close(importer, address, wait_for_work, NULL), VPMM_OK);
}

#define OF_EXPORTER 4u

static void each_failing_step_is_undone(void **state)
{
    (void)state;
    static const char *const names[] = {"cuMemAddressReserve", "cuMemImportFromShareableHandle",
                                        "cuMemMap", "cuMemSetAccess",
                                        "cuMemExportToShareableHandle"};
    uint64_t address;
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
        for (uint64_t nth = 1;; nth++) {
            struct sim_counts before, after;
            sim_live_counts(sim, &before);
            sim_fault_set(sim, names[i], nth, CUDA_ERROR_OUT_OF_MEMORY, false);
            enum vpmm_status status = vpmm_ipc_open(importer, handle, &opener, &address);
            bool has_struck = sim_fault_struck(sim, names[i]);
            sim_fault_clear(sim, names[i]);
            if (!status)
                assert_int_equal(vpmm_ipc_close(importer, address, wait_for_work, NULL), VPMM_OK);
            enum vpmm_status expected = i == OF_EXPORTER ? VPMM_FAILED : VPMM_NO_MEMORY;
            assert_int_equal(status, has_struck ? expected : VPMM_OK);
            end_when(&lent.n_leases, 0);
            sim_live_counts(sim, &after);
            assert_int_equal(before.handles, after.handles);
            assert_int_equal(before.mappings, after.mappings);
            assert_int_equal(before.reservations, after.reservations);
            if (!has_struck)
                break;
        }
}

/* As in a forked child: the sockets go, the leases stay the parent's. */
static void what_is_abandoned_is_closed(void **state)
{
    (void)state;
    unsigned before = count_descriptors();
    struct vpmm_ipc *other;
    unsigned char ours[VPMM_IPC_HANDLE_BYTES];
    assert_int_equal(vpmm_ipc_create(&driver, &vpmm_memory_system, &lender, geteuid, &other),
                     VPMM_OK);
    assert_int_equal(vpmm_ipc_export(other, &block, ours), VPMM_OK);
    assert_true(count_descriptors() > before);
    pid_t child = fork();
    if (child == 0) {
        vpmm_ipc_abandon(other);
        vpmm_ipc_abandon(exporter);
        _exit(count_descriptors() == n_descriptors ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    vpmm_ipc_destroy(other);
    assert_int_equal(count_descriptors(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_opened_block_shows_the_exporters_bytes),
        TEST(openings_are_counted),
        TEST(a_close_that_cannot_wait_is_made_up_for),
        TEST(what_is_open_is_found),
        TEST(an_address_is_forgotten_before_it_is_given_back),
        TEST(what_cannot_be_opened),
        TEST(extents_beyond_the_lease_are_not_mapped),
        TEST(each_failing_step_is_undone),
        TEST(what_is_abandoned_is_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
