/* SPDX-License-Identifier: MIT */
/* 'vpmm help options': the option table. Must not read the user's environment: it shows the
 * defaults alone. */
#include "cli/cli.h"

#include "config/config.h"

#include <stdio.h>
#include <string.h>

#define WIDTH 88
#define INDENT 6

/* The words of `text`, on lines that begin with INDENT spaces. */
static void show_wrapped(const char *text)
{
    int column = 0;
    while (*text) {
        int length = (int)strcspn(text, " ");
        if (column + 1 + length > WIDTH && column) {
            putchar('\n');
            column = 0;
        }
        column += printf("%*s%.*s", column ? 1 : INDENT, "", length, text);
        text += length;
        text += *text == ' ';
    }
    putchar('\n');
}

int vpmm_cli_show_options(void)
{
    static struct vpmm_config config;
    static struct vpmm_complaints complaints;
    char *const nothing[] = {NULL};
    struct vpmm_option_row row;
    vpmm_config_read(&config, &complaints, nothing);
    puts("Environment variables that the library reads once, at the program's first call. 'vpmm "
         "run'\n"
         "sets them by options of its own or by --set NAME=VALUE. A bad value is answered by one\n"
         "warning and the default; 'vpmm run' refuses it.");
    for (unsigned i = 0; vpmm_config_row(&config, i, &row); i++) {
        printf("\n  %s (default: %s)\n", row.name, row.default_text);
        show_wrapped(row.help);
        printf("%*saccepted: ", INDENT, "");
        puts(row.accepted);
    }
    return 0;
}
