/* SPDX-License-Identifier: MIT */
/* Charges and counts each call, and passes it on to the inner driver. Must not change an answer of
 * the inner driver. */
#define _POSIX_C_SOURCE 200809L
#include "replay/priced.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CALIBRATION_CALLS 20000
#define CALIBRATION_ROUNDS 5

uint64_t vpmm_priced_clock_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void add_ns(struct vpmm_priced *priced, enum vpmm_price_kind kind, uint64_t ns)
{
    priced->tally.ns[kind] += ns;
    priced->tally.total_ns += ns;
}

static void charge(struct vpmm_priced *priced, enum vpmm_price_kind kind, uint64_t bytes)
{
    priced->tally.handles[kind]++;
    if (!priced->is_measured)
        add_ns(priced, kind, vpmm_price_ns(kind, bytes, priced->n_mappings));
}

/* The last of each operation: all since `start_ns` is not the caller's time. */
static enum vpmm_status end(struct vpmm_priced *priced, uint64_t start_ns,
                            enum vpmm_price_kind kind, enum vpmm_status status)
{
    uint64_t spent_ns = vpmm_priced_clock_ns() - start_ns;
    priced->tally.calls[kind]++;
    priced->tally.n_calls++;
    priced->tally.inner_ns += spent_ns;
    if (priced->is_measured)
        add_ns(priced, kind, spent_ns);
    return status;
}

void vpmm_priced_note(struct vpmm_priced *priced, enum vpmm_price_kind kind, uint64_t start_ns)
{
    charge(priced, kind, 0);
    (void)end(priced, start_ns, kind, VPMM_OK);
}

/* Passes one call on, and charges it as `kind`. */
#define PASS_ON(kind, operation, ...)                                                              \
    do {                                                                                           \
        struct vpmm_priced *priced = self;                                                         \
        uint64_t start_ns = vpmm_priced_clock_ns();                                                \
        enum vpmm_status status = priced->inner->operation(priced->inner->self, __VA_ARGS__);      \
        charge(priced, kind, 0);                                                                   \
        return end(priced, start_ns, kind, status);                                                \
    } while (0)

/* An operation that does no more than that. */
#define PASSES(operation, parameters, kind, ...)                                                   \
    static enum vpmm_status operation parameters                                                   \
    {                                                                                              \
        PASS_ON(kind, operation, __VA_ARGS__);                                                     \
    }

static void let_time_go_by(struct vpmm_priced *priced, vpmm_event_handle event)
{
    uint64_t start_ns = vpmm_priced_clock_ns();
    if (!priced->wait)
        return;
    priced->wait(priced->wait_self, event);
    priced->tally.inner_ns += vpmm_priced_clock_ns() - start_ns;
}

/* ---- what is mapped ---- */

static uint32_t *granules_at(struct vpmm_priced *priced, uint64_t address)
{
    for (uint32_t i = 0; i < priced->n_roots; i++) {
        struct vpmm_priced_root *root = &priced->roots[i];
        if (address - root->address < root->bytes)
            return &root->granules[(address - root->address) / priced->granularity_bytes];
    }
    (void)fputs("an address that was never reserved\n", stderr);
    abort();
}

/* Calls `each` with the granules of every mapping in a range. */
static void walk(struct vpmm_priced *priced, uint64_t address, uint64_t bytes,
                 void (*each)(struct vpmm_priced *priced, uint32_t granules, void *argument),
                 void *argument)
{
    const uint32_t *granules = granules_at(priced, address);
    uint64_t n = bytes / priced->granularity_bytes;
    uint32_t step;
    for (uint64_t i = 0; i < n; i += step) {
        step = granules[i] ? granules[i] : 1;
        if (granules[i])
            each(priced, granules[i], argument);
    }
}

static void charge_mapping(struct vpmm_priced *priced, uint32_t granules, void *argument)
{
    const enum vpmm_price_kind *kind = argument;
    charge(priced, *kind, granules * priced->granularity_bytes);
}

