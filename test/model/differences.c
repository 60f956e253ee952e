/* SPDX-License-Identifier: MIT */
#include "differences.h"

#include <stdlib.h>
#include <string.h>

/* What a rule looks at: everything just before the step at which the two runs part. */
struct parting {
    const struct program *program;
    const struct reference *reference;
    const struct step *step;
    size_t number; /* of the step */
    const struct verdict *verdict;
    uint16_t bare, preloaded;           /* its answers, */
    uint64_t bare_seen, preloaded_seen; /* and what else it saw */
    bool is_passed;                     /* an allocation that the library left to CUDA */
    const struct set *late; /* operations of requests that may have made their streams wait */
};

static bool is_refused(const struct parting *parting)
{
    return strcmp(parting->verdict->kind, "ANSWER") == 0 && parting->bare == CUDA_SUCCESS &&
           (step_is_malloc(parting->step->kind) || parting->step->kind == STEP_EXCHANGE ||
            parting->step->kind == STEP_SCRATCH || parting->step->kind == STEP_LAUNCH);
}

static unsigned device_of(const struct parting *parting)
{
    const struct reference *reference = parting->reference;
    const struct step *step = parting->step;
    bool is_on_stream = step_has_stream(step->kind) && step->b < STREAMS_MAX;
    unsigned context = is_on_stream ? reference->streams[step->b].context
                                    : reference->threads[step->thread].context;
    return context < CONTEXTS_MAX ? reference->contexts[context].device : 0;
}

static uint64_t requested(const struct parting *parting)
{
    return reference_granules(&parting->program->setting, step_bytes(parting->step));
}

/* Whether so many granules and the request are more than the device. */
static bool exceeds(const struct parting *parting, uint64_t granules)
{
    return granules + requested(parting) > parting->program->setting.device_pages;
}

static bool exceeds_with_passed(const struct parting *parting)
{
    unsigned device = device_of(parting);
    return exceeds(parting, reference_taken(parting->reference, device) +
                                reference_passed(parting->reference, device));
}

/* Extents of several pages are given back, and moved, only as a whole. */
static bool may_lack_whole_extents(const struct parting *parting)
{
    uint64_t taken = reference_taken(parting->reference, device_of(parting)) + requested(parting);
    return parting->program->setting.extent_pages != 1 &&
           taken * 100 > parting->program->setting.device_pages * 50;
}

static bool is_rounded_full(const struct parting *parting)
{
    return is_refused(parting) &&
           exceeds(parting, reference_live(parting->reference, device_of(parting)));
}

static bool is_freed_full(const struct parting *parting)
{
    return is_refused(parting) &&
           exceeds(parting, reference_taken(parting->reference, device_of(parting)));
}

static bool is_marked_late(const struct parting *parting)
{
    unsigned device = device_of(parting);
    return is_refused(parting) && exceeds(parting, reference_taken(parting->reference, device) +
                                                       reference_late(parting->reference, device));
}

static bool is_passed_full(const struct parting *parting)
{
    return is_refused(parting) && exceeds_with_passed(parting);
}

static bool is_shared_full(const struct parting *parting)
{
    return is_refused(parting) && may_lack_whole_extents(parting);
}

/* Where small requests are served, a block that takes no whole pages shares them, with others or
 * with room for others. */
static bool is_slab_full(const struct parting *parting)
{
    unsigned device = device_of(parting);
    uint64_t granules =
        reference_taken(parting->reference, device) + reference_shared(parting->reference, device);
    return is_refused(parting) && exceeds(parting, granules);
}

/* What VPMM_PAGES maps lies in a few large extents, and one block keeps one of them. */
static bool is_eager_full(const struct parting *parting)
{
    const struct setting *setting = &parting->program->setting;
    uint64_t granules = setting->eager_pages * (setting->page_bytes / GRANULE);
    return is_refused(parting) && setting->extent_pages != 1 &&
           granules * 100 > setting->device_pages * 50;
}

static bool is_unready(const struct parting *parting)
{
    return parting->bare == CUDA_SUCCESS && parting->preloaded == CUDA_ERROR_NOT_READY;
}

/* Whether something is not complete that is so bare. */
static bool is_behind(const struct parting *parting)
{
    const char *kind = parting->verdict->kind;
    return is_unready(parting) || strcmp(kind, "HANG") == 0 ||
           (strcmp(kind, "ORDER") == 0 && (parting->preloaded_seen & ~parting->bare_seen) == 0);
}

/* What the step asks or waits for. */
static struct set awaited(const struct parting *parting)
{
    const struct reference *reference = parting->reference;
    const struct step *step = parting->step;
    struct set all = {{0}};
    switch (step->kind) {
    case STEP_QUERY_EVENT:
    case STEP_SYNC_EVENT:
        return reference->events[step->a].set;
    case STEP_QUERY_STREAM:
    case STEP_SYNC_STREAM:
        return reference->streams[step->b].is_legacy ? order_before(reference, step->b)
                                                     : order_own(reference, step->b);
    case STEP_LOOK:
        for (unsigned i = 0; i < CONTEXTS_MAX; i++) {
            struct set of = order_of_context(reference, i);
            set_add(&all, &of);
        }
        return all;
    default:
        return order_of_context(reference, reference->threads[step->thread].context);
    }
}

