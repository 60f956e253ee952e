/* SPDX-License-Identifier: MIT */
/* Prints what replays came to, as a table or as JSON. Must not print anything beside the one object
 * where it prints JSON. */
#include "cli/cli_replay.h"

#include "base/bytes.h"
#include "cli/quoted.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define SIZE_ROOM 24
#define LABEL_WIDTH 26
#define CELL_WIDTH 12
#define CELL_WIDTH_ALONE 17

const char *vpmm_cli_replay_name(enum vpmm_replay_through through)
{
    static const char *const names[] = {"pool", "cudaMalloc", "cudaMallocAsync"};
    return names[through];
}

/* A figure of a pass: a uint64_t at `offset` in struct vpmm_replay_pass. */
struct figure {
    const char *label, *key;
    enum unit {
        COUNT,
        SIZE,
        TIME,
        RATIO /* of two other figures: what is held to what is live */
    } unit;
    size_t offset;
};
#define FIGURE(label, unit, member)                                                                \
    {                                                                                              \
        label, #member, unit, offsetof(struct vpmm_replay_pass, member)                            \
    }
#define FIGURES(array) (sizeof(array) / sizeof(array)[0])

static const struct figure figures[] = {
    FIGURE("live peak", SIZE, live_peak_bytes),
    FIGURE("held peak", SIZE, held_peak_bytes),
    {"held/peak", "held_ratio", RATIO, 0},
    FIGURE("calls", COUNT, calls),
    FIGURE("refused mallocs", COUNT, refused),
    FIGURE("host time of a call, p50", TIME, p50_ns),
    FIGURE("  p99", TIME, p99_ns),
    FIGURE("  max", TIME, max_ns),
    FIGURE("host time of all", TIME, total_ns),
    FIGURE("  in the driver", TIME, driver_ns),
    FIGURE("waited on the host", TIME, waited_ns),
    {"driver calls", "driver_calls", COUNT, offsetof(struct vpmm_replay_pass, tally.n_calls)},
};
/* Of JSON alone. */
static const struct figure more_figures[] = {
    FIGURE("", TIME, own_ns),
    FIGURE("", TIME, owed_ns),
    FIGURE("", TIME, last_malloc_ns),
    {"", "host_waits", COUNT, offsetof(struct vpmm_replay_pass, counts.pool.host_waits)},
    {"", "stream_waits", COUNT, offsetof(struct vpmm_replay_pass, counts.pool.stream_waits)},
};
/* How the pool served mallocs. */
static const struct figure ways[] = {
    {"  part", "parts", COUNT, offsetof(struct vpmm_replay_pass, counts.parts)},
    {"  cache", "cache_hits", COUNT, offsetof(struct vpmm_replay_pass, counts.pool.cache_hits)},
    {"  habit", "habit_hits", COUNT, offsetof(struct vpmm_replay_pass, counts.pool.habit_hits)},
    {"  fit", "fits", COUNT, offsetof(struct vpmm_replay_pass, counts.pool.fits)},
    {"  revive", "revives", COUNT, offsetof(struct vpmm_replay_pass, counts.pool.revives)},
    {"  stitch", "stitches", COUNT, offsetof(struct vpmm_replay_pass, counts.pool.stitches)},
    {"  grow", "grows", COUNT, offsetof(struct vpmm_replay_pass, counts.pool.grows)},
};

static uint64_t value_of(const struct vpmm_replay_pass *pass, const struct figure *figure)
{
    uint64_t value;
    memcpy(&value, (const char *)pass + figure->offset, sizeof value);
    return value;
}

static double ratio_of(uint64_t held_bytes, uint64_t live_bytes)
{
    return live_bytes ? (double)held_bytes / (double)live_bytes : 0;
}

static double ratio_in(const struct vpmm_replay_pass *pass)
{
    return ratio_of(pass->held_peak_bytes, pass->live_peak_bytes);
}

/* ---- for reading ---- */

static void write_time(uint64_t ns, char text[static SIZE_ROOM])
{
    static const struct {
        uint64_t ns;
        const char *name;
    } units[] = {{1000000000, "s"}, {1000000, "ms"}, {1000, "us"}};
    (void)snprintf(text, SIZE_ROOM, "%" PRIu64 " ns", ns);
    for (size_t i = FIGURES(units); i-- > 0;)
        if (ns >= units[i].ns)
            (void)snprintf(text, SIZE_ROOM, "%.2f %s", (double)ns / (double)units[i].ns,
                           units[i].name);
}

