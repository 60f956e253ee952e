/* SPDX-License-Identifier: MIT */
/* The public interface of weights larger than their budget: vpmm.h's words for those of
 * src/lib/offload. Must not be entered by two threads for one object: the second is told so. */
#include "vpmm/vpmm.h"

#include "offload/offload.h"
#include "preload/api.h"
#include "preload/entry.h"

#include <string.h>

/* What a program holds as its object. */
static struct vpmm_offload *offload_of(struct vpmm_weights *weights)
{
    return (struct vpmm_offload *)(void *)weights;
}

static enum vpmm_result result_of(enum vpmm_status status)
{
    switch (status) {
    case VPMM_OK:
        return VPMM_DONE;
    case VPMM_OCCUPIED:
    case VPMM_CAPTURED:
        return VPMM_BUSY;
    case VPMM_BELOW_FLOOR:
        return VPMM_BUDGET_TOO_SMALL;
    case VPMM_OUT_OF_ORDER:
        return VPMM_OTHER_ORDER;
    case VPMM_NO_MEMORY:
    case VPMM_LIMITED:
        return VPMM_DEVICE_FULL;
    case VPMM_NO_HOST_ROOM:
    case VPMM_NO_METADATA:
        return VPMM_NO_HOST_MEMORY;
    case VPMM_UNSOUND:
    case VPMM_NOT_FOUND:
        return VPMM_BAD_SOURCE;
    case VPMM_INVALID:
        return VPMM_WRONG;
    default:
        return VPMM_DRIVER_FAILED;
    }
}

/* DONE: to be followed by `leave`. */
static enum vpmm_result enter(struct vpmm_weights *weights)
{
    if (!weights)
        return VPMM_WRONG;
    if (!vpmm_enter())
        return vpmm_entry_is_inside() ? VPMM_BUSY : VPMM_NOT_ACTIVE;
    if (vpmm_offload_enter(offload_of(weights)))
        return VPMM_DONE;
    vpmm_leave();
    return VPMM_BUSY;
}

static enum vpmm_result leave(struct vpmm_weights *weights, enum vpmm_status status)
{
    vpmm_offload_leave(offload_of(weights));
    vpmm_leave();
    return result_of(status);
}

#define CALL(weights, call)                                                                        \
    do {                                                                                           \
        enum vpmm_result entered = enter(weights);                                                 \
        return entered ? entered : leave(weights, call);                                           \
    } while (0)

static vpmm_stream_handle handle_of(void *stream)
{
    return vpmm_stream_of(stream, VPMM_STREAM_LEGACY);
}

/* ---- making ---- */

/* A caller that was compiled with an older header has a shorter struct. */
static struct vpmm_weights_options options_of(const struct vpmm_weights_options *given)
{
    struct vpmm_weights_options options = {0};
    memcpy(&options, given,
           given->size_bytes < sizeof options ? given->size_bytes : sizeof options);
    return options;
}

static enum vpmm_status make(struct vpmm_router *router, const struct vpmm_weights_options *options,
                             struct vpmm_offload **offload_out)
{
    const struct vpmm_driver *driver = vpmm_router_driver(router);
    struct vpmm_offload_params params = {
        .device = options->device,
        .budget_bytes = options->budget_bytes,
        .chunk_bytes = options->chunk_bytes,
        .ring_bytes = options->ring_bytes,
        .host_bytes_max = options->host_bytes_max,
        .promote_bytes = options->promote_bytes,
        .follows = options->flags & VPMM_WEIGHTS_FOLLOW,
        .checks = options->flags & VPMM_WEIGHTS_CHECK,
        .staging = options->flags & VPMM_WEIGHTS_STAGE      ? VPMM_OFFLOAD_STAGES
                   : options->flags & VPMM_WEIGHTS_MUST_MAP ? VPMM_OFFLOAD_MUST_MAP
                                                            : VPMM_OFFLOAD_MAY_STAGE,
        .message = options->message,
        .message_room = options->message_bytes,
    };
    int device = -1;
    enum vpmm_status status = driver->context_current(driver->self, &params.context);
    if (!status)
        status = driver->context_device(driver->self, params.context, &device);
    if (!status && device != options->device)
        status = VPMM_INVALID;
    return status == VPMM_NO_CONTEXT ? VPMM_INVALID
           : status                  ? status
                                     : vpmm_router_offload_create(router, &params, offload_out);
}

