/* SPDX-License-Identifier: MIT */
/* What the files of the generator share. */
#ifndef VPMM_TEST_MODEL_GENERATE_H
#define VPMM_TEST_MODEL_GENERATE_H

#include "reference.h"

struct generator {
    struct program *program;
    struct reference *reference;
    struct chance chance;
    size_t n_wanted;
    unsigned weights[STEP_KINDS];
    unsigned n_threads_max, n_streams_max, n_devices, n_unset_flags_max;
    uint64_t fill_percent;     /* of what the reference lets a device hold */
    unsigned home[BLOCKS_MAX]; /* the stream that used the block last */
    unsigned next_block, next_stream, next_flag, next_thread, next_context, next_pool;
    uint64_t freed_bytes[8]; /* sizes freed last: the next owner may want the same */
    unsigned n_freed;
};

/* Adds the step if a correct program may make it. */
bool generate_step(struct generator *generator, struct step step);
uint64_t generate_bytes(struct generator *generator);
/* Pages that requests come in multiples of. */
uint64_t generate_unit(struct generator *generator);
/* A live block, or BLOCKS_MAX. */
unsigned generate_block(struct generator *generator);
/* A thread that lives, and a stream that it can name (STREAMS_MAX: none). */
unsigned generate_thread(struct generator *generator);
unsigned generate_stream(struct generator *generator, unsigned thread);
/* An event of the stream's context that lives, made where there is none; EVENTS_MAX: none. */
unsigned generate_event(struct generator *generator, unsigned thread, unsigned stream);

/* ---- taste.c ---- */

/* Draws the program's setting and the weights of its steps. */
void taste_draw(struct generator *generator, const struct taste *taste);

/* ---- idioms.c ---- */

/* Adds one of a few short courses of steps that random ones seldom make up. */
void generate_idiom(struct generator *generator);

#endif
