/* SPDX-License-Identifier: MIT */
#include "generate.h"

static struct step on(struct generator *generator, enum step_kind kind, unsigned thread,
                      unsigned stream, unsigned object)
{
    return (struct step){.kind = kind,
                         .thread = thread,
                         .spelling = (unsigned)chance_below(&generator->chance, 4),
                         .a = object,
                         .b = stream};
}

static bool add(struct generator *generator, enum step_kind kind, unsigned thread, unsigned stream,
                unsigned object)
{
    return generate_step(generator, on(generator, kind, thread, stream, object));
}

/* A block of the stream, written on it; BLOCKS_MAX: none. */
static unsigned block_on(struct generator *generator, unsigned thread, unsigned stream,
                         uint64_t bytes, bool is_async)
{
    unsigned block = generator->next_block;
    struct step step = on(generator, is_async ? STEP_MALLOC_ASYNC : STEP_MALLOC, thread,
                          is_async ? stream : 0, block);
    step.n = bytes;
    if (block == BLOCKS_MAX || !generate_step(generator, step))
        return BLOCKS_MAX;
    generator->next_block++;
    generator->home[block] = stream;
    (void)add(generator, STEP_WRITE, thread, stream, block);
    return block;
}

/* One stream frees, then waits for a flag that the work of the next owner sets. */
static void flag_of_the_next_owner(struct generator *generator, unsigned thread, unsigned stream,
                                   unsigned other)
{
    uint64_t bytes = generate_bytes(generator);
    unsigned first = block_on(generator, thread, stream, bytes, true);
    if (first == BLOCKS_MAX || generator->next_flag == FLAGS_MAX)
        return;
    unsigned flag = generator->next_flag++;
    (void)add(generator, STEP_FREE_ASYNC, thread, stream, first);
    (void)add(generator, STEP_WAIT_FLAG, thread, stream, flag);
    bool is_async = chance_below(&generator->chance, 2);
    (void)block_on(generator, thread, other, bytes, is_async);
    (void)add(generator, STEP_WRITE_FLAG, thread, other, flag);
}

/* A stream frees and dies; the next one may have its handle, and is another stream. */
static void reused_handle(struct generator *generator, unsigned thread, unsigned stream,
                          unsigned other)
{
    uint64_t bytes = generate_bytes(generator);
    unsigned block = block_on(generator, thread, stream, bytes, true);
    unsigned fresh = generator->next_stream;
    (void)other;
    if (block == BLOCKS_MAX || fresh == STREAMS_MAX || stream < STREAM_MADE)
        return;
    struct step create = on(generator, STEP_STREAM_CREATE, thread, fresh, 0);
    create.n = chance_below(&generator->chance, 2);
    (void)add(generator, STEP_FREE_ASYNC, thread, stream, block);
    if (!add(generator, STEP_STREAM_DESTROY, thread, stream, 0) ||
        !generate_step(generator, create))
        return;
    generator->next_stream++;
    (void)block_on(generator, thread, fresh, bytes, true);
}

/* A free with work still queued, and a next owner that waits for nothing. */
static void free_under_work(struct generator *generator, unsigned thread, unsigned stream,
                            unsigned other)
{
    uint64_t bytes = generate_bytes(generator);
    unsigned block = block_on(generator, thread, stream, bytes, false);
    if (block == BLOCKS_MAX)
        return;
    bool is_async = chance_below(&generator->chance, 2);
    (void)add(generator, is_async ? STEP_FREE_ASYNC : STEP_FREE, thread, is_async ? stream : 0,
              block);
    (void)block_on(generator, thread, other, bytes, chance_below(&generator->chance, 2));
}

