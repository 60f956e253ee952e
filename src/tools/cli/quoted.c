/* SPDX-License-Identifier: MIT */
/* Prints a string as JSON has it. Must not cut it off, however long it is. */
#include "cli/quoted.h"

#include "base/text.h"

#include <stdio.h>

void vpmm_cli_print_quoted(const char *string)
{
    char escaped[VPMM_TEXT_ESCAPED_ROOM];
    putchar('"');
    while (*string) {
        string += vpmm_text_escape(string, escaped);
        fputs(escaped, stdout);
    }
    putchar('"');
}