enum vpmm_result vpmm_weights_make(const struct vpmm_weights_options *options,
                                   struct vpmm_weights **weights_out)
{
    if (!options || !weights_out || options->size_bytes < sizeof options->size_bytes)
        return VPMM_WRONG;
    struct vpmm_weights_options known = options_of(options);
    (void)vpmm_entry_tracing(); /* it begins with the first request, or here */
    struct vpmm_router *router = vpmm_enter();
    if (!router)
        return vpmm_entry_is_inside() ? VPMM_BUSY : VPMM_NOT_ACTIVE;
    struct vpmm_offload *offload;
    enum vpmm_status status = make(router, &known, &offload);
    if (!status)
        *weights_out = (struct vpmm_weights *)(void *)offload;
    vpmm_leave();
    return result_of(status);
}

enum vpmm_result vpmm_weights_destroy(struct vpmm_weights *weights)
{
    enum vpmm_result entered = enter(weights);
    if (entered)
        return entered;
    vpmm_leave();
    struct vpmm_router *router = vpmm_enter();
    enum vpmm_status status = vpmm_router_offload_destroy(router, offload_of(weights));
    if (status)
        return leave(weights, status);
    vpmm_leave();
    return VPMM_DONE;
}

enum vpmm_result vpmm_weights_add(struct vpmm_weights *weights, const struct vpmm_weight *weight,
                                  uint64_t *address_out, uint32_t *number_out)
{
    if (!weight || weight->size_bytes < sizeof *weight || !address_out || !number_out)
        return VPMM_WRONG;
    struct vpmm_offload_weight asked = {
        .name = weight->name,
        .kind = weight->kind == VPMM_WEIGHT_KEPT     ? VPMM_OFFLOAD_KEPT
                : weight->kind == VPMM_WEIGHT_DIRECT ? VPMM_OFFLOAD_DIRECT
                                                     : VPMM_OFFLOAD_STREAMED,
        .group = weight->group,
        .bytes = weight->bytes,
    };
    CALL(weights, vpmm_offload_add(offload_of(weights), &asked, address_out, number_out));
}

enum vpmm_result vpmm_weights_host(struct vpmm_weights *weights, uint32_t number, void **memory_out)
{
    if (!memory_out)
        return VPMM_WRONG;
    CALL(weights, vpmm_offload_host(offload_of(weights), number, memory_out));
}

enum vpmm_result vpmm_weights_read(struct vpmm_weights *weights, uint32_t number, int fd,
                                   uint64_t offset)
{
    CALL(weights, vpmm_offload_read(offload_of(weights), number, fd, offset));
}

enum vpmm_result vpmm_weights_from(struct vpmm_weights *weights, uint32_t number, uint32_t source,
                                   const char *tensor)
{
    if (!tensor)
        return VPMM_WRONG;
    CALL(weights, vpmm_offload_from(offload_of(weights), number, source, tensor));
}

enum vpmm_result vpmm_weights_open(struct vpmm_weights *weights, const char *path,
                                   uint32_t *source_out)
{
    if (!path || !source_out)
        return VPMM_WRONG;
    CALL(weights, vpmm_offload_open(offload_of(weights), path, source_out));
}

static void describe(const struct vpmm_tensor *found, struct vpmm_source_tensor *tensor)
{
    size_t room = tensor->size_bytes < sizeof *tensor ? tensor->size_bytes : sizeof *tensor;
    struct vpmm_source_tensor all = {
        .size_bytes = tensor->size_bytes,
        .name = found->name,
        .dtype = found->dtype,
        .n_dimensions = found->n_dimensions,
        .offset = found->offset,
        .bytes = found->bytes,
    };
    memcpy(all.shape, found->shape, sizeof all.shape);
    memcpy(tensor, &all, room);
}

enum vpmm_result vpmm_weights_tensor(struct vpmm_weights *weights, uint32_t source, uint32_t number,
                                     struct vpmm_source_tensor *tensor)
{
    if (!tensor || tensor->size_bytes < sizeof tensor->size_bytes)
        return VPMM_WRONG;
    enum vpmm_result entered = enter(weights);
    if (entered)
        return entered;
    const struct vpmm_tensor *found = vpmm_offload_tensor(offload_of(weights), source, number);
    if (found)
        describe(found, tensor);
    return leave(weights, found ? VPMM_OK : VPMM_INVALID);
}

