/* SPDX-License-Identifier: MIT */
/* Records of one size, found by their number. Must not move a record or give its memory back before
 * the table ends, because readers without a lock follow any number. */
#include "base/table.h"

#include <string.h>

#define MAX_RECORDS ((size_t)VPMM_TABLE_CHUNKS * VPMM_TABLE_CHUNK_RECORDS)
#define CHUNKS_BYTES (sizeof(_Atomic(void *)) * VPMM_TABLE_CHUNKS)
#define NEXT_BYTES (sizeof(uint32_t) * MAX_RECORDS)

enum vpmm_status vpmm_table_init(struct vpmm_table *table, size_t record_bytes,
                                 const struct vpmm_memory *memory)
{
    memset(table, 0, sizeof *table);
    _Atomic(void *) *chunks = memory->map(memory->self, CHUNKS_BYTES);
    if (!chunks)
        return VPMM_NO_METADATA;
    uint32_t *next_free = memory->map(memory->self, NEXT_BYTES);
    if (!next_free) {
        memory->unmap(memory->self, chunks, CHUNKS_BYTES);
        return VPMM_NO_METADATA;
    }
    table->memory = memory;
    table->record_bytes = record_bytes;
    table->chunks = chunks;
    table->next_free = next_free;
    return VPMM_OK;
}

void vpmm_table_finish(struct vpmm_table *table)
{
    const struct vpmm_memory *memory = table->memory;
    if (!memory)
        return;
    for (uint32_t i = 0; i < vpmm_atomic_load(&table->n_chunks); i++)
        memory->unmap(memory->self, vpmm_atomic_load(&table->chunks[i]),
                      table->record_bytes * VPMM_TABLE_CHUNK_RECORDS);
    memory->unmap(memory->self, table->next_free, NEXT_BYTES);
    memory->unmap(memory->self, table->chunks, CHUNKS_BYTES);
    memset(table, 0, sizeof *table);
}

static enum vpmm_status add_chunk(struct vpmm_table *table)
{
    uint32_t n_chunks = vpmm_atomic_load(&table->n_chunks);
    uint32_t first = n_chunks * VPMM_TABLE_CHUNK_RECORDS;
    if (n_chunks == VPMM_TABLE_CHUNKS)
        return VPMM_NO_METADATA;
    void *chunk =
        table->memory->map(table->memory->self, table->record_bytes * VPMM_TABLE_CHUNK_RECORDS);
    if (!chunk)
        return VPMM_NO_METADATA;
    vpmm_atomic_store(&table->chunks[n_chunks], chunk);
    vpmm_atomic_store(&table->n_chunks, n_chunks + 1);
    for (uint32_t i = VPMM_TABLE_CHUNK_RECORDS; i-- > 0;) {
        if (first + i == 0)
            continue;
        table->next_free[first + i] = table->first_free;
        table->first_free = first + i;
        table->n_free++;
    }
    return VPMM_OK;
}

enum vpmm_status vpmm_table_reserve(struct vpmm_table *table, uint32_t n)
{
    while (table->n_free < n) {
        enum vpmm_status status = add_chunk(table);
        if (status)
            return status;
    }
    return VPMM_OK;
}

uint32_t vpmm_table_take(struct vpmm_table *table)
{
    if (!table->first_free && add_chunk(table))
        return 0;
    uint32_t number = table->first_free;
    table->first_free = table->next_free[number];
    table->n_free--;
    table->n_used++;
    if (number >= vpmm_table_end(table))
        vpmm_atomic_store(&table->end, number + 1);
    return number;
}

void vpmm_table_give(struct vpmm_table *table, uint32_t number)
{
    table->next_free[number] = table->first_free;
    table->first_free = number;
    table->n_free++;
    table->n_used--;
}
