/* SPDX-License-Identifier: MIT */
/* A look at a process whose metadata an attacker wrote. The first byte says who looks: `vpmm dump`,
 * `vpmm stat`, `vpmm top`, or the reader of what a look of `vpmm top` left. The others damage sound
 * metadata, word by word. A read of what is not there, a division by zero or the clock may end a
 * look, as each ends the child of the command. Nothing else may: no write, no jump, no step beyond
 * an array, no byte that a terminal would obey. */
#define _GNU_SOURCE
#include "input.h"
#include "look_sample.h"

#include "cli/board.h"
#include "cli/cli.h"

#include <getopt.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>
#include <cmocka.h>

#define LOOK_MS 20                         /* a sound one takes less than one */
#define HEADROOM_BYTES ((uint64_t)1 << 30) /* as cli/attach.c has it */
#define DAMAGES_MAX 32
#define SHOWN_BYTES_MAX (64 << 20)

/* A pointer that an attacker wrote leads anywhere, which harms nobody while it is only read. A
 * division by zero ends the child. */
const char *__ubsan_default_options(void);
const char *__ubsan_default_options(void)
{
    return "suppressions=" LOOK_SUPPRESSIONS;
}

static struct look_sample sample;
static const uint8_t *glance_bytes; /* what a look left, or NULL: one is made */
static size_t n_glance_bytes;

/* ---- what ends a look ---- */

static sigjmp_buf look_end;
static volatile sig_atomic_t is_looking;

/* A sanitizer that has found something takes its time to tell. */
int __asan_report_present(void) __attribute__((weak));
void __ubsan_on_report(void);
void __ubsan_on_report(void)
{
    is_looking = 0;
}

/* A fault of a write, or of the fetch of an instruction: an attacker would have more than a look.
 */
static bool is_a_read(const siginfo_t *info, const ucontext_t *context)
{
#ifdef __x86_64__
    return !(context->uc_mcontext.gregs[REG_ERR] & 2) &&
           (uintptr_t)info->si_addr != (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
#else
    return (uintptr_t)info->si_addr != (uintptr_t)context->uc_mcontext.pc;
#endif
}

static void on_end(int number, siginfo_t *info, void *context)
{
    static const char words[] = "fuzz_look.c: ERROR: a look wrote or jumped, or failed outside\n";
    if (number == SIGVTALRM && (!is_looking || (__asan_report_present && __asan_report_present())))
        return;
    if (is_looking && (number == SIGVTALRM || number == SIGFPE || is_a_read(info, context)))
        siglongjmp(look_end, 1);
    (void)!write(STDERR_FILENO, words, sizeof words - 1);
    abort();
}

/* Each time, because the fuzzer's own handlers come after the first input. */
static void watch(bool is_on)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGVTALRM};
    static struct sigaction before[4];
    const struct itimerval end = {.it_value = {0, is_on ? LOOK_MS * 1000 : 0}};
    struct sigaction action = {.sa_sigaction = on_end, .sa_flags = SA_SIGINFO};
    if (!is_on)
        (void)setitimer(ITIMER_VIRTUAL, &end, NULL);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(
            sigaction(signals[i], is_on ? &action : &before[i], is_on ? &before[i] : NULL), 0);
    if (is_on)
        (void)setitimer(ITIMER_VIRTUAL, &end, NULL);
}

/* ---- in the place of cli_look.c and main.c ---- */

int vpmm_cli_fail(const char *command, const char *format, ...)
{
    (void)command;
    (void)format;
    return VPMM_CLI_FAILED;
}

int vpmm_cli_wrong(const char *command, const char *format, ...)
{
    fail_msg("%s: %s", command, format);
    return VPMM_CLI_WRONG;
}

int vpmm_cli_wrong_option(const char *command, int found, char *const *argv)
{
    return vpmm_cli_wrong(command, "%d %s", found, argv[0]);
}

int vpmm_cli_wrong_number(const char *command, const char *option, const char *value,
                          uint64_t least, uint64_t most)
{
    return vpmm_cli_wrong(command, "%s %s %" PRIu64 " %" PRIu64, option, value, least, most);
}

bool vpmm_cli_number(const char *text, uint64_t least, uint64_t most, uint64_t *number_out)
{
    *number_out = strtoull(text, NULL, 10);
    return *number_out >= least && *number_out <= most;
}

bool vpmm_look_read_tries(struct vpmm_look *look, const char *text, int *status_out)
{
    (void)look;
    *status_out = vpmm_cli_wrong("again", "%s", text);
    return false;
}

bool vpmm_look_read_pid(struct vpmm_look *look, int n_words, char *const *words, int *status_out)
{
    look->pid = (uint64_t)getpid();
    *status_out = 0;
    return n_words == 1 && words[0] != NULL;
}

/* The addresses that the metadata want are kept free for them, and are free while they are mapped.
 */
static void keep_free(bool is_kept)
{
    size_t bytes = sample.bytes + HEADROOM_BYTES;
    if (is_kept)
        assert_ptr_equal(mmap(sample.address, bytes, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1,
                              0),
                         sample.address);
    else
        assert_int_equal(munmap(sample.address, bytes), 0);
}

static void unmap(const struct vpmm_attached *attached)
{
    uint64_t used = vpmm_atomic_load(&attached->header.used_bytes), bytes = attached->header.bytes;
    assert_int_equal(munmap(attached->header.address,
                            used + HEADROOM_BYTES < bytes ? used + HEADROOM_BYTES : bytes),
                     0);
}

static int show(const struct vpmm_look *look, const struct vpmm_attached *attached, int fd)
{
    volatile int status = VPMM_CLI_FAILED;
    watch(true);
    if (sigsetjmp(look_end, 1) == 0) {
        is_looking = 1;
        status = look->show(look, attached, fd);
    }
    is_looking = 0;
    watch(false);
    return status;
}

