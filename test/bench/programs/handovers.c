/* SPDX-License-Identifier: MIT */
/* handovers API COUNT (STREAMS EVENTS)...: so many hand-overs of 2 MiB among so many streams by so
 * many events: a block taken on one stream, an event recorded there, a wait for it on another one,
 * and the block freed there. Streams and events are drawn at random, the same in every run. All is
 * waited for after every 1,000, outside of the times, and so a bounded number is ever pending.
 *
 * The host's time of the four calls together: the mean of all, and percentiles. */
#define _GNU_SOURCE
#include "driver.h"

#define BLOCK_BYTES (2 * MIB)
#define N_BETWEEN 1000
#define MOST 100000

struct crowd {
    uint32_t n_streams, n_events;
    CUstream *streams;
    CUevent *events;
    uint64_t dice;
};

/* In [0, n). */
static uint32_t below(struct crowd *crowd, uint32_t n)
{
    crowd->dice = crowd->dice * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((crowd->dice >> 33) % n);
}

static struct crowd crowd_make(int n_streams, int n_events)
{
    struct crowd crowd = {.n_streams = (uint32_t)n_streams,
                          .n_events = (uint32_t)n_events,
                          .streams = calloc((size_t)n_streams, sizeof(CUstream)),
                          .events = calloc((size_t)n_events, sizeof(CUevent)),
                          .dice = 1};
    if (!crowd.streams || !crowd.events)
        give_up("no memory for streams and events");
    for (uint32_t i = 0; i < crowd.n_streams; i++)
        crowd.streams[i] = stream_make(CU_STREAM_NON_BLOCKING);
    for (uint32_t i = 0; i < crowd.n_events; i++)
        crowd.events[i] = event_make();
    return crowd;
}

static void crowd_free(struct crowd *crowd)
{
    for (uint32_t i = 0; i < crowd->n_events; i++)
        MUST(cuEventDestroy(crowd->events[i]));
    for (uint32_t i = 0; i < crowd->n_streams; i++)
        MUST(cuStreamDestroy(crowd->streams[i]));
    free(crowd->events);
    free(crowd->streams);
}

static double hand_over(struct crowd *crowd)
{
    CUdeviceptr block;
    uint32_t one = below(crowd, crowd->n_streams);
    uint32_t other = (one + 1 + below(crowd, crowd->n_streams - 1)) % crowd->n_streams;
    CUstream from = crowd->streams[one], to = crowd->streams[other];
    CUevent event = crowd->events[below(crowd, crowd->n_events)];
    double start_ns = now_ns();
    MUST(cuMemAllocAsync(&block, BLOCK_BYTES, from));
    MUST(cuEventRecord(event, from));
    MUST(cuStreamWaitEvent(to, event, 0));
    MUST(cuMemFreeAsync(block, to));
    return now_ns() - start_ns;
}

static void hand_over_all(struct crowd *crowd, struct times *times)
{
    for (size_t i = 0; i < times->room; i++) {
        times_add(times, hand_over(crowd));
        if (times->n % N_BETWEEN == 0)
            MUST(cuCtxSynchronize());
    }
    MUST(cuCtxSynchronize());
}

/* The first pass is a warm start. */
static void measure(size_t n_handovers, int n_streams, int n_events)
{
    char text[64];
    struct crowd crowd = crowd_make(n_streams, n_events);
    struct times times = times_make(n_handovers);
    hand_over_all(&crowd, &times);
    times.n = 0;
    hand_over_all(&crowd, &times);
    (void)snprintf(text, sizeof text, "handover_s%d_e%d", n_streams, n_events);
    figure(text, times_mean(&times), "ns");
    figure_quantiles(text, &times);
    times_free(&times);
    crowd_free(&crowd);
}

int main(int argc, char **argv)
{
    (void)begin(argc, argv);
    size_t n_handovers = (size_t)number_at(argc, argv, 2, 1);
    if (argc < 5)
        give_up("after the count come numbers of streams and of events");
    for (int i = 3; i < argc; i += 2) {
        int n_streams = number_at(argc, argv, i, 2), n_events = number_at(argc, argv, i + 1, 1);
        if (n_streams > MOST || n_events > MOST)
            give_up("so many streams or events are too many");
        measure(n_handovers, n_streams, n_events);
    }
    return 0;
}
