/* SPDX-License-Identifier: MIT */
/* The explorer itself: on small programs, drawn at random, it finds every final state that
 * literally all interleavings find, and the deadlocks and lost wake-ups that it should find. */
#include "cases.h"

#include "base/atomic.h"
#include "base/lock.h"
#include "explore.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 3
#define OPERATIONS 2
#define WORDS 2
#define PROGRAMS 24
#define FINALS 4096

enum operation {
    LOAD,  /* into the thread's own sum */
    STORE, /* a value of its own */
    ADD,
    COUNT, /* an addition whose answer is not used, to a counter */
    SWAP,
    LOCKED, /* a load and a store under the lock */
    STIR,   /* the same, and a broadcast */
    AWAIT,  /* under the lock, until a word is not 0; looks at another whenever it is woken */
    OPERATION_KINDS
};

static struct program {
    uint8_t operation[THREADS][OPERATIONS], word[THREADS][OPERATIONS];
    bool opens;
} program;

struct world {
    struct vpmm_lock lock;
    struct vpmm_condition changed;
    vpmm_atomic32 words[WORDS];
    vpmm_atomic32 counter, is_open;
    uint32_t sums[THREADS];
};

static struct world *world;

/* Every final state that was met, of all runs or of the reduced ones. */
struct finals {
    unsigned n;
    uint64_t seen[FINALS];
};
static struct finals *finals;

static uint64_t hash_of_final(void)
{
    uint64_t hash = 1;
    for (int i = 0; i < WORDS; i++)
        hash = hash * UINT64_C(0x9e3779b97f4a7c15) + vpmm_atomic_load(&world->words[i]);
    for (int i = 0; i < THREADS; i++)
        hash = hash * UINT64_C(0x9e3779b97f4a7c15) + world->sums[i];
    return hash;
}

static bool has(const struct finals *set, uint64_t hash)
{
    for (unsigned i = 0; i < set->n; i++)
        if (set->seen[i] == hash)
            return true;
    return false;
}

static void note_final(void)
{
    uint64_t hash = hash_of_final();
    if (has(finals, hash))
        return;
    expect(finals->n < FINALS);
    finals->seen[finals->n++] = hash;
}

static void prepare(void)
{
    world = schedule_room(sizeof *world);
    vpmm_lock_init(&world->lock, VPMM_RANK_HEAP);
    vpmm_condition_init(&world->changed);
    schedule_counters(&world->counter, sizeof world->counter);
}

static void await_open(vpmm_atomic32 *word, uint32_t *sum)
{
    vpmm_lock_take(&world->lock);
    while (!vpmm_atomic_load(&world->is_open)) {
        vpmm_condition_wait(&world->changed, &world->lock);
        *sum = *sum * 31 + vpmm_atomic_load(word);
    }
    vpmm_lock_give(&world->lock);
}

static void stir(vpmm_atomic32 *word, uint32_t own)
{
    vpmm_lock_take(&world->lock);
    vpmm_atomic_store(word, own);
    vpmm_condition_broadcast(&world->changed);
    vpmm_lock_give(&world->lock);
}

static void open_up(void)
{
    vpmm_lock_take(&world->lock);
    vpmm_atomic_store(&world->is_open, 1);
    vpmm_condition_broadcast(&world->changed);
    vpmm_lock_give(&world->lock);
}

static void operate(int thread, unsigned i)
{
    vpmm_atomic32 *word = &world->words[program.word[thread][i]];
    uint32_t own = (uint32_t)thread * OPERATIONS + i + 1;
    uint32_t expected = 0;
    uint32_t *sum = &world->sums[thread];
    switch ((enum operation)program.operation[thread][i]) {
    case LOAD:
        *sum = *sum * 31 + vpmm_atomic_load(word);
        break;
    case STORE:
        vpmm_atomic_store(word, own);
        break;
    case ADD:
        *sum = *sum * 31 + vpmm_atomic_add(word, own);
        break;
    case COUNT:
        vpmm_atomic_add(&world->counter, own);
        *sum = *sum * 31 + (thread ? 0 : vpmm_atomic_load(&world->counter));
        break;
    case SWAP:
        *sum = *sum * 31 + vpmm_atomic_swap_if(word, &expected, own);
        break;
    case LOCKED:
        vpmm_lock_take(&world->lock);
        vpmm_atomic_store(word, vpmm_atomic_load(word) * 7 + own);
        vpmm_lock_give(&world->lock);
        break;
    case STIR:
        stir(word, own);
        break;
    case AWAIT:
    case OPERATION_KINDS:
        await_open(word, sum);
        break;
    }
}