/* Blocks of two streams are freed, and one request takes the pages of both. */
static void two_last_owners(struct generator *generator, unsigned thread, unsigned stream,
                            unsigned other)
{
    uint64_t page = generator->program->setting.page_bytes;
    uint64_t bytes = page * (1 + chance_below(&generator->chance, 4));
    unsigned blocks[6];
    for (int i = 0; i < 6; i++)
        blocks[i] = block_on(generator, thread, i % 2 ? stream : other, bytes, true);
    for (int i = 0; i < 6; i++)
        if (blocks[i] != BLOCKS_MAX)
            (void)add(generator, STEP_FREE_ASYNC, thread, i % 2 ? stream : other, blocks[i]);
    (void)block_on(generator, thread, stream, 3 * bytes, true);
    (void)block_on(generator, thread, other, 2 * bytes, chance_below(&generator->chance, 2));
}

/* A graph over two streams upon blocks from before; others allocate and free meanwhile. */
static void captured_course(struct generator *generator, unsigned thread, unsigned stream,
                            unsigned other)
{
    const struct reference *reference = generator->reference;
    unsigned block = block_on(generator, thread, stream, generate_bytes(generator), true);
    unsigned second = block_on(generator, thread, stream, generate_bytes(generator), false);
    unsigned fork = generate_event(generator, thread, stream);
    unsigned join = generate_event(generator, thread, other);
    unsigned graph = 0;
    while (graph < GRAPHS_MAX && reference->graphs[graph].is_alive)
        graph++;
    struct step begin = on(generator, STEP_CAPTURE_BEGIN, thread, stream, 0);
    begin.n = chance_below(&generator->chance, 3);
    if (block == BLOCKS_MAX || graph == GRAPHS_MAX || !generate_step(generator, begin))
        return;
    (void)add(generator, STEP_WRITE, thread, stream, block);
    if (fork < EVENTS_MAX && join < EVENTS_MAX && fork != join &&
        add(generator, STEP_RECORD, thread, stream, fork) &&
        add(generator, STEP_WAIT, thread, other, fork)) {
        (void)add(generator, STEP_WRITE, thread, other, second);
        (void)add(generator, STEP_CHECK, thread, other, block);
        (void)add(generator, STEP_RECORD, thread, other, join);
        (void)add(generator, STEP_WAIT, thread, stream, join);
    }
    unsigned elsewhere = generate_thread(generator);
    unsigned third = generate_stream(generator, elsewhere);
    if (third < STREAMS_MAX) {
        struct step mode = {.kind = STEP_CAPTURE_MODE, .thread = elsewhere, .n = 2};
        (void)generate_step(generator, mode);
        unsigned free_block = generate_block(generator);
        if (free_block < BLOCKS_MAX && free_block != block && free_block != second)
            (void)add(generator, chance_below(&generator->chance, 2) ? STEP_FREE : STEP_FREE_ASYNC,
                      elsewhere, third, free_block);
        (void)block_on(generator, elsewhere, third, generate_bytes(generator),
                       chance_below(&generator->chance, 2));
    }
    (void)add(generator, STEP_CAPTURE_END, thread, stream, graph);
    (void)add(generator, STEP_LAUNCH, thread, stream, graph);
    (void)add(generator, STEP_LAUNCH, thread, stream, graph);
    (void)add(generator, STEP_FREE_ASYNC, thread, stream, block);
}

/* An extent that lies in two regions, freed one after the other: whoever takes it waits for both.
 */
