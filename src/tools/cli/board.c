/* SPDX-License-Identifier: MIT */
/* Writes what `vpmm top` shows of some processes onto a sheet. Must not look at a process: all
 * figures are in the glances that it is given. */
#define _GNU_SOURCE
#include "cli/board.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#define MARGIN 8u /* left of a bar */
#define TEXT_BYTES 32

/* ---- numbers for people ---- */

/* In five characters. */
static void print_bytes(char text[TEXT_BYTES], uint64_t bytes)
{
    const char *unit = "BKMGTPE";
    double number = (double)bytes;
    for (; number >= 1023.5 && unit[1]; unit++)
        number /= 1024;
    int digits = *unit == 'B' || number >= 99.95 ? 0 : number >= 9.995 ? 1 : 2;
    snprintf(text, TEXT_BYTES, bytes ? "%.*f%c" : "0", digits, number, *unit);
}

static void print_rate(char text[TEXT_BYTES], double number)
{
    const char *unit = " kMG";
    for (; number >= 9999.5 && unit[1]; unit++)
        number /= 1000;
    snprintf(text, TEXT_BYTES, "%.*f%.1s", number >= 99.95 || number == 0 ? 0 : 1, number,
             *unit == ' ' ? "" : unit);
}

/* ---- one device of one process ---- */

/* What a column is made of: a device's figures, and their growth since the look before. */
struct cell {
    const struct vpmm_report_device *now;
    struct vpmm_heap_counts grown;
    double seconds;
    double passed, asked; /* of the process: requests left to CUDA, and all */
    bool is_first;        /* device of its process */
};

static void show_bytes(char text[TEXT_BYTES], const struct cell *cell, uint64_t pages)
{
    print_bytes(text, pages * cell->now->page_bytes);
}

static void show_share(char text[TEXT_BYTES], double part, double whole)
{
    if (whole > 0)
        snprintf(text, TEXT_BYTES, "%.0f%%", part / whole * 100);
    else
        snprintf(text, TEXT_BYTES, "-");
}

#define COLUMN_PAGES(name, field)                                                                  \
    static void show_##name(char text[TEXT_BYTES], const struct cell *cell)                        \
    {                                                                                              \
        show_bytes(text, cell, cell->now->field);                                                  \
    }
#define COLUMN_HITS(name)                                                                          \
    static void show_##name(char text[TEXT_BYTES], const struct cell *cell)                        \
    {                                                                                              \
        show_share(text, (double)cell->grown.name, (double)cell->grown.mallocs);                   \
    }

COLUMN_PAGES(live, totals.live_pages)
COLUMN_PAGES(held, totals.held_pages)
COLUMN_PAGES(reusable, totals.free_pages)
COLUMN_PAGES(pending, pending_pages)
COLUMN_PAGES(zombies, totals.zombie_pages)
COLUMN_PAGES(holes, totals.hole_pages)
COLUMN_HITS(cache_hits)
COLUMN_HITS(habit_hits)
COLUMN_HITS(fits)
COLUMN_HITS(revives)
COLUMN_HITS(stitches)
COLUMN_HITS(grows)

static void show_requests(char text[TEXT_BYTES], const struct cell *cell)
{
    print_rate(text, (double)cell->grown.mallocs / cell->seconds);
}

static void show_waits(char text[TEXT_BYTES], const struct cell *cell)
{
    uint64_t waits = cell->grown.host_waits + cell->grown.stream_waits;
    print_rate(text, (double)waits / cell->seconds);
}

static void show_passed(char text[TEXT_BYTES], const struct cell *cell)
{
    if (cell->is_first)
        show_share(text, cell->passed, cell->asked);
    else
        *text = 0;
}

/* Where the line is too short, those of the highest rank are left out. */
static const struct column {
    const char *name;
    void (*show)(char text[TEXT_BYTES], const struct cell *cell);
    unsigned width, rank;
} columns[] = {
    {"LIVE", show_live, 6, 0},        {"HELD", show_held, 6, 0},
    {"REUSE", show_reusable, 6, 0},   {"PEND", show_pending, 6, 1},
    {"ZOMB", show_zombies, 6, 3},     {"HOLES", show_holes, 6, 5},
    {"REQ/s", show_requests, 7, 0},   {"CACHE", show_cache_hits, 6, 2},
    {"HABIT", show_habit_hits, 6, 3}, {"FIT", show_fits, 5, 2},
    {"REVIVE", show_revives, 7, 3},   {"STITCH", show_stitches, 7, 2},
    {"GROW", show_grows, 5, 2},       {"WAIT/s", show_waits, 7, 1},
    {"PASS", show_passed, 5, 1},
};
#define COLUMNS (sizeof columns / sizeof columns[0])
#define RANKS 6u
#define FIXED_WIDTH 28u /* process, device, and some of the program's name */

