/* SPDX-License-Identifier: MIT */
/* Reads what the system says of memory. Must not take a limit that cannot be read for one of 0. */
#define _GNU_SOURCE
#include "offload/room.h"

#include "base/text.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define PATH_ROOM 1024
#define FILE_ROOM 8192

/* The beginning of a file as text; false: it cannot be read. */
static bool read_text(const char *path, char *text, size_t room)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    size_t length = 0;
    ssize_t n = 1;
    if (descriptor < 0)
        return false;
    while (n > 0 && length + 1 < room) {
        n = read(descriptor, text + length, room - 1 - length);
        length += n > 0 ? (size_t)n : 0;
    }
    (void)close(descriptor);
    text[length] = 0;
    return n >= 0 && length > 0;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The number that `text` begins with; UINT64_MAX where it begins with none, as "max" does. */
static uint64_t number_of(const char *text)
{
    uint64_t number = 0;
    while (*text == ' ')
        text++;
    if (*text < '0' || *text > '9')
        return UINT64_MAX;
    for (; *text >= '0' && *text <= '9'; text++) {
        if (number > (UINT64_MAX - 9) / 10)
            return UINT64_MAX;
        number = number * 10 + (uint64_t)(*text - '0');
    }
    return number;
}

/* The number after a word at the beginning of a line. */
static uint64_t number_after(const char *text, const char *word)
{
    size_t length = strlen(word);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, word, length) == 0)
            return number_of(line + length);
    }
    return UINT64_MAX;
}

static bool read_of(const char *folder, const char *group, const char *file, char *text)
{
    char path[PATH_ROOM];
    struct vpmm_text at;
    vpmm_text_init(&at, path, sizeof path, VPMM_TEXT_CUT);
    vpmm_text_string(&at, folder);
    vpmm_text_string(&at, group);
    vpmm_text_string(&at, file);
    return read_text(path, text, FILE_ROOM);
}

/* What the system can drop of a group's memory: not what is in files that have no disk, such as
 * those in /dev/shm, although these count as cached, too. */
static uint64_t droppable(const char *folder, const char *group, bool is_v2)
{
    char text[FILE_ROOM];
    if (!read_of(folder, group, "/memory.stat", text))
        return 0;
    uint64_t cached = number_after(text, is_v2 ? "file " : "total_cache ");
    uint64_t shared = number_after(text, is_v2 ? "shmem " : "total_shmem ");
    if (cached == UINT64_MAX)
        return 0;
    return shared == UINT64_MAX ? cached : cached - least(shared, cached);
}

/* What one group leaves. A limit that is as good as none is larger than any machine. */
static uint64_t group_room(const char *folder, const char *group, bool is_v2)
{
    char text[FILE_ROOM];
    if (!read_of(folder, group, is_v2 ? "/memory.max" : "/memory.limit_in_bytes", text))
        return UINT64_MAX;
    uint64_t limit = number_of(text);
    if (limit >= (uint64_t)1 << 60 ||
        !read_of(folder, group, is_v2 ? "/memory.current" : "/memory.usage_in_bytes", text))
        return UINT64_MAX;
    uint64_t used = number_of(text);
    uint64_t cached = droppable(folder, group, is_v2);
    used -= cached < used ? cached : 0;
    return limit > used ? limit - used : 0;
}

/* A group's own limit and those of all above it. */
static uint64_t groups_room(const char *folder, char *group, bool is_v2)
{
    uint64_t room = UINT64_MAX;
    for (;;) {
        room = least(room, group_room(folder, group, is_v2));
        char *slash = strrchr(group, '/');
        if (!slash)
            return room;
        *slash = 0;
    }
}

/* The path in a line of /proc/self/cgroup: "0::/path", or "5:cpu,memory:/path" before version 2. */
static bool find_group(const char *text, bool is_v2, char *group, size_t room)
{
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *kinds = strchr(line, ':');
        const char *path = kinds ? strchr(kinds + 1, ':') : NULL;
        const char *memory = kinds ? strstr(kinds, "memory") : NULL;
        if (!path || (is_v2 ? path != kinds + 1 : !memory || memory > path))
            continue;
        size_t length = strcspn(path + 1, "\n");
        if (length >= room)
            return false;
        memcpy(group, path + 1, length);
        group[length] = 0;
        return true;
    }
    return false;
}

static uint64_t control_groups_room(const char *proc, const char *cgroups, bool is_v2)
{
    char text[FILE_ROOM], group[PATH_ROOM], folder[PATH_ROOM];
    struct vpmm_text at;
    if (!read_of(proc, "", "/self/cgroup", text) || !find_group(text, is_v2, group, sizeof group))
        return UINT64_MAX;
    vpmm_text_init(&at, folder, sizeof folder, VPMM_TEXT_CUT);
    vpmm_text_string(&at, cgroups);
    vpmm_text_string(&at, is_v2 ? "" : "/memory");
    return groups_room(folder, group, is_v2);
}

uint64_t vpmm_host_room_of(const char *proc, const char *cgroups)
{
    char text[FILE_ROOM];
    uint64_t room = UINT64_MAX;
    if (read_of(proc, "", "/meminfo", text)) {
        uint64_t kib = number_after(text, "MemAvailable:");
        room = kib < UINT64_MAX / 1024 ? kib * 1024 : UINT64_MAX;
    }
    room = least(room, control_groups_room(proc, cgroups, true));
    return least(room, control_groups_room(proc, cgroups, false));
}

uint64_t vpmm_host_room(void)
{
    return vpmm_host_room_of("/proc", "/sys/fs/cgroup");
}
