/* SPDX-License-Identifier: MIT */
#include "generate.h"

#include <stdlib.h>
#include <string.h>

#define TRIES 40

static uint64_t below(struct generator *generator, uint64_t n)
{
    return chance_below(&generator->chance, n);
}

bool generate_step(struct generator *generator, struct step step)
{
    struct program *program = generator->program;
    if (program->n == generator->n_wanted || reference_make(generator->reference, &step))
        return false;
    program->steps[program->n++] = step;
    bool uses = step_is_malloc_async(step.kind) || step.kind == STEP_WRITE ||
                step.kind == STEP_CHECK || step.kind == STEP_FILL || step.kind == STEP_COPY ||
                step.kind == STEP_FROM_HOST;
    if (uses)
        generator->home[step.a] = step.b;
    if (step.kind == STEP_FREE || step.kind == STEP_FREE_ASYNC || step.kind == STEP_EXCHANGE)
        generator->freed_bytes[generator->n_freed++ % 8] =
            generator->reference->blocks[step.a].bytes;
    return true;
}

/* Only what has many pages is cut into extents of several. */
uint64_t generate_unit(struct generator *generator)
{
    return generator->program->setting.extent_pages == 1 ? 1 : 1 + 3 * below(generator, 3);
}

uint64_t generate_bytes(struct generator *generator)
{
    uint64_t page = generator->program->setting.page_bytes;
    uint64_t device = generator->program->setting.device_pages * GRANULE;
    uint64_t draw = below(generator, 100);
    uint64_t unit = generate_unit(generator);
    uint64_t odd = below(generator, 3) ? 0 : below(generator, page);
    if (generator->program->setting.serves_small && below(generator, 2))
        return 8 + below(generator, (page - 8) >> below(generator, 8));
    if (draw < 10)
        return 8 + below(generator, page - 8);
    if (draw < 14)
        return page * unit - 1 + below(generator, 3);
    if (draw < 40 && generator->n_freed)
        return generator
            ->freed_bytes[below(generator, generator->n_freed < 8 ? generator->n_freed : 8)];
    if (draw < 80)
        return page * unit * (1 + below(generator, 4)) + odd;
    if (draw < 92)
        return page * (1 + below(generator, 8 + 8 * unit)) + odd;
    return page + below(generator, device / 5);
}

unsigned generate_block(struct generator *generator)
{
    unsigned live[BLOCKS_MAX];
    unsigned n = 0;
    for (unsigned i = 0; i < generator->next_block; i++)
        if (generator->reference->blocks[i].state == BLOCK_LIVE)
            live[n++] = i;
    return n ? live[below(generator, n)] : BLOCKS_MAX;
}

unsigned generate_thread(struct generator *generator)
{
    unsigned live[THREADS_MAX];
    unsigned n = 0;
    for (unsigned i = 0; i < THREADS_MAX; i++)
        if (generator->reference->threads[i].is_alive && !generator->reference->threads[i].is_away)
            live[n++] = i;
    return live[below(generator, n)];
}

unsigned generate_stream(struct generator *generator, unsigned thread)
{
    struct step step = {.thread = thread};
    unsigned known[STREAMS_MAX];
    unsigned n = 0;
    for (step.b = 0; step.b < STREAMS_MAX; step.b++)
        if (!stream_is_known(generator->reference, &step))
            known[n++] = step.b;
    return n ? known[below(generator, n)] : STREAMS_MAX;
}

unsigned generate_event(struct generator *generator, unsigned thread, unsigned stream)
{
    const struct reference *reference = generator->reference;
    unsigned context = reference->streams[stream].context;
    unsigned live[EVENTS_MAX];
    unsigned n = 0;
    unsigned unused = EVENTS_MAX;
    for (unsigned i = 0; i < EVENTS_MAX; i++)
        if (!reference->events[i].is_alive)
            unused = i;
        else if (reference->events[i].context == context)
            live[n++] = i;
    if (n > 2 && below(generator, 8))
        return live[below(generator, n)];
    struct step create = {.kind = STEP_EVENT_CREATE, .thread = thread, .a = unused};
    if (unused < EVENTS_MAX && reference->threads[thread].context == context &&
        generate_step(generator, create))
        return unused;
    return n ? live[below(generator, n)] : EVENTS_MAX;
}

