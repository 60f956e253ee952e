/* SPDX-License-Identifier: MIT */
/* Arithmetic on byte counts that cannot wrap, and byte counts as people write them. No allocation,
 * no locale, no stdio. */
#ifndef VPMM_BASE_BYTES_H
#define VPMM_BASE_BYTES_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Stores a + b or a * b and returns true, or returns false and stores nothing when it does not fit.
 */
bool vpmm_bytes_add(uint64_t a, uint64_t b, uint64_t *sum_out);
bool vpmm_bytes_multiply(uint64_t a, uint64_t b, uint64_t *product_out);

/* `bytes` rounded up to a multiple of `unit` (not zero); false when that does not fit. */
bool vpmm_bytes_round_up(uint64_t bytes, uint64_t unit, uint64_t *rounded_out);

/* Reads all of `text`: a whole number with an optional K, M, G, T or P (either case, powers of
 * 1024) and an optional "B" or "iB". INVALID for anything else, for a sign, a fraction, an empty
 * text, or a value that does not fit. */
VPMM_MUST_CHECK enum vpmm_status vpmm_bytes_parse(const char *text, uint64_t *bytes_out);

/* Writes `bytes` into `text` in the largest unit that is not above it, with two decimals, rounded,
 * where it is no whole number of them ("2 MiB", "1.50 GiB", "513 B"; so "2.00 MiB" is nearly or a
 * little more than 2 MiB, and "2 MiB" is exactly that); always terminated; returns the length.
 * `room` is at least 1, and 24 bytes are always enough. */
size_t vpmm_bytes_print(uint64_t bytes, char *text, size_t room);

#endif
