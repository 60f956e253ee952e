/* SPDX-License-Identifier: MIT */
/* Writes the region map as text or JSON. Runs in a signal handler, so it must not lock, allocate or
 * call the driver. */
#include "observe/observe_dump.h"

#include "base/text.h"

#include <stddef.h>

/* The handler may run on a small alternate stack. */
#define BUFFER_BYTES 1024

struct figure {
    const char *text, *key;
    size_t offset;
};

#define FIGURE(text, key)                                                                          \
    {                                                                                              \
        text, #key, offsetof(struct vpmm_dump_device, key)                                         \
    }
static const struct figure byte_figures[] = {
    FIGURE("page size", page_bytes),          FIGURE("held", held_bytes),
    FIGURE("reserved", reserved_bytes),       FIGURE("live", live_bytes),
    FIGURE("reusable", reusable_bytes),       FIGURE("holes", hole_bytes),
    FIGURE("zombies", zombie_bytes),          FIGURE("busy", busy_bytes),
    FIGURE("quarantined", quarantined_bytes), FIGURE("limit", limit_bytes),
};
static const struct figure count_figures[] = {
    FIGURE("extents", extents),
    FIGURE("mappings", mappings),
};
#define WEIGHTS(text, key)                                                                         \
    {                                                                                              \
        text, #key, offsetof(struct vpmm_dump_weights, key)                                        \
    }
static const struct figure weight_byte_figures[] = {
    WEIGHTS("weights", weight_bytes), WEIGHTS("budget", budget_bytes),
    WEIGHTS("held", held_bytes),      WEIGHTS("resident", resident_bytes),
    WEIGHTS("ring", ring_bytes),      WEIGHTS("direct", direct_bytes),
    WEIGHTS("copied", copied_bytes),
};
static const struct figure weight_count_figures[] = {
    WEIGHTS("hits", hits),          WEIGHTS("misses", misses),
    WEIGHTS("timed, ns", pass_ns),  WEIGHTS("stalled, ns", stall_ns),
    WEIGHTS("bound, ns", bound_ns),
};
#define LENGTH(array) (sizeof(array) / sizeof(array)[0])

static uint64_t figure_value(const void *of, const struct figure *figure)
{
    return *(const uint64_t *)((const char *)of + figure->offset);
}

static uint64_t end_of(const struct vpmm_dump_device *device, const struct vpmm_dump_row *row)
{
    return row->address + row->pages * device->page_bytes;
}

/* ---- text ---- */

static void notation_region(struct vpmm_text *text, const struct vpmm_dump_row *row)
{
    vpmm_text_char(text, '[');
    if (row->mark)
        vpmm_text_char(text, row->mark);
    vpmm_text_decimal(text, row->pages, 0);
    vpmm_text_char(text, ']');
}

/* Roots show as a jump of the address, or as two holes side by side. */
static bool starts_root(const struct vpmm_dump_device *device, const struct vpmm_dump_row *before,
                        const struct vpmm_dump_row *row)
{
    return row->address != end_of(device, before) || (before->mark == '*' && row->mark == '*');
}

/* The hole that ends a root is what nothing has ever needed: it has no size worth reading. */
static void notation_last_of_root(struct vpmm_text *text, const struct vpmm_dump_row *row)
{
    if (row->mark == '*')
        vpmm_text_string(text, "[...]");
    else
        notation_region(text, row);
}

static void text_notation(struct vpmm_text *text, const struct vpmm_dump_device *device)
{
    struct vpmm_dump_row row, next;
    uint64_t cursor = 0;
    vpmm_text_string(text, "vpmm device ");
    vpmm_text_decimal(text, (uint64_t)device->device, 0);
    vpmm_text_string(text, ": ");
    bool is_last = !device->next(device->self, &cursor, &row);
    while (!is_last) {
        is_last = !device->next(device->self, &cursor, &next);
        if (!is_last && !starts_root(device, &row, &next)) {
            notation_region(text, &row);
        } else {
            notation_last_of_root(text, &row);
            vpmm_text_string(text, is_last ? "" : " ");
        }
        if (!is_last)
            row = next;
    }
    vpmm_text_char(text, '\n');
}

static void text_bytes(struct vpmm_text *text, const void *of, const struct figure *figures,
                       size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t bytes = figure_value(of, &figures[i]);
        vpmm_text_string(text, "  ");
        vpmm_text_padded(text, figures[i].text, 13);
        vpmm_text_decimal(text, bytes, 18);
        vpmm_text_string(text, "  ");
        vpmm_text_bytes(text, bytes);
        vpmm_text_char(text, '\n');
    }
}

static void text_counts(struct vpmm_text *text, const void *of, const struct figure *figures,
                        size_t n)
{
    for (size_t i = 0; i < n; i++) {
        vpmm_text_string(text, "  ");
        vpmm_text_padded(text, figures[i].text, 13);
        vpmm_text_decimal(text, figure_value(of, &figures[i]), 18);
        vpmm_text_char(text, '\n');
    }
}

static void text_heading(struct vpmm_text *text, const char *what, int device)
{
    vpmm_text_string(text, what);
    vpmm_text_decimal(text, (uint64_t)device, 0);
    vpmm_text_char(text, '\n');
}

static void text_weights(struct vpmm_text *text, const struct vpmm_dump_weights *weights)
{
    text_heading(text, "weights of device ", weights->device);
    text_bytes(text, weights, weight_byte_figures, LENGTH(weight_byte_figures));
    text_counts(text, weights, weight_count_figures, LENGTH(weight_count_figures));
}

static void text_device(struct vpmm_text *text, const struct vpmm_dump_device *device)
{
    text_heading(text, "device ", device->device);
    text_bytes(text, device, byte_figures, LENGTH(byte_figures));
    text_counts(text, device, count_figures, LENGTH(count_figures));
}

