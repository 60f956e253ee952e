/* SPDX-License-Identifier: MIT */
/* `vpmm plot` is written in Python: here it is found and started. Must not read a trace itself. */
#define _GNU_SOURCE
#include "cli/cli.h"
#include "cli/python.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PYTHON "python3"

const char vpmm_help_plot[] =
    "usage: vpmm plot FILE[:LABEL]... -o OUT.svg|OUT.png|OUT.html [OPTIONS]\n"
    "\n"
    "Draws traces: memory over time, the address space over time, sizes; of several\n"
    "files a comparison. FILE is whatever file `vpmm trace` reads, or what `vpmm\n"
    "replay --json` printed; - is standard input. A page (.html) needs no network, and zooms; it\n"
    "takes NumPy alone, the others matplotlib too.\n"
    "\n"
    "  -o, --out FILE         what to write; its ending says the form\n"
    "  --kind KIND            memory, map, sizes, compare or all (the default)\n"
    "  --colour size|stream|path\n"
    "                         of live blocks in the map\n"
    "  --device N             default: the one with the most entries\n"
    "  --from T, --to T       a part: seconds, or with ns, us, ms, s, min, h\n"
    "  --title TEXT\n"
    "  --width N, --height N  in pixels; default: 1100, and what the panels need\n"
    "  --dpi N                more makes letters and lines larger (100)\n"
    "  --dark                 on a dark ground\n"
    "  --blocks N             the most in a page, the largest first (100000)\n"
    "\n"
    "  vpmm plot trace.vpmm -o trace.html\n"
    "  vpmm plot trace.vpmm -o peak.png --kind map --from 2.5 --to 2.6\n"
    "  vpmm plot before.vpmm:before after.vpmm:after -o both.svg --kind compare\n";

int vpmm_cli_plot(int argc, char **argv)
{
    char self[VPMM_CLI_PATH_ROOM], script[VPMM_CLI_PATH_ROOM];
    if (!vpmm_cli_self(self))
        return vpmm_cli_fail("plot", "/proc/self/exe cannot be read: %s", strerror(errno));
    if (!vpmm_cli_python_part("vpmm_plot", script))
        return vpmm_cli_fail("plot", "its Python part is missing: no %s/vpmm_plot beside %s",
                             VPMM_DATA_FROM_COMMAND, self);
    char **words = calloc((size_t)argc + 4, sizeof *words);
    if (!words)
        return vpmm_cli_fail("plot", "not enough memory");
    char python[] = PYTHON, no_bytecode[] = "-B";
    words[0] = python;
    words[1] = no_bytecode;
    words[2] = script;
    words[3] = self;
    for (int i = 1; i < argc; i++)
        words[3 + i] = argv[i];
    execvp(PYTHON, words);
    int reason = errno;
    free(words);
    if (reason == ENOENT)
        return vpmm_cli_fail("plot", "needs Python: apt-get install python3 python3-matplotlib");
    return vpmm_cli_fail("plot", PYTHON " cannot be started: %s", strerror(reason));
}
