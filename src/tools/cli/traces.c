/* SPDX-License-Identifier: MIT */
/* Opens a trace of any form, and starts the importer for PyTorch's snapshots. Must not read a
 * snapshot's pickle itself. */
#define _GNU_SOURCE
#include "cli/traces.h"

#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/python.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MESSAGE_ROOM 256
#define NO_PYTHON 127
#define LOOK_MS 100

/* Until the importer says something or ends; how far it has read `from` shows meanwhile. */
static void watch(int words, int from)
{
    struct vpmm_progress progress;
    struct pollfd end = {.fd = words, .events = POLLIN};
    struct stat facts;
    uint64_t bytes = fstat(from, &facts) == 0 ? (uint64_t)facts.st_size : 0;
    int ready;
    vpmm_progress_begin(&progress, "importing");
    while ((ready = poll(&end, 1, LOOK_MS)) == 0 || (ready < 0 && errno == EINTR)) {
        off_t at = lseek(from, 0, SEEK_CUR);
        if (vpmm_progress_is_due_now(&progress))
            vpmm_progress_draw(&progress, at > 0 ? (uint64_t)at : 0, bytes);
    }
    vpmm_progress_end(&progress);
}

/* What the importer said, to the end of its first line. */
static void read_words(int fd, char words_out[MESSAGE_ROOM])
{
    size_t length = 0;
    char drain[512];
    ssize_t n;
    while ((n = read(fd, drain, sizeof drain)) > 0 || (n < 0 && errno == EINTR)) {
        for (ssize_t i = 0; i < n && length < MESSAGE_ROOM - 1; i++)
            words_out[length++] = drain[i];
    }
    words_out[length] = '\0';
    words_out[strcspn(words_out, "\n")] = '\0';
}

static void become_importer(const char *script, int from, int to, int words)
{
    if (dup2(from, STDIN_FILENO) < 0 || dup2(to, STDOUT_FILENO) < 0 ||
        dup2(words, STDERR_FILENO) < 0)
        _exit(NO_PYTHON);
    execlp("python3", "python3", "-I", "-B", script, (char *)NULL);
    _exit(NO_PYTHON);
}

/* Lets the importer read `from` and write `to`. 0, or the exit status after one line. */
static int import(const char *command, const char *name, int from, int to)
{
    char script[VPMM_CLI_PATH_ROOM], words[MESSAGE_ROOM];
    int ends[2], status = 0;
    if (!vpmm_cli_python_part("vpmm_import", script))
        return vpmm_cli_fail(command,
                             "%s: a snapshot of PyTorch, and the importer is missing: no "
                             "%s/vpmm_import beside this command",
                             name, VPMM_DATA_FROM_COMMAND);
    if (pipe2(ends, O_CLOEXEC) != 0)
        return vpmm_cli_fail(command, "%s: %s", name, strerror(errno));
    pid_t child = fork();
    if (child == 0)
        become_importer(script, from, to, ends[1]);
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
        return vpmm_cli_fail(command, "%s: %s", name, strerror(errno));
    }
    watch(ends[0], from);
    read_words(ends[0], words);
    close(ends[0]);
    pid_t ended;
    do {
        ended = waitpid(child, &status, 0);
    } while (ended < 0 && errno == EINTR);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_PYTHON)
        return vpmm_cli_fail(command, "%s: a snapshot of PyTorch, which takes python3 to import",
                             name);
    if (WIFEXITED(status) && WEXITSTATUS(status) == VPMM_CLI_FAILED)
        return vpmm_cli_fail(command, "%s: %s", name, words);
    vpmm_cli_fail(command, "%s: %s", name,
                  WIFEXITED(status) && words[0] ? words : "not a snapshot of PyTorch");
    return VPMM_CLI_WRONG;
}

static int tell(const char *command, enum vpmm_status status, const char *message)
{
    vpmm_cli_fail(command, "%s", message);
    return status == VPMM_NO_METADATA ? VPMM_CLI_FAILED : VPMM_CLI_WRONG;
}

/* `fd` is a regular file. */
static int open_made(const char *command, const char *name, int fd,
                     struct vpmm_trace_reader **reader_out)
{
    char message[MESSAGE_ROOM];
    enum vpmm_status opened =
        vpmm_trace_open_fd(fd, name, VPMM_TRACE_FORM_VPMM, reader_out, message);
    return opened == VPMM_OK ? 0 : tell(command, opened, message);
}

/* `fd` is a regular file. */
static int open_imported(const char *command, const char *name, int fd,
                         struct vpmm_trace_reader **reader_out)
{
    int status, plain = vpmm_trace_plain(fd);
    int made = plain < 0 ? -1 : vpmm_trace_input_nameless();
    if (made < 0 || lseek(plain, 0, SEEK_SET) < 0)
        status = vpmm_cli_fail(command, "%s: no temporary file: %s", name, strerror(errno));
    else
        status = import(command, name, plain, made);
    if (status == 0)
        status = open_made(command, name, made, reader_out);
    if (made >= 0)
        close(made);
    if (plain >= 0)
        close(plain);
    return status;
}

int vpmm_cli_trace_open(const char *command, const char *path, enum vpmm_trace_form form,
                        struct vpmm_trace_reader **reader_out)
{
    char message[MESSAGE_ROOM];
    if (!*path)
        return vpmm_cli_wrong(command, "the name of FILE is empty");
    /* A file that may not grow further is told as one that cannot be written: by an error. */
    (void)signal(SIGXFSZ, SIG_IGN);
    bool is_input = strcmp(path, "-") == 0;
    const char *name = is_input ? "standard input" : path;
    int given = is_input ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    int fd = given < 0 ? -1 : vpmm_trace_settle(given, form);
    int error = errno;
    if (given >= 0 && !is_input)
        close(given);
    if (fd < 0) {
        vpmm_cli_fail(command, "%s: %s", name, strerror(error));
        return VPMM_CLI_WRONG;
    }
    enum vpmm_status opened = vpmm_trace_open_fd(fd, name, form, reader_out, message);
    int status = 0;
    if (opened == VPMM_NOT_SUPPORTED)
        status = open_imported(command, name, fd, reader_out);
    else if (opened != VPMM_OK)
        status = tell(command, opened, message);
    close(fd);
    return status;
}

bool vpmm_cli_trace_next(struct vpmm_trace_reader *reader, struct vpmm_progress *progress,
                         struct vpmm_trace_item *item_out)
{
    if (vpmm_progress_is_due(progress)) {
        struct vpmm_trace_facts facts = vpmm_trace_reader_facts(reader);
        vpmm_progress_draw(progress, facts.bytes_read, facts.bytes);
    }
    return vpmm_trace_next(reader, item_out);
}

int vpmm_cli_trace_check(const char *command, const struct vpmm_trace_reader *reader)
{
    const char *damage = vpmm_trace_damage(reader);
    if (!damage)
        return 0;
    vpmm_cli_fail(command, "%s", damage);
    return VPMM_CLI_WRONG;
}
