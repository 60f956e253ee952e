/* SPDX-License-Identifier: MIT */
/* Maps the metadata of another process at the address that they have there. Must not trust anything
 * that it finds, and must not disturb that process. */
#define _GNU_SOURCE
#include "cli/attach.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of what the process may still use while it is looked at. */
#define HEADROOM_BYTES ((uint64_t)1 << 30)
#define PATH_BYTES 96

static enum vpmm_attach_answer refuse(char why_out[VPMM_ATTACH_WHY], const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static enum vpmm_attach_answer refuse(char why_out[VPMM_ATTACH_WHY], const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why_out, VPMM_ATTACH_WHY, format, arguments);
    va_end(arguments);
    return VPMM_ATTACH_REFUSED;
}

/* ---- what the system tells of a process ---- */

struct process {
    uint64_t pid, inner_pid; /* here, and as it sees itself */
    bool is_there, has_ended;
    char folder[PATH_BYTES]; /* what the system tells of it, or of a thread of it that lives */
};

/* Of the process or thread that the folder is about. */
static void read_status(struct process *process)
{
    char path[PATH_BYTES + 8], line[256];
    snprintf(path, sizeof path, "%s/status", process->folder);
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    while (fgets(line, sizeof line, file)) {
        const char *last = strrchr(line, '\t');
        process->is_there = true;
        if (strncmp(line, "State:", 6) == 0)
            process->has_ended = strpbrk(line + 6, "ZX") == line + 7;
        else if (last && strncmp(line, "NStgid:", 7) == 0)
            process->inner_pid = strtoull(last + 1, NULL, 10);
    }
    fclose(file);
}

/* One whose first thread has ended lives on in the others. */
static void find_living_thread(struct process *process)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "/proc/%" PRIu64 "/task", process->pid);
    DIR *folder = opendir(path);
    for (struct dirent *entry = folder ? readdir(folder) : NULL; entry; entry = readdir(folder)) {
        struct process thread = {.pid = process->pid, .inner_pid = process->inner_pid};
        snprintf(thread.folder, sizeof thread.folder, "%.32s/%.32s", path, entry->d_name);
        read_status(&thread);
        if (thread.is_there && !thread.has_ended) {
            *process = thread;
            break;
        }
    }
    if (folder)
        closedir(folder);
}

static void look_up(uint64_t pid, struct process *process_out)
{
    *process_out = (struct process){.pid = pid, .inner_pid = pid};
    snprintf(process_out->folder, sizeof process_out->folder, "/proc/%" PRIu64, pid);
    read_status(process_out);
    if (process_out->has_ended)
        find_living_thread(process_out);
}

/* ---- the file ---- */

struct found {
    int fd; /* -1: none */
    struct vpmm_arena_header header;
};

/* One whose process is the one in question, and not a parent that left it the descriptor. */
static bool is_wanted(const struct found *found, const struct process *process)
{
    const struct vpmm_arena_header *header = &found->header;
    struct stat facts;
    return header->magic == VPMM_ARENA_MAGIC && header->pid == process->inner_pid &&
           fstat(found->fd, &facts) == 0 && (uint64_t)facts.st_size == header->bytes;
}

/* The name may mean something else by now, such as a pipe, whose opening would wait. */
static bool open_found(const char *path, const struct process *process, struct found *found)
{
    struct found other = {.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
    if (other.fd < 0)
        return false;
    ssize_t n = pread(other.fd, &other.header, sizeof other.header, 0);
    if (n != sizeof other.header || !is_wanted(&other, process)) {
        close(other.fd);
        return false;
    }
    if (found->fd >= 0)
        close(found->fd);
    *found = other;
    return true;
}

static bool is_link(int folder, const char *name)
{
    char link[sizeof VPMM_ARENA_LINK + 1];
    ssize_t n = readlinkat(folder, name, link, sizeof link);
    return n == (ssize_t)strlen(VPMM_ARENA_LINK) && memcmp(link, VPMM_ARENA_LINK, (size_t)n) == 0;
}

/* Threads that began at once may each have made one, of which the last with a root stayed. False
 * with errno: its descriptors are not for us. */
static bool find_descriptor(const struct process *process, struct found *found)
{
    char path[PATH_BYTES + 8 + NAME_MAX];
    snprintf(path, sizeof path, "%s/fd", process->folder);
    DIR *folder = opendir(path);
    if (!folder)
        return false;
    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
        if (!is_link(dirfd(folder), entry->d_name))
            continue;
        snprintf(path, sizeof path, "%s/fd/%s", process->folder, entry->d_name);
        if (open_found(path, process, found) && atomic_load(&found->header.root))
            break;
    }
    closedir(folder);
    return true;
}

struct mapped {
    bool has_library, has_arena;
};

/* A program that closed the descriptor still has the mapping, by which root can open the file. */
static struct mapped find_mapping(const struct process *process, struct found *found)
{
    char path[PATH_BYTES + 8], line[PATH_MAX];
    struct mapped mapped = {false, false};
    snprintf(path, sizeof path, "%s/maps", process->folder);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        mapped.has_library |= strstr(line, "/libvpmm.so") != NULL;
        if (!strstr(line, VPMM_ARENA_LINK) || !strchr(line, ' '))
            continue;
        mapped.has_arena = true;
        *strchr(line, ' ') = 0;
        snprintf(path, sizeof path, "/proc/%" PRIu64 "/map_files/%.40s", process->pid, line);
        if (open_found(path, process, found))
            break;
    }
    if (file)
        fclose(file);
    return mapped;
}