static void write_figure(const struct vpmm_replay_pass *pass, const struct figure *figure,
                         char text[static SIZE_ROOM])
{
    switch (figure->unit) {
    case COUNT:
        (void)snprintf(text, SIZE_ROOM, "%" PRIu64, value_of(pass, figure));
        break;
    case SIZE:
        (void)vpmm_bytes_print(value_of(pass, figure), text, SIZE_ROOM);
        break;
    case TIME:
        write_time(value_of(pass, figure), text);
        break;
    case RATIO:
        (void)snprintf(text, SIZE_ROOM, "%.3f", ratio_in(pass));
        break;
    }
}

/* The name of a way stands over its passes. */
static int cell_width(const struct vpmm_cli_replays *replays)
{
    return replays->replays[0].result.n_passes == 1 ? CELL_WIDTH_ALONE : CELL_WIDTH;
}

static void print_head(const struct vpmm_cli_replays *replays)
{
    int width = cell_width(replays);
    char head[SIZE_ROOM];
    printf("\n%*s", LABEL_WIDTH, "");
    for (unsigned i = 0; i < replays->n_replays; i++)
        printf("%*s", width * (int)replays->replays[i].result.n_passes,
               vpmm_cli_replay_name(replays->replays[i].through));
    printf("\n%*s", LABEL_WIDTH, "");
    for (unsigned i = 0; i < replays->n_replays; i++)
        for (unsigned pass = 1; pass <= replays->replays[i].result.n_passes; pass++) {
            (void)snprintf(head, sizeof head, "pass %u", pass);
            printf("%*s", width, head);
        }
    putchar('\n');
}

static void print_row(const struct vpmm_cli_replays *replays, const struct figure *figure)
{
    char text[SIZE_ROOM];
    printf("%-*s", LABEL_WIDTH, figure->label);
    for (unsigned i = 0; i < replays->n_replays; i++)
        for (unsigned pass = 0; pass < replays->replays[i].result.n_passes; pass++) {
            write_figure(&replays->replays[i].result.passes[pass], figure, text);
            printf("%*s", cell_width(replays), text);
        }
    putchar('\n');
}

static bool is_zero(const struct vpmm_cli_replays *replays, const struct figure *figure)
{
    for (unsigned i = 0; i < replays->n_replays; i++)
        for (unsigned pass = 0; pass < replays->replays[i].result.n_passes; pass++)
            if (value_of(&replays->replays[i].result.passes[pass], figure))
                return false;
    return true;
}

static void print_table(const struct vpmm_cli_replays *replays)
{
    print_head(replays);
    for (size_t i = 0; i < FIGURES(figures); i++)
        print_row(replays, &figures[i]);
    for (size_t kind = 0; kind < VPMM_PRICE_KINDS; kind++) {
        char label[LABEL_WIDTH];
        const struct figure figure = {label, "", COUNT,
                                      offsetof(struct vpmm_replay_pass, tally.calls) +
                                          kind * sizeof(uint64_t)};
        (void)snprintf(label, sizeof label, "  %s", vpmm_price_name((enum vpmm_price_kind)kind));
        if (!is_zero(replays, &figure))
            print_row(replays, &figure);
    }
    puts("mallocs that the pool served");
    for (size_t i = 0; i < FIGURES(ways); i++)
        print_row(replays, &ways[i]);
}

static void print_left_out(const struct vpmm_tape *tape)
{
    const struct {
        uint64_t count;
        const char *text;
    } reasons[] = {
        {tape->n_small, "smaller mallocs"},
        {tape->n_refused, "that failed when they were recorded"},
        {tape->n_elsewhere, "of other devices"},
        {tape->n_unmatched, "frees without a malloc or mallocs at an address in use"},
    };
    const char *separator = "left out: ";
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        if (reasons[i].count == 0)
            continue;
        printf("%s%" PRIu64 " %s", separator, reasons[i].count, reasons[i].text);
        separator = ", ";
    }
    if (*separator == ',')
        putchar('\n');
}

void vpmm_cli_replays_print(const struct vpmm_cli_replays *replays)
{
    char size[SIZE_ROOM];
    const struct vpmm_tape *tape = replays->tape;
    const struct vpmm_replay_result *result = &replays->replays[0].result;
    (void)vpmm_bytes_print(replays->least_bytes, size, sizeof size);
    printf("%s: %" PRIu32 " mallocs", replays->path, tape->n_allocations);
    if (replays->least_bytes > 1)
        printf(" of %s and more", size);
    printf(", %" PRIu64 " frees\n", tape->n_frees);
    print_left_out(tape);
    printf("on %s%s%s%s\n", result->device, replays->note ? " (no GPU: " : "",
           replays->note ? replays->note : "", replays->note ? ")" : "");
    if (replays->is_simulated)
        puts("the pool only; a driver call takes what it took on an NVIDIA H200");
    if (result->is_preloaded)
        puts("cudaMalloc and cudaMallocAsync are served by the library, which is preloaded");
    if (tape->n_works && !result->has_work)
        printf("without the %" PRIu64 " kernels of the trace, which cannot be made here\n",
               tape->n_works);
    print_table(replays);
    if (!replays->has_limit)
        return;
    (void)vpmm_bytes_print(replays->limit_bytes, size, sizeof size);
    printf("\nsmallest limit with which the pool completes it: %s (%" PRIu64 " bytes), %.3f of the "
           "live peak\n",
           size, replays->limit_bytes, ratio_of(replays->limit_bytes, tape->live_peak_bytes));
}