static void two_fences_of_an_extent(struct generator *generator, unsigned thread, unsigned stream,
                                    unsigned other)
{
    uint64_t page = generator->program->setting.page_bytes;
    uint64_t pages = 2 + generate_unit(generator) * chance_below(&generator->chance, 7);
    unsigned whole = block_on(generator, thread, stream, pages * page, true);
    if (whole == BLOCKS_MAX || !add(generator, STEP_FREE_ASYNC, thread, stream, whole))
        return;
    (void)add(generator, STEP_SYNC_STREAM, thread, stream, 0);
    unsigned low = block_on(generator, thread, stream, pages / 2 * page, true);
    unsigned high = block_on(generator, thread, stream, (pages - pages / 2) * page, true);
    (void)block_on(generator, thread, other, page, true);
    if (low == BLOCKS_MAX || high == BLOCKS_MAX)
        return;
    bool low_first = chance_below(&generator->chance, 2);
    (void)add(generator, STEP_FREE_ASYNC, thread, stream, low_first ? low : high);
    unsigned event = generate_event(generator, thread, stream);
    if (event < EVENTS_MAX)
        (void)add(generator, STEP_RECORD, thread, stream, event);
    (void)add(generator, STEP_WRITE, thread, stream, low_first ? high : low);
    (void)add(generator, STEP_FREE_ASYNC, thread, stream, low_first ? high : low);
    (void)block_on(generator, thread, stream, (pages + 1) * page, true);
    if (event < EVENTS_MAX)
        (void)add(generator, STEP_SYNC_EVENT, thread, 0, event);
    (void)add(generator, STEP_INFO, thread, 0, 0);
    (void)block_on(generator, thread, other, pages * page, true);
}

/* Freed blocks of several sizes that cannot merge, and one request for nearly all of their pages:
 * what is left over of an extent goes last. */
static void mixed_harvest(struct generator *generator, unsigned thread, unsigned stream,
                          unsigned other)
{
    uint64_t page = generator->program->setting.page_bytes;
    unsigned n = 2 + (unsigned)chance_below(&generator->chance, 2);
    unsigned blocks[3];
    uint64_t largest = 0;
    for (unsigned i = 0; i < n; i++) {
        uint64_t size = generate_unit(generator) << (1 + chance_below(&generator->chance, 3));
        blocks[i] = block_on(generator, thread, stream, size * page, true);
        largest = size > largest ? size : largest;
        (void)block_on(generator, thread, other, page, true);
    }
    for (unsigned i = 0; i < n; i++)
        if (blocks[i] != BLOCKS_MAX)
            (void)add(generator, STEP_FREE_ASYNC, thread, stream, blocks[i]);
    if (chance_below(&generator->chance, 2))
        (void)add(generator, STEP_SYNC_STREAM, thread, stream, 0);
    for (int i = 0; i < 3; i++) {
        unsigned block = block_on(generator, thread, stream, i ? page : (largest + 1) * page, true);
        if (block != BLOCKS_MAX)
            (void)add(generator, STEP_CHECK, thread, stream, block);
    }
}

/* A block that nobody uses, allocated on a stream from what that freed, and freed on another. */
static void unused_block(struct generator *generator, unsigned thread, unsigned stream,
                         unsigned other)
{
    uint64_t bytes = generate_bytes(generator);
    unsigned first = block_on(generator, thread, stream, bytes, true);
    if (first == BLOCKS_MAX || !add(generator, STEP_FREE_ASYNC, thread, stream, first))
        return;
    struct step unused = on(generator, STEP_MALLOC_ASYNC, thread, stream, generator->next_block);
    unused.n = bytes;
    if (unused.a == BLOCKS_MAX || !generate_step(generator, unused))
        return;
    generator->next_block++;
    (void)add(generator, STEP_FREE_ASYNC, thread, other, unused.a);
    (void)block_on(generator, thread, other, bytes, true);
}

/* A thread frees on its own stream and ends. */
static void thread_that_ends(struct generator *generator, unsigned thread, unsigned stream,
                             unsigned other)
{
    unsigned number = generator->next_thread;
    unsigned context = generator->reference->threads[thread].context;
    uint64_t bytes = generate_bytes(generator);
    (void)stream;
    if (number == THREADS_MAX || context == CONTEXTS_MAX ||
        !generate_step(generator, (struct step){.kind = STEP_THREAD_START, .a = number}))
        return;
    generator->next_thread++;
    unsigned own = STREAM_OWN + number * CONTEXTS_MAX + context;
    (void)generate_step(generator,
                        (struct step){.kind = STEP_CONTEXT_SET, .thread = number, .a = context});
    unsigned block = block_on(generator, number, own, bytes, true);
    if (block != BLOCKS_MAX)
        (void)add(generator, STEP_FREE_ASYNC, number, own, block);
    (void)generate_step(generator, (struct step){.kind = STEP_THREAD_END, .a = number});
    (void)block_on(generator, thread, other, bytes, true);
}

