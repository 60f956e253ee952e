/* SPDX-License-Identifier: MIT */
/* The parts of `vpmm replay`: what it is asked for, and how it shows what came out, for reading and
 * as JSON. */
#ifndef VPMM_CLI_REPLAY_H
#define VPMM_CLI_REPLAY_H

#include "replay/replay.h"

#include <stdbool.h>
#include <stdint.h>

struct vpmm_cli_replay_arguments {
    struct vpmm_replay_options options;
    struct vpmm_tape_choice choice;
    enum {
        VPMM_CLI_REPLAY_ANYWHERE, /* a GPU where there is one */
        VPMM_CLI_REPLAY_ON_SIM,
        VPMM_CLI_REPLAY_ON_GPU
    } place;
    bool is_comparison, is_json, finds_limit, has_through;
    const char *path;
    const char *sim_option, *pool_option; /* one that only these have, or NULL */
};

/* 0, or the exit status after a message. */
int vpmm_cli_replay_parse(int argc, char **argv, struct vpmm_cli_replay_arguments *arguments);

#define VPMM_CLI_REPLAYS_MAX VPMM_REPLAY_THROUGHS

/* One trace, replayed in one or several ways. */
struct vpmm_cli_replays {
    const char *path;
    const struct vpmm_tape *tape;
    uint64_t least_bytes;
    bool is_simulated;
    const char *note; /* why there, or NULL */
    struct vpmm_cli_replay {
        enum vpmm_replay_through through;
        struct vpmm_replay_result result;
    } replays[VPMM_CLI_REPLAYS_MAX];
    unsigned n_replays;
    bool has_limit;
    uint64_t limit_bytes; /* the smallest */
};

/* As the option spells it. */
const char *vpmm_cli_replay_name(enum vpmm_replay_through through);

void vpmm_cli_replays_print(const struct vpmm_cli_replays *replays);
void vpmm_cli_replays_print_json(const struct vpmm_cli_replays *replays);

#endif
