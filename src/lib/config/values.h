/* SPDX-License-Identifier: MIT */
/* How the value of each kind of option is read and shown. Private to this folder. */
#ifndef VPMM_CONFIG_VALUES_H
#define VPMM_CONFIG_VALUES_H

#include "base/text.h"
#include "config/config.h"

/* One row of options.def. */
struct option {
    const char *name; /* with VPMM_ */
    /* Reads all of `value` into `config`. False when it is not accepted; then nothing was changed.
     */
    bool (*read)(const struct option *option, const char *value, struct vpmm_config *config);
    /* Writes what is in force, for people. */
    void (*show)(const struct option *option, const struct vpmm_config *config,
                 struct vpmm_text *text);
    size_t offset; /* of the member in struct vpmm_config */
    const char *default_text, *accepted, *help;
};

#define DECLARE_KIND(kind)                                                                         \
    bool read_##kind(const struct option *option, const char *value, struct vpmm_config *config);  \
    void show_##kind(const struct option *option, const struct vpmm_config *config,                \
                     struct vpmm_text *text);

DECLARE_KIND(size)          /* bytes above 0 */
DECLARE_KIND(size_or_word)  /* the same; the default's text, or "page", stands for 0 */
DECLARE_KIND(count_or_word) /* a plain number; a word stands for 0, which is refused itself where
                               that word is the default */
DECLARE_KIND(pages)
DECLARE_KIND(limit)
DECLARE_KIND(slack)
DECLARE_KIND(percent) /* 0% to 100% */
DECLARE_KIND(flag)
DECLARE_KIND(waits) /* a flag, or "small" */
DECLARE_KIND(only)
DECLARE_KIND(signal)
DECLARE_KIND(path)
DECLARE_KIND(format)
DECLARE_KIND(shared)
DECLARE_KIND(stats)
DECLARE_KIND(level)

#undef DECLARE_KIND

#endif