int vpmm_look(const struct vpmm_look *look, int *fd_out)
{
    struct vpmm_attached attached;
    char why[VPMM_ATTACH_WHY] = "";
    int fd = memfd_create("look", MFD_CLOEXEC), status = VPMM_CLI_FAILED;
    assert_true(fd >= 0);
    if (glance_bytes) {
        status = write(fd, glance_bytes, n_glance_bytes) == (ssize_t)n_glance_bytes ? 0 : 1;
    } else {
        keep_free(false);
        enum vpmm_attach_answer answer = vpmm_attach(look->pid, &attached, why);
        assert_in_range(strnlen(why, sizeof why), 0, sizeof why - 1);
        if (answer == VPMM_ATTACHED) {
            status = show(look, &attached, fd);
            unmap(&attached);
        }
        keep_free(true);
    }
    if (status == 0 && lseek(fd, 0, SEEK_SET) == 0)
        *fd_out = fd;
    else
        (void)close(fd);
    return status;
}

/* ---- what is shown ---- */

static void check_shown(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_true(text[i] == '\n' || (text[i] >= ' ' && text[i] < 0x7f));
}

int vpmm_look_print(const struct vpmm_look *look)
{
    int fd = -1, status = vpmm_look(look, &fd);
    if (status)
        return status;
    off_t n = lseek(fd, 0, SEEK_END);
    assert_in_range(n, 1, SHOWN_BYTES_MAX);
    char *text = mmap(NULL, (size_t)n, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_true(text != MAP_FAILED);
    check_shown(text, (size_t)n);
    assert_int_equal(text[n - 1], '\n');
    (void)munmap(text, (size_t)n);
    (void)close(fd);
    return 0;
}

static int look_by_command(int (*command)(int, char **), const char *option)
{
    char name[] = "look", word[16], pid[] = "1";
    char *words[] = {name, word, pid, NULL}, *plain[] = {name, pid, NULL};
    snprintf(word, sizeof word, "%s", option);
    optind = 0;
    return *option ? command(3, words) : command(2, plain);
}

static int look_by_top(unsigned columns)
{
    static struct vpmm_watched watched;
    struct vpmm_watched *all[] = {&watched};
    const struct vpmm_board board = {all, 1, 1.0, ""};
    struct vpmm_sheet sheet = {0};
    struct vpmm_glance glance;
    int status = vpmm_glance((uint64_t)getpid(), vpmm_board_cells(columns), true, &glance);
    if (status)
        return status;
    watched.before = watched.is_shown ? watched.now : glance;
    watched.now = glance;
    watched.pid = 1;
    watched.seconds = 1;
    watched.has_before = watched.is_shown;
    watched.is_shown = true;
    vpmm_sheet_clear(&sheet, columns);
    vpmm_board_write(&board, &sheet);
    for (unsigned i = 0; i < sheet.n_lines; i++)
        check_shown(sheet.lines[i].text, sheet.lines[i].n);
    vpmm_sheet_finish(&sheet);
    return 0;
}

static int look(unsigned kind)
{
    switch (kind) {
    case 0:
        return look_by_command(vpmm_cli_dump, "");
    case 1:
        return look_by_command(vpmm_cli_dump, "--json");
    case 2:
        return look_by_command(vpmm_cli_stat, "");
    case 3:
        return look_by_command(vpmm_cli_stat, "--json");
    default:
        return look_by_top(40 + kind);
    }
}

/* ---- what an attacker writes ---- */

static size_t place(struct input *input)
{
    uint64_t number = input_byte(input) << 16 | input_byte(input) << 8 | input_byte(input);
    return number % sample.n_sound;
}

/* Places of the metadata, small numbers, and what stands elsewhere come up more often than chance
 * would have it. */
static uint64_t damaged(struct input *input, uint64_t word)
{
    switch (input_below(input, 7)) {
    case 0:
        return input_word(input);
    case 1:
        return input_byte(input);
    case 2:
        return word ^ (uint64_t)1 << input_below(input, 64);
    case 3:
        return word + input_byte(input) - 128;
    case 4:
        return sample.sound[place(input)];
    case 5:
        return (uintptr_t)sample.address + 8 * look_sample_place(&sample, place(input));
    default:
        return UINT64_MAX >> input_below(input, 64);
    }
}

static void look_at_damage(unsigned kind, struct input *input)
{
    size_t sounds[DAMAGES_MAX], n = 0;
    struct vpmm_arena_header *header = (struct vpmm_arena_header *)(void *)sample.words;
    header->pid = (uint64_t)getpid();
    for (; n < DAMAGES_MAX && !input_is_over(input); n++) {
        sounds[n] = place(input);
        uint64_t *word = &sample.words[look_sample_place(&sample, sounds[n])];
        *word = damaged(input, *word);
    }
    bool is_sound = n == 0;
    int status = look(kind);
    assert_true(status == 0 || (status == VPMM_CLI_FAILED && !is_sound));
    while (n-- > 0)
        sample.words[look_sample_place(&sample, sounds[n])] = sample.sound[sounds[n]];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct input input = {data, data + bytes};
    if (!sample.bytes) {
        look_sample_make(&sample);
        keep_free(true);
    }
    unsigned kind = (unsigned)input_below(&input, 6);
    if (kind < 5) {
        look_at_damage(kind, &input);
        return 0;
    }
    glance_bytes = input.at;
    n_glance_bytes = (size_t)(input.end - input.at);
    (void)look_by_top(80);
    glance_bytes = NULL;
    return 0;
}