static void charge_range(struct vpmm_priced *priced, enum vpmm_price_kind kind, uint64_t address,
                         uint64_t bytes)
{
    if (priced->is_measured)
        charge(priced, kind, bytes);
    else
        walk(priced, address, bytes, charge_mapping, &kind);
}

static void forget_range(struct vpmm_priced *priced, uint64_t address, uint64_t bytes)
{
    uint32_t *granules = granules_at(priced, address);
    for (uint64_t i = 0; i < bytes / priced->granularity_bytes; i++) {
        priced->n_mappings -= granules[i] != 0;
        granules[i] = 0;
    }
}

static void add_unmap(struct vpmm_priced *priced, uint32_t granules, void *argument)
{
    uint64_t *ns = argument;
    *ns +=
        vpmm_price_ns(VPMM_PRICE_UNMAP, granules * priced->granularity_bytes, priced->n_mappings);
}

uint64_t vpmm_priced_unmap_ns(struct vpmm_priced *priced, uint64_t address, uint64_t bytes)
{
    uint64_t ns = 0;
    if (!priced->is_measured)
        walk(priced, address, bytes, add_unmap, &ns);
    return ns;
}

/* ---- address space and extents ---- */

static bool add_root(struct vpmm_priced *priced, uint64_t address, uint64_t bytes)
{
    struct vpmm_priced_root *root = &priced->roots[priced->n_roots];
    if (priced->n_roots == VPMM_PRICED_ROOTS_MAX)
        return false;
    *root = (struct vpmm_priced_root){.address = address, .bytes = bytes};
    root->granules = calloc(bytes / priced->granularity_bytes, sizeof *root->granules);
    priced->n_roots += root->granules != NULL;
    return root->granules != NULL;
}

static enum vpmm_status address_reserve(void *self, uint64_t bytes, uint64_t *address_out)
{
    struct vpmm_priced *priced = self;
    uint64_t start_ns = vpmm_priced_clock_ns();
    enum vpmm_status status =
        priced->inner->address_reserve(priced->inner->self, bytes, address_out);
    charge(priced, VPMM_PRICE_RESERVE, 0);
    if (!status && !priced->is_measured && !add_root(priced, *address_out, bytes)) {
        (void)priced->inner->address_free(priced->inner->self, *address_out, bytes);
        status = VPMM_NO_MEMORY;
    }
    return end(priced, start_ns, VPMM_PRICE_RESERVE, status);
}

static enum vpmm_status address_free(void *self, uint64_t address, uint64_t bytes)
{
    PASS_ON(VPMM_PRICE_OTHER, address_free, address, bytes);
}

static enum vpmm_status extent_create(void *self, int device, uint64_t bytes,
                                      vpmm_extent_handle *extent_out)
{
    struct vpmm_priced *priced = self;
    uint64_t start_ns = vpmm_priced_clock_ns();
    enum vpmm_status status =
        priced->inner->extent_create(priced->inner->self, device, bytes, extent_out);
    enum vpmm_price_kind kind = status ? VPMM_PRICE_REFUSED : VPMM_PRICE_CREATE;
    charge(priced, kind, bytes);
    uint32_t *granules =
        status || priced->is_measured ? NULL : vpmm_numbers_at(&priced->extents, *extent_out);
    if (granules)
        *granules = (uint32_t)(bytes / priced->granularity_bytes);
    return end(priced, start_ns, kind, status);
}

static enum vpmm_status extent_release(void *self, vpmm_extent_handle extent)
{
    struct vpmm_priced *priced = self;
    uint64_t start_ns = vpmm_priced_clock_ns();
    enum vpmm_status status = priced->inner->extent_release(priced->inner->self, extent);
    uint32_t *granules = priced->is_measured ? NULL : vpmm_numbers_at(&priced->extents, extent);
    charge(priced, VPMM_PRICE_RELEASE, granules ? *granules * priced->granularity_bytes : 0);
    return end(priced, start_ns, VPMM_PRICE_RELEASE, status);
}

