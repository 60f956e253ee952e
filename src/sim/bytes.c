/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "sim/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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
    store->data = NULL;
}
