/* SPDX-License-Identifier: MIT */
/* Prints a summary for people. Must not look at the trace: all figures are in the summary. */
#include "cli/summary.h"

#include "base/bytes.h"

#include <stdio.h>
#include <string.h>

#define BAR_WIDTH 32
#define TIME_ROWS 16

struct size {
    char text[40];
};

static struct size size_of(uint64_t bytes)
{
    struct size size = {""};
    vpmm_bytes_print(bytes, size.text, sizeof size.text);
    return size;
}

struct time {
    char text[40];
};

static struct time time_of(uint64_t ns)
{
    struct time time = {""};
    double number = (double)ns;
    if (ns < 1000)
        snprintf(time.text, sizeof time.text, "%u ns", (unsigned)ns);
    else if (ns < 1000000)
        snprintf(time.text, sizeof time.text, "%.1f us", number / 1e3);
    else if (ns < 1000000000)
        snprintf(time.text, sizeof time.text, "%.2f ms", number / 1e6);
    else
        snprintf(time.text, sizeof time.text, "%.3f s", number / 1e9);
    return time;
}

static void print_bar(uint64_t part, uint64_t most)
{
    static const char bar[] = "################################";
    int width = most ? (int)((double)part / (double)most * BAR_WIDTH + 0.5) : 0;
    printf("%.*s\n", width, bar);
}

static unsigned long long llu(uint64_t number)
{
    return number;
}

/* "1 block", "2 blocks". */
static struct size count_of(uint64_t n, const char *one)
{
    struct size count = {""};
    snprintf(count.text, sizeof count.text, "%llu %.8s%s", llu(n), one, n == 1 ? "" : "s");
    return count;
}

/* ---- parts ---- */

static void print_head(const struct vpmm_summary *summary, const struct vpmm_trace_facts *facts,
                       const char *name)
{
    printf("%s: ", name);
    if (facts->program[0])
        printf("%s, ", facts->program);
    if (facts->pid)
        printf("process %llu%s, ", llu(facts->pid),
               facts->is_ended ? "" : " (which runs, or was killed)");
    printf("%llu mallocs and %llu frees from %s to %s\n", llu(summary->n_mallocs),
           llu(summary->n_frees), time_of(summary->first_ns).text, time_of(summary->last_ns).text);
    if (summary->device >= 0)
        printf("  of device %d alone\n", summary->device);
    if (facts->dropped)
        printf(
            "  %llu entries were dropped, for which there was no room: what follows lacks them\n",
            llu(facts->dropped));
    if (summary->n_made_up)
        printf("  %s missing: the address was served again\n",
               count_of(summary->n_made_up, "free").text);
    if (summary->n_unknown)
        printf("  %s of blocks from before the trace\n", count_of(summary->n_unknown, "free").text);
    if (summary->n_kernels + summary->n_events)
        printf("  %llu kernels, %llu events and waits for events\n", llu(summary->n_kernels),
               llu(summary->n_events));
}

static void print_peak(const char *word, const struct vpmm_summary_peak *peak)
{
    printf("  %-9s %12s  at %s, with %s live\n", word, size_of(peak->bytes).text,
           time_of(peak->at_ns).text, count_of(peak->n_blocks, "block").text);
}

static void print_peaks(const struct vpmm_summary *summary)
{
    const struct vpmm_summary_device *all = &summary->all;
    unsigned n_devices = 0;
    puts("\nPeaks");
    print_peak("live", &all->live);
    if (all->has_held) {
        print_peak("held", &all->held);
        if (all->live.bytes)
            printf("  %-9s %12.3f\n", "held/live",
                   (double)all->held.bytes / (double)all->live.bytes);
    }
    for (unsigned i = 0; i < VPMM_SUMMARY_DEVICES; i++)
        n_devices += summary->devices[i].is_used;
    for (unsigned i = 0; n_devices > 1 && i < VPMM_SUMMARY_DEVICES; i++) {
        const struct vpmm_summary_device *device = &summary->devices[i];
        if (device->is_used)
            printf("  device %-3u live %s, held %s\n", i, size_of(device->live.bytes).text,
                   size_of(device->held.bytes).text);
    }
}

