/* SPDX-License-Identifier: MIT */
/* What of the command is written in Python: where it is. */
#ifndef VPMM_CLI_PYTHON_H
#define VPMM_CLI_PYTHON_H

#include <stdbool.h>

#define VPMM_CLI_PATH_ROOM 4096

/* The path of this program; false where the system does not tell. */
bool vpmm_cli_self(char path_out[static VPMM_CLI_PATH_ROOM]);
/* The script that begins the part of that name: beside this program as it was built, or where it
 * was installed. False where it is missing. */
bool vpmm_cli_python_part(const char *part, char script_out[static VPMM_CLI_PATH_ROOM]);

#endif
