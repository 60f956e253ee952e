/* SPDX-License-Identifier: MIT */
/* Weights from safetensors files: registered, staged, refused; what is missing or of another size;
 * files that are none. */
#define _GNU_SOURCE
#include "offload/room.h"
#include "scene.h"

#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#define N 8u

static char path[64];

/* Where the next mapping of a file goes; NULL: anywhere. */
static char *next_mapping;

void *mmap(void *address, size_t bytes, int protection, int flags, int descriptor, off_t offset)
{
    void *at;
    if (next_mapping && descriptor >= 0) {
        address = next_mapping;
        flags |= MAP_FIXED;
        next_mapping += bytes;
    }
    long result = syscall(SYS_mmap, address, bytes, protection, flags, descriptor, offset);
    memcpy(&at, &result, sizeof at);
    return at;
}

/* A file of N tensors; what they hold becomes what the scene expects. */
static void write_file(struct scene *scene)
{
    char header[4096], *at = header;
    uint64_t offset = 0;
    *at++ = '{';
    for (uint32_t i = 0; i < N; i++) {
        scene->bytes[i] = scene_random(scene, 3 * CHUNK) + 1;
        scene->expected[i] = scene_pattern(scene, scene->bytes[i]);
        uint64_t end = offset + scene->bytes[i];
        at += sprintf(at,
                      "%s\"layer.%u\":{\"dtype\":\"U8\",\"shape\":[%" PRIu64
                      "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
                      i ? "," : "", i, scene->bytes[i], offset, end);
        offset += scene->bytes[i];
        scene->order[scene->n_steps++] = i;
    }
    at += sprintf(at, "}");
    uint64_t length = (uint64_t)(at - header);
    strcpy(path, "/tmp/vpmm-source-XXXXXX");
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    assert_int_equal(write(descriptor, &length, 8), 8);
    assert_int_equal(write(descriptor, header, length), (ssize_t)length);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(write(descriptor, scene->expected[i], scene->bytes[i]),
                         (ssize_t)scene->bytes[i]);
    assert_int_equal(close(descriptor), 0);
    scene->n_groups = N;
}

static void add_all(struct scene *scene)
{
    uint32_t source;
    assert_int_equal(vpmm_offload_open(scene->offload, path, &source), VPMM_OK);
    for (uint32_t i = 0; i < N; i++) {
        char name[16];
        struct vpmm_offload_weight weight = {name, VPMM_OFFLOAD_STREAMED, i, scene->bytes[i]};
        sprintf(name, "layer.%u", i);
        assert_int_equal(
            vpmm_offload_add(scene->offload, &weight, &scene->addresses[i], &scene->numbers[i]),
            VPMM_OK);
        assert_int_equal(vpmm_offload_from(scene->offload, scene->numbers[i], source, name),
                         VPMM_OK);
    }
}

static void end(struct scene *scene)
{
    scene_teardown(scene);
    assert_int_equal(unlink(path), 0);
}

static void test_registered(void **state)
{
    struct scene scene;
    (void)state;
    scene_setup(&scene);
    write_file(&scene);
    scene_make(&scene, 6);
    add_all(&scene);
    scene_seal(&scene);
    for (int i = 0; i < 10; i++)
        scene_pass(&scene);
    assert_int_equal(scene_stats(&scene).staged_bytes, 0);
    assert_int_equal(sim_calls(scene.sim, "cuMemHostAlloc"), 0);
    const struct vpmm_tensor *tensor = vpmm_offload_tensor(scene.offload, 0, 3);
    assert_string_equal(tensor->name, "layer.3");
    assert_null(vpmm_offload_tensor(scene.offload, 0, N));
    assert_null(vpmm_offload_tensor(scene.offload, 1, 0));
    end(&scene);
}

/* Where the driver refuses, or where it is asked for: read through pinned buffers. */
static void test_staged(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) {
        struct scene scene;
        scene_setup(&scene);
        write_file(&scene);
        if (way == 0)
            scene.params.staging = VPMM_OFFLOAD_STAGES;
        else if (way == 1)
            sim_fault_set(scene.sim, "cuMemHostRegister", 1, CUDA_ERROR_NOT_SUPPORTED, false);
        else
            scene.params.host_bytes_max = 2 * ((uint64_t)16 << 20);
        if (way == 2)
            sim_fault_set(scene.sim, "cuMemHostRegister", 1, CUDA_ERROR_OUT_OF_MEMORY, false);
        scene_make(&scene, 6);
        add_all(&scene);
        scene_seal(&scene);
        for (int i = 0; i < 10; i++)
            scene_pass(&scene);
        assert_int_equal(scene_stats(&scene).staged_bytes, scene_stats(&scene).copied_bytes);
        CUgraph graph;
        assert_int_equal(
            sim_stream_begin_capture(scene.sim, scene.stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
            CUDA_SUCCESS);
        assert_int_equal(vpmm_offload_begin(scene.offload, scene_handle(scene.stream)),
                         VPMM_CAPTURED);
        assert_int_equal(sim_stream_end_capture(scene.sim, scene.stream, &graph), CUDA_SUCCESS);
        assert_int_equal(sim_graph_destroy(scene.sim, graph), CUDA_SUCCESS);
        end(&scene);
    }
}