/* The ranks below which there is room. */
static unsigned rank_for(unsigned width)
{
    unsigned rank = RANKS;
    for (; rank > 1; rank--) {
        unsigned wanted = FIXED_WIDTH;
        for (unsigned i = 0; i < COLUMNS; i++)
            wanted += columns[i].rank < rank ? columns[i].width : 0;
        if (wanted <= width)
            break;
    }
    return rank;
}

/* Never below 0: a look at a process that runs is no moment of it. */
static void take_off(uint64_t *count, uint64_t before)
{
    *count = *count > before ? *count - before : 0;
}

static struct vpmm_heap_counts grown_since(const struct vpmm_watched *watched, unsigned i)
{
    struct vpmm_heap_counts counts = watched->now.devices[i].figures.counts;
    const struct vpmm_glance *before = &watched->before;
    for (unsigned k = 0; watched->has_before && k < before->n_devices; k++) {
        const struct vpmm_report_device *old = &before->devices[k].figures;
        if (old->device != watched->now.devices[i].figures.device)
            continue;
        take_off(&counts.mallocs, old->counts.mallocs);
        take_off(&counts.cache_hits, old->counts.cache_hits);
        take_off(&counts.habit_hits, old->counts.habit_hits);
        take_off(&counts.fits, old->counts.fits);
        take_off(&counts.revives, old->counts.revives);
        take_off(&counts.stitches, old->counts.stitches);
        take_off(&counts.grows, old->counts.grows);
        take_off(&counts.host_waits, old->counts.host_waits);
        take_off(&counts.stream_waits, old->counts.stream_waits);
    }
    return counts;
}

static uint64_t passed_since(const struct vpmm_watched *watched, unsigned route)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < 2; i++) {
        uint64_t count = watched->now.requests.counts[i][route];
        take_off(&count, watched->has_before ? watched->before.requests.counts[i][route] : 0);
        n += count;
    }
    return n;
}

static enum vpmm_style style_of(char mark)
{
    switch (mark) {
    case '#':
        return VPMM_STYLE_GREEN;
    case '+':
        return VPMM_STYLE_YELLOW;
    case '-':
        return VPMM_STYLE_CYAN;
    case 'z':
        return VPMM_STYLE_MAGENTA;
    case '.':
        return VPMM_STYLE_FAINT;
    default:
        return VPMM_STYLE_RED;
    }
}

unsigned vpmm_board_cells(unsigned width)
{
    unsigned cells = width > MARGIN + 12 ? width - MARGIN - 2 : 10;
    return cells < VPMM_REPORT_CELLS_MAX ? cells : VPMM_REPORT_CELLS_MAX;
}

static void write_bar(struct vpmm_sheet *sheet, const struct vpmm_glance *glance, unsigned i)
{
    vpmm_sheet_line(sheet);
    vpmm_sheet_put(sheet, VPMM_STYLE_PLAIN, "%*s[", (int)MARGIN, "");
    for (unsigned cell = 0; cell < glance->n_cells; cell++) {
        char mark = glance->devices[i].bar[cell];
        vpmm_sheet_put(sheet, style_of(mark), "%c", mark > ' ' && mark < 0x7f ? mark : '?');
    }
    vpmm_sheet_put(sheet, VPMM_STYLE_PLAIN, "]");
}

static void write_classes(struct vpmm_sheet *sheet, const struct vpmm_report_device *device)
{
    char used[TEXT_BYTES], held[TEXT_BYTES];
    if (!device->has_small || !device->small.pages)
        return;
    vpmm_sheet_line(sheet);
    vpmm_sheet_put(sheet, VPMM_STYLE_FAINT, "%*s small blocks:", (int)MARGIN, "");
    for (unsigned i = 0; i < VPMM_SMALL_CLASSES; i++) {
        const struct vpmm_small_class *class = &device->classes[i];
        print_bytes(used, class->bytes);
        print_bytes(held, class->pages * device->page_bytes);
        if (class->pages)
            vpmm_sheet_put(sheet, VPMM_STYLE_FAINT, "  %s %" PRIu64 " (%s in %s)",
                           vpmm_small_class_name(i), class->blocks, used, held);
    }
}

