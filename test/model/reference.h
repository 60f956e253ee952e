/* SPDX-License-Identifier: MIT */
/* The naive reference of the model test: what a program's threads, contexts, streams, captures and
 * blocks are after each step, which queued operation comes after which, and the bytes that every
 * block must hold. It knows CUDA's rules, and nothing of how they are kept.
 *
 * A step is valid when a correct program may make it: every use of a block ordered after its
 * allocation and after the uses it conflicts with, a free after all uses, nothing that waits for
 * work which only a later step lets go on, nothing that a capture forbids. */
#ifndef VPMM_TEST_MODEL_REFERENCE_H
#define VPMM_TEST_MODEL_REFERENCE_H

#include "program.h"

#define OPERATIONS_MAX 1536
#define NODES_MAX 32
#define LANDINGS_MAX 64
#define HOST_BLOCK_BYTES (4 * GRANULE)
#define NOBODY UINT32_MAX

/* A set of queued operations. */
struct set {
    uint64_t words[OPERATIONS_MAX / 64];
};

/* What a block holds: nothing known, the pattern of a stamp, or one byte. A pattern stands at the
 * begin and the end of each granule below `valid_bytes`, and at `tail` if that lies below too. */
struct content {
    enum {
        CONTENT_NONE,
        CONTENT_PATTERN,
        CONTENT_BYTE
    } kind;
    uint64_t stamp, valid_bytes, tail;
};

struct operation {
    struct set before; /* itself included */
    struct set maybe;  /* that, and what CUDA may make it wait for without promising it */
    unsigned context;
    unsigned waits_for, sets; /* flags, or NOBODY */
    bool is_clear;            /* comes to an end without another step of the program */
    bool is_moot;   /* a wait for an event that may be complete: then it is no operation */
    bool is_unsure; /* an allocation of which nobody knows whether it waits for the legacy stream */
};

struct block {
    enum {
        BLOCK_NEW,
        BLOCK_LIVE,
        BLOCK_ABSENT,
        BLOCK_COMING, /* of an exchange whose thread waits in its free */
        BLOCK_FREED
    } state;
    bool is_async;
    bool is_pooled;           /* of a memory pool that the program made */
    bool may_pass;            /* the library may leave it to CUDA: it is small or pitched */
    unsigned context, device; /* that allocated it */
    uint64_t bytes;
    struct set born;  /* before its first use; empty for malloc */
    struct set uses;  /* all of them */
    struct set reads; /* since the last write */
    struct set last_write;
    struct set fence; /* freed: what a pool may have to wait for, */
    bool is_parked;   /* or all that the context has, once no capture is under way */
    bool is_settled;  /* freed and complete when the first of the open captures began */
    unsigned fence_context;
    unsigned freed_on; /* the stream, or NOBODY */
    uint64_t version;
    struct content content;
};

struct stream {
    bool is_alive, is_legacy, is_blocking;
    unsigned context;
    unsigned thread;  /* whose own it is, or NOBODY */
    unsigned capture; /* that it is part of, or NOBODY */
    uint64_t nodes;   /* there: all that its next node comes after */
    struct set tail;
};

struct event {
    bool is_alive;
    unsigned context;
    struct set set;
    unsigned capture; /* recorded in it, or NOBODY */
    uint64_t nodes;
};

/* A kernel of a graph: it takes the pattern of its block's own stamp to the next. Scratch memory is
 * the graph's own. */
struct node {
    bool is_scratch, writes;
    unsigned block;
    uint64_t stamp;  /* that it writes where nothing but a graph's parameters can say so */
    uint64_t before; /* itself included */
};

struct graph {
    bool is_alive;
    struct node nodes[NODES_MAX];
    unsigned n;
    struct set last_launch;
};

struct capture {
    bool is_open;
    unsigned origin, thread;
    uint64_t mode;
    struct graph graph;
};

struct thread {
    bool is_alive, was_alive;
    unsigned context; /* current, or CONTEXTS_MAX */
    uint64_t mode;
    bool is_away;    /* inside a call that a later step of another thread lets return, */
    bool is_freeing; /* which is a cudaFree of memory of `freed_context`, */
    bool proves;     /* its return tells that what it waited for is complete */
    unsigned freed_context;
    struct set awaited;
    struct step then; /* EXCHANGE: the allocation that follows in the same step */
};

struct memory_pool {
    bool is_alive, was_alive;
    unsigned device;
};

struct context {
    bool is_alive, is_peer; /* whether it reaches the other device's cudaMalloc memory */
    bool was_alive;
    unsigned device, retained;
};

struct reference {
    struct setting setting;
    struct thread threads[THREADS_MAX];
    struct context contexts[CONTEXTS_MAX];
    struct stream streams[STREAMS_MAX];
    struct event events[EVENTS_MAX];
    struct block blocks[BLOCKS_MAX];
    bool flag_is_set[FLAGS_MAX], flag_is_taken[FLAGS_MAX];
    struct capture captures[GRAPHS_MAX];
    struct graph graphs[GRAPHS_MAX];
    struct memory_pool pools[POOLS_MAX];
    unsigned current_pools[DEVICES]; /* POOLS_MAX: the default one */
    struct operation operations[OPERATIONS_MAX];
    unsigned n_operations;
    unsigned n_landings; /* copies to the host */
    unsigned n_nodes;    /* of all captures */
    struct set done;     /* known complete by the program */
};