static void test_must_map(void **state)
{
    struct scene scene;
    uint32_t source;
    (void)state;
    scene_setup(&scene);
    write_file(&scene);
    scene.params.staging = VPMM_OFFLOAD_MUST_MAP;
    scene_make(&scene, 6);
    sim_fault_set(scene.sim, "cuMemHostRegister", 1, CUDA_ERROR_NOT_SUPPORTED, false);
    assert_int_equal(vpmm_offload_open(scene.offload, path, &source), VPMM_NOT_SUPPORTED);
    assert_non_null(strstr(scene.message, "does not register its mapping"));
    assert_int_equal(vpmm_offload_open(scene.offload, path, &source), VPMM_OK);
    end(&scene);
}

static void test_refused(void **state)
{
    struct scene scene;
    uint64_t address;
    uint32_t source, number, other;
    void *host;
    char pipe[sizeof path + 8];
    (void)state;
    scene_setup(&scene);
    write_file(&scene);
    scene_make(&scene, 6);
    assert_int_equal(vpmm_offload_open(scene.offload, "/nonexistent", &source), VPMM_UNSOUND);
    assert_non_null(strstr(scene.message, "/nonexistent: "));
    assert_int_equal(vpmm_offload_open(scene.offload, "/", &source), VPMM_UNSOUND);
    assert_non_null(strstr(scene.message, "no ordinary file"));
    (void)sprintf(pipe, "%s.pipe", path);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_int_equal(vpmm_offload_open(scene.offload, pipe, &source), VPMM_UNSOUND);
    assert_non_null(strstr(scene.message, "no ordinary file"));
    assert_int_equal(unlink(pipe), 0);
    assert_int_equal(vpmm_offload_open(scene.offload, "/proc/self/exe", &source), VPMM_UNSOUND);
    assert_non_null(strstr(scene.message, "no safetensors file"));
    assert_int_equal(vpmm_offload_open(scene.offload, path, &source), VPMM_OK);
    struct vpmm_offload_weight weight = {"w", VPMM_OFFLOAD_STREAMED, 0, scene.bytes[0] + 1};
    assert_int_equal(vpmm_offload_add(scene.offload, &weight, &address, &number), VPMM_OK);
    assert_int_equal(vpmm_offload_from(scene.offload, number, source, "layer.9"), VPMM_NOT_FOUND);
    assert_string_equal(scene.message, "w: the file has no tensor \"layer.9\"");
    assert_int_equal(vpmm_offload_from(scene.offload, number, source, "layer.0"), VPMM_UNSOUND);
    assert_non_null(strstr(scene.message, "and the file's tensor has"));
    assert_int_equal(vpmm_offload_from(scene.offload, number, source + 1, "layer.0"), VPMM_INVALID);
    weight.bytes = scene.bytes[0];
    weight.group = 1;
    assert_int_equal(vpmm_offload_add(scene.offload, &weight, &address, &number), VPMM_OK);
    assert_int_equal(vpmm_offload_from(scene.offload, number, source, "layer.0"), VPMM_OK);
    assert_int_equal(vpmm_offload_host(scene.offload, number, &host), VPMM_INVALID);
    /* Nor where another weight of its group has host memory. */
    assert_int_equal(vpmm_offload_add(scene.offload, &weight, &address, &other), VPMM_OK);
    assert_int_equal(vpmm_offload_host(scene.offload, other, &host), VPMM_OK);
    assert_int_equal(vpmm_offload_host(scene.offload, number, &host), VPMM_INVALID);
    end(&scene);
}

/* Bytes of any file, into pinned memory. */
static void test_read(void **state)
{
    struct scene scene;
    (void)state;
    scene_setup(&scene);
    write_file(&scene);
    scene_make(&scene, 6);
    int descriptor = open(path, O_RDONLY);
    off_t offset = lseek(descriptor, 0, SEEK_END);
    for (uint32_t i = N; i-- > 0;)
        offset -= (off_t)scene.bytes[i];
    for (uint32_t i = 0; i < N; i++) {
        struct vpmm_offload_weight weight = {"w", VPMM_OFFLOAD_STREAMED, i, scene.bytes[i]};
        assert_int_equal(
            vpmm_offload_add(scene.offload, &weight, &scene.addresses[i], &scene.numbers[i]),
            VPMM_OK);
        assert_int_equal(vpmm_offload_read(scene.offload, i, descriptor, (uint64_t)1 << 40),
                         VPMM_UNSOUND);
        assert_int_equal(vpmm_offload_read(scene.offload, i, descriptor, (uint64_t)offset),
                         VPMM_OK);
        offset += (off_t)scene.bytes[i];
    }
    assert_int_equal(close(descriptor), 0);
    scene_seal(&scene);
    for (int i = 0; i < 5; i++)
        scene_pass(&scene);
    end(&scene);
}

