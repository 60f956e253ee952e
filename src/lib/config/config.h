/* SPDX-License-Identifier: MIT */
/* The options, read once from the environment into one constant struct. The only getenv of the
 * library is in config.c. Nothing is said here: complaints are returned and whoever logs says them.
 */
#ifndef VPMM_CONFIG_CONFIG_H
#define VPMM_CONFIG_CONFIG_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A number of bytes, pages or a share of something known only later. */
struct vpmm_amount {
    uint64_t value;
    bool is_percent; /* of what the option's help says */
};

enum vpmm_log_level {
    VPMM_LOG_NONE,
    VPMM_LOG_ERROR,
    VPMM_LOG_WARN,
    VPMM_LOG_INFO,
    VPMM_LOG_DEBUG
};
enum vpmm_dump_format {
    VPMM_DUMP_TEXT,
    VPMM_DUMP_JSON
};

/* Which cudaFrees wait. */
enum vpmm_free_sync {
    VPMM_FREE_SYNC_NEVER,
    VPMM_FREE_SYNC_ALWAYS,
    VPMM_FREE_SYNC_SMALL /* of blocks of less than a page */
};

#define VPMM_PATH_MAX 4096

struct vpmm_config {
    uint64_t page_bytes;      /* 0: the device's granularity */
    uint64_t min_bytes;       /* 0: one page */
    struct vpmm_amount pages; /* eager pages, or percent of the device */
    uint64_t va_bytes;
    uint64_t extent_pages_max; /* 0: auto */
    struct vpmm_amount slack;  /* bytes, or percent of the most ever live */
    bool slack_is_default;     /* max(256M, 2%) */
    uint64_t spare_percent;    /* of the most ever live */
    struct vpmm_amount limit;  /* bytes, or percent of the device; 0: none */
    uint64_t idle_ms;          /* after which memory that is not used is given back; 0: never */
    uint64_t decay_ms;         /* after which memory that was not needed is given back; 0: never */
    enum vpmm_free_sync free_sync;
    bool stream_waits;
    bool ipc;
    bool ipc_refuses_shared; /* a block that shares extents is not exported */
    bool disable;
    bool active;     /* this program is one that VPMM_ONLY names, or VPMM_ONLY is not set */
    int dump_signal; /* 0: none */
    enum vpmm_dump_format dump_format;
    char
        dump_path[VPMM_PATH_MAX]; /* empty: standard error; %p already replaced by the process id */
    uint64_t dump_max_bytes;      /* that a file of dumps may grow to; 0: no limit */
    bool stats;
    bool promises_stats; /* VPMM_STATS_OF names this process: tell also of no request at all */
    char stats_path[VPMM_PATH_MAX];
    bool stats_json;
    char trace_path[VPMM_PATH_MAX]; /* empty: nothing is recorded */
    uint64_t trace_max_bytes;       /* 0: no limit */
    enum vpmm_log_level log_level;
};

/* Set by `vpmm run --stats` to the number of the process that it becomes. The programs that this
 * one starts have the variable too, and other numbers. */
#define VPMM_STATS_OF "VPMM_STATS_OF"

#define VPMM_COMPLAINTS_MAX 16
/* One bad option: complete English sentence without the "vpmm" prefix and newline, which names the
 * variable, the value, what is accepted and the default used instead. */
struct vpmm_complaints {
    unsigned n; /* how many there were; only the first VPMM_COMPLAINTS_MAX are kept */
    char text[VPMM_COMPLAINTS_MAX][320];
};

/* Reads the environment `environment` (as environ; NULL: this process's own). Never fails: a bad
 * value gets the default and a complaint, and so does an unknown name that begins with VPMM_. A
 * setuid program gets `disable`. Allocates nothing. */
void vpmm_config_read(struct vpmm_config *config_out, struct vpmm_complaints *complaints_out,
                      char *const *environment);

/* The option table, for documentation and for printing what is in force: false past the last. Texts
 * are static; `value` shows `config`'s. */
struct vpmm_option_row {
    const char *name, *accepted, *default_text, *help;
    char value[64];
};
bool vpmm_config_row(const struct vpmm_config *config, unsigned number,
                     struct vpmm_option_row *row_out);

#endif
