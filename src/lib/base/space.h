/* SPDX-License-Identifier: MIT */
/* How much address space the process may still use. */
#ifndef VPMM_BASE_SPACE_H
#define VPMM_BASE_SPACE_H

#include <stdbool.h>

/* False: the process has a limit (RLIMIT_AS), and less than 1 GiB of it is left. The bookkeeping of
 * a pool takes up to 0.3 GiB: where so little is left, the program may need all of it. Opens a file
 * below /proc; where that cannot be read, the limit itself counts as what is left. */
bool vpmm_space_is_enough(void);

#endif
