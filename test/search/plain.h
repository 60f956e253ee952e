/* SPDX-License-Identifier: MIT */
/* What a process that runs programs on any driver chooses. */
#ifndef VPMM_TEST_SEARCH_PLAIN_H
#define VPMM_TEST_SEARCH_PLAIN_H

#include "../model/execute.h"

/* After so long nothing goes on any more but by a later step of the program. */
void plain_be_patient(unsigned settle_ms);
/* Takes the first device's memory but for so many bytes, until the process ends. */
void plain_leave_free(const struct api *api, uint64_t bytes);

#endif