static void write_device(struct vpmm_sheet *sheet, const struct vpmm_watched *watched, unsigned i)
{
    char text[TEXT_BYTES];
    struct cell cell = {.now = &watched->now.devices[i].figures,
                        .grown = grown_since(watched, i),
                        .seconds = watched->seconds > 0 ? watched->seconds : 1,
                        .is_first = i == 0};
    unsigned rank = rank_for(sheet->columns);
    for (unsigned route = 0; route < VPMM_ROUTE_COUNT; route++) {
        double n = (double)passed_since(watched, route);
        cell.asked += n;
        cell.passed += route == VPMM_ROUTE_POOL ? 0 : n;
    }
    vpmm_sheet_line(sheet);
    vpmm_sheet_put(sheet, VPMM_STYLE_BOLD, "%7" PRIu64, watched->pid);
    vpmm_sheet_put(sheet, VPMM_STYLE_PLAIN, " %3d", cell.now->device);
    for (unsigned k = 0; k < COLUMNS; k++) {
        if (columns[k].rank >= rank)
            continue;
        columns[k].show(text, &cell);
        vpmm_sheet_put(sheet, VPMM_STYLE_PLAIN, "%*s", (int)columns[k].width, text);
    }
    vpmm_sheet_put(sheet, VPMM_STYLE_BOLD, "  %s", watched->now.program);
    write_bar(sheet, &watched->now, i);
    write_classes(sheet, cell.now);
}

/* ---- weights ---- */

/* What has grown since the look before, of the object with the same number: they have no names. */
static struct vpmm_offload_stats weights_grown(const struct vpmm_watched *watched, unsigned i)
{
    const struct vpmm_glance *before = &watched->before;
    struct vpmm_offload_stats grown = watched->now.weights[i].stats;
    if (!watched->has_before || i >= before->n_weights)
        return grown;
    const struct vpmm_offload_stats *old = &before->weights[i].stats;
    take_off(&grown.passes, old->passes);
    take_off(&grown.hits, old->hits);
    take_off(&grown.misses, old->misses);
    take_off(&grown.copied_bytes, old->copied_bytes);
    take_off(&grown.pass_ns, old->pass_ns);
    take_off(&grown.stall_ns, old->stall_ns);
    take_off(&grown.bound_ns, old->bound_ns);
    return grown;
}

static void write_weights(struct vpmm_sheet *sheet, const struct vpmm_watched *watched, unsigned i)
{
    const struct vpmm_report_offload *offload = &watched->now.weights[i];
    const struct vpmm_offload_stats *now = &offload->stats;
    struct vpmm_offload_stats grown = weights_grown(watched, i);
    double seconds = watched->seconds > 0 ? watched->seconds : 1;
    const uint64_t bytes[] = {now->weight_bytes, now->held_bytes, now->budget_bytes,
                              now->resident_bytes, now->ring_bytes};
    char texts[5][TEXT_BYTES], copied[TEXT_BYTES], passes[TEXT_BYTES], hits[TEXT_BYTES];
    char stall[TEXT_BYTES], bound[TEXT_BYTES];
    for (unsigned k = 0; k < 5; k++)
        print_bytes(texts[k], bytes[k]);
    print_bytes(copied, (uint64_t)((double)grown.copied_bytes / seconds));
    print_rate(passes, (double)grown.passes / seconds);
    show_share(hits, (double)grown.hits, (double)(grown.hits + grown.misses));
    show_share(stall, (double)grown.stall_ns, (double)grown.pass_ns);
    show_share(bound, (double)grown.bound_ns, (double)grown.pass_ns);
    vpmm_sheet_line(sheet);
    vpmm_sheet_put(sheet, VPMM_STYLE_BOLD, "%7" PRIu64, watched->pid);
    vpmm_sheet_put(sheet, VPMM_STYLE_PLAIN,
                   " %3d weights %s, held %s of %s: resident %s, ring %s; hits %s, copied %s/s, "
                   "passes/s %s, stalled %s, of the bound %s",
                   offload->device, texts[0], texts[1], texts[2], texts[3], texts[4], hits, copied,
                   passes, stall, bound);
}

/* Why requests were left to CUDA since the last look, if any were. */
static void write_reasons(struct vpmm_sheet *sheet, const struct vpmm_watched *watched)
{
    bool has_any = false;
    for (unsigned route = 0; route < VPMM_ROUTE_COUNT; route++) {
        uint64_t n = passed_since(watched, route);
        if (route == VPMM_ROUTE_POOL || !n)
            continue;
        if (!has_any) {
            vpmm_sheet_line(sheet);
            vpmm_sheet_put(sheet, VPMM_STYLE_FAINT, "%*s left to CUDA:", (int)MARGIN, "");
        }
        vpmm_sheet_put(sheet, VPMM_STYLE_FAINT, "%s %s %" PRIu64, has_any ? "," : "",
                       vpmm_report_route_key((enum vpmm_route)route), n);
        has_any = true;
    }
}

