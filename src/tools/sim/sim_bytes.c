/* SPDX-License-Identifier: MIT */
/* The bytes of simulated memory. Must not take host memory for pages that nobody has written. */
#define _GNU_SOURCE
#include "sim/sim_internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_PAGE_BYTES 4096u

void store_read(const struct store *store, uint64_t offset, void *bytes_out, uint64_t n)
{
    if (store->data == NULL)
        memset(bytes_out, 0, n);
    else
        memcpy(bytes_out, store->data + offset, n);
}

/* Host memory for the bytes is had as pages are touched, so a large handle with few bytes written
 * is cheap. */
void store_write(struct sim *sim, struct store *store, uint64_t offset, const void *bytes,
                 uint64_t n)
{
    if (!sim->config.has_bytes)
        return;
    if (store->data == NULL) {
        void *data = mmap(NULL, store->bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (data == MAP_FAILED) {
            fputs("sim: out of host memory for device bytes\n", stderr);
            abort();
        }
        store->data = data;
    }
    memcpy(store->data + offset, bytes, n);
}

void store_finish(struct store *store)
{
    if (store->data != NULL)
        munmap(store->data, store->bytes);
    if (store->is_shared)
        close(store->descriptor);
    store->data = NULL;
    store->is_shared = false;
}

static const unsigned char zeros[FILE_PAGE_BYTES];

/* Pages that nobody wrote stay holes of the file. */
static void copy_written(unsigned char *to, const unsigned char *from, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += FILE_PAGE_BYTES) {
        size_t n = bytes - at < FILE_PAGE_BYTES ? bytes - at : FILE_PAGE_BYTES;
        if (memcmp(from + at, zeros, n) != 0)
            memcpy(to + at, from + at, n);
    }
}

/* The label stands behind the last whole page. */
static off_t label_offset(uint64_t bytes)
{
    return (off_t)((bytes + FILE_PAGE_BYTES - 1) / FILE_PAGE_BYTES * FILE_PAGE_BYTES);
}

static bool write_label(int descriptor, const struct store_label *label)
{
    return pwrite(descriptor, label, sizeof *label, label_offset(label->bytes)) ==
           (ssize_t)sizeof *label;
}

bool store_share(struct store *store, const struct store_label *label)
{
    if (store->is_shared)
        return true;
    int descriptor = memfd_create("simulated-device-memory", MFD_CLOEXEC);
    if (descriptor < 0)
        return false;
    void *data = MAP_FAILED;
    if (write_label(descriptor, label))
        data = mmap(NULL, store->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (data == MAP_FAILED) {
        close(descriptor);
        return false;
    }
    if (store->data != NULL) {
        copy_written(data, store->data, store->bytes);
        munmap(store->data, store->bytes);
    }
    store->data = data;
    store->is_shared = true;
    store->descriptor = descriptor;
    return true;
}

/* The label is the file's last bytes. */
static bool read_label(int descriptor, struct store_label *label_out)
{
    struct stat file;
    off_t size = (off_t)sizeof *label_out;
    return fstat(descriptor, &file) == 0 && file.st_size > size &&
           pread(descriptor, label_out, sizeof *label_out, file.st_size - size) == size &&
           label_out->magic == STORE_MAGIC && label_offset(label_out->bytes) + size == file.st_size;
}

bool store_adopt(struct store *store, int descriptor, struct store_label *label_out)
{
    if (!read_label(descriptor, label_out))
        return false;
    int own = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return false;
    void *data = mmap(NULL, label_out->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (data == MAP_FAILED) {
        close(own);
        return false;
    }
    *store = (struct store){
        .bytes = label_out->bytes, .data = data, .is_shared = true, .descriptor = own};
    return true;
}
