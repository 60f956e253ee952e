/* SPDX-License-Identifier: MIT */
/* Copies from host memory into windows, and the events that order them. Must not wait on the host
 * but where bytes go through a pinned buffer, or a caller asks for it. */
#define _POSIX_C_SOURCE 200809L
#include "offload/offload_internal.h"

#include <time.h>

/* ---- waiting ---- */

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Waits with the thread's capture mode relaxed: otherwise a capture under way in global mode would
 * die of it (driver.h). */
static enum vpmm_status wait_event(struct vpmm_offload *offload, vpmm_event_handle event)
{
    const struct vpmm_driver *driver = offload->driver;
    uint64_t begin_ns = now_ns();
    int mode;
    enum vpmm_status status = driver->capture_relax(driver->self, &mode);
    if (status)
        return status;
    status = driver->event_synchronize(driver->self, event);
    driver->capture_restore(driver->self, mode);
    vpmm_atomic_add(&offload->figures->host_waits, 1);
    vpmm_atomic_add(&offload->figures->host_wait_ns, now_ns() - begin_ns);
    return status;
}

enum vpmm_status offload_wait_copies(struct vpmm_offload *offload)
{
    const struct vpmm_driver *driver = offload->driver;
    enum vpmm_status status = driver->event_record(driver->self, offload->mark, offload->copies);
    if (!status)
        status = wait_event(offload, offload->mark);
    return status ? offload_tell_status(offload, status, "waiting for copies of weights") : VPMM_OK;
}

static enum vpmm_status drain(struct vpmm_offload *offload)
{
    const struct vpmm_offload_ledger *ledger = &offload->params.ledger;
    const struct vpmm_driver *driver = offload->driver;
    int mode;
    if (ledger->drain)
        return ledger->drain(ledger->self, offload->params.context);
    enum vpmm_status status = driver->capture_relax(driver->self, &mode);
    if (status)
        return status;
    status = driver->context_synchronize(driver->self, offload->params.context);
    driver->capture_restore(driver->self, mode);
    return status;
}

enum vpmm_status offload_wait_context(struct vpmm_offload *offload)
{
    uint64_t begin_ns = now_ns();
    enum vpmm_status status = drain(offload);
    vpmm_atomic_add(&offload->figures->host_waits, 1);
    vpmm_atomic_add(&offload->figures->host_wait_ns, now_ns() - begin_ns);
    return status ? offload_tell_status(offload, status, "waiting for the device") : VPMM_OK;
}

/* One event serves every pair of streams: a wait stands for the record before it, whatever is
 * recorded later (CUDA Driver API, cuStreamWaitEvent). */
enum vpmm_status offload_follow(struct vpmm_offload *offload, vpmm_stream_handle to,
                                vpmm_stream_handle from)
{
    const struct vpmm_driver *driver = offload->driver;
    enum vpmm_status status = driver->event_record(driver->self, offload->mark, from);
    return status ? status : driver->stream_wait(driver->self, to, offload->mark);
}

/* ---- copying ---- */

static enum vpmm_status copy_pinned(struct vpmm_offload *offload, uint64_t address,
                                    const char *from, uint64_t bytes)
{
    const struct vpmm_driver *driver = offload->driver;
    enum vpmm_status status = driver->copy_in(driver->self, offload->params.context, address, from,
                                              bytes, offload->copies);
    if (!status)
        vpmm_atomic_add(&offload->figures->copied_bytes, bytes);
    return status;
}

static enum vpmm_status free_stage(struct vpmm_offload *offload, struct offload_stage *stage)
{
    enum vpmm_status status = VPMM_OK;
    if (stage->state == OFFLOAD_STAGE_MARKED)
        status = wait_event(offload, stage->copied);
    else if (stage->state == OFFLOAD_STAGE_UNKNOWN)
        status = offload_wait_copies(offload);
    if (!status)
        stage->state = OFFLOAD_STAGE_FREE;
    return status;
}

