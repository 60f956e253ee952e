/* SPDX-License-Identifier: MIT */
/* Why a file cannot be had, in words. Must not call strerror, which asks the locale and may
 * allocate. */
#include "base/fault.h"

#include <errno.h>
#include <stddef.h>

const char *vpmm_fault_text(int number)
{
    static const struct {
        int number;
        const char *text;
    } faults[] = {
        {EACCES, "permission denied"},        {EPERM, "it is not permitted"},
        {ENOENT, "no such folder"},           {ENOTDIR, "a part of its path is no folder"},
        {EISDIR, "it is a folder"},           {EROFS, "the file system is read-only"},
        {ENOSPC, "the disk is full"},         {EDQUOT, "the disk quota is used up"},
        {EFBIG, "files may not be so large"}, {EMFILE, "too many open files"},
        {ENFILE, "too many open files"},      {ENAMETOOLONG, "its name is too long"},
        {ENOMEM, "no address space is left"}, {ENXIO, "nobody reads from it"},
        {ETXTBSY, "it is being run"},         {ELOOP, "it is a symbolic link"},
        {EEXIST, "it is there already"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        if (faults[i].number == number)
            return faults[i].text;
    return "the system refuses it";
}
