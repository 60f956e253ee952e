/* SPDX-License-Identifier: MIT */
/* The device's part of a program on any driver: calls that every driver has, and no kernels. Of
 * each block the first words of its first granules are written and read, by copies and fills of two
 * dimensions; what is read goes to the host and is compared once it has been waited for. */
#define _GNU_SOURCE
#include "plain.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ROWS_MAX 16u
#define ROW_BYTES 8u
#define HOST_BYTES ((size_t)4 << 20)
#define READS_MAX 4096
#define ASK_US 100

struct read {
    const uint32_t *words;
    unsigned n_rows, block;
    uint32_t expected;
    struct set after; /* what the copy's end tells to be complete */
    bool is_checked, is_landing;
};

struct reads {
    struct read list[READS_MAX];
    unsigned n;
};

/* The process's own context, which no program ends: of the host memory that all share. */
static CUcontext keeper;
static unsigned char *host;
static size_t n_host; /* used by this program */
static unsigned settle_us;
static bool holds_primary;

void plain_be_patient(unsigned settle_ms)
{
    settle_us = settle_ms * 1000;
}

/* Physical memory alone, so that no allocator counts it as a block of the program. */
void plain_leave_free(const struct api *api, uint64_t bytes)
{
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
    };
    CUmemGenericAllocationHandle handle;
    CUcontext context;
    size_t free_bytes, total_bytes;
    if (api->cuInit(0) != CUDA_SUCCESS ||
        api->cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        api->cuCtxSetCurrent(context) != CUDA_SUCCESS ||
        api->cuMemGetInfo_v2(&free_bytes, &total_bytes) != CUDA_SUCCESS)
        fail(0, "START", "no device");
    uint64_t taken = free_bytes > bytes ? (free_bytes - bytes) >> 30 << 30 : 0;
    if (taken && api->cuMemCreate(&handle, taken, &properties, 0) != CUDA_SUCCESS)
        fail(0, "START", "no ballast of %" PRIu64 " bytes", taken);
    (void)api->cuCtxSetCurrent(NULL);
    (void)api->cuDevicePrimaryCtxRelease_v2(0);
}

static void keep(const struct api *api)
{
    CUcontext popped;
    if (api->cuCtxCreate_v2(&keeper, 0, 0) != CUDA_SUCCESS ||
        api->cuMemHostAlloc((void **)&host, HOST_BYTES,
                            CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP) != CUDA_SUCCESS ||
        api->cuCtxPopCurrent_v2(&popped) != CUDA_SUCCESS)
        fail(0, "START", "no context, or no host memory");
    memset(host, 0, HOST_BYTES);
}

/* NULL where the program has used all of it. */
static void *host_take(size_t bytes)
{
    if (n_host + bytes > HOST_BYTES)
        return NULL;
    n_host += bytes;
    return host + n_host - bytes;
}

bool device_holds_primary(void)
{
    return holds_primary;
}

void device_start(struct run *run)
{
    if (!keeper)
        keep(run->api);
    memset(host, 0, n_host);
    n_host = 0;
    run->flags = host_take(FLAGS_MAX * sizeof *run->flags);
    run->landings = calloc(1, sizeof(struct reads));
    if (!run->landings)
        abort();
    if (!holds_primary)
        device_meet(run, run->contexts[0]);
}

uint64_t device_mallocs(const struct run *run)
{
    (void)run;
    return 0;
}

static unsigned rows_of(uint64_t bytes)
{
    uint64_t rows = (bytes + GRANULE - ROW_BYTES) / GRANULE;
    return rows < ROWS_MAX ? (unsigned)rows : ROWS_MAX;
}

static size_t pitch_of(const struct run *run)
{
    return GRANULE * run->scale;
}

static uint32_t word_of(const struct run *run, const struct content *content)
{
    if (content->kind == CONTENT_BYTE)
        return (uint32_t)content->stamp * 0x01010101u;
    uint64_t mixed = (content->stamp ^ run->program->setting.seed << 40) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(mixed >> 32) | 1;
}

static CUDA_MEMCPY2D copy_of(const struct run *run, unsigned rows)
{
    return (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcPitch = pitch_of(run),
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstPitch = pitch_of(run),
                           .WidthInBytes = ROW_BYTES,
                           .Height = rows};
}

static void to_host_memory(CUDA_MEMCPY2D *copy, void *to)
{
    copy->dstMemoryType = CU_MEMORYTYPE_HOST;
    copy->dstHost = to;
    copy->dstPitch = ROW_BYTES;
}

