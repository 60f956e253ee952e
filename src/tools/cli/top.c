/* SPDX-License-Identifier: MIT */
/* `vpmm top`: looks at processes again and again, and shows them. Must not read their metadata
 * itself: a child looks at each. */
#define _GNU_SOURCE
#include "cli/board.h"
#include "cli/cli.h"
#include "cli/terminal.h"

#include <getopt.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WATCHED_MAX 1024u
#define PLAIN_COLUMNS 120u
#define INTERVAL_MIN_S 0.1
#define INTERVAL_MAX_S 3600.0

const char vpmm_help_top[] =
    "usage: vpmm top [PID...] [--interval S] [--once] [--batch]\n"
    "\n"
    "Shows all processes of yours that have a pool, or those named, and looks again now and then.\n"
    "They notice nothing. Each device of a process has a line of figures, and a bar that shows "
    "its\n"
    "address space from the first region to the last.\n"
    "\n"
    "  --interval S  seconds between two looks (1 by default)\n"
    "  --once        one look, as plain text\n"
    "  --batch       look after look, as plain text, for files and pipes\n"
    "\n"
    "  LIVE HELD REUSE   what the program has; what the pool holds; what of that is reusable\n"
    "  PEND ZOMB HOLES   pending: freed, and work not known complete; zombies: old addresses;\n"
    "                    holes: addresses without memory\n"
    "  REQ/s             requests that the pool served, a second\n"
    "  CACHE HABIT FIT REVIVE STITCH GROW\n"
    "                    how: from the front cache, where a round before was, where memory lay\n"
    "                    free, at an old address, by moving pages, by new pages alone\n"
    "  WAIT/s PASS       waits a second; requests of the process that were left to CUDA\n"
    "\n"
    "Blocks that share pages have a line of their own: how many of each class, with how much of\n"
    "how much. So have weights larger than their budget.\n"
    "\n"
    "Rates and shares are of the time since the last look, at first since the process began.\n"
    "Keys: q quits, space looks at once, + and - change the interval, arrows scroll. NO_COLOR "
    "leaves\n"
    "colours out.\n";

struct top {
    uint64_t pids[WATCHED_MAX]; /* named */
    size_t n_pids;
    double interval_s;
    bool is_once, is_batch;
    struct vpmm_watched *watched[WATCHED_MAX];
    size_t n_watched;
    struct vpmm_sheet sheet;
    struct timespec last_look;
};

/* ---- looking ---- */

static double seconds_between(const struct timespec *a, const struct timespec *b)
{
    return (double)(b->tv_sec - a->tv_sec) + (double)(b->tv_nsec - a->tv_nsec) / 1e9;
}

static double seconds_since_start(const struct vpmm_glance *glance)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    double seconds = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
    return seconds - (double)glance->started_ns / 1e9;
}

static struct vpmm_watched *find_watched(struct top *top, uint64_t pid)
{
    for (size_t i = 0; i < top->n_watched; i++)
        if (top->watched[i]->pid == pid)
            return top->watched[i];
    struct vpmm_watched *watched = top->n_watched < WATCHED_MAX ? calloc(1, sizeof *watched) : NULL;
    if (!watched)
        return NULL;
    watched->pid = pid;
    top->watched[top->n_watched++] = watched;
    return watched;
}