enum vpmm_result vpmm_weights_order(struct vpmm_weights *weights, const uint32_t *groups,
                                    uint32_t n)
{
    if (!groups)
        return VPMM_WRONG;
    CALL(weights, vpmm_offload_order(offload_of(weights), groups, n));
}

/* ---- budgets ---- */

static bool is_readable(const struct vpmm_weights_need *need)
{
    return !need || need->size_bytes >= sizeof need->size_bytes;
}

/* As leave; `need` may be NULL. */
static enum vpmm_result leave_telling(struct vpmm_weights *weights, enum vpmm_status status,
                                      struct vpmm_weights_need *need)
{
    struct vpmm_offload_need found;
    vpmm_offload_need(offload_of(weights), &found);
    if (need) {
        struct vpmm_weights_need all = {
            .size_bytes = need->size_bytes,
            .floor_bytes = found.floor_bytes,
            .smooth_bytes = found.smooth_bytes,
            .all_bytes = found.all_bytes,
            .host_bytes = found.host_bytes,
        };
        memcpy(need, &all, need->size_bytes < sizeof all ? need->size_bytes : sizeof all);
    }
    return leave(weights, status);
}

enum vpmm_result vpmm_weights_seal(struct vpmm_weights *weights, struct vpmm_weights_need *need)
{
    enum vpmm_result entered = is_readable(need) ? enter(weights) : VPMM_WRONG;
    return entered ? entered
                   : leave_telling(weights, vpmm_offload_seal(offload_of(weights), NULL), need);
}

enum vpmm_result vpmm_weights_budget(struct vpmm_weights *weights, uint64_t budget_bytes,
                                     struct vpmm_weights_need *need)
{
    enum vpmm_result entered = is_readable(need) ? enter(weights) : VPMM_WRONG;
    return entered
               ? entered
               : leave_telling(weights,
                               vpmm_offload_budget(offload_of(weights), budget_bytes, NULL), need);
}

enum vpmm_result vpmm_weights_thaw(struct vpmm_weights *weights)
{
    CALL(weights, vpmm_offload_thaw(offload_of(weights)));
}

/* ---- passes ---- */

enum vpmm_result vpmm_weights_begin(struct vpmm_weights *weights, void *stream)
{
    CALL(weights, vpmm_offload_begin(offload_of(weights), handle_of(stream)));
}

enum vpmm_result vpmm_weights_use(struct vpmm_weights *weights, uint32_t group, void *stream)
{
    CALL(weights, vpmm_offload_use(offload_of(weights), group, handle_of(stream)));
}

enum vpmm_result vpmm_weights_done(struct vpmm_weights *weights, uint32_t group, void *stream)
{
    CALL(weights, vpmm_offload_done(offload_of(weights), group, handle_of(stream)));
}

enum vpmm_result vpmm_weights_end(struct vpmm_weights *weights, void *stream)
{
    CALL(weights, vpmm_offload_end(offload_of(weights), handle_of(stream)));
}

enum vpmm_result vpmm_weights_cancel(struct vpmm_weights *weights, void *stream)
{
    CALL(weights, vpmm_offload_cancel(offload_of(weights), handle_of(stream)));
}

/* ---- looking ---- */

enum vpmm_result vpmm_weights_stats(struct vpmm_weights *weights, struct vpmm_weights_stats *stats)
{
    struct vpmm_offload_stats found;
    if (!weights || !stats || stats->size_bytes < sizeof stats->size_bytes)
        return VPMM_WRONG;
    vpmm_offload_stats(vpmm_offload_figures(offload_of(weights)), &found);
    struct vpmm_weights_stats all = {.size_bytes = stats->size_bytes};
#define COPY(name) all.name = found.name;
    VPMM_OFFLOAD_FIGURES(COPY)
#undef COPY
    memcpy(stats, &all, stats->size_bytes < sizeof all ? stats->size_bytes : sizeof all);
    return VPMM_DONE;
}