static void print_groups(const char *word, const struct vpmm_summary_group *groups, unsigned n,
                         uint64_t all, uint64_t bytes)
{
    printf("  by %s%s\n", word, all > n ? ", the largest" : "");
    for (unsigned i = 0; i < n; i++) {
        char key[32];
        snprintf(key, sizeof key, groups[i].key > UINT32_MAX ? "0x%llx" : "%llu",
                 llu(groups[i].key));
        printf("    %12s  %15s %12s %5.1f%%\n",
               strcmp(word, "size") == 0 ? size_of(groups[i].key).text : key,
               count_of(groups[i].n, "block").text, size_of(groups[i].bytes).text,
               bytes ? 100.0 * (double)groups[i].bytes / (double)bytes : 0.0);
    }
}

static void print_blocks(const struct vpmm_summary *summary,
                         const struct vpmm_summary_blocks *blocks, const char *title)
{
    printf("\n%s: %s, %s\n", title, count_of(blocks->all.n, "block").text,
           size_of(blocks->all.bytes).text);
    if (blocks->all.n == 0)
        return;
    print_groups("size", blocks->sizes, blocks->n_sizes, blocks->all_sizes, blocks->all.bytes);
    if (blocks->all_streams > 1)
        print_groups("stream", blocks->streams, blocks->n_streams, blocks->all_streams,
                     blocks->all.bytes);
    if (summary->has_threads && blocks->all_threads > 1)
        print_groups("thread", blocks->threads, blocks->n_threads, blocks->all_threads,
                     blocks->all.bytes);
}

static void print_time(const struct vpmm_summary *summary)
{
    unsigned n = vpmm_summary_n_spans(summary), each = (n + TIME_ROWS - 1) / TIME_ROWS;
    bool has_held = summary->all.has_held;
    if (n == 0)
        return;
    printf("\nOver time, the most in each part\n  %10s %12s", "from", "live");
    if (has_held)
        printf(" %12s %12s  held, not live", "held", "not live");
    putchar('\n');
    for (unsigned at = 0; at < n; at += each) {
        struct vpmm_summary_span most = {0};
        for (unsigned i = at; i < at + each && i < n; i++) {
            const struct vpmm_summary_span *span = &summary->spans[i];
            most.live_bytes =
                span->live_bytes > most.live_bytes ? span->live_bytes : most.live_bytes;
            most.held_bytes =
                span->held_bytes > most.held_bytes ? span->held_bytes : most.held_bytes;
            most.unused_bytes =
                span->unused_bytes > most.unused_bytes ? span->unused_bytes : most.unused_bytes;
        }
        printf("  %10s %12s", time_of(summary->first_ns + at * summary->span_ns).text,
               size_of(most.live_bytes).text);
        if (has_held)
            printf(" %12s %12s", size_of(most.held_bytes).text, size_of(most.unused_bytes).text);
        printf("  ");
        print_bar(has_held ? most.unused_bytes : most.live_bytes,
                  has_held ? summary->all.held.bytes : summary->all.live.bytes);
    }
}

static void print_sizes(const struct vpmm_summary *summary)
{
    uint64_t most = 0;
    for (unsigned i = 0; i < VPMM_SUMMARY_SIZES; i++)
        most = summary->sizes[i].n > most ? summary->sizes[i].n : most;
    puts("\nSizes");
    for (unsigned i = 0; i < VPMM_SUMMARY_SIZES; i++) {
        const struct vpmm_summary_count *count = &summary->sizes[i];
        if (count->n == 0)
            continue;
        printf("  from %10s %18s %12s  ", size_of((uint64_t)1 << i).text,
               count_of(count->n, "malloc").text, size_of(count->bytes).text);
        print_bar(count->n, most);
    }
}

