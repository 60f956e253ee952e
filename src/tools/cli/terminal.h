/* SPDX-License-Identifier: MIT */
/* The terminal as a screen: standard output's, on its alternate page, with keys from standard input
 * where that is a terminal too. It is as it was again whenever the process is not in front: at its
 * end, whatever ends it, and while it is stopped. One at a time. */
#ifndef VPMM_CLI_TERMINAL_H
#define VPMM_CLI_TERMINAL_H

#include "cli/sheet.h"

#include <stdbool.h>
#include <stdint.h>

/* Takes the screen, and the signals that ask for it back. False, with nothing changed: standard
 * output is no terminal, or one that can do nothing (TERM=dumb). */
bool vpmm_terminal_begin(void);
/* Gives it back. Where a signal asked for the end, the process ends by that signal. */
void vpmm_terminal_end(void);

void vpmm_terminal_size(unsigned *columns_out, unsigned *lines_out);

/* Shows as many lines of the sheet as fit: the first `n_fixed`, and of the others those from
 * `first` on. */
void vpmm_terminal_paint(const struct vpmm_sheet *sheet, unsigned n_fixed, unsigned first);

enum vpmm_terminal_event {
    VPMM_TERMINAL_TIME,   /* nothing happened until then */
    VPMM_TERMINAL_RESIZE, /* or what was shown is gone */
    VPMM_TERMINAL_UP,
    VPMM_TERMINAL_DOWN,
    VPMM_TERMINAL_KEY, /* another key */
    VPMM_TERMINAL_END, /* a signal asks for it, or nobody sees the screen any more */
};
/* Waits for at most so long. */
enum vpmm_terminal_event vpmm_terminal_wait(uint64_t timeout_ms, char *key_out);

#endif
