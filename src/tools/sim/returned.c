/* SPDX-License-Identifier: MIT */
/* What streams have given back to a memory pool, and take again without queueing anything
 * (measured: test/programs/renewals.c). Must not count what a synchronisation has told of. */
#include "sim/sim_internal.h"

#include <stdlib.h>

static struct returned *find(const struct pool *pool, const struct stream *stream)
{
    for (struct returned *at = pool->returned; at != NULL; at = at->next)
        if (at->last->stream == stream)
            return at;
    return NULL;
}

void returned_add(struct pool *pool, struct op *op, uint64_t bytes)
{
    struct returned *returned = find(pool, op->stream);
    if (returned == NULL) {
        returned = allocate(sizeof *returned);
        returned->next = pool->returned;
        pool->returned = returned;
    }
    op_set(&returned->last, op);
    returned->bytes += bytes;
}

/* Memory of others is found in the order of their frees, until there is enough; new memory is made
 * only when all have been looked at. */
bool returned_take(struct pool *pool, const struct stream *stream, uint64_t bytes)
{
    struct returned *own = find(pool, stream);
    if (own != NULL && own->bytes >= bytes) {
        own->bytes -= bytes;
        return true;
    }
    for (struct returned *at = pool->returned; at != NULL && bytes > 0; at = at->next) {
        uint64_t part = at->bytes < bytes ? at->bytes : bytes;
        if (!at->last->done)
            continue;
        at->bytes -= part;
        bytes -= part;
    }
    return false;
}

void returned_forget(struct sim *sim, const struct context *context, const struct stream *stream)
{
    for (struct pool *pool = sim->pools; pool != NULL; pool = pool->next)
        for (struct returned *at = pool->returned; at != NULL; at = at->next)
            if (stream != NULL ? at->last->stream == stream : at->last->context == context)
                at->bytes = 0;
}

void returned_end(struct pool *pool)
{
    while (pool->returned != NULL) {
        struct returned *next = pool->returned->next;
        op_set(&pool->returned->last, NULL);
        free(pool->returned);
        pool->returned = next;
    }
}