/* Code that the driver loads at the first call would wait for the program's work later. */
void device_meet(struct run *run, CUcontext context)
{
    const struct api *api = run->api;
    CUdeviceptr address = 0;
    CUcontext popped;
    CUDA_MEMCPY2D copy = copy_of(run, 2);
    unsigned char bytes[2 * ROW_BYTES];
    to_host_memory(&copy, bytes);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    (void)api->cuThreadExchangeStreamCaptureMode(&mode);
    bool could = api->cuCtxPushCurrent_v2(context) == CUDA_SUCCESS &&
                 api->cuMemAlloc_v2(&address, 4096) == CUDA_SUCCESS;
    copy.srcDevice = address;
    copy.srcPitch = 512;
    could = could &&
            api->cuMemsetD2D32Async[0](address, 512, 1, 2, 2, CU_STREAM_LEGACY) == CUDA_SUCCESS &&
            api->cuMemsetD2D8Async[0](address, 512, 1, 2, 2, CU_STREAM_LEGACY) == CUDA_SUCCESS &&
            api->cuMemcpy2D_v2[0](&copy) == CUDA_SUCCESS &&
            api->cuMemFree_v2(address) == CUDA_SUCCESS &&
            api->cuCtxPopCurrent_v2(&popped) == CUDA_SUCCESS;
    (void)api->cuThreadExchangeStreamCaptureMode(&mode);
    if (!could)
        fail(run->number, "START", "a new context cannot be used");
}

static CUresult write_words(struct turn *turn, CUdeviceptr address, uint64_t bytes, uint32_t word)
{
    return ON(cuMemsetD2D32Async)(address, pitch_of(turn->run), word, 2, rows_of(bytes),
                                  turn_stream(turn));
}

static uint64_t stamp_of_node(const struct turn *turn)
{
    const struct reference *reference = &turn->run->reference;
    unsigned capture = reference->streams[turn->step->b].capture;
    const struct graph *graph = &reference->captures[capture].graph;
    return graph->nodes[graph->n - 1].stamp;
}

/* Copies the block's words to the host, to be compared later unless a graph does it. */
static CUresult read_words(struct turn *turn, bool is_landing)
{
    struct run *run = turn->run;
    struct reads *reads = run->landings;
    const struct block *block = &turn->before.block;
    const struct reference *reference = &run->reference;
    unsigned rows = rows_of(block->bytes);
    void *to = reads->n < READS_MAX ? host_take(rows * (size_t)ROW_BYTES) : NULL;
    if (!to)
        return CUDA_SUCCESS;
    if (!turn->before.is_captured)
        reads->list[reads->n++] = (struct read){
            .words = to,
            .n_rows = block->content.kind == CONTENT_NONE ? 0 : rows_of(block->content.valid_bytes),
            .block = turn->step->a,
            .expected = word_of(run, &block->content),
            .after = reference->operations[reference->n_operations - 1].before,
            .is_landing = is_landing};
    CUDA_MEMCPY2D copy = copy_of(run, rows);
    copy.srcDevice = run->addresses[turn->step->a];
    to_host_memory(&copy, to);
    return ON(cuMemcpy2DAsync_v2)(&copy, turn_stream(turn));
}

CUresult device_use(struct turn *turn)
{
    const struct step *step = turn->step;
    const struct block *block = &turn->run->reference.blocks[step->a];
    struct content content = block->content;
    if (step->kind == STEP_CHECK)
        return read_words(turn, false);
    if (turn->before.is_captured)
        content = (struct content){.kind = CONTENT_PATTERN, .stamp = stamp_of_node(turn)};
    return write_words(turn, turn->run->addresses[step->a], block->bytes,
                       word_of(turn->run, &content));
}

CUresult device_write_scratch(struct turn *turn, CUdeviceptr address)
{
    return write_words(turn, address, turn->step->n, 77);
}

CUresult device_copy(struct turn *turn)
{
    const struct step *step = turn->step;
    uint64_t to_bytes = turn->before.block.bytes;
    uint64_t from_bytes = turn->before.from.bytes;
    CUDA_MEMCPY2D copy = copy_of(turn->run, rows_of(to_bytes < from_bytes ? to_bytes : from_bytes));
    copy.srcDevice = turn->run->addresses[step->c];
    copy.dstDevice = turn->run->addresses[step->a];
    if (step->kind == STEP_COPY)
        return ON(cuMemcpy2DAsync_v2)(&copy, turn_stream(turn));
    return turn->run->api->cuMemcpy2D_v2[step->b >= CONTEXTS_MAX](&copy);
}

CUresult device_fill(struct turn *turn)
{
    return ON(cuMemsetD2D8Async)(turn->run->addresses[turn->step->a], pitch_of(turn->run),
                                 (unsigned char)turn->step->n, ROW_BYTES,
                                 rows_of(turn->before.block.bytes), turn_stream(turn));
}

CUresult device_to_host(struct turn *turn)
{
    return read_words(turn, true);
}

CUresult device_from_host(struct turn *turn)
{
    const struct block *block = &turn->run->reference.blocks[turn->step->a];
    unsigned rows = rows_of(block->bytes);
    uint32_t *words = host_take(rows * (size_t)ROW_BYTES);
    uint32_t word = word_of(turn->run, &block->content);
    if (!words)
        return write_words(turn, turn->run->addresses[turn->step->a], block->bytes, word);
    for (unsigned i = 0; i < 2 * rows; i++)
        words[i] = word;
    CUDA_MEMCPY2D copy = copy_of(turn->run, rows);
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = words;
    copy.srcPitch = ROW_BYTES;
    copy.dstDevice = turn->run->addresses[turn->step->a];
    return ON(cuMemcpy2DAsync_v2)(&copy, turn_stream(turn));
}

