/* SPDX-License-Identifier: MIT */
/* Looks at a running process in a child of this command. The metadata may be damaged, so this
 * process must not read them itself. */
#define _GNU_SOURCE
#include "cli/cli_look.h"

#include "cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRIES_MAX 16
#define AGAIN "--" VPMM_LOOK_AGAIN "="
/* Damaged metadata may have no end. A sound process with 100,000 regions takes 0.2 s and 10 MB. */
#define LOOK_MS 1800
#define OUTPUT_BYTES_MAX ((rlim_t)1 << 30)
#define COPY_BYTES 65536

/* Libraries and stack lie elsewhere each time, and by turns far away from where they lay. */
static void run_again(const struct vpmm_look *look, int fd)
{
    char tries[sizeof AGAIN + 16], name[] = "vpmm", command[16];
    size_t n = 0;
    while (look->words[n])
        n++;
    char **argv = calloc(n + 4, sizeof *argv);
    int layout = personality(UINT32_MAX);
    if (!argv)
        return;
    snprintf(command, sizeof command, "%s", look->command);
    snprintf(tries, sizeof tries, AGAIN "%u", look->n_tries + 1);
    argv[0] = name;
    argv[1] = command;
    argv[2] = tries;
    n = 3;
    for (char *const *word = look->words; *word; word++)
        if (strncmp(*word, AGAIN, strlen(AGAIN)) != 0)
            argv[n++] = *word;
    if (layout >= 0)
        (void)personality((unsigned long)layout ^ ADDR_COMPAT_LAYOUT);
    if (dup2(fd, STDOUT_FILENO) >= 0)
        (void)execv("/proc/self/exe", argv);
    free(argv);
}

static int look_into(const struct vpmm_look *look, int fd)
{
    struct vpmm_attached attached;
    char why[VPMM_ATTACH_WHY];
    enum vpmm_attach_answer answer = vpmm_attach(look->pid, &attached, why);
    if (answer == VPMM_ATTACH_TAKEN && look->n_tries < TRIES_MAX)
        run_again(look, fd);
    if (answer != VPMM_ATTACHED)
        return vpmm_cli_fail(look->command, "%s", why);
    return look->show(look, &attached, fd);
}

static void restrict_child(const struct vpmm_look *look)
{
    const struct rlimit no_core = {0, 0}, output = {OUTPUT_BYTES_MAX, OUTPUT_BYTES_MAX};
    const struct itimerval end = {
        .it_value = {LOOK_MS / 1000, (suseconds_t)(LOOK_MS % 1000) * 1000}};
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)signal(SIGALRM, SIG_DFL);
    (void)setitimer(ITIMER_REAL, &end, NULL);
    (void)setrlimit(RLIMIT_CORE, &no_core);
    (void)setrlimit(RLIMIT_FSIZE, &output);
    if (look->is_quiet)
        (void)close(STDERR_FILENO);
}

static int wait_for(const struct vpmm_look *look, pid_t child)
{
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return vpmm_cli_fail(look->command, "no answer: %s", strerror(errno));
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    if (look->is_quiet)
        return VPMM_CLI_FAILED;
    bool is_late = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
    return vpmm_cli_fail(look->command, "the metadata of process %" PRIu64 " are %s", look->pid,
                         is_late ? "damaged, or too many to be read within two seconds"
                                 : "damaged");
}

bool vpmm_look_read_tries(struct vpmm_look *look, const char *text, int *status_out)
{
    uint64_t number;
    if (!vpmm_cli_number(text, 1, TRIES_MAX, &number)) {
        *status_out = vpmm_cli_wrong(look->command, "there is no option " AGAIN "%s", text);
        return false;
    }
    look->n_tries = (unsigned)number;
    return true;
}

bool vpmm_look_read_pid(struct vpmm_look *look, int n_words, char *const *words, int *status_out)
{
    if (n_words == 0)
        *status_out = vpmm_cli_wrong(look->command, "it takes the PID of a process");
    else if (n_words > 1)
        *status_out = vpmm_cli_wrong(look->command, "it takes one process, not %d", n_words);
    else if (!vpmm_cli_number(words[0], 1, INT32_MAX, &look->pid))
        *status_out = vpmm_cli_wrong(look->command, "'%s' is no process: it takes a PID", words[0]);
    else
        return true;
    return false;
}

int vpmm_look(const struct vpmm_look *look, int *fd_out)
{
    int fd = memfd_create("vpmm-look", MFD_CLOEXEC);
    if (fd < 0)
        return vpmm_cli_fail(look->command, "no memory: %s", strerror(errno));
    (void)fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        restrict_child(look);
        _exit(look_into(look, fd));
    }
    int status = child < 0 ? vpmm_cli_fail(look->command, "no process: %s", strerror(errno))
                           : wait_for(look, child);
    if (status == 0 && lseek(fd, 0, SEEK_SET) == 0) {
        *fd_out = fd;
        return 0;
    }
    close(fd);
    return status ? status : VPMM_CLI_FAILED;
}

int vpmm_look_print(const struct vpmm_look *look)
{
    static char buffer[COPY_BYTES];
    int fd = -1;
    if (look->n_tries)
        return look_into(look, STDOUT_FILENO);
    int status = vpmm_look(look, &fd);
    if (status)
        return status;
    for (ssize_t n = read(fd, buffer, sizeof buffer); n > 0; n = read(fd, buffer, sizeof buffer))
        if (fwrite(buffer, 1, (size_t)n, stdout) != (size_t)n)
            break;
    close(fd);
    return 0;
}