static enum vpmm_status map(void *self, uint64_t address, uint64_t bytes, vpmm_extent_handle extent)
{
    struct vpmm_priced *priced = self;
    uint64_t start_ns = vpmm_priced_clock_ns();
    enum vpmm_status status = priced->inner->map(priced->inner->self, address, bytes, extent);
    charge(priced, VPMM_PRICE_MAP, bytes);
    if (!status && !priced->is_measured) {
        *granules_at(priced, address) = (uint32_t)(bytes / priced->granularity_bytes);
        priced->n_mappings++;
    }
    return end(priced, start_ns, VPMM_PRICE_MAP, status);
}

static enum vpmm_status set_access(void *self, uint64_t address, uint64_t bytes, const int *devices,
                                   int n_devices)
{
    struct vpmm_priced *priced = self;
    uint64_t start_ns = vpmm_priced_clock_ns();
    enum vpmm_status status =
        priced->inner->set_access(priced->inner->self, address, bytes, devices, n_devices);
    charge_range(priced, VPMM_PRICE_ACCESS, address, bytes);
    return end(priced, start_ns, VPMM_PRICE_ACCESS, status);
}

static enum vpmm_status unmap(void *self, uint64_t address, uint64_t bytes)
{
    struct vpmm_priced *priced = self;
    uint64_t start_ns = vpmm_priced_clock_ns();
    enum vpmm_status status = priced->inner->unmap(priced->inner->self, address, bytes);
    charge_range(priced, VPMM_PRICE_UNMAP, address, bytes);
    if (!status && !priced->is_measured)
        forget_range(priced, address, bytes);
    return end(priced, start_ns, VPMM_PRICE_UNMAP, status);
}

/* ---- contexts and devices ---- */

static enum vpmm_status device_facts(void *self, int device, struct vpmm_device_facts *facts_out)
{
    PASS_ON(VPMM_PRICE_OTHER, device_facts, device, facts_out);
}

static enum vpmm_status memory_info(void *self, uint64_t *free_out, uint64_t *total_out)
{
    PASS_ON(VPMM_PRICE_OTHER, memory_info, free_out, total_out);
}

static enum vpmm_status context_current(void *self, vpmm_context_handle *context_out)
{
    PASS_ON(VPMM_PRICE_CONTEXT, context_current, context_out);
}

static enum vpmm_status context_device(void *self, vpmm_context_handle context, int *device_out)
{
    PASS_ON(VPMM_PRICE_CONTEXT, context_device, context, device_out);
}

PASSES(peer_possible, (void *self, int device, int peer, bool *possible_out), VPMM_PRICE_OTHER,
       device, peer, possible_out)
PASSES(default_pool_trim, (void *self, int device), VPMM_PRICE_OTHER, device)

static enum vpmm_status context_synchronize(void *self, vpmm_context_handle context)
{
    let_time_go_by(self, NULL);
    PASS_ON(VPMM_PRICE_HOST_WAIT, context_synchronize, context);
}

/* ---- streams and events ---- */

PASSES(stream_facts, (void *self, vpmm_stream_handle stream, struct vpmm_stream_facts *facts_out),
       VPMM_PRICE_STREAM_FACTS, stream, facts_out)
PASSES(stream_captures, (void *self, vpmm_stream_handle stream, bool *captures_out),
       VPMM_PRICE_STREAM_CAPTURES, stream, captures_out)
PASSES(stream_id, (void *self, vpmm_stream_handle stream, uint64_t *id_out),
       VPMM_PRICE_STREAM_FACTS, stream, id_out)
PASSES(stream_wait, (void *self, vpmm_stream_handle stream, vpmm_event_handle event),
       VPMM_PRICE_STREAM_WAIT, stream, event)
PASSES(event_create, (void *self, vpmm_context_handle context, vpmm_event_handle *event_out),
       VPMM_PRICE_EVENT_CREATE, context, event_out)
