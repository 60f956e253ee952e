/* SPDX-License-Identifier: MIT */
#include "observe/log.h"

#include "base/atomic.h"
#include "base/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#define LINE_BYTES 1024
#define WARNINGS_MAX 100

static vpmm_atomic32 level_now;
static vpmm_atomic32 warnings_said;

static const char *const kind_names[] = {
    [VPMM_LOG_IS_ERROR] = "error",
    [VPMM_LOG_IS_WARNING] = "warning",
    [VPMM_LOG_IS_INFO] = "info",
    [VPMM_LOG_IS_DEBUG] = "debug",
};

void vpmm_log_set_level(int level)
{
    vpmm_atomic_store(&level_now, level < 0 ? 0 : (uint32_t)level);
}

/* One write a line: lines of several threads do not mix, and nothing is left over for exit. The
 * last byte of `line` is kept for the newline. */
static void say(char line[LINE_BYTES], enum vpmm_log_kind kind, const char *message)
{
    struct vpmm_text text;
    vpmm_text_init(&text, line, LINE_BYTES - 1, -1);
    vpmm_text_string(&text, "vpmm[");
    vpmm_text_decimal(&text, (uint64_t)getpid(), 0);
    vpmm_text_string(&text, "] ");
    vpmm_text_string(&text, kind_names[kind]);
    vpmm_text_string(&text, ": ");
    vpmm_text_string(&text, message);
    text.room++;
    text.fd = STDERR_FILENO;
    vpmm_text_char(&text, '\n');
    vpmm_text_flush(&text);
}

void vpmm_log(enum vpmm_log_kind kind, const char *format, ...)
{
    if ((uint32_t)kind > vpmm_atomic_load(&level_now))
        return;
    uint32_t said = kind == VPMM_LOG_IS_WARNING ? vpmm_atomic_add(&warnings_said, 1) : 0;
    if (said > WARNINGS_MAX)
        return;
    char line[LINE_BYTES], message[LINE_BYTES];
    if (said == WARNINGS_MAX) {
        say(line, kind, "this was the last of many warnings; no more will be shown");
        return;
    }
    int before = errno;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (length >= 0)
        say(line, kind, message);
    errno = before;
}
