/* SPDX-License-Identifier: MIT */
/* Uses the terminal as a screen, and reads keys from it. Must not leave the terminal changed when
 * the process ends or is stopped. */
#define _GNU_SOURCE
#include "cli/terminal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#define ENTER_PAGE "\033[?1049h\033[?25l"
#define KEYS_ROOM 64
#define LEAVE_PAGE "\033[0m\033[?25h\033[?1049l"

static const int watched[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};

static struct {
    bool is_open, has_keys;
    struct termios before;
    sigset_t mask_before;
    int signals; /* a signalfd */
    int end_signal;
    char keys[KEYS_ROOM]; /* read and not taken yet */
    size_t n_keys;
} terminal = {.signals = -1};

/* ---- front and back ---- */

static void enter(void)
{
    struct termios raw = terminal.before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    if (terminal.has_keys)
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    fputs(ENTER_PAGE, stdout);
    (void)fflush(stdout);
    terminal.is_open = true;
}

static void leave(void)
{
    if (!terminal.is_open)
        return;
    terminal.is_open = false;
    fputs(LEAVE_PAGE, stdout);
    (void)fflush(stdout);
    if (terminal.has_keys)
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &terminal.before);
}

bool vpmm_terminal_begin(void)
{
    sigset_t mask;
    const char *name = getenv("TERM");
    if (!isatty(STDOUT_FILENO) || (name && strcmp(name, "dumb") == 0))
        return false;
    (void)sigemptyset(&mask);
    for (unsigned i = 0; i < sizeof watched / sizeof watched[0]; i++)
        (void)sigaddset(&mask, watched[i]);
    if (sigprocmask(SIG_BLOCK, &mask, &terminal.mask_before) != 0)
        return false;
    terminal.signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    if (terminal.signals < 0) {
        (void)sigprocmask(SIG_SETMASK, &terminal.mask_before, NULL);
        return false;
    }
    terminal.has_keys = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &terminal.before) == 0;
    enter();
    (void)atexit(leave);
    return true;
}

void vpmm_terminal_end(void)
{
    leave();
    (void)close(terminal.signals);
    if (terminal.end_signal) {
        (void)signal(terminal.end_signal, SIG_DFL);
        (void)raise(terminal.end_signal);
    }
    (void)sigprocmask(SIG_SETMASK, &terminal.mask_before, NULL);
}

/* ---- painting ---- */

void vpmm_terminal_size(unsigned *columns_out, unsigned *lines_out)
{
    struct winsize size;
    bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col && size.ws_row;
    *columns_out = is_known ? size.ws_col : 80;
    *lines_out = is_known ? size.ws_row : 24;
}

void vpmm_terminal_paint(const struct vpmm_sheet *sheet, unsigned n_fixed, unsigned first)
{
    unsigned columns, lines;
    vpmm_terminal_size(&columns, &lines);
    const char *no_color = getenv("NO_COLOR");
    bool is_coloured = !no_color || !*no_color;
    fputs("\033[H", stdout);
    for (unsigned i = 0; i < lines; i++) {
        unsigned line = i < n_fixed ? i : i + first;
        fputs(i ? "\r\n" : "", stdout);
        if (line < sheet->n_lines)
            vpmm_sheet_paint(sheet, line, is_coloured ? VPMM_SHEET_COLOURED : VPMM_SHEET_STYLED,
                             stdout);
        /* A line that is full has no rest, and its last cell would be erased. */
        if (line >= sheet->n_lines || sheet->lines[line].n < columns)
            fputs("\033[K", stdout);
    }
    if (fflush(stdout) != 0)
        terminal.end_signal = SIGHUP;
}

/* ---- waiting ---- */

/* Out of the way as long as others have the terminal. */
static void stop(void)
{
    leave();
    (void)kill(getpid(), SIGSTOP);
    enter();
}

static bool take_signal(enum vpmm_terminal_event *event_out)
{
    struct signalfd_siginfo info;
    if (read(terminal.signals, &info, sizeof info) != sizeof info)
        return false;
    *event_out = VPMM_TERMINAL_RESIZE;
    if (info.ssi_signo == SIGTSTP) {
        stop();
    } else if (info.ssi_signo == SIGCONT) {
        enter();
    } else if (info.ssi_signo != SIGWINCH) {
        terminal.end_signal = (int)info.ssi_signo;
        *event_out = VPMM_TERMINAL_END;
    }
    return true;
}

/* Of those that were read; a key such as an arrow is several characters: an escape, a bracket or an
 * O, parameters, and a last one. */
static size_t first_key_length(void)
{
    const char *keys = terminal.keys;
    size_t n = 2;
    if (keys[0] != '\033' || terminal.n_keys < 3 || (keys[1] != '[' && keys[1] != 'O'))
        return 1;
    while (n + 1 < terminal.n_keys && keys[n] >= ' ' && keys[n] < '@')
        n++;
    return n + 1;
}

static enum vpmm_terminal_event take_key(char *key_out)
{
    static const struct {
        const char *text;
        enum vpmm_terminal_event event;
    } known[] = {
        {"k", VPMM_TERMINAL_UP},       {"j", VPMM_TERMINAL_DOWN},
        {"\033[A", VPMM_TERMINAL_UP},  {"\033[B", VPMM_TERMINAL_DOWN},
        {"\033OA", VPMM_TERMINAL_UP},  {"\033OB", VPMM_TERMINAL_DOWN},
        {"\033[5~", VPMM_TERMINAL_UP}, {"\033[6~", VPMM_TERMINAL_DOWN},
    };
    size_t length = first_key_length();
    enum vpmm_terminal_event event = VPMM_TERMINAL_KEY;
    *key_out = terminal.keys[0];
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strlen(known[i].text) == length && memcmp(known[i].text, terminal.keys, length) == 0)
            event = known[i].event;
    terminal.n_keys -= length;
    memmove(terminal.keys, terminal.keys + length, terminal.n_keys);
    return event;
}

/* False: nobody types any more. */
static bool read_keys(void)
{
    ssize_t n = read(STDIN_FILENO, terminal.keys, sizeof terminal.keys);
    terminal.n_keys = n > 0 ? (size_t)n : 0;
    return n > 0;
}

enum vpmm_terminal_event vpmm_terminal_wait(uint64_t timeout_ms, char *key_out)
{
    enum vpmm_terminal_event event;
    struct pollfd sources[] = {
        {.fd = terminal.signals, .events = POLLIN},
        {.fd = terminal.has_keys ? STDIN_FILENO : -1, .events = POLLIN},
    };
    if (terminal.end_signal)
        return VPMM_TERMINAL_END;
    if (poll(sources, 2, terminal.n_keys ? 0 : (int)timeout_ms) <= 0 && !terminal.n_keys)
        return VPMM_TERMINAL_TIME;
    if (sources[0].revents && take_signal(&event))
        return event;
    if (!terminal.n_keys && !sources[1].revents)
        return VPMM_TERMINAL_TIME;
    return terminal.n_keys || read_keys() ? take_key(key_out) : VPMM_TERMINAL_END;
}