static int compare_pids(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static int compare(const void *a, const void *b)
{
    const struct vpmm_watched *const *x = a, *const *y = b;
    return (*x)->pid < (*y)->pid ? -1 : (*x)->pid > (*y)->pid;
}

/* A number that is given to another process is another process. */
static int look_at(struct top *top, uint64_t pid, unsigned n_cells, bool is_quiet, double seconds)
{
    struct vpmm_watched *watched = find_watched(top, pid);
    if (!watched)
        return VPMM_CLI_FAILED;
    bool was_shown = watched->is_shown;
    uint64_t started_ns = watched->now.started_ns;
    if (was_shown)
        watched->before = watched->now;
    int status = vpmm_glance(pid, n_cells, is_quiet, &watched->now);
    watched->is_shown = status == 0;
    watched->has_before = was_shown && started_ns == watched->now.started_ns;
    watched->seconds = watched->has_before ? seconds : seconds_since_start(&watched->now);
    if (status && was_shown)
        watched->now = watched->before;
    return status;
}

/* Nobody named them: who is gone is not of interest. */
static void forget_the_gone(struct top *top)
{
    size_t n = 0;
    for (size_t i = 0; i < top->n_watched; i++) {
        if (top->watched[i]->is_shown)
            top->watched[n++] = top->watched[i];
        else
            free(top->watched[i]);
    }
    top->n_watched = n;
}

/* `is_first`: what cannot be seen of those named is told, and is the status. */
static int look_at_all(struct top *top, unsigned columns, bool is_first)
{
    static uint64_t found[WATCHED_MAX];
    struct timespec now;
    int status = 0;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    double seconds = is_first ? 0 : seconds_between(&top->last_look, &now);
    const uint64_t *pids = top->n_pids ? top->pids : found;
    size_t n = top->n_pids ? top->n_pids : vpmm_glance_find(found, WATCHED_MAX);
    for (size_t i = 0; i < top->n_watched && !top->n_pids; i++)
        if (!bsearch(&top->watched[i]->pid, found, n, sizeof *found, compare_pids))
            top->watched[i]->is_shown = false;
    for (size_t i = 0; i < n && !status; i++) {
        bool is_told = is_first && top->n_pids;
        int answer = look_at(top, pids[i], vpmm_board_cells(columns), !is_told, seconds);
        status = is_told ? answer : 0;
    }
    if (!top->n_pids)
        forget_the_gone(top);
    qsort(top->watched, top->n_watched, sizeof *top->watched, compare);
    top->last_look = now;
    return status;
}

static void write_board(struct top *top, unsigned columns, const char *hint)
{
    const struct vpmm_board board = {top->watched, top->n_watched,
                                     top->is_once ? 0 : top->interval_s, hint};
    vpmm_sheet_clear(&top->sheet, columns);
    vpmm_board_write(&board, &top->sheet);
}

static size_t count_shown(const struct top *top)
{
    size_t n = 0;
    for (size_t i = 0; i < top->n_watched; i++)
        n += top->watched[i]->is_shown;
    return n;
}

/* ---- as plain text ---- */

/* Until all that were named are gone, or nobody reads any more. */
static int show_plain(struct top *top)
{
    unsigned columns = PLAIN_COLUMNS, lines;
    if (isatty(STDOUT_FILENO))
        vpmm_terminal_size(&columns, &lines);
    for (bool is_first = true;; is_first = false) {
        int status = look_at_all(top, columns, is_first);
        if (status)
            return status;
        if (top->is_once && !count_shown(top))
            return vpmm_cli_fail("top", "no process of this user has a pool");
        write_board(top, columns, "");
        for (unsigned i = 0; i < top->sheet.n_lines; i++) {
            vpmm_sheet_paint(&top->sheet, i, VPMM_SHEET_PLAIN, stdout);
            putchar('\n');
        }
        if (top->is_once || (top->n_pids && !count_shown(top)))
            return 0;
        putchar('\n');
        if (fflush(stdout) != 0)
            return 0;
        (void)poll(NULL, 0, (int)(top->interval_s * 1000));
    }
}

/* ---- on the screen ---- */

struct view {
    unsigned columns, lines, first; /* of the lines below the headings */
};

static void paint(struct top *top, struct view *view)
{
    vpmm_terminal_size(&view->columns, &view->lines);
    write_board(top, view->columns, "  (q quits)");
    if (!top->n_watched) {
        vpmm_sheet_line(&top->sheet);
        vpmm_sheet_put(&top->sheet, VPMM_STYLE_FAINT, "  no process of yours has a pool");
    }
    unsigned n = top->sheet.n_lines;
    unsigned last = n > view->lines ? n - view->lines : 0;
    view->first = view->first < last ? view->first : last;
    vpmm_terminal_paint(&top->sheet, VPMM_BOARD_HEADINGS, view->first);
}

static uint64_t ms_left(const struct top *top)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    double left = top->interval_s - seconds_between(&top->last_look, &now);
    return left > 0 ? (uint64_t)(left * 1000) + 1 : 0;
}

static double within(double seconds)
{
    return seconds < INTERVAL_MIN_S   ? INTERVAL_MIN_S
           : seconds > INTERVAL_MAX_S ? INTERVAL_MAX_S
                                      : seconds;
}

static bool obey_key(struct top *top, char key)
{
    if (key == '+')
        top->interval_s = within(top->interval_s * 2);
    else if (key == '-')
        top->interval_s = within(top->interval_s / 2);
    return key != 'q' && key != 'Q';
}