PASSES(event_destroy, (void *self, vpmm_event_handle event), VPMM_PRICE_OTHER, event)
PASSES(event_record, (void *self, vpmm_event_handle event, vpmm_stream_handle stream),
       VPMM_PRICE_RECORD, event, stream)
PASSES(event_record_context, (void *self, vpmm_event_handle event, vpmm_context_handle context),
       VPMM_PRICE_RECORD_CONTEXT, event, context)
PASSES(event_query, (void *self, vpmm_event_handle event), VPMM_PRICE_QUERY, event)

static enum vpmm_status event_synchronize(void *self, vpmm_event_handle event)
{
    let_time_go_by(self, event);
    PASS_ON(VPMM_PRICE_HOST_WAIT, event_synchronize, event);
}

PASSES(capture_relax, (void *self, int *mode_out), VPMM_PRICE_OTHER, mode_out)

static void capture_restore(void *self, int mode)
{
    struct vpmm_priced *priced = self;
    uint64_t start_ns = vpmm_priced_clock_ns();
    priced->inner->capture_restore(priced->inner->self, mode);
    (void)end(priced, start_ns, VPMM_PRICE_OTHER, VPMM_OK);
}

/* ---- the decorator ---- */

static void calibrate(struct vpmm_priced *priced)
{
    uint64_t best_ns = UINT64_MAX;
    for (int round = 0; round < CALIBRATION_ROUNDS; round++) {
        vpmm_context_handle context;
        uint64_t inner_ns = priced->tally.inner_ns;
        uint64_t start_ns = vpmm_priced_clock_ns();
        for (int i = 0; i < CALIBRATION_CALLS; i++)
            (void)context_current(priced, &context);
        uint64_t spent_ns = vpmm_priced_clock_ns() - start_ns;
        inner_ns = priced->tally.inner_ns - inner_ns;
        if (spent_ns > inner_ns && spent_ns - inner_ns < best_ns)
            best_ns = spent_ns - inner_ns;
    }
    priced->overhead_ps = best_ns == UINT64_MAX ? 0 : best_ns * 1000 / CALIBRATION_CALLS;
}

void vpmm_priced_fill(struct vpmm_priced *priced, const struct vpmm_driver *inner,
                      uint64_t granularity_bytes, struct vpmm_driver *driver_out)
{
    memset(priced, 0, sizeof *priced);
    priced->inner = inner;
    priced->granularity_bytes = granularity_bytes;
    priced->is_measured = granularity_bytes == 0;
    *driver_out = (struct vpmm_driver){
        .self = priced,
        .device_facts = device_facts,
        .memory_info = memory_info,
        .context_current = context_current,
        .context_device = context_device,
        .context_synchronize = context_synchronize,
        .peer_possible = peer_possible,
        .default_pool_trim = default_pool_trim,
        .address_reserve = address_reserve,
        .address_free = address_free,
        .extent_create = extent_create,
        .extent_release = extent_release,
        .map = map,
        .set_access = set_access,
        .unmap = unmap,
        .stream_facts = stream_facts,
        .stream_captures = stream_captures,
        .stream_id = priced->is_measured && inner->stream_id ? stream_id : NULL,
        .stream_wait = stream_wait,
        .event_create = event_create,
        .event_destroy = event_destroy,
        .event_record = event_record,
        .event_record_context = inner->event_record_context ? event_record_context : NULL,
        .event_query = event_query,
        .event_synchronize = event_synchronize,
        .capture_relax = capture_relax,
        .capture_restore = capture_restore,
    };
    calibrate(priced);
    memset(&priced->tally, 0, sizeof priced->tally);
}

void vpmm_priced_finish(struct vpmm_priced *priced)
{
    for (uint32_t i = 0; i < priced->n_roots; i++)
        free(priced->roots[i].granules);
    vpmm_numbers_finish(&priced->extents);
    memset(priced, 0, sizeof *priced);
}