void reference_start(struct reference *reference, const struct setting *setting);
/* NULL: the step is valid and made. Otherwise why not, and nothing is changed. */
const char *reference_make(struct reference *reference, const struct step *step);
/* The allocation of a step just made failed. */
void reference_lose(struct reference *reference, const struct step *step);
/* The next step of what every program does at its end: let everything go on, wait for it, check and
 * free all blocks. False when nothing is left to do. */
bool reference_end(const struct reference *reference, struct step *step_out);
/* Granules of blocks that are live, or freed where unfinished work of the program could hold them.
 */
uint64_t reference_taken(const struct reference *reference, unsigned device);
/* Of live blocks alone, of freed ones whose stream has unfinished work that came later, of freed
 * ones that CUDA served itself, of what live blocks may share pages with, and of one block of so
 * many bytes, in whole pages. */
uint64_t reference_live(const struct reference *reference, unsigned device);
uint64_t reference_late(const struct reference *reference, unsigned device);
uint64_t reference_passed(const struct reference *reference, unsigned device);
uint64_t reference_shared(const struct reference *reference, unsigned device);
/* Before a capture begins while no other one is open. */
void reference_settle(struct reference *reference);
uint64_t reference_granules(const struct setting *setting, uint64_t bytes);

/* ---- order.c ---- */

/* A host call that waits for the set: whether a correct program may make it on the thread, and then
 * that it does. Thread 0 never waits for a later step, so somebody is always there to make it. */
bool host_may_wait(const struct reference *reference, unsigned thread, const struct set *set);
void host_wait(struct reference *reference, unsigned thread, const struct set *set);
/* Threads whose call can return by now go on. */
void host_return(struct reference *reference);
void set_add(struct set *set, const struct set *other);
bool set_has_all(const struct set *set, const struct set *part);
/* All that work queued on the stream now comes after, what is known complete included. */
struct set order_before(const struct reference *reference, unsigned stream);
/* The stream's own work alone. */
struct set order_own(const struct reference *reference, unsigned stream);
/* Queues an operation on a stream, after `before` (NULL: order_before). Room is checked before. */
struct operation *order_queue(struct reference *reference, unsigned stream,
                              const struct set *before);
bool order_has_room(const struct reference *reference);
/* An operation has become able to end, or a flag is set: what follows from it. */
void order_settle(struct reference *reference);
bool order_is_clear(const struct reference *reference, const struct set *set);
/* Whether some of it is certainly not complete. What is not clear may be complete all the same,
 * where CUDA does not make it wait for all that it may. */
bool order_is_held(const struct reference *reference, const struct set *set);
/* Whether the end of some of it depends on whether an event was complete when a stream was to wait
 * for it. The device may have got on further in one run than in another. */
bool order_is_moot(const struct reference *reference, const struct set *set);
/* Whether some of it is an allocation that may wait for more than the stream's own work. */
bool order_is_unsure(const struct reference *reference, const struct set *set);
struct set order_of_context(const struct reference *reference, unsigned context);

/* ---- the steps, by what they deal with: NULL or why not ---- */

const char *use_make(struct reference *reference, const struct step *step);    /* use.c */
const char *memory_make(struct reference *reference, const struct step *step); /* memory.c */
/* The allocation of an exchange, whose free is over. False: it waits beside another thread's free.
 */
bool memory_finish(struct reference *reference, const struct step *step);
const char *capture_make(struct reference *reference, const struct step *step); /* capture.c */
/* The last node of the stream's capture, which the stream has just added, was refused. */
void capture_lose_node(struct reference *reference, unsigned stream);
const char *pool_make(struct reference *reference, const struct step *step);  /* pool.c */
const char *world_make(struct reference *reference, const struct step *step); /* world.c */

/* Whether the thread may name the stream, which is not part of a capture; NULL or why not. */
const char *stream_is_usable(const struct reference *reference, const struct step *step);
/* Whether the thread may name it, captured or not. */
const char *stream_is_known(const struct reference *reference, const struct step *step);
/* Whether captures forbid the thread what no capture tolerates. */
bool capture_forbids(const struct reference *reference, unsigned thread);
bool capture_is_open(const struct reference *reference);
/* Whether a stream of the context is part of a capture; blocking ones only, or any. */
bool capture_is_in(const struct reference *reference, unsigned context, bool blocking_only);
/* Whether an access of a block after `before` is ordered after all it conflicts with. */
bool use_is_ordered(const struct block *block, const struct set *before, bool writes);
/* Marks the access. */
void use_add(struct block *block, const struct set *operation, bool writes);
/* Whether work of the context's device reaches the block. */
bool use_reaches(const struct reference *reference, unsigned context, const struct block *block);
/* The block holds the pattern of its own next stamp from now on. */
void block_stamp(struct reference *reference, unsigned block);
bool block_holds_own_pattern(const struct reference *reference, unsigned block);
uint64_t block_tail(uint64_t bytes);

#endif
