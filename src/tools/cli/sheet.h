/* SPDX-License-Identifier: MIT */
/* Lines of text with a style for each character, put together first and painted at once: nothing
 * is wider than it may be, whatever is written. */
#ifndef VPMM_CLI_SHEET_H
#define VPMM_CLI_SHEET_H

#include <stdbool.h>
#include <stdio.h>

enum vpmm_style {
    VPMM_STYLE_PLAIN,
    VPMM_STYLE_BOLD,
    VPMM_STYLE_FAINT,
    VPMM_STYLE_HEADING, /* as long as the line is wide */
    VPMM_STYLE_GREEN,   /* and all that follow are colours */
    VPMM_STYLE_YELLOW,
    VPMM_STYLE_CYAN,
    VPMM_STYLE_MAGENTA,
    VPMM_STYLE_RED,
    VPMM_STYLES
};

#define VPMM_SHEET_COLUMNS_MAX 500u

struct vpmm_line {
    unsigned n;
    char text[VPMM_SHEET_COLUMNS_MAX];
    unsigned char styles[VPMM_SHEET_COLUMNS_MAX];
};

struct vpmm_sheet {
    unsigned columns; /* whatever goes beyond is cut off */
    unsigned n_lines, room;
    struct vpmm_line *lines;
};

/* A sheet without lines; a zeroed one is new. */
void vpmm_sheet_clear(struct vpmm_sheet *sheet, unsigned columns);
void vpmm_sheet_finish(struct vpmm_sheet *sheet);

/* Begins a line, and goes on with the last one. Without memory the line is missing. */
void vpmm_sheet_line(struct vpmm_sheet *sheet);
void vpmm_sheet_put(struct vpmm_sheet *sheet, enum vpmm_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Writes one line without its end, with so many of the terminal's escapes. */
enum vpmm_sheet_paints {
    VPMM_SHEET_PLAIN,
    VPMM_SHEET_STYLED, /* all but colours */
    VPMM_SHEET_COLOURED
};
void vpmm_sheet_paint(const struct vpmm_sheet *sheet, unsigned number,
                      enum vpmm_sheet_paints paints, FILE *file);

#endif
