/* SPDX-License-Identifier: MIT */
/* Requests smaller than a page, of one device. Whole pages of the heap are *slabs*, and a slab is
 * cut into *pieces*. The slabs of one stream, or of one context for cudaMalloc, are a *rack*. What
 * a stream frees into its own rack it gets back at once. What is freed there from elsewhere waits
 * for its fence. All that is known of pieces lies in host memory.
 *
 * Any thread may call anything here, holding no lock of ours. "Driver" marks what may call it. */
#ifndef VPMM_SMALL_SMALL_H
#define VPMM_SMALL_SMALL_H

#include "heap/heap.h"
#include "heap/heap_parts.h"

struct vpmm_small;

/* Blocks begin at multiples of this, and take whole multiples of it. CUDA promises 256 bytes ("at
 * least 256 bytes", CUDA C++ Programming Guide, "Device Memory Accesses"). */
#define VPMM_GRAIN_BYTES 512u

/* Requests of up to so much share pages at their ends, where whole pages would leave too much of
 * the last one over. */
#define VPMM_WIDE_BYTES_MAX ((uint64_t)32 << 20)
/* That is more than one of so many parts of the request. */
#define VPMM_WIDE_WASTE 16u

/* Whether a request of a page and more is for a heap's layer of small blocks. */
static inline bool vpmm_small_is_wide(uint64_t bytes, uint64_t page_bytes)
{
    uint64_t beyond = bytes % page_bytes;
    return bytes > page_bytes && bytes <= VPMM_WIDE_BYTES_MAX && beyond &&
           page_bytes - beyond > bytes / VPMM_WIDE_WASTE;
}

struct vpmm_small_params {
    bool free_waits; /* cudaFree of less than a page waits for its context: VPMM_FREE_SYNC */
    bool wide_waits; /* the same of a page and more */
};

/* For a heap that nobody else has yet; both live on, and the heap has it as its keeper.
 * NOT_SUPPORTED: pages are too large or not whole grains, or the driver cannot record a context;
 * NO_METADATA. */
VPMM_MUST_CHECK enum vpmm_status vpmm_small_create(const struct vpmm_small_params *params,
                                                   struct vpmm_heap *heap, struct vpmm_order *order,
                                                   const struct vpmm_memory *memory,
                                                   struct vpmm_small **small_out);
/* Gives metadata back, not the slabs: those are the heap's. After the heap's end. For tests. NULL
 * is accepted. */
void vpmm_small_destroy(struct vpmm_small *small);

/* Serves a request of less than a page, or a wide one (driver). The statuses of vpmm_heap_malloc;
 * NOT_SUPPORTED too where too many streams have racks. No memory pool of the program's own is
 * named. */
VPMM_MUST_CHECK enum vpmm_status vpmm_small_malloc(struct vpmm_small *small,
                                                   const struct vpmm_request *request,
                                                   uint64_t *address_out);
/* The same of a stream or a context that has what it takes: no lock that others share, no driver
 * but for a mark. False: vpmm_small_malloc has to. */
bool vpmm_small_malloc_warm(struct vpmm_small *small, const struct vpmm_request *request,
                            uint64_t *address_out);

/* Whether `address` lies in a slab. No lock, no driver. */
bool vpmm_small_holds(const struct vpmm_small *small, uint64_t address);

/* Frees the block that starts exactly at `address`; `stream` NULL: cudaFree (driver). INVALID: it
 * lies in no slab; NOT_FOUND: no block starts there, or it was freed before. `wait_out`: what
 * cudaFree's wait answered; of records BROKEN or SHUT_DOWN; otherwise OK. */
VPMM_MUST_CHECK enum vpmm_status vpmm_small_free(struct vpmm_small *small, uint64_t address,
                                                 const struct vpmm_stream *stream,
                                                 enum vpmm_status *wait_out);
/* The same where nothing is waited for and nothing recorded: no driver, and no lock but one that
 * requests of the same stream or context take. INVALID: no slab holds `address`. NOT_READY: nothing
 * was done, vpmm_small_free has to. */
enum vpmm_status vpmm_small_free_warm(struct vpmm_small *small, uint64_t address,
                                      const struct vpmm_stream *stream);
/* Frees it where nobody can tell on which stream: it is used again when all work of all contexts is
 * complete. False: there is none (driver). */
bool vpmm_small_free_unknown(struct vpmm_small *small, uint64_t address);
/* Frees it where nobody can tell what its reuse must wait for: it is never used again. False: there
 * is none. No driver. */
bool vpmm_small_give_up(struct vpmm_small *small, uint64_t address);

/* The block that holds `address`, as a region of that address without pages, or, where nothing is
 * live, a free one. False: it lies in no slab. No lock, no driver. */
bool vpmm_small_find(const struct vpmm_small *small, uint64_t address,
                     struct vpmm_region_view *view_out);

/* The live block of cudaMalloc that holds `address` is about to be opened by other processes:
 * nothing more is served from the slabs that its rack has, so that what they see gets no new owner.
 * Slabs without blocks go back to the heap. No driver. */
void vpmm_small_retire(struct vpmm_small *small, uint64_t address);

/* The stream is about to be destroyed: other streams of its context may have its rack once its work
 * is complete (driver). */
void vpmm_small_stream_gone(struct vpmm_small *small, const struct vpmm_stream *stream);
/* The context is gone: its blocks of cudaMalloc are, too. To be called before
 * vpmm_heap_context_gone (driver). */
void vpmm_small_context_gone(struct vpmm_small *small, uint64_t context_id);

/* ---- figures; no lock, no driver; of slightly different moments ---- */

struct vpmm_small_figures {
    uint64_t slabs, pages;       /* of the heap's live ones */
    uint64_t blocks, bytes;      /* live; bytes as requested */
    uint64_t async_bytes;        /* of those, of cudaMallocAsync */
    uint64_t waiting_blocks;     /* freed, and their fences are not known complete */
    uint64_t racks;              /* of streams and contexts, and of those that are gone */
    uint64_t mallocs, frees;     /* since the beginning */
    uint64_t warm_mallocs;       /* of those, by vpmm_small_malloc_warm */
    uint64_t warm_async_mallocs; /* of those, cudaMallocAsyncs */
};
void vpmm_small_figures(const struct vpmm_small *small, struct vpmm_small_figures *figures_out);

/* The same by classes of requests, which have slabs of their own: see vpmm_small_class_name. */
#define VPMM_SMALL_CLASSES 4u
#define VPMM_SMALL_FILLS 4u
struct vpmm_small_class {
    uint64_t pages;
    uint64_t blocks, bytes; /* live; bytes as requested */
    uint64_t free_bytes;    /* of the pages, in no live block */
    /* Pages of slabs of which up to 1/4, 1/2, 3/4 and more are in live blocks. */
    uint64_t pages_by_fill[VPMM_SMALL_FILLS];
};
/* Walks every block. */
void vpmm_small_classes(const struct vpmm_small *small,
                        struct vpmm_small_class classes_out[VPMM_SMALL_CLASSES]);
/* A static text. */
const char *vpmm_small_class_name(unsigned class);

/* How the layer lies in memory: see base/layout.h. */
uint64_t vpmm_small_layout(void);

/* Looks at every rack that no thread is just changing: NULL, or a static text that names the first
 * invariant that does not hold. */
const char *vpmm_small_audit(struct vpmm_small *small);

#endif
