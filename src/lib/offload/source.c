/* SPDX-License-Identifier: MIT */
/* Safetensors files as the host's copy of weights: mapped and registered where the driver can, read
 * through pinned buffers otherwise. Must not change a file, and copies none into memory. */
#define _GNU_SOURCE
#include "offload/offload_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/text.h"

#define MESSAGE_ROOM 512

static enum vpmm_status open_file(struct vpmm_offload *offload, const char *path,
                                  struct offload_source *source)
{
    struct stat facts;
    struct statfs system;
    /* A pipe without a writer would be waited for. */
    source->descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (source->descriptor < 0)
        return offload_tell(offload, VPMM_UNSOUND, path, ": ", vpmm_fault_text(errno),
                            (char *)NULL);
    if (fstat(source->descriptor, &facts) != 0 || !S_ISREG(facts.st_mode))
        return offload_tell(offload, VPMM_UNSOUND, path, ": it is no ordinary file", (char *)NULL);
    source->n_bytes = (uint64_t)facts.st_size;
    source->is_in_memory =
        fstatfs(source->descriptor, &system) == 0 && system.f_type == TMPFS_MAGIC;
    return VPMM_OK;
}

static enum vpmm_status map_file(struct vpmm_offload *offload, const char *path,
                                 struct offload_source *source)
{
    void *mapped = MAP_FAILED;
    if (source->n_bytes)
        mapped = mmap(NULL, source->n_bytes, PROT_READ, MAP_SHARED, source->descriptor, 0);
    if (mapped == MAP_FAILED)
        return offload_tell(offload, VPMM_UNSOUND, path, ": it is empty or cannot be mapped",
                            (char *)NULL);
    source->bytes = mapped;
    return VPMM_OK;
}

static enum vpmm_status read_header(struct vpmm_offload *offload, const char *path,
                                    struct offload_source *source)
{
    char message[MESSAGE_ROOM];
    enum vpmm_status status =
        vpmm_safetensors_read(source->bytes, source->n_bytes, source->n_bytes, offload->memory,
                              &source->tensors, message, sizeof message);
    if (status == VPMM_UNSOUND)
        return offload_tell(offload, status, path, ": ", message, (char *)NULL);
    return status ? offload_tell_status(offload, status, path) : VPMM_OK;
}

/* Registered pages stay in memory, so they count against the limit of the control group. */
static enum vpmm_status register_file(struct vpmm_offload *offload, const char *path,
                                      struct offload_source *source)
{
    const struct vpmm_driver *driver = offload->driver;
    enum vpmm_status status = offload_host_charge_file(offload, source);
    if (!status) {
        void *memory;
        int mode;
        memcpy(&memory, &source->bytes, sizeof memory);
        status = driver->capture_relax(driver->self, &mode);
        if (!status) {
            status = driver->host_register(driver->self, offload->params.context, memory,
                                           source->n_bytes, true);
            driver->capture_restore(driver->self, mode);
        }
        if (status) {
            offload_host_refund_file(offload, source);
            (void)offload_tell(offload, status, path,
                               ": the driver does not register its mapping: ",
                               vpmm_status_text(status), (char *)NULL);
        }
    }
    source->is_registered = !status;
    return status;
}

static void finish(struct vpmm_offload *offload, struct offload_source *source)
{
    const struct vpmm_driver *driver = offload->driver;
    void *memory;
    memcpy(&memory, &source->bytes, sizeof memory);
    if (source->is_registered)
        (void)driver->host_unregister(driver->self, offload->params.context, memory);
    vpmm_safetensors_finish(&source->tensors);
    if (memory)
        (void)munmap(memory, source->n_bytes);
    if (source->descriptor >= 0)
        (void)close(source->descriptor);
    memset(source, 0, sizeof *source);
}

static bool is_sticky(enum vpmm_status status)
{
    return status == VPMM_BROKEN || status == VPMM_SHUT_DOWN || status == VPMM_CONTEXT_GONE;
}

static enum vpmm_status open_source(struct vpmm_offload *offload, const char *path,
                                    struct offload_source *source)
{
    enum vpmm_status status = open_file(offload, path, source);
    if (!status)
        status = map_file(offload, path, source);
    if (!status)
        status = read_header(offload, path, source);
    if (status || offload->params.staging == VPMM_OFFLOAD_STAGES)
        return status;
    status = register_file(offload, path, source);
    return is_sticky(status) || offload->params.staging == VPMM_OFFLOAD_MUST_MAP ? status : VPMM_OK;
}

enum vpmm_status vpmm_offload_open(struct vpmm_offload *offload, const char *path,
                                   uint32_t *source_out)
{
    if (offload->phase != OFFLOAD_SETTING_UP || offload->n_sources == OFFLOAD_SOURCES_MAX)
        return offload_tell(offload, VPMM_INVALID, path, ": sealed, or too many files",
                            (char *)NULL);
    struct offload_source *source = &offload->sources[offload->n_sources];
    *source = (struct offload_source){.descriptor = -1};
    enum vpmm_status status = open_source(offload, path, source);
    if (status) {
        finish(offload, source);
        return status;
    }
    *source_out = offload->n_sources++;
    return VPMM_OK;
}

enum vpmm_status vpmm_offload_from(struct vpmm_offload *offload, uint32_t number,
                                   uint32_t source_number, const char *tensor_name)
{
    if (offload->phase != OFFLOAD_SETTING_UP || number >= offload->n_weights ||
        source_number >= offload->n_sources)
        return offload_tell(offload, VPMM_INVALID, "no such weight or file, or sealed",
                            (char *)NULL);
    struct offload_weight *weight = offload_weight(offload, number + 1);
    const struct offload_source *source = &offload->sources[source_number];
    const struct vpmm_tensor *tensor = vpmm_safetensors_find(&source->tensors, tensor_name);
    if (!tensor)
        return offload_tell(offload, VPMM_NOT_FOUND, weight->name, ": the file has no tensor \"",
                            tensor_name, "\"", (char *)NULL);
    if (tensor->bytes != weight->bytes) {
        char before[OFFLOAD_NAME_ROOM + 64];
        struct vpmm_text text;
        vpmm_text_init(&text, before, sizeof before, VPMM_TEXT_CUT);
        vpmm_text_string(&text, weight->name);
        vpmm_text_string(&text, ": it has ");
        return offload_tell_bytes(offload, VPMM_UNSOUND, before, weight->bytes,
                                  " bytes, and the file's tensor has ", tensor->bytes, "");
    }
    if (offload_group(offload, weight->group)->host && weight->host)
        return offload_tell(offload, VPMM_INVALID, weight->name, ": it has host memory already",
                            (char *)NULL);
    weight->host = source->is_registered ? source->bytes + tensor->offset : NULL;
    weight->source = source->is_registered ? source_number + 1 : 0;
    weight->descriptor = source->is_registered ? -1 : source->descriptor;
    weight->file_offset = tensor->offset;
    return VPMM_OK;
}

const struct vpmm_tensor *vpmm_offload_tensor(const struct vpmm_offload *offload, uint32_t source,
                                              uint32_t number)
{
    if (source >= offload->n_sources || number >= offload->sources[source].tensors.n_tensors)
        return NULL;
    return &offload->sources[source].tensors.tensors[number];
}

void offload_sources_finish(struct vpmm_offload *offload)
{
    while (offload->n_sources)
        finish(offload, &offload->sources[--offload->n_sources]);
}
