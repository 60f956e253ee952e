/* SPDX-License-Identifier: MIT */
/* An object from its making to its end: weights, order, seal. Must not leave anything behind where
 * a call fails. */
#define _POSIX_C_SOURCE 200809L
#include "offload/offload.h"

#include "base/bytes.h"
#include "offload/offload_internal.h"

#include <string.h>
#include <time.h>

#define ROOT_BYTES ((uint64_t)1 << 40)
#define ROOT_BYTES_MIN ((uint64_t)1 << 30)

/* ---- arrays ---- */

enum vpmm_status offload_array_grow(struct vpmm_offload *offload, struct offload_array *array,
                                    size_t bytes)
{
    const struct vpmm_memory *memory = offload->memory;
    if (bytes <= array->bytes)
        return VPMM_OK;
    if (bytes < 2 * array->bytes)
        bytes = 2 * array->bytes;
    void *at = memory->map(memory->self, bytes);
    if (!at)
        return offload_tell_status(offload, VPMM_NO_METADATA, "weights");
    if (array->at) {
        memcpy(at, array->at, array->bytes);
        memory->unmap(memory->self, array->at, array->bytes);
    }
    *array = (struct offload_array){at, bytes};
    return VPMM_OK;
}

static void array_finish(struct vpmm_offload *offload, struct offload_array *array)
{
    if (array->at)
        offload->memory->unmap(offload->memory->self, array->at, array->bytes);
    *array = (struct offload_array){NULL, 0};
}

/* ---- making ---- */

static bool has_all(const struct vpmm_driver *driver)
{
    return driver->stream_create && driver->copy_in && driver->host_register &&
           driver->host_alloc && driver->extent_create_host;
}

static enum vpmm_status reserve_root(struct vpmm_offload *offload)
{
    const struct vpmm_driver *driver = offload->driver;
    enum vpmm_status status = VPMM_NO_MEMORY;
    uint64_t bytes = offload->params.root_bytes ? offload->params.root_bytes : ROOT_BYTES;
    for (; status == VPMM_NO_MEMORY && bytes >= ROOT_BYTES_MIN; bytes /= 2) {
        status = driver->address_reserve(driver->self, bytes, &offload->root);
        offload->root_bytes = status ? 0 : bytes;
    }
    return status ? offload_tell_status(offload, status, "address space for weights") : VPMM_OK;
}

static enum vpmm_status make_stream(struct vpmm_offload *offload)
{
    const struct vpmm_driver *driver = offload->driver;
    vpmm_context_handle context = offload->params.context;
    enum vpmm_status status = driver->event_create(driver->self, context, &offload->mark);
    if (!status) {
        status = driver->stream_create(driver->self, context, &offload->copies);
        if (status)
            (void)driver->event_destroy(driver->self, offload->mark);
    }
    offload->has_streams = !status;
    return status ? offload_tell_status(offload, status, "a stream for copies") : VPMM_OK;
}

static enum vpmm_status init(struct vpmm_offload *offload)
{
    struct vpmm_device_facts facts;
    enum vpmm_status status =
        offload->driver->device_facts(offload->driver->self, offload->params.device, &facts);
    if (status)
        return offload_tell_status(offload, status, "the device");
    if (!facts.has_vmm || !facts.granularity_bytes || !has_all(offload->driver))
        return offload_tell_status(offload, VPMM_NOT_SUPPORTED, "weights larger than their budget");
    offload->chunk_bytes =
        offload->params.chunk_bytes ? offload->params.chunk_bytes : facts.granularity_bytes;
    if (offload->chunk_bytes % facts.granularity_bytes ||
        offload->params.root_bytes % facts.granularity_bytes)
        return offload_tell_bytes(offload, VPMM_INVALID, "chunk_bytes is ", offload->chunk_bytes,
                                  ", and the device takes multiples of ", facts.granularity_bytes,
                                  "");
    if (vpmm_table_init(&offload->groups, sizeof(struct offload_group), offload->memory) ||
        vpmm_table_init(&offload->weights, sizeof(struct offload_weight), offload->memory))
        return offload_tell_status(offload, VPMM_NO_METADATA, "weights");
    status = reserve_root(offload);
    return status ? status : make_stream(offload);
}