/* ---- JSON ---- */

static void print_values(const struct vpmm_replay_pass *pass, const struct figure *some, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (some[i].unit == RATIO)
            printf("\"%s\": %.4f, ", some[i].key, ratio_in(pass));
        else
            printf("\"%s\": %" PRIu64 ", ", some[i].key, value_of(pass, &some[i]));
}

static void print_pass(const struct vpmm_replay_pass *pass)
{
    putchar('{');
    print_values(pass, figures, FIGURES(figures));
    print_values(pass, more_figures, FIGURES(more_figures));
    print_values(pass, ways, FIGURES(ways));
    printf("\"by_kind\": {");
    for (int kind = 0; kind < VPMM_PRICE_KINDS; kind++)
        printf("%s\"%s\": {\"calls\": %" PRIu64 ", \"handles\": %" PRIu64 ", \"ns\": %" PRIu64 "}",
               kind ? ", " : "", vpmm_price_name((enum vpmm_price_kind)kind),
               pass->tally.calls[kind], pass->tally.handles[kind], pass->tally.ns[kind]);
    printf("}}");
}

static void print_replay(const struct vpmm_cli_replay *replay)
{
    const struct vpmm_replay_result *result = &replay->result;
    uint64_t live_bytes = vpmm_replay_live_peak(result);
    uint64_t held_bytes = vpmm_replay_held_peak(result);
    printf("\n  {\"through\": \"%s\", \"device\": ", vpmm_cli_replay_name(replay->through));
    vpmm_cli_print_quoted(result->device);
    printf(", \"device_bytes\": %" PRIu64 ", \"page_bytes\": %" PRIu64 ", \"limit_bytes\": %" PRIu64
           ", \"has_kernels\": %s, \"is_preloaded\": %s,\n   \"live_peak_bytes\": %" PRIu64
           ", \"held_peak_bytes\": %" PRIu64 ", \"held_ratio\": %.4f,\n   \"passes\": [",
           result->device_bytes, result->page_bytes, result->limit_bytes,
           result->has_work ? "true" : "false", result->is_preloaded ? "true" : "false", live_bytes,
           held_bytes, ratio_of(held_bytes, live_bytes));
    for (unsigned i = 0; i < result->n_passes; i++) {
        printf("%s\n    ", i ? "," : "");
        print_pass(&result->passes[i]);
    }
    printf("],\n   \"over_time\": [");
    for (size_t i = 0; i < result->n_points; i++)
        printf("%s[%" PRIu64 ", %" PRIu64 ", %" PRIu64 "]", i ? ", " : "", result->points[i].ns,
               result->points[i].live_bytes, result->points[i].held_bytes);
    printf("]}");
}

void vpmm_cli_replays_print_json(const struct vpmm_cli_replays *replays)
{
    const struct vpmm_tape *tape = replays->tape;
    printf("{\"trace\": ");
    vpmm_cli_print_quoted(replays->path);
    printf(", \"on\": \"%s\", \"least_bytes\": %" PRIu64 ", \"mallocs\": %" PRIu32
           ", \"frees\": %" PRIu64 ", \"kernels\": %" PRIu64
           ",\n \"left_out\": {\"small\": %" PRIu64 ", \"failed\": %" PRIu64
           ", \"elsewhere\": %" PRIu64 ", \"unmatched\": %" PRIu64 "},\n",
           replays->is_simulated ? "sim" : "gpu", replays->least_bytes, tape->n_allocations,
           tape->n_frees, tape->n_works, tape->n_small, tape->n_refused, tape->n_elsewhere,
           tape->n_unmatched);
    if (replays->has_limit)
        printf(" \"smallest_limit_bytes\": %" PRIu64 ",\n", replays->limit_bytes);
    printf(" \"replays\": [");
    for (unsigned i = 0; i < replays->n_replays; i++) {
        fputs(i ? "," : "", stdout);
        print_replay(&replays->replays[i]);
    }
    printf("\n ]}\n");
}
