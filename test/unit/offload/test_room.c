/* SPDX-License-Identifier: MIT */
/* What the files of a system say of memory that may be used: machines, groups of both versions, and
 * files that are not there. */
#define _GNU_SOURCE
#include "offload/room.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cmocka.h>

static char folder[] = "/tmp/vpmm-room-XXXXXX";

static void make_folders(const char *path)
{
    char part[256];
    for (size_t i = 1; path[i]; i++) {
        if (path[i] != '/')
            continue;
        snprintf(part, sizeof part, "%.*s", (int)i, path);
        (void)mkdir(part, 0700);
    }
}

static void put(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    make_folders(path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static uint64_t room(void)
{
    char proc[128], groups[128];
    snprintf(proc, sizeof proc, "%s/proc", folder);
    snprintf(groups, sizeof groups, "%s/groups", folder);
    return vpmm_host_room_of(proc, groups);
}

static void test_all(void **state)
{
    (void)state;
    assert_true(room() == UINT64_MAX);
    put("proc/meminfo", "MemTotal:  100 kB\nMemAvailable:   64 kB\n");
    assert_int_equal(room(), 64 * 1024);
    put("proc/self/cgroup", "0::/a/b\n");
    put("groups/a/b/memory.max", "max\n");
    put("groups/a/b/memory.current", "5\n");
    assert_int_equal(room(), 64 * 1024);
    put("groups/a/memory.max", "1000\n");
    put("groups/a/memory.current", "300\n");
    assert_int_equal(room(), 700);
    put("groups/a/memory.stat", "anon 50\nfile 200\n");
    assert_int_equal(room(), 900);
    put("groups/a/memory.stat", "anon 50\nfile 200\nkernel 3\nshmem 120\n");
    assert_int_equal(room(), 780);
    put("groups/a/memory.stat", "file 20\nshmem 120\n");
    assert_int_equal(room(), 700);
    put("groups/a/memory.current", "3000\n");
    assert_int_equal(room(), 0);
    put("proc/self/cgroup", "9:cpu:/x\n4:blkio,memory:/m\n1:name=systemd:/memory\n");
    assert_int_equal(room(), 64 * 1024);
    put("groups/memory/m/memory.limit_in_bytes", "500\n");
    put("groups/memory/m/memory.usage_in_bytes", "100\n");
    assert_int_equal(room(), 400);
    put("groups/memory/m/memory.stat", "cache 1\nshmem 1\ntotal_cache 90\ntotal_shmem 60\n");
    assert_int_equal(room(), 430);
    put("groups/memory/m/memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(room(), 64 * 1024);
}

static void test_this_machine(void **state)
{
    (void)state;
    assert_true(vpmm_host_room() > 0);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int remove_one(const char *path, const struct stat *facts, int kind, struct FTW *at)
{
    (void)facts;
    (void)kind;
    (void)at;
    return remove(path);
}

static int remove_folder(void **state)
{
    (void)state;
    return nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all),
        cmocka_unit_test(test_this_machine),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