static void live(void)
{
    int thread = schedule_thread();
    for (unsigned i = 0; i < OPERATIONS; i++)
        operate(thread, i);
    if (thread == THREADS - 1 && program.opens)
        open_up();
}

static const struct schedule_case random_case = {
    "itself/random", prepare, {live, live, live}, note_final};

static uint32_t draw(uint32_t limit)
{
    static uint64_t seed = 1;
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)(seed >> 33) % limit;
}

/* At most one operation of several steps, so that literally all orders remain few. */
static void draw_program(void)
{
    memset(&program, 0, sizeof program);
    for (int i = 0; i < THREADS; i++)
        for (int j = 0; j < OPERATIONS; j++) {
            program.operation[i][j] = (uint8_t)draw(LOCKED);
            program.word[i][j] = (uint8_t)draw(WORDS);
        }
    enum operation special = (enum operation)draw(OPERATION_KINDS);
    program.operation[draw(THREADS - 1)][draw(OPERATIONS)] = (uint8_t)special;
    if (special >= LOCKED)
        program.operation[THREADS - 1][1] = special == LOCKED ? LOCKED : STIR;
    program.opens = special == AWAIT;
}

/* ---- what must be found ---- */

static void lose_an_addition(void)
{
    vpmm_atomic_store(&world->words[0], vpmm_atomic_load(&world->words[0]) + 1);
}

static void check_additions(void)
{
    expect(vpmm_atomic_load(&world->words[0]) == 2);
}

static void await_without_looking(void)
{
    if (!vpmm_atomic_load(&world->is_open)) {
        vpmm_lock_take(&world->lock);
        vpmm_condition_wait(&world->changed, &world->lock);
        vpmm_lock_give(&world->lock);
    }
}

static void keep_the_lock(void)
{
    vpmm_lock_take(&world->lock);
}

static const struct schedule_case bad_cases[] = {
    {"itself/lost_addition", prepare, {lose_an_addition, lose_an_addition}, check_additions},
    {"itself/lost_wake_up", prepare, {await_without_looking, open_up}, NULL},
    {"itself/kept_lock", prepare, {keep_the_lock, open_up}, NULL},
};

static void expect_failure(const struct schedule_case *bad)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        (void)close(STDERR_FILENO);
        (void)explore_all(bad, true);
        _exit(0);
    }
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 1)
        schedule_fail("%s was not found", bad->name);
}

void explore_itself(void)
{
    static struct finals all, reduced;
    uint64_t n_all = 0;
    uint64_t n_reduced = 0;
    for (int i = 0; i < PROGRAMS; i++) {
        draw_program();
        memset(&all, 0, sizeof all);
        memset(&reduced, 0, sizeof reduced);
        finals = &all;
        n_all += explore_all(&random_case, false).interleavings;
        finals = &reduced;
        n_reduced += explore_all(&random_case, true).interleavings;
        if (all.n != reduced.n)
            schedule_fail("program %d: %u final states in all orders, %u in the reduced ones", i,
                          all.n, reduced.n);
        for (unsigned j = 0; j < all.n; j++)
            expect(has(&reduced, all.seen[j]));
    }
    for (size_t i = 0; i < sizeof bad_cases / sizeof *bad_cases; i++)
        expect_failure(&bad_cases[i]);
    printf("schedule: itself: %llu interleavings, all of them; %llu of them stand for all\n",
           (unsigned long long)n_all, (unsigned long long)n_reduced);
}
