/* SPDX-License-Identifier: MIT */
/* Gets the figures of a running process from a child that looks. Must not trust what the child
 * wrote, because the metadata may be damaged. */
#define _GNU_SOURCE
#include "cli/glance.h"

#include "cli/cli.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static size_t size_of(unsigned n_devices)
{
    return offsetof(struct vpmm_glance, devices) + n_devices * sizeof(struct vpmm_glance_device);
}

static int show(const struct vpmm_look *look, const struct vpmm_attached *attached, int fd)
{
    static struct vpmm_glance glance;
    struct vpmm_report_device devices[VPMM_DEVICES_MAX];
    if (!vpmm_report_has_pool(attached->router, VPMM_REPORT_ALL_DEVICES) &&
        !vpmm_report_has_weights(attached->router))
        return vpmm_cli_fail("top", "process %" PRIu64 " has no pool yet", look->pid);
    glance.started_ns = attached->header.started_ns;
    memcpy(glance.program, attached->header.program, sizeof glance.program);
    glance.n_cells = *(const unsigned *)look->self;
    vpmm_report_requests(attached->router, &glance.requests);
    glance.n_weights = vpmm_report_offloads(attached->router, glance.weights);
    glance.n_devices = vpmm_report_devices(attached->router, devices);
    for (unsigned i = 0; i < glance.n_devices; i++) {
        glance.devices[i].figures = devices[i];
        vpmm_report_bar(attached->router, devices[i].device, glance.devices[i].bar, glance.n_cells);
    }
    size_t bytes = size_of(glance.n_devices);
    return write(fd, &glance, bytes) == (ssize_t)bytes ? 0 : VPMM_CLI_FAILED;
}

/* What a child wrote about damaged metadata may be anything. */
static bool read_glance(int fd, struct vpmm_glance *glance_out)
{
    ssize_t n = read(fd, glance_out, sizeof *glance_out);
    if (n < (ssize_t)size_of(0) || glance_out->n_devices > VPMM_DEVICES_MAX ||
        glance_out->n_weights > VPMM_OFFLOADS_MAX || glance_out->n_cells > VPMM_REPORT_CELLS_MAX)
        return false;
    for (size_t i = 0; i < sizeof glance_out->program; i++) {
        char c = glance_out->program[i];
        glance_out->program[i] = c == 0 || (c > ' ' && c < 0x7f) ? c : '?';
    }
    glance_out->program[sizeof glance_out->program - 1] = 0;
    return n == (ssize_t)size_of(glance_out->n_devices);
}

static int look_at(uint64_t pid, unsigned n_cells, bool is_quiet, unsigned n_tries, int *fd_out)
{
    char process[32], cells[32];
    char process_option[] = "--" VPMM_GLANCE_OPTION, cells_option[] = "--" VPMM_GLANCE_CELLS_OPTION;
    char *words[] = {process_option, process, cells_option, cells, NULL};
    const struct vpmm_look look = {"top", pid, n_tries, is_quiet, words, show, &n_cells};
    snprintf(process, sizeof process, "%" PRIu64, pid);
    snprintf(cells, sizeof cells, "%u", n_cells);
    return fd_out ? vpmm_look(&look, fd_out) : vpmm_look_print(&look);
}

int vpmm_glance_again(uint64_t pid, unsigned n_cells, unsigned n_tries)
{
    return look_at(pid, n_cells, false, n_tries, NULL);
}

int vpmm_glance(uint64_t pid, unsigned n_cells, bool is_quiet, struct vpmm_glance *glance_out)
{
    int fd = -1;
    int status = look_at(pid, n_cells, is_quiet, 0, &fd);
    if (status)
        return status;
    bool is_whole = read_glance(fd, glance_out);
    close(fd);
    if (!is_whole && !is_quiet)
        (void)vpmm_cli_fail("top", "the metadata of process %" PRIu64 " are damaged", pid);
    return is_whole ? 0 : VPMM_CLI_FAILED;
}

static int compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

size_t vpmm_glance_find(uint64_t *pids_out, size_t room)
{
    size_t n = 0;
    DIR *folder = opendir("/proc");
    if (!folder)
        return 0;
    for (struct dirent *entry = readdir(folder); entry && n < room; entry = readdir(folder)) {
        struct stat facts;
        uint64_t pid;
        bool is_own = vpmm_cli_number(entry->d_name, 1, INT32_MAX, &pid) &&
                      fstatat(dirfd(folder), entry->d_name, &facts, 0) == 0 &&
                      facts.st_uid == geteuid();
        if (is_own && vpmm_attach_is_possible(pid))
            pids_out[n++] = pid;
    }
    closedir(folder);
    qsort(pids_out, n, sizeof *pids_out, compare);
    return n;
}
