/* SPDX-License-Identifier: MIT */
/* Writes the JSON form of the made-up figures to standard output: "dump", "nothing" or "stats". */
#include "show.h"

#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    const char *what = argc == 2 ? argv[1] : "";
    if (strcmp(what, "dump") == 0)
        vpmm_dump_json(STDOUT_FILENO, SHOWN_PID, &show_dump);
    else if (strcmp(what, "nothing") == 0)
        vpmm_dump_json(STDOUT_FILENO, SHOWN_PID, &(struct vpmm_dump){0});
    else if (strcmp(what, "stats") == 0)
        vpmm_stats_json(STDOUT_FILENO, &show_stats);
    else
        return 2;
    return 0;
}
