/* SPDX-License-Identifier: MIT */
/* A table of fixed-size records addressed by number. Records never move and never change type, so a
 * reader without a lock may follow any number it finds and look whether the record still is what it
 * expects. Number 0 is no record. The owner serialises take, give and reserve; `at` may be called
 * by any thread, also in a signal handler. */
#ifndef VPMM_BASE_TABLE_H
#define VPMM_BASE_TABLE_H

#include "base/atomic.h"
#include "base/memory.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* A test may build it with fewer, so that every take may need memory. */
#ifndef VPMM_TABLE_CHUNK_RECORDS
#    define VPMM_TABLE_CHUNK_RECORDS 4096u
#endif
#define VPMM_TABLE_CHUNKS 4096u

struct vpmm_table {
    const struct vpmm_memory *memory;
    size_t record_bytes;
    vpmm_atomic32 n_chunks; /* that exist; written by the owner */
    vpmm_atomic32 end;      /* above each number that was ever taken; written by the owner */
    uint32_t n_free;        /* numbers on the free list */
    uint32_t first_free; /* head of the free list; a free record's first four bytes are not used for
                            it */
    uint32_t n_used;
    uint32_t *next_free;     /* by number, mapped once for the largest table */
    _Atomic(void *) *chunks; /* VPMM_TABLE_CHUNKS of them */
};

/* Makes an empty table of records of `record_bytes`. NO_METADATA leaves nothing behind. */
VPMM_MUST_CHECK enum vpmm_status vpmm_table_init(struct vpmm_table *table, size_t record_bytes,
                                                 const struct vpmm_memory *memory);

/* Gives all memory back. A zeroed table is accepted. */
void vpmm_table_finish(struct vpmm_table *table);

/* Makes sure that the next `n` takes succeed. NO_METADATA leaves the table as it was or larger. */
VPMM_MUST_CHECK enum vpmm_status vpmm_table_reserve(struct vpmm_table *table, uint32_t n);

/* A number whose record is in use from now on, its bytes as the last user left them (zero at
 * first), or 0 when no memory can be had; never 0 after a reserve that covers it. */
uint32_t vpmm_table_take(struct vpmm_table *table);

/* Gives `number` back; its bytes stay as they are. */
void vpmm_table_give(struct vpmm_table *table, uint32_t number);

/* All numbers that were ever taken are below this. By any thread. */
static inline uint32_t vpmm_table_end(const struct vpmm_table *table)
{
    return vpmm_atomic_load(&table->end);
}

/* The record of a number that was taken at some time. */
static inline void *vpmm_table_record(const struct vpmm_table *table, uint32_t number)
{
    char *chunk = vpmm_atomic_load(&table->chunks[number / VPMM_TABLE_CHUNK_RECORDS]);
    return chunk + table->record_bytes * (number % VPMM_TABLE_CHUNK_RECORDS);
}

/* The record of `number`, or NULL for 0 and for numbers that never existed. */
static inline void *vpmm_table_at(const struct vpmm_table *table, uint32_t number)
{
    if (number == 0 || number / VPMM_TABLE_CHUNK_RECORDS >= VPMM_TABLE_CHUNKS)
        return NULL;
    char *chunk = vpmm_atomic_load(&table->chunks[number / VPMM_TABLE_CHUNK_RECORDS]);
    return chunk ? chunk + table->record_bytes * (number % VPMM_TABLE_CHUNK_RECORDS) : NULL;
}

#endif
