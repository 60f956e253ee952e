/* SPDX-License-Identifier: MIT */
/* Draws a bar for work that takes longer than a moment. Must not write anywhere but on a terminal
 * that is standard error. */
#define _GNU_SOURCE
#include "cli/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define STEPS_A_LOOK 4096u
#define FIRST_MS 400
#define EACH_MS 100
#define WIDTH 40
#define WIDTH_LEAST 8

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void vpmm_progress_begin(struct vpmm_progress *progress, const char *what)
{
    const char *terminal = getenv("TERM");
    bool is_dumb = terminal && strcmp(terminal, "dumb") == 0;
    *progress = (struct vpmm_progress){.what = what,
                                       .next_ms = now_ms() + FIRST_MS,
                                       .is_wanted = isatty(STDERR_FILENO) && !is_dumb};
}

bool vpmm_progress_is_due_now(const struct vpmm_progress *progress)
{
    return progress->is_wanted && now_ms() >= progress->next_ms;
}

bool vpmm_progress_is_due(struct vpmm_progress *progress)
{
    return ++progress->n_steps % STEPS_A_LOOK == 0 && vpmm_progress_is_due_now(progress);
}

/* In the line of the terminal, which must not end: 0 where there is no room for a bar. */
static int bar_width(const char *what)
{
    struct winsize size;
    bool is_known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    int room = (is_known ? size.ws_col : 80) - (int)strlen(what) - (int)sizeof " [] 100%";
    return room < WIDTH_LEAST ? 0 : room < WIDTH ? room : WIDTH;
}

void vpmm_progress_draw(struct vpmm_progress *progress, uint64_t done, uint64_t all)
{
    static const char bar[] = "########################################";
    static const char dots[] = "........................................";
    if (done > all)
        done = all;
    int width = bar_width(progress->what);
    int filled = all ? (int)((double)done / (double)all * width) : 0;
    int percent = all ? (int)((double)done / (double)all * 100) : 0;
    if (width > 0)
        fprintf(stderr, "\r%s [%.*s%.*s] %3d%%", progress->what, filled, bar, width - filled, dots,
                percent);
    else
        fprintf(stderr, "\r%3d%%", percent);
    fflush(stderr);
    progress->is_drawn = true;
    progress->next_ms = now_ms() + EACH_MS;
}

void vpmm_progress_end(struct vpmm_progress *progress)
{
    if (progress->is_drawn)
        fputs("\r\x1b[K", stderr);
    progress->is_drawn = false;
}