/* What init made, and whatever came after it. The context's work is over, or it is gone. */
static void finish(struct vpmm_offload *offload)
{
    const struct vpmm_driver *driver = offload->driver;
    for (uint32_t i = 1; i <= offload->n_groups; i++)
        if (offload_group(offload, i)->arrived)
            (void)driver->event_destroy(driver->self, offload_group(offload, i)->arrived);
    offload_readers_finish(offload);
    offload_times_finish(offload);
    offload_store_finish(offload);
    offload_sources_finish(offload);
    vpmm_atomic_store(&offload->figures->host_bytes, 0);
    if (offload->has_streams) {
        (void)driver->event_destroy(driver->self, offload->mark);
        (void)driver->stream_destroy(driver->self, offload->copies);
    }
    if (offload->root_bytes)
        (void)driver->address_free(driver->self, offload->root, offload->root_bytes);
    vpmm_table_finish(&offload->groups);
    vpmm_table_finish(&offload->weights);
    array_finish(offload, &offload->step_array);
    array_finish(offload, &offload->slot_array);
    array_finish(offload, &offload->chunk_slot_array);
    array_finish(offload, &offload->item_array);
    array_finish(offload, &offload->times.span_array);
    offload->memory->unmap(offload->memory->self, offload, sizeof *offload);
}

enum vpmm_status vpmm_offload_create(const struct vpmm_offload_params *params,
                                     const struct vpmm_driver *driver,
                                     const struct vpmm_memory *memory,
                                     struct vpmm_offload **offload_out)
{
    struct vpmm_offload *offload = memory->map(memory->self, sizeof *offload);
    if (!offload)
        return VPMM_NO_METADATA;
    offload->driver = driver;
    offload->memory = memory;
    offload->params = *params;
    offload->figures = params->figures ? params->figures : &offload->own_figures;
    offload->budget_bytes = params->budget_bytes;
    vpmm_atomic_store(&offload->figures->budget_bytes, params->budget_bytes);
    enum vpmm_status status = init(offload);
    if (status)
        finish(offload);
    else
        *offload_out = offload;
    return status;
}

enum vpmm_status vpmm_offload_destroy(struct vpmm_offload *offload)
{
    enum vpmm_status status = offload_wait_context(offload);
    if (status == VPMM_CONTEXT_GONE || status == VPMM_SHUT_DOWN || status == VPMM_BROKEN)
        status = VPMM_OK;
    if (!status)
        status = offload_dismantle(offload);
    if (!status)
        finish(offload);
    return status;
}

void vpmm_offload_pause(void)
{
    const struct timespec pause = {0, 1000000};
    (void)nanosleep(&pause, NULL);
}

enum {
    NOBODY,
    A_CALL,
    A_BRIEF_CALL
};

bool vpmm_offload_enter(struct vpmm_offload *offload)
{
    for (;;) {
        uint32_t who = NOBODY;
        if (vpmm_atomic_swap_if(&offload->is_taken, &who, A_CALL))
            return true;
        if (who == A_CALL)
            return false;
        vpmm_offload_pause();
    }
}

bool vpmm_offload_enter_briefly(struct vpmm_offload *offload)
{
    uint32_t nobody = NOBODY;
    return vpmm_atomic_swap_if(&offload->is_taken, &nobody, A_BRIEF_CALL);
}

void vpmm_offload_leave(struct vpmm_offload *offload)
{
    vpmm_atomic_store(&offload->is_taken, NOBODY);
}

/* ---- weights ---- */

static enum vpmm_status add_group(struct vpmm_offload *offload,
                                  const struct vpmm_offload_weight *weight)
{
    uint64_t address;
    if (!vpmm_bytes_round_up(offload->root_used, offload->chunk_bytes, &address) ||
        address >= offload->root_bytes)
        return offload_tell_status(offload, VPMM_NO_MEMORY, "address space for weights");
    if (!vpmm_table_take(&offload->groups))
        return offload_tell_status(offload, VPMM_NO_METADATA, weight->name);
    offload->n_groups++;
    *offload_group(offload, offload->n_groups) = (struct offload_group){
        .kind = weight->kind,
        .address = offload->root + address,
        .first_weight = offload->n_weights + 1,
    };
    return VPMM_OK;
}

static bool is_addable(const struct vpmm_offload *offload, const struct vpmm_offload_weight *weight)
{
    return offload->phase == OFFLOAD_SETTING_UP && weight->bytes &&
           (unsigned)weight->kind <= VPMM_OFFLOAD_DIRECT && weight->group <= offload->n_groups &&
           weight->group + 1 >= offload->n_groups;
}