/* One tensor "t" of so many bytes from offset 128 on, and a hole for them. */
static void fill_sparse(int descriptor, uint64_t bytes)
{
    char header[128] = {120};
    int n = sprintf(header + 8,
                    "{\"t\":{\"dtype\":\"U8\",\"shape\":[%" PRIu64 "],\"data_offsets\":[0,%" PRIu64
                    "]}}",
                    bytes, bytes);
    memset(header + 8 + n, ' ', sizeof header - 8 - (size_t)n);
    assert_int_equal(write(descriptor, header, sizeof header), sizeof header);
    assert_int_equal(ftruncate(descriptor, (off_t)(sizeof header + bytes)), 0);
}

/* In a folder that has a disk. */
static int make_sparse(char *at, uint64_t bytes)
{
    strcpy(at, "/var/tmp/vpmm-sparse-XXXXXX");
    int descriptor = mkstemp(at);
    assert_true(descriptor >= 0);
    fill_sparse(descriptor, bytes);
    return descriptor;
}

/* Two files whose mappings touch, with tensors as far from each other as in the window: a copy of
 * both would span two registered ranges. */
static void test_files_that_touch(void **state)
{
    struct scene scene;
    char paths[2][64];
    (void)state;
    scene_setup(&scene);
    scene_make(&scene, 8);
    char *hole = mmap(NULL, 2 * CHUNK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(hole != MAP_FAILED);
    next_mapping = hole;
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t source, number;
        uint64_t address;
        assert_int_equal(close(make_sparse(paths[i], CHUNK - 128)), 0);
        assert_int_equal(vpmm_offload_open(scene.offload, paths[i], &source), VPMM_OK);
        struct vpmm_offload_weight weight = {"w", VPMM_OFFLOAD_KEPT, 0, CHUNK - 128};
        assert_int_equal(vpmm_offload_add(scene.offload, &weight, &address, &number), VPMM_OK);
        assert_int_equal(vpmm_offload_from(scene.offload, number, source, "t"), VPMM_OK);
        assert_int_equal(unlink(paths[i]), 0);
    }
    assert_ptr_equal(next_mapping, hole + 2 * CHUNK);
    next_mapping = NULL;
    scene_seal(&scene);
    assert_int_equal(sim_calls(scene.sim, "cuMemcpyAsync"), 2);
    scene_teardown(&scene);
}

/* What is registered is the page cache's, which the system counts as available all the same. */
static void test_files_beyond_the_host(void **state)
{
    struct scene scene;
    char paths[2][64];
    uint32_t source;
    (void)state;
    uint64_t bytes = vpmm_host_room() / 5 * 3;
    scene_setup(&scene);
    scene.params.staging = VPMM_OFFLOAD_MUST_MAP;
    scene_make(&scene, 8);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(close(make_sparse(paths[i], bytes)), 0);
        assert_int_equal(vpmm_offload_open(scene.offload, paths[i], &source),
                         i ? VPMM_NO_HOST_ROOM : VPMM_OK);
        assert_int_equal(unlink(paths[i]), 0);
    }
    scene_teardown(&scene);
}

/* What is in memory already, as in /dev/shm, takes no more of it. */
static void test_files_in_memory(void **state)
{
    struct scene scene;
    char paths[3][64];
    uint32_t source;
    (void)state;
    uint64_t bytes = vpmm_host_room() / 5 * 3;
    scene_setup(&scene);
    scene.params.staging = VPMM_OFFLOAD_MUST_MAP;
    scene_make(&scene, 8);
    for (uint32_t i = 0; i < 2; i++) {
        int file = memfd_create("source", MFD_CLOEXEC);
        fill_sparse(file, bytes);
        sprintf(paths[i], "/proc/self/fd/%d", file);
        assert_int_equal(vpmm_offload_open(scene.offload, paths[i], &source), VPMM_OK);
        assert_int_equal(close(file), 0);
    }
    assert_int_equal(close(make_sparse(paths[2], bytes)), 0);
    assert_int_equal(vpmm_offload_open(scene.offload, paths[2], &source), VPMM_OK);
    assert_int_equal(unlink(paths[2]), 0);
    assert_int_equal(scene_stats(&scene).host_bytes, 3 * (128 + bytes));
    scene_teardown(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_registered),
        cmocka_unit_test(test_staged),
        cmocka_unit_test(test_must_map),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_files_that_touch),
        cmocka_unit_test(test_files_beyond_the_host),
        cmocka_unit_test(test_files_in_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