static enum vpmm_attach_answer tell_missing(const struct process *process, struct mapped mapped,
                                            char why_out[VPMM_ATTACH_WHY])
{
    struct process now;
    look_up(process->pid, &now);
    if (!now.is_there || now.has_ended)
        return refuse(why_out, "process %" PRIu64 " has ended", process->pid);
    if (mapped.has_arena)
        return refuse(why_out,
                      "process %" PRIu64 " has closed the descriptor by which others see its pool, "
                      "or is the child of a process that has one",
                      process->pid);
    if (mapped.has_library)
        return refuse(why_out,
                      "process %" PRIu64 " has no pool yet, is switched off, or may not share its "
                      "memory",
                      process->pid);
    return refuse(why_out, "process %" PRIu64 " does not run under VPMM", process->pid);
}

static enum vpmm_attach_answer find(const struct process *process, struct found *found,
                                    char why_out[VPMM_ATTACH_WHY])
{
    found->fd = -1;
    if (!process->is_there)
        return refuse(why_out, "there is no process %" PRIu64, process->pid);
    /* Of one that has ended the system shows its descriptors to root alone. */
    if (!find_descriptor(process, found) && errno != ENOENT && !process->has_ended)
        return refuse(why_out,
                      "process %" PRIu64 " is not for this user to look at: it is of another one, "
                      "or protects itself (%s)",
                      process->pid, strerror(errno));
    if (found->fd >= 0)
        return VPMM_ATTACHED;
    struct mapped mapped = find_mapping(process, found);
    return found->fd >= 0 ? VPMM_ATTACHED : tell_missing(process, mapped, why_out);
}

/* ---- what is in it ---- */

/* Text of another process, which may be anything, goes to a terminal, which also obeys bytes above
 * 0x7f: U+009B begins an order as ESC does. */
static void make_printable(char *text, size_t room)
{
    text[room - 1] = 0;
    for (; *text; text++)
        if (*text < ' ' || *text >= 0x7f)
            *text = '?';
}

static enum vpmm_attach_answer check(const struct process *process,
                                     const struct vpmm_arena_header *header,
                                     char why_out[VPMM_ATTACH_WHY])
{
    uint64_t used = vpmm_atomic_load(&header->used_bytes);
    if (header->layout != vpmm_report_layout())
        return refuse(why_out,
                      "process %" PRIu64
                      " runs under another build of VPMM (%.*s) than this command "
                      "(%s): use the one that was installed with it",
                      process->pid, (int)strnlen(header->version, sizeof header->version),
                      header->version, vpmm_report_version);
    if ((uintptr_t)header->address % (uintptr_t)sysconf(_SC_PAGESIZE) || used < sizeof *header ||
        used > header->bytes)
        return refuse(why_out, "the metadata of process %" PRIu64 " are damaged", process->pid);
    if (vpmm_atomic_load(&header->has_spilled))
        return refuse(why_out, "the metadata of process %" PRIu64 " are more than can be shown",
                      process->pid);
    return VPMM_ATTACHED;
}

/* What the process uses meanwhile is mapped, too. */
static enum vpmm_attach_answer map(const struct process *process, const struct found *found,
                                   char why_out[VPMM_ATTACH_WHY])
{
    uint64_t used = vpmm_atomic_load(&found->header.used_bytes);
    uint64_t bytes =
        used + HEADROOM_BYTES < found->header.bytes ? used + HEADROOM_BYTES : found->header.bytes;
    void *wanted = found->header.address;
    void *address = mmap(wanted, bytes, PROT_READ, MAP_SHARED | MAP_FIXED_NOREPLACE, found->fd, 0);
    if (address == wanted)
        return VPMM_ATTACHED;
    bool is_taken = address != MAP_FAILED || errno == EEXIST;
    if (address != MAP_FAILED)
        munmap(address, bytes);
    (void)refuse(why_out, "the metadata of process %" PRIu64 " cannot be mapped: %s", process->pid,
                 is_taken ? "their addresses are taken" : strerror(errno));
    return is_taken ? VPMM_ATTACH_TAKEN : VPMM_ATTACH_REFUSED;
}

bool vpmm_attach_is_possible(uint64_t pid)
{
    struct process process;
    struct found found = {.fd = -1};
    look_up(pid, &process);
    if (process.is_there && find_descriptor(&process, &found) && found.fd >= 0)
        close(found.fd);
    return found.fd >= 0;
}

enum vpmm_attach_answer vpmm_attach(uint64_t pid, struct vpmm_attached *attached_out,
                                    char why_out[VPMM_ATTACH_WHY])
{
    struct process process;
    struct found found = {.fd = -1};
    look_up(pid, &process);
    enum vpmm_attach_answer answer = find(&process, &found, why_out);
    if (answer != VPMM_ATTACHED)
        return answer;
    make_printable(found.header.version, sizeof found.header.version);
    make_printable(found.header.program, sizeof found.header.program);
    answer = check(&process, &found.header, why_out);
    if (answer == VPMM_ATTACHED)
        answer = map(&process, &found, why_out);
    close(found.fd);
    if (answer != VPMM_ATTACHED)
        return answer;
    attached_out->header = found.header;
    attached_out->process = (struct vpmm_report_process){pid, attached_out->header.program};
    attached_out->router = atomic_load(&found.header.root);
    return VPMM_ATTACHED;
}