static void watch(struct top *top, struct view *view)
{
    for (;;) {
        char key = 0;
        enum vpmm_terminal_event event = vpmm_terminal_wait(ms_left(top), &key);
        if (event == VPMM_TERMINAL_END || (event == VPMM_TERMINAL_KEY && !obey_key(top, key)))
            return;
        if (event == VPMM_TERMINAL_UP)
            view->first -= view->first ? 1 : 0;
        else if (event == VPMM_TERMINAL_DOWN)
            view->first++;
        if (event == VPMM_TERMINAL_TIME || key == ' ')
            (void)look_at_all(top, view->columns, false);
        paint(top, view);
    }
}

static int show_live(struct top *top)
{
    struct view view = {0};
    vpmm_terminal_size(&view.columns, &view.lines);
    int status = look_at_all(top, view.columns, true);
    if (status)
        return status;
    if (!vpmm_terminal_begin())
        return show_plain(top);
    paint(top, &view);
    watch(top, &view);
    vpmm_terminal_end();
    return 0;
}

/* ---- arguments ---- */

static bool read_interval(const char *text, struct top *top)
{
    char *end;
    double seconds = strtod(text, &end);
    if (end == text || *end || !(seconds >= INTERVAL_MIN_S && seconds <= INTERVAL_MAX_S))
        return false;
    top->interval_s = seconds;
    return true;
}

static int read_pids(struct top *top, int n, char *const *words)
{
    if (n > (int)WATCHED_MAX)
        return vpmm_cli_wrong("top", "it takes %u processes at most", WATCHED_MAX);
    for (int i = 0; i < n; i++) {
        uint64_t *pid = &top->pids[top->n_pids];
        if (!vpmm_cli_number(words[i], 1, INT32_MAX, pid))
            return vpmm_cli_wrong("top", "'%s' is no process: it takes PIDs", words[i]);
        bool is_new = true;
        for (size_t k = 0; k < top->n_pids; k++)
            is_new &= top->pids[k] != *pid;
        top->n_pids += is_new;
    }
    return 0;
}

/* What the command asks of itself. */
struct again {
    struct vpmm_look look;
    uint64_t n_cells;
};

static int read_options(int argc, char **argv, struct top *top, struct again *again)
{
    static const struct option options[] = {
        {"interval", required_argument, NULL, 'i'},
        {"once", no_argument, NULL, 'o'},
        {"batch", no_argument, NULL, 'b'},
        {VPMM_LOOK_AGAIN, required_argument, NULL, 'a'},
        {VPMM_GLANCE_OPTION, required_argument, NULL, 'g'},
        {VPMM_GLANCE_CELLS_OPTION, required_argument, NULL, 'c'},
        {NULL, 0, NULL, 0},
    };
    int status = 0;
    for (int found; (found = getopt_long(argc, argv, ":", options, NULL)) != -1;) {
        if (found == 'o')
            top->is_once = true;
        else if (found == 'b')
            top->is_batch = true;
        else if (found == 'i' && !read_interval(optarg, top))
            return vpmm_cli_wrong_value("top", "--interval", optarg, "0.1 to 3600 seconds");
        else if ((found == 'a' && !vpmm_look_read_tries(&again->look, optarg, &status)) ||
                 (found == 'g' && !vpmm_look_read_pid(&again->look, 1, &optarg, &status)))
            return status;
        else if (found == 'c' &&
                 !vpmm_cli_number(optarg, 1, VPMM_REPORT_CELLS_MAX, &again->n_cells))
            return vpmm_cli_wrong("top", "'%s' is no number of cells", optarg);
        else if (found == '?' || found == ':')
            return vpmm_cli_wrong_option("top", found, argv);
    }
    return read_pids(top, argc - optind, argv + optind);
}

int vpmm_cli_top(int argc, char **argv)
{
    static struct top top = {.interval_s = 1};
    struct again again = {.look = {.command = "top"}, .n_cells = 0};
    int status = read_options(argc, argv, &top, &again);
    if (status)
        return status;
    bool is_again = again.look.n_tries && again.look.pid && again.n_cells;
    if (!is_again && (again.look.n_tries || again.look.pid || again.n_cells))
        return vpmm_cli_wrong("top", "--%s, --%s and --%s are not for you", VPMM_LOOK_AGAIN,
                              VPMM_GLANCE_OPTION, VPMM_GLANCE_CELLS_OPTION);
    if (is_again)
        return vpmm_glance_again(again.look.pid, (unsigned)again.n_cells, again.look.n_tries);
    status = top.is_once || top.is_batch ? show_plain(&top) : show_live(&top);
    for (size_t i = 0; i < top.n_watched; i++)
        free(top.watched[i]);
    vpmm_sheet_finish(&top.sheet);
    return status;
}
