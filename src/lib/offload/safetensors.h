/* SPDX-License-Identifier: MIT */
/* The header of a safetensors file: which tensors it has and where their bytes are. Reads bytes
 * that somebody hands over and trusts none of them; it must not open files or read tensors.
 *
 * The format (github.com/huggingface/safetensors, README.md, "Format"): 8 bytes, the length N of
 * the header, little endian; N bytes of JSON that begin with '{' and may end in spaces: an object
 * of NAME: {"dtype": D, "shape": [n, ...], "data_offsets": [begin, end]}, and optionally of
 * "__metadata__": an object of strings. Offsets count from the end of the header. The tensors cover
 * all of the rest of the file, without holes and without overlap. */
#ifndef VPMM_OFFLOAD_SAFETENSORS_H
#define VPMM_OFFLOAD_SAFETENSORS_H

#include "base/memory.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A header is no longer than this; the reference reader refuses longer ones, too. */
#define VPMM_SAFETENSORS_HEADER_MAX 100000000u
#define VPMM_SAFETENSORS_DIMENSIONS_MAX 16u

struct vpmm_tensor {
    const char *name; /* terminated; escapes are resolved; belongs to the table */
    char dtype[12];
    uint32_t n_dimensions;
    uint64_t shape[VPMM_SAFETENSORS_DIMENSIONS_MAX];
    uint64_t offset, bytes; /* in the file */
};

struct vpmm_safetensors {
    const struct vpmm_memory *memory;
    struct vpmm_tensor *tensors; /* in the order of the header */
    uint32_t n_tensors;
    char *names;
    uint32_t *index; /* by hash of the name: numbers from 1 on */
    uint32_t index_room;
    size_t tensors_bytes, names_bytes, index_bytes;
};

/* Reads the header of a file of `file_bytes`, of which `n_bytes` from the start on are at `bytes`.
 * UNSOUND: `message` (of `room` bytes) has one line that says what is wrong and where, without
 * control characters; NO_METADATA. Then there is nothing to finish. */
VPMM_MUST_CHECK enum vpmm_status vpmm_safetensors_read(const void *bytes, uint64_t n_bytes,
                                                       uint64_t file_bytes,
                                                       const struct vpmm_memory *memory,
                                                       struct vpmm_safetensors *table_out,
                                                       char *message, size_t room);
/* A zeroed one is accepted. */
void vpmm_safetensors_finish(struct vpmm_safetensors *table);

/* NULL: there is none of that name. */
const struct vpmm_tensor *vpmm_safetensors_find(const struct vpmm_safetensors *table,
                                                const char *name);

#endif
