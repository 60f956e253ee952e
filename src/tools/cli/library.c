/* SPDX-License-Identifier: MIT */
/* Finds the library, and puts it into LD_PRELOAD. Must not drop what LD_PRELOAD names already. */
#define _GNU_SOURCE
#include "cli/library.h"

#include "cli/cli_program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME "libvpmm.so"
/* What parts LD_PRELOAD into names. */
#define SEPARATORS " :"

/* From the folder of this command, which may have been moved with what was installed beside it. */
static const char *const places[] = {
    NAME,
    VPMM_LIBRARY_FROM_COMMAND "/" NAME,
    "../lib/vpmm/" NAME,
    "../lib64/vpmm/" NAME,
};

static enum vpmm_library_problem check(const char *path, char path_out[PATH_MAX])
{
    char found[PATH_MAX];
    struct vpmm_program program;
    if (!realpath(path, found) || access(found, R_OK) != 0) {
        size_t length = strnlen(path, PATH_MAX - 1);
        memcpy(path_out, path, length);
        path_out[length] = 0;
        return VPMM_LIBRARY_NOT_THERE;
    }
    memcpy(path_out, found, sizeof found);
    vpmm_program_look(found, &program);
    if (!program.is_shared || program.is_foreign)
        return VPMM_LIBRARY_NO_ELF;
    if (!vpmm_program_offers(found, VPMM_LIBRARY_SYMBOL))
        return VPMM_LIBRARY_FOREIGN;
    return strpbrk(found, SEPARATORS "$") ? VPMM_LIBRARY_NO_NAME : VPMM_LIBRARY_FOUND;
}

static bool own_folder(char folder_out[PATH_MAX])
{
    ssize_t length = readlink("/proc/self/exe", folder_out, PATH_MAX - 1);
    if (length <= 0)
        return false;
    folder_out[length] = 0;
    char *slash = strrchr(folder_out, '/');
    if (slash)
        *slash = 0;
    return slash != NULL;
}

enum vpmm_library_problem vpmm_library_find(const char *given, char path_out[PATH_MAX])
{
    char folder[PATH_MAX], path[PATH_MAX + 64];
    if (!given)
        given = getenv("VPMM_LIBRARY");
    if (given && *given)
        return check(given, path_out);
    bool has_folder = own_folder(folder);
    for (size_t i = 0; has_folder && i < sizeof places / sizeof *places; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, places[i]);
        enum vpmm_library_problem problem = check(path, path_out);
        if (problem != VPMM_LIBRARY_NOT_THERE)
            return problem;
    }
    enum vpmm_library_problem problem = check(VPMM_LIBRARY_DIR "/" NAME, path_out);
    return problem == VPMM_LIBRARY_NOT_THERE ? VPMM_LIBRARY_NOWHERE : problem;
}

static bool is_same_file(const char *path, const char *other)
{
    struct stat a, b;
    return stat(path, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

static bool names(const char *present, const char *path)
{
    char name[PATH_MAX];
    for (const char *at = present; *at;) {
        at += strspn(at, SEPARATORS);
        size_t length = strcspn(at, SEPARATORS);
        if (length > 0 && length < sizeof name) {
            memcpy(name, at, length);
            name[length] = 0;
            if (is_same_file(name, path))
                return true;
        }
        at += length;
    }
    return false;
}

char *vpmm_library_preload(const char *path, const char *present)
{
    char *value;
    if (!present || !*present)
        return strdup(path);
    if (names(present, path))
        return strdup(present);
    return asprintf(&value, "%s:%s", present, path) < 0 ? NULL : value;
}
