/* SPDX-License-Identifier: MIT */
/* Host memory that an object pins for weights without a file, and for reading files that cannot be
 * registered. Must not pin more than the machine and the control group leave. */
#define _GNU_SOURCE
#include "offload/offload_internal.h"
#include "offload/room.h"

#include <errno.h>
#include <unistd.h>

bool offload_read_fully(int descriptor, void *to, uint64_t bytes, uint64_t offset)
{
    char *at = to;
    while (bytes) {
        ssize_t n = pread(descriptor, at, bytes, (off_t)offset);
        if (n <= 0 && !(n < 0 && errno == EINTR))
            return false;
        if (n > 0) {
            at += n;
            offset += (uint64_t)n;
            bytes -= (uint64_t)n;
        }
    }
    return true;
}

/* The system counts pages of files as available, those that are registered, too (Linux,
 * Documentation/filesystems/proc.rst, "MemAvailable"). */
static uint64_t room_left(const struct vpmm_offload *offload)
{
    uint64_t most = offload->params.host_bytes_max;
    uint64_t room = most ? most : vpmm_host_room();
    uint64_t used = most ? offload->host_pinned_bytes : offload->host_registered_bytes;
    return room > used ? room - used : 0;
}

static void note_pinned(struct vpmm_offload *offload, uint64_t bytes)
{
    offload->host_pinned_bytes = bytes;
    vpmm_atomic_store(&offload->figures->host_bytes, bytes);
}

enum vpmm_status offload_host_charge(struct vpmm_offload *offload, uint64_t bytes)
{
    uint64_t room = room_left(offload);
    if (bytes > room)
        return offload_tell_bytes(offload, VPMM_NO_HOST_ROOM, "host memory: ", bytes,
                                  " bytes are to be pinned, and ", room,
                                  " may be used (the control group's limit counts)");
    note_pinned(offload, offload->host_pinned_bytes + bytes);
    return VPMM_OK;
}

void offload_host_refund(struct vpmm_offload *offload, uint64_t bytes)
{
    note_pinned(offload, offload->host_pinned_bytes - bytes);
}

/* What is in memory already takes no more of what the system has left. */
static bool is_there(const struct vpmm_offload *offload, const struct offload_source *source)
{
    return source->is_in_memory && !offload->params.host_bytes_max;
}

enum vpmm_status offload_host_charge_file(struct vpmm_offload *offload,
                                          const struct offload_source *source)
{
    if (is_there(offload, source)) {
        note_pinned(offload, offload->host_pinned_bytes + source->n_bytes);
        return VPMM_OK;
    }
    enum vpmm_status status = offload_host_charge(offload, source->n_bytes);
    if (!status)
        offload->host_registered_bytes += source->n_bytes;
    return status;
}

void offload_host_refund_file(struct vpmm_offload *offload, const struct offload_source *source)
{
    offload_host_refund(offload, source->n_bytes);
    if (!is_there(offload, source))
        offload->host_registered_bytes -= source->n_bytes;
}

static enum vpmm_status pin(struct vpmm_offload *offload, uint64_t bytes, void **memory_out)
{
    const struct vpmm_driver *driver = offload->driver;
    enum vpmm_status status = offload_host_charge(offload, bytes);
    int mode;
    if (status)
        return status;
    status = driver->capture_relax(driver->self, &mode);
    if (!status) {
        status = driver->host_alloc(driver->self, offload->params.context, bytes, memory_out);
        driver->capture_restore(driver->self, mode);
    }
    if (status) {
        offload_host_refund(offload, bytes);
        (void)offload_tell_status(offload, status, "pinning host memory");
    }
    return status == VPMM_NO_MEMORY ? VPMM_NO_HOST_ROOM : status;
}

/* ---- groups without a file ---- */

enum vpmm_status vpmm_offload_host(struct vpmm_offload *offload, uint32_t number, void **memory_out)
{
    if (offload->phase != OFFLOAD_SETTING_UP || number >= offload->n_weights)
        return offload_tell(offload, VPMM_INVALID, "no such weight, or sealed", (char *)NULL);
    struct offload_weight *weight = offload_weight(offload, number + 1);
    struct offload_group *group = offload_group(offload, weight->group);
    if (weight->descriptor >= 0 || weight->source)
        return offload_tell(offload, VPMM_INVALID, weight->name, ": it has a file", (char *)NULL);
    if (!group->host) {
        void *memory = NULL;
        enum vpmm_status status = pin(offload, group->bytes, &memory);
        if (status)
            return status;
        group->host = memory;
    }
    weight->host = group->host + weight->offset;
    *memory_out = group->host + weight->offset;
    return VPMM_OK;
}

enum vpmm_status vpmm_offload_read(struct vpmm_offload *offload, uint32_t number, int descriptor,
                                   uint64_t offset)
{
    void *memory = NULL;
    enum vpmm_status status = vpmm_offload_host(offload, number, &memory);
    if (status)
        return status;
    struct offload_weight *weight = offload_weight(offload, number + 1);
    if (offload_read_fully(descriptor, memory, weight->bytes, offset))
        return VPMM_OK;
    weight->host = NULL;
    return offload_tell(offload, VPMM_UNSOUND, weight->name, ": its file cannot be read there",
                        (char *)NULL);
}

/* ---- buffers for staging ---- */

enum vpmm_status offload_stages_make(struct vpmm_offload *offload)
{
    const struct vpmm_driver *driver = offload->driver;
    for (unsigned i = 0; i < OFFLOAD_STAGES; i++) {
        struct offload_stage *stage = &offload->stages[i];
        enum vpmm_status status = VPMM_OK;
        if (!stage->copied)
            status = driver->event_create(driver->self, offload->params.context, &stage->copied);
        if (!status && !stage->memory)
            status = pin(offload, OFFLOAD_STAGE_BYTES, &stage->memory);
        if (status)
            return status;
    }
    return VPMM_OK;
}

void offload_store_finish(struct vpmm_offload *offload)
{
    const struct vpmm_driver *driver = offload->driver;
    for (unsigned i = 0; i < OFFLOAD_STAGES; i++) {
        if (offload->stages[i].copied)
            (void)driver->event_destroy(driver->self, offload->stages[i].copied);
        if (offload->stages[i].memory)
            (void)driver->host_free(driver->self, offload->params.context,
                                    offload->stages[i].memory);
    }
    for (uint32_t i = 1; i <= offload->n_groups; i++)
        if (offload_group(offload, i)->host)
            (void)driver->host_free(driver->self, offload->params.context,
                                    offload_group(offload, i)->host);
}
