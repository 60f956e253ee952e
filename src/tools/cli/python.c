/* SPDX-License-Identifier: MIT */
/* Finds the parts of the command that are written in Python, beside the command's own file. Must
 * not look in the working folder, where anybody may have put a file. */
#define _GNU_SOURCE
#include "cli/python.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* From the folder of the command. */
static const char *const places[] = {"src/tools/python", VPMM_DATA_FROM_COMMAND};

bool vpmm_cli_self(char path_out[static VPMM_CLI_PATH_ROOM])
{
    ssize_t length = readlink("/proc/self/exe", path_out, VPMM_CLI_PATH_ROOM - 1);
    if (length <= 0)
        return false;
    path_out[length] = '\0';
    return true;
}

bool vpmm_cli_python_part(const char *part, char script_out[static VPMM_CLI_PATH_ROOM])
{
    char self[VPMM_CLI_PATH_ROOM];
    if (!vpmm_cli_self(self))
        return false;
    int folder = (int)(strrchr(self, '/') - self);
    for (unsigned i = 0; i < sizeof places / sizeof places[0]; i++) {
        int length = snprintf(script_out, VPMM_CLI_PATH_ROOM, "%.*s/%s/%s/__main__.py", folder,
                              self, places[i], part);
        if (length > 0 && length < VPMM_CLI_PATH_ROOM && access(script_out, R_OK) == 0)
            return true;
    }
    return false;
}