static unsigned n_unset_flags(const struct generator *generator)
{
    bool is_waited_for[FLAGS_MAX] = {false};
    unsigned n = 0;
    const struct reference *reference = generator->reference;
    for (unsigned i = 0; i < reference->n_operations; i++) {
        unsigned flag = reference->operations[i].waits_for;
        if (flag == NOBODY || reference->flag_is_set[flag] || is_waited_for[flag])
            continue;
        is_waited_for[flag] = true;
        n++;
    }
    return n;
}

static unsigned any_flag(struct generator *generator, bool for_wait)
{
    const struct reference *reference = generator->reference;
    if (for_wait && n_unset_flags(generator) >= generator->n_unset_flags_max)
        return FLAGS_MAX;
    if (for_wait && (generator->next_flag == 0 || below(generator, 2)))
        return generator->next_flag < FLAGS_MAX ? generator->next_flag++ : FLAGS_MAX;
    for (unsigned i = 0; i < 4 && generator->next_flag; i++) {
        unsigned flag = (unsigned)below(generator, generator->next_flag);
        if (!reference->flag_is_taken[flag])
            return flag;
    }
    return FLAGS_MAX;
}

static void fill_stream(struct generator *generator, struct step *step)
{
    bool uses_block = step->kind == STEP_FREE_ASYNC || step->kind == STEP_WRITE ||
                      step->kind == STEP_CHECK || step->kind == STEP_FILL ||
                      step->kind == STEP_COPY || step->kind == STEP_TO_HOST ||
                      step->kind == STEP_FROM_HOST;
    step->spelling = (unsigned)below(generator, 4);
    step->b = generate_stream(generator, step->thread);
    if (uses_block && step->a < BLOCKS_MAX && below(generator, 4))
        step->b = generator->home[step->a];
    if (step->kind == STEP_COPY_NOW && step->b < STREAMS_MAX && step->b >= STREAM_MADE)
        step->b = generator->reference->threads[step->thread].context % CONTEXTS_MAX;
    if (step->kind == STEP_STREAM_CREATE)
        step->b = generator->next_stream;
}

/* Mostly so that the thread can go on using the contexts it knows. */
static unsigned any_context(struct generator *generator)
{
    return (unsigned)below(generator,
                           below(generator, 12) ? generator->next_context : CONTEXTS_MAX + 1);
}

/* Blocks and memory pools. */
static void fill_memory(struct generator *generator, struct step *step)
{
    unsigned pool = generator->next_pool ? (unsigned)below(generator, generator->next_pool) : 0;
    switch (step->kind) {
    case STEP_MALLOC_PITCH:
        step->a = generator->next_block;
        step->c = 1 + (unsigned)below(generator, 200);
        step->n = 8 + generate_bytes(generator) / step->c;
        break;
    case STEP_EXCHANGE:
        step->a = generate_block(generator);
        step->c = generator->next_block;
        step->n = generate_bytes(generator);
        break;
    case STEP_POOL_CREATE:
        step->a = generator->next_pool;
        step->b = (unsigned)below(generator, generator->n_devices);
        step->n = below(generator, 2) * below(generator, 64) * GRANULE;
        break;
    case STEP_POOL_USE:
    case STEP_POOL_USED:
        step->b = (unsigned)below(generator, generator->n_devices);
        step->a = below(generator, 3) && generator->next_pool ? pool : POOLS_MAX;
        break;
    case STEP_POOL_DESTROY:
    case STEP_POOL_TRIM:
        step->a = pool;
        step->n = step->kind == STEP_POOL_TRIM ? below(generator, 16) * GRANULE : 0;
        break;
    default:
        step->a = generator->next_block;
        step->n = generate_bytes(generator);
        step->c = step->kind == STEP_MALLOC_POOL ? pool : 0;
    }
}

