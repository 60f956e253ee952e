/* SPDX-License-Identifier: MIT */
#include "program.h"

#include <inttypes.h>
#include <string.h>

struct words {
    const char *text, *operands[4];
};

#define STEP_WORDS(kind, text, a, b, c, n) {text, {a, b, c, n}},
static const struct words words[] = {STEP_LIST(STEP_WORDS)};

const char *step_name(enum step_kind kind)
{
    return words[kind].text;
}

bool step_has_stream(enum step_kind kind)
{
    const char *operand = words[kind].operands[1];
    return operand && strcmp(operand, "stream") == 0;
}

bool step_is_malloc_async(enum step_kind kind)
{
    return kind == STEP_MALLOC_ASYNC || kind == STEP_MALLOC_POOL;
}

bool step_is_malloc(enum step_kind kind)
{
    return kind == STEP_MALLOC || kind == STEP_MALLOC_PITCH || step_is_malloc_async(kind);
}

uint64_t step_bytes(const struct step *step)
{
    uint64_t pitch = (step->n + PITCH_UNIT - 1) / PITCH_UNIT * PITCH_UNIT;
    return step->kind == STEP_MALLOC_PITCH ? pitch * step->c : step->n;
}

void step_print(FILE *file, const struct step *step)
{
    const struct words *of = &words[step->kind];
    uint64_t values[4] = {step->a, step->b, step->c, step->n};
    fprintf(file, "%s thread %u", of->text, step->thread);
    for (int i = 0; i < 4; i++)
        if (of->operands[i])
            fprintf(file, " %s %" PRIu64, of->operands[i], values[i]);
    if (step_has_stream(step->kind) && step->spelling)
        fprintf(file, " spelling %u", step->spelling);
    fputc('\n', file);
}

void program_print(FILE *file, const struct program *program)
{
    const struct setting *setting = &program->setting;
    fprintf(file,
            "setting seed %" PRIu64 " device-granules %" PRIu64 " page-bytes %" PRIu64
            " extent-pages %" PRIu64 " slack-bytes %" PRIu64 " eager-pages %" PRIu64
            " root-bytes %" PRIu64 " free-waits %d%s%s\n",
            setting->seed, setting->device_pages, setting->page_bytes, setting->extent_pages,
            setting->slack_bytes, setting->eager_pages, setting->root_bytes, setting->free_waits,
            setting->serves_small ? " small" : "", setting->is_full ? " full" : "");
    for (size_t i = 0; i < program->n; i++)
        step_print(file, &program->steps[i]);
}

static bool setting_read(const char *line, struct setting *setting)
{
    int waits;
    char marks[2][8] = {"", ""};
    int n = sscanf(line,
                   "setting seed %" SCNu64 " device-granules %" SCNu64 " page-bytes %" SCNu64
                   " extent-pages %" SCNu64 " slack-bytes %" SCNu64 " eager-pages %" SCNu64
                   " root-bytes %" SCNu64 " free-waits %d %7s %7s",
                   &setting->seed, &setting->device_pages, &setting->page_bytes,
                   &setting->extent_pages, &setting->slack_bytes, &setting->eager_pages,
                   &setting->root_bytes, &waits, marks[0], marks[1]);
    setting->free_waits = n >= 8 && waits;
    setting->serves_small = strcmp(marks[0], "small") == 0;
    setting->is_full = strcmp(marks[setting->serves_small], "full") == 0;
    return n >= 8;
}

static bool operand_set(struct step *step, const char *name, uint64_t value)
{
    const struct words *of = &words[step->kind];
    unsigned *places[3] = {&step->a, &step->b, &step->c};
    if (strcmp(name, "thread") == 0)
        step->thread = (unsigned)value;
    else if (strcmp(name, "spelling") == 0)
        step->spelling = (unsigned)value;
    else if (of->operands[3] && strcmp(name, of->operands[3]) == 0)
        step->n = value;
    else {
        int i = 0;
        while (i < 3 && (!of->operands[i] || strcmp(name, of->operands[i]) != 0))
            i++;
        if (i == 3)
            return false;
        *places[i] = (unsigned)value;
    }
    return true;
}

static bool step_read(const char *line, struct step *step)
{
    char name[32], operand[32];
    int used;
    uint64_t value;
    if (sscanf(line, "%31s%n", name, &used) != 1)
        return false;
    *step = (struct step){0};
    while (step->kind < STEP_KINDS && strcmp(words[step->kind].text, name) != 0)
        step->kind++;
    if (step->kind == STEP_KINDS)
        return false;
    for (line += used; sscanf(line, "%31s %" SCNu64 "%n", operand, &value, &used) == 2;
         line += used)
        if (!operand_set(step, operand, value))
            return false;
    return line[strspn(line, " \t\n")] == '\0';
}

bool program_read(FILE *file, struct program *program)
{
    char line[256];
    bool is_set = false;
    program->n = 0;
    for (unsigned number = 1; fgets(line, sizeof line, file); number++) {
        bool is_empty = line[strspn(line, " \t\n")] == '\0' || line[0] == '#';
        if (is_empty)
            continue;
        if (!is_set && setting_read(line, &program->setting)) {
            is_set = true;
            continue;
        }
        if (!is_set || program->n == STEPS_MAX || !step_read(line, &program->steps[program->n])) {
            fprintf(stderr, "model: line %u is no %s: %s", number, is_set ? "step" : "setting",
                    line);
            return false;
        }
        program->n++;
    }
    return is_set;
}

void chance_start(struct chance *chance, uint64_t seed)
{
    chance->state = seed * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du;
    (void)chance_below(chance, 2);
}

uint64_t chance_below(struct chance *chance, uint64_t n)
{
    uint64_t mixed = chance->state += 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
    return (mixed ^ mixed >> 31) % n;
}