static enum vpmm_status copy_one_stage(struct vpmm_offload *offload,
                                       const struct offload_weight *weight, uint64_t address,
                                       uint64_t offset, uint64_t bytes)
{
    const struct vpmm_driver *driver = offload->driver;
    struct offload_stage *stage = &offload->stages[offload->next_stage];
    enum vpmm_status status = free_stage(offload, stage);
    if (status)
        return status;
    if (!offload_read_fully(weight->descriptor, stage->memory, bytes, weight->file_offset + offset))
        return offload_tell(offload, VPMM_UNSOUND, weight->name, ": its file cannot be read",
                            (char *)NULL);
    status = copy_pinned(offload, address, stage->memory, bytes);
    if (status)
        return status;
    stage->state = OFFLOAD_STAGE_UNKNOWN;
    status = driver->event_record(driver->self, stage->copied, offload->copies);
    if (status)
        return status;
    stage->state = OFFLOAD_STAGE_MARKED;
    offload->next_stage = (offload->next_stage + 1) % OFFLOAD_STAGES;
    vpmm_atomic_add(&offload->figures->staged_bytes, bytes);
    return VPMM_OK;
}

static enum vpmm_status copy_staged(struct vpmm_offload *offload,
                                    const struct offload_weight *weight, uint64_t address,
                                    uint64_t offset, uint64_t bytes)
{
    enum vpmm_status status = VPMM_OK;
    while (!status && bytes) {
        uint64_t piece = bytes < OFFLOAD_STAGE_BYTES ? bytes : OFFLOAD_STAGE_BYTES;
        status = copy_one_stage(offload, weight, address, offset, piece);
        address += piece;
        offset += piece;
        bytes -= piece;
    }
    return status;
}

/* Weights that lie side by side in the host's memory just as in the window go in one copy. A copy
 * that spans two registered ranges is refused, and mappings of two files may touch. */
static bool continues(const struct offload_weight *weight, const struct offload_weight *next)
{
    return weight->host && next->host && weight->source == next->source &&
           next->host == weight->host + (next->offset - weight->offset);
}

/* The part of the weights from `number` on, up to `*next_out`, that lies between two offsets. */
static enum vpmm_status copy_run(struct vpmm_offload *offload, const struct offload_group *group,
                                 uint32_t number, uint64_t begin, uint64_t end, uint32_t *next_out)
{
    const struct offload_weight *weight = offload_weight(offload, number);
    const struct offload_weight *last = weight;
    uint32_t next = number + 1;
    for (; next < group->first_weight + group->n_weights; next++) {
        if (!continues(last, offload_weight(offload, next)))
            break;
        last = offload_weight(offload, next);
    }
    *next_out = next;
    uint64_t from = weight->offset > begin ? weight->offset : begin;
    uint64_t to = last->offset + last->bytes < end ? last->offset + last->bytes : end;
    if (from >= to)
        return VPMM_OK;
    return weight->host ? copy_pinned(offload, group->address + from,
                                      weight->host + (from - weight->offset), to - from)
                        : copy_staged(offload, weight, group->address + from, from - weight->offset,
                                      to - from);
}

enum vpmm_status offload_copy(struct vpmm_offload *offload, struct offload_group *group,
                              uint64_t first, uint64_t end)
{
    enum vpmm_status status = VPMM_OK;
    for (uint32_t i = group->first_weight; !status && i < group->first_weight + group->n_weights;)
        status = copy_run(offload, group, i, first * offload->chunk_bytes,
                          end * offload->chunk_bytes, &i);
    return status;
}

enum vpmm_status offload_load(struct vpmm_offload *offload, struct offload_group *group)
{
    const struct vpmm_driver *driver = offload->driver;
    enum vpmm_status status = offload_copy(offload, group, 0, group->n_chunks);
    if (!status)
        status = driver->event_record(driver->self, group->arrived, offload->copies);
    group->is_loaded = !status;
    group->has_arrived = false;
    if (!status)
        offload_tell_watch(offload, VPMM_WATCH_WEIGHTS_LOAD, group->address, group->bytes);
    return status ? offload_tell_status(offload, status, offload_group_name(offload, group))
                  : VPMM_OK;
}
