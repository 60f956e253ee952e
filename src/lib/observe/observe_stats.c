/* SPDX-License-Identifier: MIT */
/* Writes the statistics as one table or one JSON object. Runs while the process ends, so it must
 * not lock, allocate or call the driver. */
#include "observe/observe_stats.h"

#include "base/text.h"

#define BUFFER_BYTES 1024
#define NAME_WIDTH 52
#define VALUE_WIDTH 18

static void table_row(struct vpmm_text *text, const struct vpmm_stats_row *row)
{
    vpmm_text_string(text, "  ");
    vpmm_text_padded(text, row->text, NAME_WIDTH);
    vpmm_text_decimal(text, row->value, VALUE_WIDTH);
    if (row->is_bytes) {
        vpmm_text_string(text, "  ");
        vpmm_text_bytes(text, row->value);
    }
    if (row->whole) {
        uint64_t permille = (uint64_t)((double)row->value * 1000 / (double)row->whole + 0.5);
        vpmm_text_string(text, "  ");
        vpmm_text_decimal(text, permille / 10, 0);
        vpmm_text_char(text, '.');
        vpmm_text_decimal(text, permille % 10, 0);
        vpmm_text_char(text, '%');
    }
    vpmm_text_char(text, '\n');
}

static void table_device(struct vpmm_text *text, const char *what,
                         const struct vpmm_stats_group *group)
{
    vpmm_text_string(text, what);
    vpmm_text_decimal(text, (uint64_t)group->device, 0);
    vpmm_text_char(text, '\n');
    for (unsigned i = 0; i < group->n_rows; i++)
        table_row(text, &group->rows[i]);
    vpmm_classes_text(text, group->classes, group->n_classes);
}

static void table_requests(struct vpmm_text *text, const struct vpmm_stats_group *group)
{
    vpmm_text_string(text, group->name);
    vpmm_text_char(text, '\n');
    uint64_t all = 0;
    for (unsigned i = 0; i < group->n_rows; i++) {
        all += group->rows[i].value;
        if (group->rows[i].value)
            table_row(text, &group->rows[i]);
    }
    if (!all)
        vpmm_text_string(text, "  no requests\n");
}

static bool has_nothing(const struct vpmm_stats *stats)
{
    uint64_t all = stats->n_devices + stats->n_weights;
    for (unsigned i = 0; i < stats->n_requests; i++)
        for (unsigned j = 0; j < stats->requests[i].n_rows; j++)
            all += stats->requests[i].rows[j].value != 0;
    return all == 0;
}

bool vpmm_stats_table(int fd, const struct vpmm_stats *stats)
{
    char buffer[BUFFER_BYTES];
    struct vpmm_text text;
    vpmm_text_init(&text, buffer, sizeof buffer, fd);
    vpmm_text_string(&text, "vpmm[");
    vpmm_text_decimal(&text, stats->pid, 0);
    vpmm_text_string(&text, "] statistics of ");
    vpmm_text_string(&text, stats->program);
    if (has_nothing(stats)) {
        vpmm_text_string(&text, ": it asked CUDA for no memory\n");
        vpmm_text_flush(&text);
        return !text.has_failed;
    }
    vpmm_text_char(&text, '\n');
    for (unsigned i = 0; i < stats->n_devices; i++)
        table_device(&text, "device ", &stats->devices[i]);
    if (!stats->n_devices)
        vpmm_text_string(&text, "no pool was made: CUDA answered every request\n");
    for (unsigned i = 0; i < stats->n_weights; i++)
        table_device(&text, "weights of device ", &stats->weights[i]);
    for (unsigned i = 0; i < stats->n_requests; i++)
        table_requests(&text, &stats->requests[i]);
    vpmm_text_flush(&text);
    return !text.has_failed;
}

static void json_member(struct vpmm_text *text, const char *key, uint64_t value)
{
    vpmm_text_quoted(text, key);
    vpmm_text_string(text, ": ");
    vpmm_text_decimal(text, value, 0);
}

static void json_rows(struct vpmm_text *text, const struct vpmm_stats_group *group)
{
    for (unsigned i = 0; i < group->n_rows; i++) {
        vpmm_text_string(text, i ? ", " : "");
        json_member(text, group->rows[i].key, group->rows[i].value);
    }
}

static void json_devices(struct vpmm_text *text, const struct vpmm_stats_group *groups, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        vpmm_text_string(text, i ? ", {" : "{");
        json_member(text, "device", (uint64_t)groups[i].device);
        vpmm_text_string(text, groups[i].n_rows ? ", " : "");
        json_rows(text, &groups[i]);
        if (groups[i].n_classes) {
            vpmm_text_string(text, ", ");
            vpmm_classes_json(text, groups[i].classes, groups[i].n_classes);
        }
        vpmm_text_char(text, '}');
    }
}

bool vpmm_stats_json(int fd, const struct vpmm_stats *stats)
{
    char buffer[BUFFER_BYTES];
    struct vpmm_text text;
    vpmm_text_init(&text, buffer, sizeof buffer, fd);
    vpmm_text_string(&text, "{\"vpmm_stats\": 1, ");
    json_member(&text, "pid", stats->pid);
    vpmm_text_string(&text, ", \"program\": ");
    vpmm_text_quoted(&text, stats->program);
    vpmm_text_string(&text, ", \"devices\": [");
    json_devices(&text, stats->devices, stats->n_devices);
    vpmm_text_string(&text, "], \"requests\": {");
    for (unsigned i = 0; i < stats->n_requests; i++) {
        vpmm_text_string(&text, i ? ", " : "");
        vpmm_text_quoted(&text, stats->requests[i].name);
        vpmm_text_string(&text, ": {");
        json_rows(&text, &stats->requests[i]);
        vpmm_text_char(&text, '}');
    }
    vpmm_text_char(&text, '}');
    if (stats->n_weights) {
        vpmm_text_string(&text, ", \"weights\": [");
        json_devices(&text, stats->weights, stats->n_weights);
        vpmm_text_char(&text, ']');
    }
    vpmm_text_string(&text, "}\n");
    vpmm_text_flush(&text);
    return !text.has_failed;
}
