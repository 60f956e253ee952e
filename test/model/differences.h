/* SPDX-License-Identifier: MIT */
/* The table of differences: where a program may see another answer under the library than bare, and
 * why that is no fault. A rule is about what the program did, never about one program. */
#ifndef VPMM_TEST_MODEL_DIFFERENCES_H
#define VPMM_TEST_MODEL_DIFFERENCES_H

#include "runner.h"

/* The number of the rule that explains why the program fails as the verdict says; -1: none does.
 * `bare`: what the bare run answered; `preloaded`: how far the other one came. */
int difference_find(const struct program *program, const struct outcome *bare,
                    const struct outcome *preloaded, const struct verdict *verdict);
/* NULL: there is no such rule. */
const char *difference_name(int number);
const char *difference_sentence(int number);

#endif
