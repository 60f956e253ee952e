/* SPDX-License-Identifier: MIT */
/* Tells what kind of file a program is, and finds the file of a name. Must not run the file, and
 * must not trust a size or an offset in it. */
#define _GNU_SOURCE
#include "cli/cli_program.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <paths.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* The interpreter of a script may be a script, and so on. */
#define SCRIPTS_MAX 4
#define LINE_MAX_BYTES 256

static bool read_at(int fd, void *buffer, size_t bytes, uint64_t offset)
{
    return pread(fd, buffer, bytes, (off_t)offset) == (ssize_t)bytes;
}

static bool has_interpreter(int fd, const ElfW(Ehdr) * header)
{
    ElfW(Phdr) segment;
    for (unsigned i = 0; i < header->e_phnum; i++) {
        uint64_t at = header->e_phoff + (uint64_t)i * header->e_phentsize;
        if (!read_at(fd, &segment, sizeof segment, at))
            return true;
        if (segment.p_type == PT_INTERP)
            return true;
    }
    return false;
}

/* What this command itself is. */
static bool own_header(ElfW(Ehdr) * header_out)
{
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    bool has_it = fd >= 0 && read_at(fd, header_out, sizeof *header_out, 0);
    if (fd >= 0)
        (void)close(fd);
    return has_it;
}

/* The loader itself has no interpreter, and preloads for the program that it is given. */
static bool is_loader(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    return strncmp(name, "ld-", 3) == 0 || strncmp(name, "ld.so", 5) == 0;
}

static void look_at_elf(int fd, const ElfW(Ehdr) * header, struct vpmm_program *program)
{
    ElfW(Ehdr) own;
    program->is_foreign = own_header(&own) && (header->e_ident[EI_CLASS] != own.e_ident[EI_CLASS] ||
                                               header->e_ident[EI_DATA] != own.e_ident[EI_DATA] ||
                                               header->e_machine != own.e_machine);
    if (program->is_foreign)
        return;
    program->is_shared = header->e_type == ET_DYN;
    program->is_static = !has_interpreter(fd, header) && !is_loader(program->path);
}

static bool is_secure(const char *path, const struct stat *stat)
{
    bool changes_user = (stat->st_mode & S_ISUID) && stat->st_uid != geteuid();
    bool changes_group =
        (stat->st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) && stat->st_gid != getegid();
    return changes_user || changes_group ||
           (geteuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0);
}

/* True, and the interpreter's path: the file is a script. */
static bool read_script(int fd, char path_out[PATH_MAX])
{
    char line[LINE_MAX_BYTES + 1];
    ssize_t length = pread(fd, line, LINE_MAX_BYTES, 0);
    if (length < 2 || line[0] != '#' || line[1] != '!')
        return false;
    line[length] = 0;
    char *start = line + 2 + strspn(line + 2, " \t");
    start[strcspn(start, " \t\n")] = 0;
    (void)snprintf(path_out, PATH_MAX, "%s", start);
    return true;
}

/* True: it is a script, and the next to look at is its interpreter. */
static bool look_once(struct vpmm_program *program)
{
    struct stat stat;
    ElfW(Ehdr) header;
    int fd = open(program->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool is_script = read_script(fd, program->path);
    if (!is_script && read_at(fd, &header, sizeof header, 0) &&
        memcmp(header.e_ident, ELFMAG, SELFMAG) == 0) {
        look_at_elf(fd, &header, program);
        program->is_secure = fstat(fd, &stat) == 0 && is_secure(program->path, &stat);
    }
    (void)close(fd);
    return is_script;
}

void vpmm_program_look(const char *path, struct vpmm_program *program_out)
{
    memset(program_out, 0, sizeof *program_out);
    (void)snprintf(program_out->path, sizeof program_out->path, "%s", path);
    int n = 0;
    while (n < SCRIPTS_MAX && look_once(program_out))
        n++;
}

/* ---- symbols ---- */

/* Room for all of a section; the caller frees it. NULL: it is not in the file, or of no such size.
 */
static char *read_section(int fd, const ElfW(Shdr) * section)
{
    struct stat stat;
    if (fstat(fd, &stat) != 0 || section->sh_offset > (uint64_t)stat.st_size ||
        section->sh_size > (uint64_t)stat.st_size - section->sh_offset)
        return NULL;
    char *bytes = malloc(section->sh_size + 1);
    if (bytes && !read_at(fd, bytes, section->sh_size, section->sh_offset)) {
        free(bytes);
        return NULL;
    }
    if (bytes)
        bytes[section->sh_size] = 0;
    return bytes;
}

static bool section_offers(int fd, const ElfW(Shdr) * section, const ElfW(Shdr) * names,
                           const char *symbol)
{
    bool is_found = false;
    char *symbols = read_section(fd, section), *texts = read_section(fd, names);
    for (size_t at = 0; symbols && texts && at + sizeof(ElfW(Sym)) <= section->sh_size;
         at += sizeof(ElfW(Sym))) {
        ElfW(Sym) one;
        memcpy(&one, symbols + at, sizeof one);
        is_found |= one.st_shndx != SHN_UNDEF && one.st_name < names->sh_size &&
                    strcmp(texts + one.st_name, symbol) == 0;
    }
    free(texts);
    free(symbols);
    return is_found;
}

bool vpmm_program_offers(const char *path, const char *symbol)
{
    ElfW(Ehdr) header;
    ElfW(Shdr) section, names;
    bool is_found = false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool is_whole =
        read_at(fd, &header, sizeof header, 0) && header.e_shentsize == sizeof(ElfW(Shdr));
    for (unsigned i = 0; is_whole && !is_found && i < header.e_shnum; i++) {
        is_whole = read_at(fd, &section, sizeof section, header.e_shoff + i * sizeof section);
        if (is_whole && section.sh_type == SHT_DYNSYM && section.sh_link < header.e_shnum &&
            read_at(fd, &names, sizeof names, header.e_shoff + section.sh_link * sizeof names))
            is_found = section_offers(fd, &section, &names, symbol);
    }
    (void)close(fd);
    return is_found;
}

/* ---- the file of a name ---- */

static bool is_executable(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 && S_ISREG(found.st_mode) && access(path, X_OK) == 0;
}

bool vpmm_program_find(const char *name, char path_out[PATH_MAX])
{
    const char *folders = getenv("PATH");
    if (strchr(name, '/'))
        return snprintf(path_out, PATH_MAX, "%s", name) < PATH_MAX && is_executable(name);
    for (const char *at = folders ? folders : _PATH_DEFPATH; at;) {
        size_t length = strcspn(at, ":");
        int written =
            snprintf(path_out, PATH_MAX, "%.*s%s%s", (int)length, at, length ? "/" : "./", name);
        if (written < PATH_MAX && is_executable(path_out))
            return true;
        at = at[length] ? at + length + 1 : NULL;
    }
    return false;
}
