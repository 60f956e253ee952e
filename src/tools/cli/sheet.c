/* SPDX-License-Identifier: MIT */
/* Puts lines of text with styles together, and paints them. Must not paint a line that is wider
 * than the sheet. */
#include "cli/sheet.h"

#include <stdarg.h>
#include <stdlib.h>

#define LINES_AT_ONCE 64

static const char *const escapes[VPMM_STYLES] = {
    [VPMM_STYLE_PLAIN] = "\033[0m",    [VPMM_STYLE_BOLD] = "\033[0;1m",
    [VPMM_STYLE_FAINT] = "\033[0;2m",  [VPMM_STYLE_HEADING] = "\033[0;7m",
    [VPMM_STYLE_GREEN] = "\033[0;32m", [VPMM_STYLE_YELLOW] = "\033[0;33m",
    [VPMM_STYLE_CYAN] = "\033[0;36m",  [VPMM_STYLE_MAGENTA] = "\033[0;35m",
    [VPMM_STYLE_RED] = "\033[0;31m",
};

void vpmm_sheet_clear(struct vpmm_sheet *sheet, unsigned columns)
{
    sheet->columns = columns < VPMM_SHEET_COLUMNS_MAX ? columns : VPMM_SHEET_COLUMNS_MAX;
    sheet->n_lines = 0;
}

void vpmm_sheet_finish(struct vpmm_sheet *sheet)
{
    free(sheet->lines);
    *sheet = (struct vpmm_sheet){0};
}

void vpmm_sheet_line(struct vpmm_sheet *sheet)
{
    if (sheet->n_lines == sheet->room) {
        unsigned room = sheet->room + LINES_AT_ONCE;
        struct vpmm_line *lines = realloc(sheet->lines, room * sizeof *lines);
        if (!lines)
            return;
        sheet->lines = lines;
        sheet->room = room;
    }
    sheet->lines[sheet->n_lines++].n = 0;
}

void vpmm_sheet_put(struct vpmm_sheet *sheet, enum vpmm_style style, const char *format, ...)
{
    char text[VPMM_SHEET_COLUMNS_MAX + 1];
    va_list arguments;
    if (!sheet->n_lines)
        return;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    struct vpmm_line *line = &sheet->lines[sheet->n_lines - 1];
    for (int i = 0; i < length && text[i] && line->n < sheet->columns; i++) {
        line->text[line->n] = text[i];
        line->styles[line->n++] = (unsigned char)style;
    }
}

static unsigned style_at(const struct vpmm_line *line, unsigned column,
                         enum vpmm_sheet_paints paints)
{
    unsigned style = line->styles[column];
    return style < VPMM_STYLE_GREEN || paints == VPMM_SHEET_COLOURED ? style : VPMM_STYLE_PLAIN;
}

void vpmm_sheet_paint(const struct vpmm_sheet *sheet, unsigned number,
                      enum vpmm_sheet_paints paints, FILE *file)
{
    const struct vpmm_line *line = &sheet->lines[number];
    bool is_styled = paints != VPMM_SHEET_PLAIN;
    unsigned style = VPMM_STYLE_PLAIN;
    for (unsigned i = 0; i < line->n; i++) {
        unsigned next = style_at(line, i, paints);
        if (is_styled && next != style)
            fputs(escapes[next], file);
        style = next;
        fputc(line->text[i], file);
    }
    if (is_styled && style == VPMM_STYLE_HEADING)
        for (unsigned i = line->n; i < sheet->columns; i++)
            fputc(' ', file);
    if (is_styled && style != VPMM_STYLE_PLAIN)
        fputs(escapes[VPMM_STYLE_PLAIN], file);
}