/* The row that differs, or the number of rows. */
static unsigned row_that_differs(const uint32_t *words, unsigned n_rows, uint32_t expected)
{
    unsigned row = 0;
    while (row < n_rows && words[2 * row] == expected && words[2 * row + 1] == expected)
        row++;
    return row;
}

uint64_t device_look(struct run *run)
{
    const struct reads *reads = run->landings;
    uint64_t seen = 0;
    unsigned n = 0;
    /* A simulated device gets on within calls. */
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    (void)run->api->cuThreadExchangeStreamCaptureMode(&mode);
    (void)run->api->cuThreadExchangeStreamCaptureMode(&mode);
    usleep(settle_us);
    for (unsigned i = 0; i < reads->n; i++) {
        const struct read *read = &reads->list[i];
        if (!read->is_landing)
            continue;
        if (row_that_differs(read->words, read->n_rows, read->expected) == read->n_rows)
            seen |= (uint64_t)1 << n;
        n++;
    }
    return seen;
}

CUresult device_ask_settled(struct turn *turn, CUresult (*ask)(struct turn *))
{
    CUresult answer = ask(turn);
    for (unsigned us = 0; answer == CUDA_ERROR_NOT_READY && us < settle_us; us += ASK_US) {
        usleep(ASK_US);
        answer = ask(turn);
    }
    return answer;
}

void device_get_on(struct run *run, uint64_t n_operations)
{
    (void)run;
    (void)n_operations;
}

void device_check_known(struct run *run)
{
    struct reads *reads = run->landings;
    for (unsigned i = 0; i < reads->n; i++) {
        struct read *read = &reads->list[i];
        if (read->is_checked || !set_has_all(&run->reference.done, &read->after))
            continue;
        unsigned row = row_that_differs(read->words, read->n_rows, read->expected);
        if (row < read->n_rows)
            fail(run->number, "BYTES",
                 "block %u held %#" PRIx32 " in granule %u instead of %#" PRIx32, read->block,
                 read->words[2 * row], row, read->expected);
        read->is_checked = true;
    }
}

/* At the end of a program nothing is held up any more, and all that is still there is looked at. */
void device_check_freed(struct turn *turn)
{
    const struct run *run = turn->run;
    const struct block *block = &turn->before.block;
    uint32_t words[2 * ROWS_MAX];
    if (turn->number < run->program->n || block->content.kind == CONTENT_NONE)
        return;
    unsigned rows = rows_of(block->content.valid_bytes);
    CUDA_MEMCPY2D copy = copy_of(run, rows);
    copy.srcDevice = run->addresses[turn->step->a];
    to_host_memory(&copy, words);
    if (rows && run->api->cuMemcpy2D_v2[0](&copy) != CUDA_SUCCESS)
        fail(turn->number, "REFUSED", "block %u cannot be read", turn->step->a);
    uint32_t expected = word_of(run, &block->content);
    unsigned row = row_that_differs(words, rows, expected);
    if (row < rows)
        fail(turn->number, "BYTES",
             "block %u holds %#" PRIx32 " in granule %u instead of %#" PRIx32, turn->step->a,
             words[2 * row], row, expected);
}

static void end_context(struct run *run, unsigned number)
{
    const struct context *context = &run->reference.contexts[number];
    if (number >= DEVICES) {
        if (context->is_alive && run->api->cuCtxDestroy_v2(run->contexts[number]) != CUDA_SUCCESS)
            fail(run->number, "END", "context %u cannot be destroyed", number);
        return;
    }
    bool is_kept = number == 0 && context->is_alive && context->retained;
    for (unsigned i = is_kept; i < context->retained; i++)
        if (run->api->cuDevicePrimaryCtxRelease_v2((int)number) != CUDA_SUCCESS)
            fail(run->number, "END", "a primary context cannot be released");
    if (number == 0)
        holds_primary = is_kept;
}

void device_end(struct run *run)
{
    const struct reference *reference = &run->reference;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    (void)run->api->cuThreadExchangeStreamCaptureMode(&mode);
    free_extras(run);
    for (unsigned i = STREAM_MADE; i < STREAMS_MAX; i++)
        if (reference->streams[i].is_alive)
            (void)run->api->cuStreamDestroy_v2(run->streams[i]);
    for (unsigned i = 0; i < EVENTS_MAX; i++)
        if (reference->events[i].is_alive)
            (void)run->api->cuEventDestroy_v2(run->events[i]);
    for (unsigned i = CONTEXTS_MAX; i-- > 0;)
        end_context(run, i);
    (void)run->api->cuCtxSetCurrent(NULL);
    free(run->landings);
}