static void text_region(struct vpmm_text *text, const struct vpmm_dump_row *row)
{
    vpmm_text_string(text, "  ");
    vpmm_text_hex(text, row->address, 16);
    vpmm_text_string(text, "  ");
    vpmm_text_padded(text, row->state, 11);
    vpmm_text_decimal(text, row->pages, 10);
    vpmm_text_decimal(text, row->requested_bytes, 18);
    vpmm_text_decimal(text, row->stream_id, 12);
    vpmm_text_string(text, "  ");
    vpmm_text_string(text, row->fence_kind);
    if (row->fence) {
        vpmm_text_char(text, ' ');
        vpmm_text_decimal(text, row->fence, 0);
    }
    vpmm_text_char(text, '\n');
}

uint64_t vpmm_dump_text(int fd, const struct vpmm_dump *dump)
{
    char buffer[BUFFER_BYTES];
    struct vpmm_text text;
    vpmm_text_init(&text, buffer, sizeof buffer, fd);
    const struct vpmm_dump_device *devices = dump->devices;
    if (dump->n_devices == 0)
        vpmm_text_string(&text, "vpmm: no device has a pool yet\n");
    for (unsigned i = 0; i < dump->n_devices; i++)
        text_notation(&text, &devices[i]);
    for (unsigned i = 0; i < dump->n_weights; i++)
        text_weights(&text, &dump->weights[i]);
    for (unsigned i = 0; i < dump->n_devices; i++) {
        text_device(&text, &devices[i]);
        vpmm_classes_text(&text, devices[i].classes, devices[i].n_classes);
        vpmm_text_string(&text, "  address             state           pages   requested bytes"
                                "      stream  fence\n");
        struct vpmm_dump_row row;
        for (uint64_t cursor = 0; devices[i].next(devices[i].self, &cursor, &row);)
            text_region(&text, &row);
    }
    vpmm_text_flush(&text);
    return text.has_failed ? 0 : text.n_bytes;
}

/* ---- JSON ---- */

static void json_number(struct vpmm_text *text, const char *key, uint64_t value)
{
    vpmm_text_quoted(text, key);
    vpmm_text_string(text, ": ");
    vpmm_text_decimal(text, value, 0);
    vpmm_text_string(text, ", ");
}

static void json_figures(struct vpmm_text *text, const void *of, const struct figure *figures,
                         size_t n)
{
    for (size_t i = 0; i < n; i++)
        json_number(text, figures[i].key, figure_value(of, &figures[i]));
}

/* Addresses are texts: a JSON number keeps 53 bits. */
static void json_region(struct vpmm_text *text, const struct vpmm_dump_row *row)
{
    vpmm_text_string(text, "{\"address\": \"");
    vpmm_text_hex(text, row->address, 1);
    vpmm_text_string(text, "\", \"state\": ");
    vpmm_text_quoted(text, row->state);
    vpmm_text_string(text, ", ");
    json_number(text, "pages", row->pages);
    json_number(text, "requested_bytes", row->requested_bytes);
    json_number(text, "stream", row->stream_id);
    json_number(text, "fence", row->fence);
    vpmm_text_string(text, "\"fence_kind\": ");
    vpmm_text_quoted(text, row->fence_kind);
    vpmm_text_char(text, '}');
}

static void json_device(struct vpmm_text *text, const struct vpmm_dump_device *device)
{
    vpmm_text_char(text, '{');
    json_number(text, "device", (uint64_t)device->device);
    json_figures(text, device, byte_figures, LENGTH(byte_figures));
    json_figures(text, device, count_figures, LENGTH(count_figures));
    if (device->n_classes) {
        vpmm_classes_json(text, device->classes, device->n_classes);
        vpmm_text_string(text, ", ");
    }
    vpmm_text_string(text, "\"regions\": [");
    struct vpmm_dump_row row;
    const char *separator = "\n";
    for (uint64_t cursor = 0; device->next(device->self, &cursor, &row); separator = ",\n") {
        vpmm_text_string(text, separator);
        json_region(text, &row);
    }
    vpmm_text_string(text, "]}");
}

static void json_weights(struct vpmm_text *text, const struct vpmm_dump_weights *weights)
{
    vpmm_text_char(text, '{');
    json_figures(text, weights, weight_byte_figures, LENGTH(weight_byte_figures));
    json_figures(text, weights, weight_count_figures, LENGTH(weight_count_figures));
    vpmm_text_string(text, "\"device\": ");
    vpmm_text_decimal(text, (uint64_t)weights->device, 0);
    vpmm_text_char(text, '}');
}

uint64_t vpmm_dump_json(int fd, uint64_t pid, const struct vpmm_dump *dump)
{
    char buffer[BUFFER_BYTES];
    struct vpmm_text text;
    vpmm_text_init(&text, buffer, sizeof buffer, fd);
    vpmm_text_char(&text, '{');
    json_number(&text, "vpmm_dump", 1);
    json_number(&text, "pid", pid);
    vpmm_text_string(&text, "\"devices\": [");
    for (unsigned i = 0; i < dump->n_devices; i++) {
        vpmm_text_string(&text, i ? ",\n" : "");
        json_device(&text, &dump->devices[i]);
    }
    vpmm_text_char(&text, ']');
    for (unsigned i = 0; i < dump->n_weights; i++) {
        vpmm_text_string(&text, i ? ",\n" : ", \"weights\": [");
        json_weights(&text, &dump->weights[i]);
    }
    vpmm_text_string(&text, dump->n_weights ? "]}\n" : "}\n");
    vpmm_text_flush(&text);
    return text.has_failed ? 0 : text.n_bytes;
}