/* Adds what CUDA may make the operations wait for. */
static void add_maybe(const struct reference *reference, struct set *set)
{
    for (unsigned i = reference->n_operations; i-- > 0;)
        if (set->words[i / 64] >> i % 64 & 1)
            set_add(set, &reference->operations[i].maybe);
}

/* Bare CUDA had room for the request, or refused it. */
static bool is_waited_full(const struct parting *parting)
{
    if (!is_behind(parting))
        return false;
    struct set late = awaited(parting);
    add_maybe(parting->reference, &late);
    for (unsigned i = 0; i < OPERATIONS_MAX / 64; i++)
        if (late.words[i] & parting->late->words[i] & ~parting->reference->done.words[i])
            return true;
    return false;
}

static const struct difference {
    const char *name, *sentence;
    bool (*explains)(const struct parting *);
} differences[] = {
    {"rounded-full",
     "A request is refused where the live blocks and it, in whole pages, exceed the device.",
     is_rounded_full},
    {"freed-full",
     "A request is refused where the live blocks, what is freed behind unfinished work and it, in "
     "whole pages, exceed the device.",
     is_freed_full},
    {"marked-late",
     "A request is refused where the live blocks, what is freed on streams that have unfinished "
     "work since and it, in whole pages, exceed the device: several frees share one mark, which "
     "may stand behind that work.",
     is_marked_late},
    {"passed-full",
     "A request is refused where the live blocks, it and freed blocks that CUDA served itself "
     "exceed "
     "the device: CUDA keeps those, or waits for them when its own pool asks.",
     is_passed_full},
    {"shared-full",
     "With extents of several pages a request is refused where more than half of the device is in "
     "use: an extent that a live block shares is not given back.",
     is_shared_full},
    {"slab-full",
     "Where small requests are served and a live block shares pages or a stream captures, a "
     "request is refused where the live blocks, those that share pages twice, the freed ones that "
     "may share them and it, in whole pages, exceed the device: a slab may have room for more "
     "blocks, and is given back only as a whole, behind a record that may have to wait for the "
     "end of the captures. Without a live one, what was complete before the captures does not "
     "count.",
     is_slab_full},
    {"eager-full",
     "A request is refused where VPMM_PAGES has mapped more than half of the device in extents of "
     "several pages: an extent that a live block shares is not given back.",
     is_eager_full},
    {"waited-full",
     "What a stream does is late, and what waits for it may wait for a later step: a request that "
     "bare CUDA refused was served there and then freed, or one that the rules above could refuse "
     "made the stream wait for what another one frees.",
     is_waited_full},
};

#define N_DIFFERENCES (sizeof differences / sizeof *differences)

static bool advance(struct reference *reference, const struct step *step, uint16_t answer)
{
    if (reference_make(reference, step))
        return false;
    bool is_lost = step_is_malloc(step->kind) || step->kind == STEP_SCRATCH;
    if (answer == (uint16_t)CUDA_ERROR_OUT_OF_MEMORY && is_lost)
        reference_lose(reference, step);
    return true;
}

/* Makes the step at which the two runs do not part. */
static void pass(const struct parting *parting, struct reference *reference, struct set *late)
{
    bool is_tight = parting->bare == CUDA_ERROR_OUT_OF_MEMORY || exceeds_with_passed(parting) ||
                    may_lack_whole_extents(parting);
    bool is_late = step_is_malloc_async(parting->step->kind) && is_tight;
    if (advance(reference, parting->step, parting->bare) && is_late) {
        unsigned last = reference->n_operations - 1;
        late->words[last / 64] |= (uint64_t)1 << last % 64;
    }
    if (step_is_malloc(parting->step->kind) && parting->is_passed)
        reference->blocks[parting->step->a].may_pass = true;
}

/* The number of the rule that explains it, or -1. */
static int explain(const struct parting *parting)
{
    for (size_t i = 0; i < N_DIFFERENCES; i++)
        if (differences[i].explains(parting))
            return (int)i;
    return -1;
}

/* A thread that was away may tell its answer at a later step than the one that it made. */
static bool is_answered_apart(const struct parting *parting)
{
    return parting->bare != NOT_MADE && parting->preloaded != NOT_MADE &&
           parting->bare != parting->preloaded;
}

int difference_find(const struct program *program, const struct outcome *bare,
                    const struct outcome *preloaded, const struct verdict *verdict)
{
    struct reference *reference = malloc(sizeof *reference);
    struct step step = {0};
    struct set late = {{0}};
    struct parting parting = {.program = program,
                              .reference = reference,
                              .step = &step,
                              .verdict = verdict,
                              .late = &late};
    if (!reference)
        abort();
    reference_start(reference, &program->setting);
    for (;; parting.number++) {
        parting.bare = bare->answers[parting.number];
        parting.preloaded = preloaded->answers[parting.number];
        parting.bare_seen = bare->seen[parting.number];
        parting.preloaded_seen = preloaded->seen[parting.number];
        parting.is_passed = preloaded->passed[parting.number];
        if (parting.number < program->n)
            step = program->steps[parting.number];
        else if (!reference_end(reference, &step))
            break;
        if (parting.number == preloaded->n || is_answered_apart(&parting))
            break;
        pass(&parting, reference, &late);
    }
    int found = explain(&parting);
    free(reference);
    return found;
}

const char *difference_name(int number)
{
    return (size_t)number < N_DIFFERENCES ? differences[number].name : NULL;
}

const char *difference_sentence(int number)
{
    return (size_t)number < N_DIFFERENCES ? differences[number].sentence : NULL;
}
