/* SPDX-License-Identifier: MIT */
/* Strings of JSON on standard output. It knows nothing of what they say. */
#ifndef VPMM_CLI_QUOTED_H
#define VPMM_CLI_QUOTED_H

/* In double quotes, with JSON's escapes; valid JSON of any length, whatever the bytes are. */
void vpmm_cli_print_quoted(const char *string);

#endif