/* Where a weight would lie in its group, and where the address space would be used to. */
static bool place(const struct vpmm_offload *offload, const struct offload_group *group,
                  uint64_t bytes, uint64_t *offset_out, uint64_t *used_out)
{
    uint64_t end, rounded, base = group->address - offload->root;
    return vpmm_bytes_round_up(group->bytes, VPMM_OFFLOAD_ALIGNMENT, offset_out) &&
           vpmm_bytes_add(*offset_out, bytes, &end) &&
           vpmm_bytes_round_up(end, offload->chunk_bytes, &rounded) &&
           vpmm_bytes_add(base, rounded, used_out) && *used_out <= offload->root_bytes;
}

static void name_copy(char *to, const char *name)
{
    size_t length = name ? strnlen(name, OFFLOAD_NAME_ROOM - 1) : 0;
    if (length)
        memcpy(to, name, length);
    to[length] = 0;
}

enum vpmm_status vpmm_offload_add(struct vpmm_offload *offload,
                                  const struct vpmm_offload_weight *asked, uint64_t *address_out,
                                  uint32_t *number_out)
{
    enum vpmm_status status = VPMM_OK;
    uint64_t offset, used;
    if (!is_addable(offload, asked))
        return offload_tell(offload, VPMM_INVALID, asked->name ? asked->name : "a weight",
                            ": groups are added one after the other, before the seal, and no "
                            "weight is empty",
                            (char *)NULL);
    bool is_new = asked->group == offload->n_groups;
    if (is_new)
        status = add_group(offload, asked);
    if (status)
        return status;
    struct offload_group *group = offload_group(offload, offload->n_groups);
    if (group->kind != asked->kind || group->host)
        return offload_tell(offload, VPMM_INVALID, asked->name ? asked->name : "a weight",
                            ": its group is of another kind, or complete", (char *)NULL);
    if (!place(offload, group, asked->bytes, &offset, &used))
        status = VPMM_NO_MEMORY;
    else if (!vpmm_table_take(&offload->weights))
        status = VPMM_NO_METADATA;
    if (status) {
        if (is_new)
            vpmm_table_give(&offload->groups, offload->n_groups--);
        return offload_tell_status(offload, status, asked->name ? asked->name : "a weight");
    }
    struct offload_weight *weight = offload_weight(offload, ++offload->n_weights);
    *weight = (struct offload_weight){
        .group = offload->n_groups, .offset = offset, .bytes = asked->bytes, .descriptor = -1};
    name_copy(weight->name, asked->name);
    group->bytes = offset + asked->bytes;
    group->n_chunks = (group->bytes + offload->chunk_bytes - 1) / offload->chunk_bytes;
    group->n_weights++;
    offload->root_used = used;
    vpmm_atomic_add(&offload->figures->weight_bytes, asked->bytes);
    *address_out = group->address + offset;
    *number_out = offload->n_weights - 1;
    return VPMM_OK;
}

enum vpmm_status vpmm_offload_order(struct vpmm_offload *offload, const uint32_t *groups,
                                    uint32_t n_groups)
{
    if (offload->phase != OFFLOAD_SETTING_UP || !n_groups)
        return offload_tell(offload, VPMM_INVALID, "an order is given before the seal",
                            (char *)NULL);
    for (uint32_t i = 0; i < n_groups; i++)
        if (groups[i] >= offload->n_groups ||
            offload_group(offload, groups[i] + 1)->kind != VPMM_OFFLOAD_STREAMED)
            return offload_tell_bytes(offload, VPMM_INVALID, "step ", i, " of the order names ",
                                      groups[i], ", which is no streamed group");
    enum vpmm_status status = offload_array_grow(offload, &offload->step_array,
                                                 n_groups * sizeof(struct vpmm_spread_step));
    if (status)
        return status;
    for (uint32_t i = 0; i < n_groups; i++)
        offload_steps(offload)[i] = (struct vpmm_spread_step){.item = groups[i] + 1};
    offload->n_steps = n_groups;
    offload->has_order = true;
    return VPMM_OK;
}

/* ---- looking ---- */

void vpmm_offload_stats(const struct vpmm_offload_figures *figures,
                        struct vpmm_offload_stats *stats_out)
{
#define READ(name) stats_out->name = vpmm_atomic_load(&figures->name);
    VPMM_OFFLOAD_FIGURES(READ)
#undef READ
}

const struct vpmm_offload_figures *vpmm_offload_figures(const struct vpmm_offload *offload)
{
    return offload->figures;
}

void vpmm_offload_need(const struct vpmm_offload *offload, struct vpmm_offload_need *need_out)
{
    *need_out = offload->need;
}
