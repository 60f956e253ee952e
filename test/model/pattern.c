/* SPDX-License-Identifier: MIT */
/* What blocks hold, and the kernels that check and write it. */
#define _GNU_SOURCE
#include "pattern.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define WORD sizeof(uint64_t)

static uint64_t word_at(const struct content *content, uint64_t offset)
{
    if (content->kind == CONTENT_BYTE)
        return content->stamp * 0x0101010101010101u;
    if (offset == 0)
        return content->stamp;
    uint64_t mixed = (content->stamp ^ offset << 24) * 0x9e3779b97f4a7c15u;
    return mixed ^ mixed >> 29;
}

/* The offset of the word after `offset` (UINT64_MAX: the first); UINT64_MAX: there is none. */
static uint64_t next_offset(const struct content *content, uint64_t offset)
{
    uint64_t next = offset == UINT64_MAX             ? 0
                    : offset % GRANULE == 0          ? offset + GRANULE - WORD
                    : (offset + WORD) % GRANULE == 0 ? offset + WORD
                                                     : UINT64_MAX;
    if (next != UINT64_MAX && next + WORD <= content->valid_bytes)
        return next;
    bool is_tail_due = content->kind == CONTENT_PATTERN && offset != content->tail &&
                       content->tail + WORD <= content->valid_bytes;
    return is_tail_due ? content->tail : UINT64_MAX;
}

#define EACH_OFFSET(offset, content)                                                               \
    (uint64_t offset = next_offset(content, UINT64_MAX); offset != UINT64_MAX;                     \
     offset = next_offset(content, offset))

void pattern_write(unsigned char *bytes, uint64_t n, const struct content *content)
{
    memset(bytes, 0, n);
    for
        EACH_OFFSET(offset, content)
        {
            uint64_t word = word_at(content, offset);
            memcpy(bytes + offset, &word, WORD);
        }
}

uint64_t pattern_differs(const unsigned char *bytes, const struct content *content)
{
    if (content->kind == CONTENT_NONE)
        return UINT64_MAX;
    for
        EACH_OFFSET(offset, content)
        {
            uint64_t word;
            memcpy(&word, bytes + offset, WORD);
            if (word != word_at(content, offset))
                return offset;
        }
    return UINT64_MAX;
}

void pattern_peek(struct run *run, unsigned number, const struct block *block,
                  const struct set *done)
{
    const struct content *content = &block->content;
    if (content->kind == CONTENT_NONE || !set_has_all(done, &block->uses))
        return;
    for
        EACH_OFFSET(offset, content)
        {
            uint64_t word;
            CUdeviceptr address = run->addresses[number] + offset;
            if (!run->api->vpmm_sim_peek((int)block->device, address, &word, WORD))
                fail(run->number, "BYTES", "block %u has no memory at %" PRIu64, number, offset);
            if (word != word_at(content, offset))
                fail(run->number, "BYTES",
                     "block %u holds %#" PRIx64 " at %" PRIu64 " instead of %#" PRIx64, number,
                     word, offset, word_at(content, offset));
        }
}

static void check(const struct job *job, struct sim_view *view, const struct content *content)
{
    for
        EACH_OFFSET(offset, content)
        {
            uint64_t word = 0;
            (void)job->api->vpmm_sim_read(view, job->address + offset, &word, WORD);
            if (word != word_at(content, offset))
                fail(job->number, "BYTES",
                     "its kernel found %#" PRIx64 " in block %u at %" PRIu64
                     " instead of %#" PRIx64,
                     word, job->block, offset, word_at(content, offset));
        }
}

static void work(struct sim_view *view, void *argument)
{
    struct job job = *(struct job *)argument;
    if (job.is_node) {
        uint64_t stamp = 0;
        (void)job.api->vpmm_sim_read(view, job.address, &stamp, WORD);
        if (stamp >> 32 != job.block + 1)
            fail(job.number, "BYTES", "a graph's kernel found %#" PRIx64 " in block %u", stamp,
                 job.block);
        job.expected = job.written = (struct content){.kind = CONTENT_PATTERN,
                                                      .stamp = stamp,
                                                      .valid_bytes = job.bytes,
                                                      .tail = block_tail(job.bytes)};
        job.written.stamp++;
    }
    if (job.expected.kind != CONTENT_NONE)
        check(&job, view, &job.expected);
    if (!job.writes)
        return;
    for
        EACH_OFFSET(offset, &job.written)
        {
            uint64_t word = word_at(&job.written, offset);
            (void)job.api->vpmm_sim_write(view, job.address + offset, &word, WORD);
        }
}

CUresult pattern_launch(struct turn *turn, CUstream stream, struct job job)
{
    struct sim_range range = {job.address, job.bytes, job.writes};
    job.api = turn->run->api;
    job.number = (unsigned)turn->number;
    return job.api->vpmm_sim_launch(stream,
                                    &(struct sim_kernel){.name = step_name(turn->step->kind),
                                                         .run = work,
                                                         .argument = &job,
                                                         .argument_bytes = sizeof job,
                                                         .ranges = &range,
                                                         .n_ranges = 1});
}
