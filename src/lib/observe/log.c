/* SPDX-License-Identifier: MIT */
/* Writes our messages, one line each, on standard error. Must not write to standard output. */
#include "observe/log.h"

#include "base/atomic.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#define LINE_BYTES 1024
#define WARNINGS_MAX 100
/* A message holds a call of the program up no longer than this. */
#define PATIENCE_MS 100

static vpmm_atomic32 level_now;
static vpmm_atomic32 warnings_said;
static vpmm_atomic32 has_no_errors; /* the process was started without standard error */
static vpmm_atomic32 is_stuck;      /* nobody reads standard error: no message waits any more */

static const char *const kind_names[] = {
    [VPMM_LOG_IS_ERROR] = "error",
    [VPMM_LOG_IS_WARNING] = "warning",
    [VPMM_LOG_IS_INFO] = "info",
    [VPMM_LOG_IS_DEBUG] = "debug",
};

/* When the library is loaded: later the number may mean a file of the program. */
__attribute__((constructor)) static void begin(void)
{
    int number = errno;
    if (fcntl(STDERR_FILENO, F_GETFD) < 0)
        vpmm_atomic_store(&has_no_errors, 1);
    errno = number;
}

int vpmm_log_descriptor(void)
{
    return vpmm_atomic_load(&has_no_errors) ? -1 : STDERR_FILENO;
}

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
    vpmm_text_char(&text, '\n');
    text.fd = vpmm_log_descriptor();
    text.patience_ms = vpmm_atomic_load(&is_stuck) ? 0 : PATIENCE_MS;
    vpmm_text_flush(&text);
    vpmm_atomic_store(&is_stuck, text.has_failed);
}

void vpmm_log_plain(enum vpmm_log_kind kind, const char *message)
{
    if ((uint32_t)kind > vpmm_atomic_load(&level_now))
        return;
    char line[LINE_BYTES];
    say(line, kind, message);
}

bool vpmm_log_says(enum vpmm_log_kind kind)
{
    bool is_over = kind == VPMM_LOG_IS_WARNING && vpmm_atomic_load(&warnings_said) > WARNINGS_MAX;
    return (uint32_t)kind <= vpmm_atomic_load(&level_now) && !is_over;
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