/* Asks a stream, an event on it and the host's memory what is complete, once nothing goes on. */
static void ask(struct generator *generator, unsigned thread, unsigned stream)
{
    struct step query = on(generator, STEP_QUERY_STREAM, thread, stream, 0);
    query.n = 1;
    (void)generate_step(generator, query);
    unsigned event = generate_event(generator, thread, stream);
    if (event < EVENTS_MAX && chance_below(&generator->chance, 2) &&
        add(generator, STEP_RECORD, thread, stream, event)) {
        query = (struct step){.kind = STEP_QUERY_EVENT, .thread = thread, .a = event, .n = 1};
        (void)generate_step(generator, query);
    }
    if (chance_below(&generator->chance, 4) == 0)
        (void)generate_step(generator, (struct step){.kind = STEP_LOOK, .thread = thread});
}

/* Another stream is held up, most of the time the legacy one: what of an allocation or a free comes
 * after its work, and what comes after them? */
static void held_up(struct generator *generator, unsigned thread, unsigned stream, unsigned other)
{
    uint64_t bytes = generate_bytes(generator);
    unsigned context = generator->reference->streams[stream].context;
    unsigned held = chance_below(&generator->chance, 3) ? context : other;
    unsigned blocks[3];
    for (int i = 0; i < 3; i++)
        blocks[i] =
            block_on(generator, thread, stream, bytes, i || chance_below(&generator->chance, 3));
    for (unsigned i = (unsigned)chance_below(&generator->chance, 3); i < 2; i++)
        (void)add(generator, STEP_FREE_ASYNC, thread, stream, blocks[i]);
    if (generator->next_flag == FLAGS_MAX)
        return;
    unsigned flag = generator->next_flag++;
    if (chance_below(&generator->chance, 3) == 0)
        (void)add(generator, STEP_SYNC_STREAM, thread, stream, 0);
    (void)add(generator, STEP_WAIT_FLAG, thread, held, flag);
    (void)block_on(generator, thread, held, GRANULE, true);
    switch (chance_below(&generator->chance, 3)) {
    case 0:
        (void)add(generator, STEP_FREE_ASYNC, thread, stream, blocks[2]);
        break;
    case 1:
        (void)add(generator, STEP_FREE, thread, 0, blocks[2]);
        break;
    default:
        bytes = chance_below(&generator->chance, 2) ? bytes : generate_bytes(generator);
        struct step unused =
            on(generator, STEP_MALLOC_ASYNC, thread, stream, generator->next_block);
        unused.n = bytes;
        if (unused.a < BLOCKS_MAX && generate_step(generator, unused))
            generator->next_block++;
    }
    ask(generator, thread, stream);
    (void)generate_step(generator,
                        (struct step){.kind = STEP_HOST_FLAG, .thread = thread, .a = flag});
}

void generate_idiom(struct generator *generator)
{
    static void (*const idioms[])(struct generator *, unsigned, unsigned, unsigned) = {
        flag_of_the_next_owner,
        reused_handle,
        free_under_work,
        two_last_owners,
        captured_course,
        thread_that_ends,
        two_fences_of_an_extent,
        unused_block,
        mixed_harvest,
        held_up,
        held_up,
        held_up,
    };
    unsigned thread = generate_thread(generator);
    unsigned stream = generate_stream(generator, thread);
    unsigned other = generate_stream(generator, thread);
    if (stream < STREAMS_MAX && other < STREAMS_MAX)
        idioms[chance_below(&generator->chance, sizeof idioms / sizeof *idioms)](generator, thread,
                                                                                 stream, other);
}