/* ---- all ---- */

static void write_sums(const struct vpmm_board *board, struct vpmm_sheet *sheet)
{
    static const char *const names[] = {"live", "held", "reusable", "pending"};
    uint64_t sums[4] = {0};
    char text[TEXT_BYTES];
    for (size_t i = 0; i < board->n; i++) {
        const struct vpmm_glance *glance = &board->watched[i]->now;
        for (unsigned k = 0; board->watched[i]->is_shown && k < glance->n_devices; k++) {
            const struct vpmm_report_device *device = &glance->devices[k].figures;
            const uint64_t pages[] = {device->totals.live_pages, device->totals.held_pages,
                                      device->totals.free_pages, device->pending_pages};
            for (unsigned sum = 0; sum < 4; sum++)
                sums[sum] += pages[sum] * device->page_bytes;
        }
    }
    vpmm_sheet_line(sheet);
    for (unsigned sum = 0; sum < 4; sum++) {
        print_bytes(text, sums[sum]);
        vpmm_sheet_put(sheet, VPMM_STYLE_PLAIN, "%s%s ", sum ? ", " : "", names[sum]);
        vpmm_sheet_put(sheet, VPMM_STYLE_BOLD, "%s", text);
    }
    vpmm_sheet_line(sheet);
    static const struct {
        char mark;
        const char *name;
    } legend[] = {{'#', "live"}, {'+', "pending"},     {'-', "free"}, {'z', "zombie"},
                  {'?', "busy"}, {'!', "quarantined"}, {'.', "hole"}};
    for (unsigned i = 0; i < sizeof legend / sizeof legend[0]; i++) {
        vpmm_sheet_put(sheet, style_of(legend[i].mark), "%c", legend[i].mark);
        vpmm_sheet_put(sheet, VPMM_STYLE_FAINT, " %s  ", legend[i].name);
    }
}

static void write_headings(const struct vpmm_board *board, struct vpmm_sheet *sheet)
{
    char clock[TEXT_BYTES] = "";
    struct tm moment;
    time_t now = time(NULL);
    size_t n_shown = 0;
    for (size_t i = 0; i < board->n; i++)
        n_shown += board->watched[i]->is_shown;
    if (localtime_r(&now, &moment))
        (void)strftime(clock, sizeof clock, "%H:%M:%S", &moment);
    vpmm_sheet_line(sheet);
    vpmm_sheet_put(sheet, VPMM_STYLE_BOLD, "vpmm top");
    vpmm_sheet_put(sheet, VPMM_STYLE_PLAIN, " - %s, %zu process%s", clock, n_shown,
                   n_shown == 1 ? "" : "es");
    if (board->interval_s > 0)
        vpmm_sheet_put(sheet, VPMM_STYLE_PLAIN, ", every %g s", board->interval_s);
    vpmm_sheet_put(sheet, VPMM_STYLE_FAINT, "%s", board->hint);
    write_sums(board, sheet);
    vpmm_sheet_line(sheet);
    vpmm_sheet_put(sheet, VPMM_STYLE_HEADING, "%7s %3s", "PID", "DEV");
    unsigned rank = rank_for(sheet->columns);
    for (unsigned i = 0; i < COLUMNS; i++)
        if (columns[i].rank < rank)
            vpmm_sheet_put(sheet, VPMM_STYLE_HEADING, "%*s", (int)columns[i].width,
                           columns[i].name);
    vpmm_sheet_put(sheet, VPMM_STYLE_HEADING, "  PROGRAM");
}

void vpmm_board_write(const struct vpmm_board *board, struct vpmm_sheet *sheet)
{
    write_headings(board, sheet);
    for (size_t i = 0; i < board->n; i++) {
        const struct vpmm_watched *watched = board->watched[i];
        for (unsigned k = 0; watched->is_shown && k < watched->now.n_devices; k++)
            write_device(sheet, watched, k);
        for (unsigned k = 0; watched->is_shown && k < watched->now.n_weights; k++)
            write_weights(sheet, watched, k);
        if (watched->is_shown) {
            write_reasons(sheet, watched);
            continue;
        }
        vpmm_sheet_line(sheet);
        vpmm_sheet_put(sheet, VPMM_STYLE_FAINT,
                       "%7" PRIu64 "   -  ended, or not to be seen any more  %s", watched->pid,
                       watched->now.program);
    }
}
