/* SPDX-License-Identifier: MIT */
/* `vpmm plot` is written in Python: here it is found and started. */
#define _GNU_SOURCE
#include "cli/cli.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PYTHON "python3"

const char vpmm_help_plot[] =
    "usage: vpmm plot FILE[:LABEL]... -o OUT.svg|OUT.png|OUT.html [OPTIONS]\n"
    "\n"
    "Draws traces: memory over time, the address space over time, sizes; of several\n"
    "files a comparison. FILE is whatever `vpmm trace` reads. A page (.html) needs no\n"
    "network, and zooms; it takes NumPy alone, the others matplotlib too.\n"
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

/* Where the Python part is, from the folder of the command: beside it as it was built, or as it was
 * installed. */
static const char *const places[] = {"../python/vpmm_plot", VPMM_DATA_FROM_COMMAND "/vpmm_plot"};

/* The path of this program; false where the system does not tell. */
static bool find_self(char self_out[PATH_MAX])
{
    ssize_t length = readlink("/proc/self/exe", self_out, PATH_MAX - 1);
    if (length <= 0)
        return false;
    self_out[length] = '\0';
    return true;
}

static bool find_script(const char *self, char script_out[PATH_MAX])
{
    int folder = (int)(strrchr(self, '/') - self);
    for (unsigned i = 0; i < sizeof places / sizeof places[0]; i++) {
        int length = snprintf(script_out, PATH_MAX, "%.*s/%s/__main__.py", folder, self, places[i]);
        if (length > 0 && length < PATH_MAX && access(script_out, R_OK) == 0)
            return true;
    }
    return false;
}

int vpmm_cli_plot(int argc, char **argv)
{
    char self[PATH_MAX], script[PATH_MAX];
    if (!find_self(self))
        return vpmm_cli_fail("plot", "/proc/self/exe cannot be read: %s", strerror(errno));
    if (!find_script(self, script))
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
