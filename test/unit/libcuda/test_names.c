/* SPDX-License-Identifier: MIT */
/* The fake libcuda's names: every spelling is exported at an address of its own, and a look-up
 * answers by version, flags and the version of the simulated driver (here 12.4). */
#define _GNU_SOURCE
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define DRIVER_VERSION 12040

static const struct row {
    const char *name;
    int version;
    const char *plain, *per_thread;
} rows[] = {
#define SYMBOL(name, version, spelling) {#name, version, #spelling, #spelling},
#define SYMBOL_PAIR(name, version, spelling, per_thread) {#name, version, #spelling, #per_thread},
#include "sim/libcuda/symbols.def"
#undef SYMBOL
#undef SYMBOL_PAIR
};
#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

static void *find(const char *name, int version, cuuint64_t flags, CUresult *result_out,
                  CUdriverProcAddressQueryResult *status_out)
{
    void *found = (void *)1;
    *result_out = cuGetProcAddress_v2(name, &found, version, flags, status_out);
    return found;
}

static void every_spelling_is_exported_once(void **state)
{
    void *self = dlopen(NULL, RTLD_NOW);
    (void)state;
    for (size_t i = 0; i < N_ROWS; i++) {
        void *address = dlsym(self, rows[i].plain);
        assert_non_null(address);
        assert_non_null(dlsym(self, rows[i].per_thread));
        for (size_t k = 0; k < N_ROWS; k++) {
            if (k != i)
                assert_ptr_not_equal(address, dlsym(self, rows[k].plain));
            if (strcmp(rows[k].plain, rows[k].per_thread) != 0)
                assert_ptr_not_equal(address, dlsym(self, rows[k].per_thread));
        }
    }
    dlclose(self);
}

/* The row that a look-up for `version` must find: the newest that is neither newer than it nor than
 * the driver. */
static const struct row *expected(const char *name, int version)
{
    const struct row *best = NULL;
    for (size_t i = 0; i < N_ROWS; i++)
        if (strcmp(rows[i].name, name) == 0 && rows[i].version <= version &&
            (!best || rows[i].version > best->version))
            best = &rows[i];
    return best;
}

static void a_look_up_answers_by_version_and_flags(void **state)
{
    static const int versions[] = {2000, 3020, 4000, 7000, 11020, 11040, 12000, DRIVER_VERSION};
    void *self = dlopen(NULL, RTLD_NOW);
    (void)state;
    for (size_t i = 0; i < N_ROWS; i++)
        for (size_t v = 0; v < sizeof(versions) / sizeof(versions[0]); v++) {
            CUresult result;
            CUdriverProcAddressQueryResult status;
            const struct row *row = expected(rows[i].name, versions[v]);
            void *plain = find(rows[i].name, versions[v], 0, &result, &status);
            assert_int_equal(result, CUDA_SUCCESS);
            assert_ptr_equal(plain, row ? dlsym(self, row->plain) : NULL);
            assert_true(row ? status == CU_GET_PROC_ADDRESS_SUCCESS
                            : status != CU_GET_PROC_ADDRESS_SUCCESS);
            void *own = find(rows[i].name, versions[v],
                             CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &result, &status);
            bool has_own = row && versions[v] >= 7000;
            assert_ptr_equal(own, row ? dlsym(self, has_own ? row->per_thread : row->plain) : NULL);
        }
    dlclose(self);
}

static void what_is_newer_than_the_driver_is_not_found(void **state)
{
    CUresult result;
    CUdriverProcAddressQueryResult status;
    (void)state;
    assert_null(find("cuCtxRecordEvent", DRIVER_VERSION, 0, &result, &status));
    assert_int_equal(result, CUDA_SUCCESS);
    assert_int_equal(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    assert_ptr_equal(find("cuMemAlloc", 13000, 0, &result, &status), (void *)1);
    assert_int_equal(result, CUDA_ERROR_INVALID_VALUE);
    assert_null(find("cuNoSuchThing", DRIVER_VERSION, 0, &result, &status));
    assert_int_equal(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
}

static void look_ups_are_written_down(void **state)
{
    CUresult result;
    CUdriverProcAddressQueryResult status;
    char line[64] = "", last[64] = "";
    (void)state;
    find("cuMemFree", 3020, 2, &result, &status);
    FILE *file = fopen(getenv("VPMM_SIM_LOOKUPS"), "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file))
        memcpy(last, line, sizeof(last));
    fclose(file);
    assert_string_equal(last, "cuMemFree 3020 2 0\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_spelling_is_exported_once),
        cmocka_unit_test(a_look_up_answers_by_version_and_flags),
        cmocka_unit_test(what_is_newer_than_the_driver_is_not_found),
        cmocka_unit_test(look_ups_are_written_down),
    };
    char path[] = "/tmp/lookups-XXXXXX", version[16];
    int file = mkstemp(path);
    if (file < 0)
        return 99;
    close(file);
    snprintf(version, sizeof(version), "%d", DRIVER_VERSION);
    setenv("VPMM_SIM_VERSION", version, 1);
    setenv("VPMM_SIM_LOOKUPS", path, 1);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