static void fill_a(struct generator *generator, struct step *step)
{
    switch (step->kind) {
    case STEP_MALLOC:
    case STEP_MALLOC_ASYNC:
    case STEP_MALLOC_POOL:
    case STEP_MALLOC_PITCH:
    case STEP_EXCHANGE:
    case STEP_POOL_CREATE:
    case STEP_POOL_DESTROY:
    case STEP_POOL_TRIM:
    case STEP_POOL_USE:
    case STEP_POOL_USED:
        fill_memory(generator, step);
        break;
    case STEP_WAIT_FLAG:
    case STEP_WRITE_FLAG:
    case STEP_CALL_FLAG:
    case STEP_HOST_FLAG:
        step->a = any_flag(generator, step->kind == STEP_WAIT_FLAG);
        break;
    case STEP_CAPTURE_END:
    case STEP_LAUNCH:
    case STEP_GRAPH_DESTROY:
        step->a = (unsigned)below(generator, GRAPHS_MAX);
        break;
    case STEP_CONTEXT_CREATE:
        step->a = generator->next_context;
        step->b = (unsigned)below(generator, generator->n_devices);
        break;
    case STEP_CONTEXT_SET:
    case STEP_CONTEXT_DESTROY:
    case STEP_CONTEXT_DETACH:
    case STEP_PEER:
        step->a = any_context(generator);
        break;
    case STEP_PRIMARY_RETAIN:
    case STEP_PRIMARY_RELEASE:
    case STEP_PRIMARY_RESET:
        step->a = (unsigned)below(generator, generator->n_devices);
        break;
    case STEP_THREAD_START:
        step->a = generator->next_thread;
        break;
    case STEP_THREAD_END:
        step->a = (unsigned)below(generator, THREADS_MAX);
        break;
    default:
        step->a = generate_block(generator);
    }
}

static void fill(struct generator *generator, struct step *step)
{
    step->thread = generate_thread(generator);
    if (step->kind == STEP_THREAD_START || step->kind == STEP_THREAD_END)
        step->thread = 0;
    fill_a(generator, step);
    if (step_has_stream(step->kind))
        fill_stream(generator, step);
    if (step->b >= STREAMS_MAX)
        return;
    if (step->kind == STEP_RECORD)
        step->a = generate_event(generator, step->thread, step->b);
    else if (step->kind == STEP_WAIT || step->kind == STEP_SYNC_EVENT ||
             step->kind == STEP_QUERY_EVENT || step->kind == STEP_EVENT_DESTROY)
        step->a = (unsigned)below(generator, EVENTS_MAX);
    if (step->kind == STEP_COPY || step->kind == STEP_COPY_NOW)
        step->c = generate_block(generator);
    if (step->kind == STEP_FILL || step->kind == STEP_PROGRESS)
        step->n = 1 + below(generator, 12);
    if (step->kind == STEP_FREE_WRONG) {
        step->n = below(generator, WRONG_FREES);
        if (step->n == WRONG_AGAIN || step->n == WRONG_AGAIN_ASYNC)
            step->a = (unsigned)below(generator, generator->next_block + 1);
    }
    if (step->kind == STEP_CAPTURE_MODE || step->kind == STEP_CAPTURE_BEGIN)
        step->n = below(generator, 3);
    if (step->kind == STEP_STREAM_CREATE)
        step->n = below(generator, 2);
    if (step->kind == STEP_QUERY_STREAM || step->kind == STEP_QUERY_EVENT)
        step->n = below(generator, 2);
    if (step->kind == STEP_SCRATCH)
        step->n = 8 + below(generator, HOST_BLOCK_BYTES - 8);
}