static void print_lives(const struct vpmm_summary *summary)
{
    static const char *const texts[] = {"below 1 us",  "below 10 us",  "below 100 us", "below 1 ms",
                                        "below 10 ms", "below 100 ms", "below 1 s",    "below 10 s",
                                        "below 100 s", "longer"};
    uint64_t most = summary->at_end.all.n;
    for (unsigned i = 0; i < VPMM_SUMMARY_LIVES; i++)
        most = summary->lives[i].n > most ? summary->lives[i].n : most;
    puts("\nLifetimes");
    for (unsigned i = 0; i < VPMM_SUMMARY_LIVES; i++) {
        const struct vpmm_summary_count *count = &summary->lives[i];
        if (count->n == 0)
            continue;
        printf("  %-15s %17s %12s  ", texts[i], count_of(count->n, "block").text,
               size_of(count->bytes).text);
        print_bar(count->n, most);
    }
    if (summary->at_end.all.n) {
        printf("  %-15s %17s %12s  ", "never freed", count_of(summary->at_end.all.n, "block").text,
               size_of(summary->at_end.all.bytes).text);
        print_bar(summary->at_end.all.n, most);
    }
}

static void print_times(const char *word, const struct vpmm_summary_times *times)
{
    if (times->n == 0)
        return;
    printf("  %-44s %9llu %10s %10s %10s\n", word, llu(times->n),
           time_of(vpmm_summary_quantile(times, 500)).text,
           time_of(vpmm_summary_quantile(times, 990)).text, time_of(times->max_ns).text);
}

static void print_calls(const struct vpmm_summary *summary)
{
    char room[64];
    if (!summary->has_durations && !summary->has_paths)
        return;
    printf("\nCalls %49s %10s %10s %10s\n", "number", "p50", "p99", "max");
    print_times("mallocs", &summary->mallocs);
    for (unsigned i = 0; i < VPMM_SUMMARY_PATHS; i++) {
        char word[72];
        snprintf(word, sizeof word, "  %s", vpmm_summary_path_text(i, room));
        print_times(word, &summary->paths[i].times);
    }
    print_times("frees", &summary->frees);
    print_times("waits on the host", &summary->host_waits);
    print_times("waits on the device", &summary->stream_waits);
    if (summary->n_failed)
        printf("  %s failed\n", count_of(summary->n_failed, "malloc").text);
    for (unsigned i = VPMM_TRACE_GROW; i <= VPMM_TRACE_RELEASE; i++) {
        static const char *const words[] = {"grown", "stitched", "unmapped", "released"};
        if (summary->pool[i].n)
            printf("  %s %llu times, %s\n", words[i - VPMM_TRACE_GROW], llu(summary->pool[i].n),
                   size_of(summary->pool[i].bytes).text);
    }
}

static void print_weights(const struct vpmm_summary *summary)
{
    static const char *const words[] = {"loaded", "evicted", "passes, copied in them"};
    const struct vpmm_summary_count *counts = &summary->pool[VPMM_TRACE_WEIGHTS_LOAD];
    if (!counts[0].n && !counts[2].n)
        return;
    puts("\nWeights");
    for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++)
        printf("  %-44s %9llu %10s\n", words[i], llu(counts[i].n), size_of(counts[i].bytes).text);
}

static void print_slowest(const struct vpmm_summary *summary)
{
    if (summary->n_slowest == 0)
        return;
    puts("\nSlowest calls");
    for (unsigned i = 0; i < summary->n_slowest; i++) {
        const struct vpmm_summary_call *call = &summary->slowest[i];
        const struct vpmm_trace_entry *entry = &call->entry;
        char room[64];
        printf("  %10s  at %10s  %-15s %12s  thread %llu  %s\n", time_of(entry->duration_ns).text,
               time_of(entry->ns).text, vpmm_summary_call_text(entry), size_of(entry->bytes).text,
               llu(call->thread), vpmm_summary_path_text(entry->path, room));
    }
}

void vpmm_summary_print(const struct vpmm_summary *summary, const struct vpmm_trace_facts *facts,
                        const char *name)
{
    print_head(summary, facts, name);
    print_peaks(summary);
    print_blocks(summary, &summary->at_peak, "Live at the peak");
    print_time(summary);
    print_sizes(summary);
    print_lives(summary);
    print_calls(summary);
    print_weights(summary);
    print_slowest(summary);
    print_blocks(summary, &summary->at_end, "Still live at the end");
}