static void count_objects(struct generator *generator, const struct step *step)
{
    generator->next_block += step_is_malloc(step->kind) || step->kind == STEP_EXCHANGE;
    generator->next_pool += step->kind == STEP_POOL_CREATE;
    generator->next_stream += step->kind == STEP_STREAM_CREATE;
    generator->next_thread += step->kind == STEP_THREAD_START;
    generator->next_context += step->kind == STEP_CONTEXT_CREATE;
}

static unsigned n_alive(const struct generator *generator, enum step_kind kind)
{
    const struct reference *reference = generator->reference;
    unsigned n = 0;
    for (unsigned i = 0; kind == STEP_THREAD_START && i < THREADS_MAX; i++)
        n += reference->threads[i].is_alive;
    for (unsigned i = STREAM_MADE; kind == STEP_STREAM_CREATE && i < STREAMS_MAX; i++)
        n += reference->streams[i].is_alive;
    return n;
}

/* What there is enough of. */
static bool is_unwanted(struct generator *generator, const struct step *step)
{
    const struct reference *reference = generator->reference;
    if (step->kind == STEP_THREAD_START)
        return n_alive(generator, step->kind) >= generator->n_threads_max;
    if (step->kind == STEP_STREAM_CREATE)
        return n_alive(generator, step->kind) >= generator->n_streams_max;
    if (!step_is_malloc(step->kind) || reference->setting.is_full)
        return false;
    unsigned context = reference->threads[step->thread].context;
    if (context == CONTEXTS_MAX)
        return true;
    uint64_t most = reference->setting.device_pages * generator->fill_percent / 100;
    return reference_taken(reference, reference->contexts[context].device) +
               (step_bytes(step) + GRANULE - 1) / GRANULE >
           most;
}

static void generate_any(struct generator *generator)
{
    unsigned sum = 0;
    for (int i = 0; i < STEP_KINDS; i++)
        sum += generator->weights[i];
    for (int i = 0; i < TRIES; i++) {
        struct step step = {0};
        uint64_t draw = below(generator, sum);
        while (draw >= generator->weights[step.kind])
            draw -= generator->weights[step.kind++];
        fill(generator, &step);
        if (is_unwanted(generator, &step) || !generate_step(generator, step))
            continue;
        count_objects(generator, &step);
        return;
    }
    (void)generate_step(generator, (struct step){.kind = STEP_PROGRESS, .n = 1});
}

void program_generate(struct program *program, uint64_t seed, const struct taste *taste)
{
    struct generator *generator = calloc(1, sizeof *generator);
    struct reference *reference = malloc(sizeof *reference);
    if (!generator || !reference)
        abort();
    memset(program, 0, sizeof *program);
    generator->program = program;
    generator->reference = reference;
    generator->n_wanted = taste->steps_max < STEPS_MAX ? taste->steps_max : STEPS_MAX;
    generator->next_stream = STREAM_MADE;
    generator->next_thread = 1;
    generator->next_context = DEVICES;
    chance_start(&generator->chance, seed);
    taste_draw(generator, taste);
    generator->n_threads_max = 1 + (unsigned)below(generator, 4);
    generator->n_streams_max = 1 + (unsigned)below(generator, 8);
    generator->n_devices = !taste->setting && below(generator, 3) == 0 ? 2 : 1;
    generator->n_unset_flags_max = (unsigned)below(generator, 4);
    generator->fill_percent = 20 + below(generator, 55);
    reference_start(reference, &program->setting);
    unsigned idioms = (unsigned)below(generator, 20);
    while (program->n < generator->n_wanted && generator->next_block < BLOCKS_MAX - 16 &&
           generator->next_stream < STREAMS_MAX - 4 &&
           reference->n_operations < OPERATIONS_MAX - BLOCKS_MAX) {
        if (below(generator, 100) < idioms)
            generate_idiom(generator);
        else
            generate_any(generator);
    }
    free(reference);
    free(generator);
}
