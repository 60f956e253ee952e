/* SPDX-License-Identifier: MIT */
/* Writes entries into the file of a trace, each thread into chunks of its own. Must not let a full
 * disk become a signal: an entry that finds no room is dropped and counted. */
#define _GNU_SOURCE
#include "recorder/recorder.h"

#include "recorder/clock.h"
#include "recorder/file.h"
#include "recorder/header.h"
#include "recorder/places.h"
#include "vpmm/vpmm.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#    define MADV_POPULATE_WRITE 23
#endif

#define ENTRIES                                                                                    \
    ((VPMM_TRACE_CHUNK_BYTES - sizeof(struct vpmm_trace_chunk)) / sizeof(struct vpmm_trace_entry))

/* The file grows by so many chunks at once, and before the last half of them is begun: 1 MiB. */
#define WINDOW ((uint64_t)64)
#define WINDOW_BYTES (WINDOW * VPMM_TRACE_CHUNK_BYTES)

/* Address space for the file: 256 GiB, or what the process may have. */
#define MAPPED_BYTES_MAX ((uint64_t)256 << 30)
#define MAPPED_SHARE 8

#define NEVER ((uint64_t)1 << 62) /* no chunk has that number */

/* How long to wait for whoever makes room: it may be stopped, even for the waiter's sake. */
#define YIELDS 1000
#define NAPS 1000
#define NAP_NS 1000000

_Static_assert(sizeof(struct vpmm_trace_header) <= VPMM_TRACE_HEADER_BYTES, "");
_Static_assert(sizeof(struct vpmm_trace_chunk) == 64 && sizeof(struct vpmm_trace_entry) == 40, "");

uint64_t vpmm_recorder_now_ns(const struct vpmm_recorder *recorder)
{
    return vpmm_trace_clock_now_ns(&recorder->clock);
}

/* Words of the file that are written while others may read them. */
static vpmm_atomic64 *shared64(uint64_t *word)
{
    return (vpmm_atomic64 *)word;
}

static vpmm_atomic32 *shared32(uint32_t *word)
{
    return (vpmm_atomic32 *)word;
}

/* ---- opening ---- */

/* Address space that the program was given is the program's in the first place. */
static uint64_t mapped_bytes_max(uint64_t max_bytes)
{
    struct rlimit limit;
    uint64_t bytes = MAPPED_BYTES_MAX;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur / MAPPED_SHARE < bytes)
        bytes = limit.rlim_cur / MAPPED_SHARE;
    if (max_bytes && max_bytes < bytes)
        bytes = max_bytes;
    if (bytes < VPMM_TRACE_HEADER_BYTES)
        bytes = VPMM_TRACE_HEADER_BYTES;
    return bytes;
}

static uint64_t offset_of(uint64_t number)
{
    return VPMM_TRACE_HEADER_BYTES + number * VPMM_TRACE_CHUNK_BYTES;
}

static void *chunk_at(const struct vpmm_recorder *recorder, uint64_t number)
{
    return (char *)recorder->header + offset_of(number);
}

static uint64_t page_end(uint64_t bytes)
{
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

/* The file is seen up to `begin` and now up to `end`. */
static bool show(struct vpmm_recorder *recorder, uint64_t begin, uint64_t end)
{
    uint64_t first = page_end(begin), bytes = page_end(end) - first;
    return bytes == 0 ||
           vpmm_trace_file_map(&recorder->file, (char *)recorder->header + first, first, bytes);
}

static void hide(struct vpmm_recorder *recorder, uint64_t begin, uint64_t end)
{
    uint64_t first = page_end(begin);
    (void)mprotect((char *)recorder->header + first, page_end(end) - first, PROT_NONE);
}

/* There are addresses for all that the file may become, but no more of it is seen than there is:
 * who looks through a process's memory, as leak checkers do, would fault on each page beyond the
 * end of a file. False: `errno` tells. */
static bool map_file(struct vpmm_recorder *recorder, uint64_t max_bytes)
{
    uint64_t bytes = mapped_bytes_max(max_bytes);
    void *address;
    while ((address = mmap(NULL, page_end(bytes), PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) == MAP_FAILED &&
           bytes > VPMM_TRACE_HEADER_BYTES + WINDOW_BYTES)
        bytes /= 2;
    if (address == MAP_FAILED)
        return false;
    recorder->header = address;
    recorder->mapped_bytes = page_end(bytes);
    recorder->chunks_max = (bytes - VPMM_TRACE_HEADER_BYTES) / VPMM_TRACE_CHUNK_BYTES;
    if (show(recorder, 0, VPMM_TRACE_HEADER_BYTES))
        return true;
    (void)munmap(address, recorder->mapped_bytes);
    recorder->header = NULL;
    return false;
}

enum vpmm_status vpmm_recorder_open(struct vpmm_recorder *recorder, const char *path,
                                    uint64_t max_bytes, const char *program, const char **why_out)
{
    if (vpmm_trace_file_open(&recorder->file, path, why_out))
        return VPMM_INVALID;
    if (!vpmm_trace_file_extend(&recorder->file, 0, VPMM_TRACE_HEADER_BYTES) ||
        !map_file(recorder, max_bytes)) {
        *why_out = vpmm_trace_file_fault(errno);
        vpmm_trace_file_remove(&recorder->file);
        return VPMM_INVALID;
    }
    vpmm_trace_clock_init(&recorder->clock);
    vpmm_trace_header_begin(recorder->header, max_bytes, program);
    return VPMM_OK;
}

/* ---- room ---- */

static bool take_file(struct vpmm_recorder *recorder)
{
    for (unsigned n = 0; vpmm_atomic_exchange(&recorder->is_making_room, 1); n++) {
        if (n < YIELDS)
            (void)sched_yield();
        else if (n < YIELDS + NAPS)
            (void)nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
        else
            return false;
    }
    return true;
}

static void give_file(struct vpmm_recorder *recorder)
{
    vpmm_atomic_store(&recorder->is_making_room, 0);
}

/* With the file. What was written a while ago need not stay mapped; it is in the file. */
static void extend(struct vpmm_recorder *recorder)
{
    uint64_t n_ready = vpmm_atomic_load(&recorder->n_ready);
    uint64_t n = recorder->chunks_max - n_ready;
    if (n > WINDOW)
        n = WINDOW;
    uint64_t begin = offset_of(n_ready), end = offset_of(n_ready + n);
    if (!vpmm_trace_file_has(&recorder->file, begin))
        vpmm_atomic_store(&recorder->is_cut, 1);
    if (n == 0 || vpmm_atomic_load(&recorder->is_full) || vpmm_recorder_is_cut(recorder) ||
        !vpmm_trace_file_extend(&recorder->file, begin, end - begin) ||
        !show(recorder, begin, end)) {
        vpmm_atomic_store(&recorder->is_full, 1);
        return;
    }
    if (n_ready >= 2 * WINDOW)
        (void)madvise(chunk_at(recorder, n_ready - 2 * WINDOW), WINDOW_BYTES, MADV_DONTNEED);
    vpmm_atomic_store(&recorder->n_ready, n_ready + n);
}

/* Nobody has to wait for room that is made while there is some left. */
static void extend_ahead(struct vpmm_recorder *recorder, uint64_t number)
{
    if (number + WINDOW / 2 < vpmm_atomic_load(&recorder->n_ready) ||
        vpmm_atomic_exchange(&recorder->is_making_room, 1))
        return;
    if (number + WINDOW / 2 >= vpmm_atomic_load(&recorder->n_ready))
        extend(recorder);
    give_file(recorder);
}

/* Whether the file has room for chunk `number`, made if need be. */
static bool has_room(struct vpmm_recorder *recorder, uint64_t number)
{
    extend_ahead(recorder, number);
    while (number >= vpmm_atomic_load(&recorder->n_ready)) {
        if (vpmm_atomic_load(&recorder->is_full) || !take_file(recorder))
            return false;
        if (number >= vpmm_atomic_load(&recorder->n_ready))
            extend(recorder);
        give_file(recorder);
    }
    return true;
}

/* ---- writing ---- */

/* A fault that storage cannot answer would be a signal to the program; asked for like this, it is
 * an answer. Kernels before 5.14 do not know the question. */
static bool can_be_written(void *chunk)
{
    return madvise(chunk, VPMM_TRACE_CHUNK_BYTES, MADV_POPULATE_WRITE) == 0 || errno == EINVAL;
}

static void tell_given(struct vpmm_recorder *recorder, uint64_t n)
{
    vpmm_atomic64 *told = shared64(&recorder->header->n_chunks);
    uint64_t found = vpmm_atomic_load(told);
    bool is_told = false;
    while (found < n && !is_told)
        is_told = vpmm_atomic_swap_if(told, &found, n);
}

/* NULL: there is none. */
static struct vpmm_trace_chunk *take_chunk(struct vpmm_recorder *recorder, uint64_t *number_out)
{
    if (vpmm_atomic_load(&recorder->is_full) &&
        vpmm_atomic_load(&recorder->next) >= vpmm_atomic_load(&recorder->n_ready))
        return NULL;
    uint64_t number = vpmm_atomic_add(&recorder->next, 1);
    if (!has_room(recorder, number))
        return NULL;
    tell_given(recorder, number + 1);
    *number_out = number;
    if (can_be_written(chunk_at(recorder, number)))
        return chunk_at(recorder, number);
    vpmm_atomic_store(&recorder->is_full, 1);
    return NULL;
}

static void put(struct vpmm_recorder_writer *writer, const struct vpmm_trace_entry *entry)
{
    ((struct vpmm_trace_entry *)(writer->chunk + 1))[writer->n++] = *entry;
    vpmm_atomic_store(shared32(&writer->chunk->n_entries), writer->n);
}

/* What an ended thread left of its chunk. False: nothing worth it. */
static bool inherit_chunk(struct vpmm_recorder *recorder, struct vpmm_recorder_writer *writer,
                          uint64_t ns)
{
    uint64_t number;
    if (!vpmm_trace_places_inherit(&recorder->places, writer->thread, &writer->place, &number)) {
        writer->place = vpmm_trace_places_take(&recorder->places);
        return false;
    }
    struct vpmm_trace_chunk *chunk = chunk_at(recorder, number);
    if (!can_be_written(chunk))
        return false;
    uint32_t n = vpmm_atomic_load(shared32(&chunk->n_entries));
    if (n > ENTRIES - 2)
        return false;
    writer->chunk = chunk;
    writer->n = n;
    vpmm_atomic_store(shared32(&chunk->is_shared), 1);
    put(writer,
        &(struct vpmm_trace_entry){.ns = ns, .kind = VPMM_TRACE_THREAD, .address = writer->thread});
    return true;
}

static void take_own_chunk(struct vpmm_recorder *recorder, struct vpmm_recorder_writer *writer)
{
    uint64_t number;
    struct vpmm_trace_chunk *chunk = take_chunk(recorder, &number);
    if (chunk) {
        chunk->thread = writer->thread;
        vpmm_atomic_store(shared32(&chunk->magic), VPMM_TRACE_CHUNK_MAGIC);
        vpmm_trace_places_tell(&recorder->places, writer->place, writer->thread, number);
    }
    writer->chunk = chunk;
    writer->n = 0;
}

/* A chunk with room for an entry of `ns`. False: there is none. */
VPMM_NOINLINE static bool begin_chunk(struct vpmm_recorder *recorder,
                                      struct vpmm_recorder_writer *writer, uint64_t ns)
{
    int saved_errno = errno, cancelling;
    bool is_first = writer->thread == 0;
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelling);
    if (is_first)
        writer->thread = (uint32_t)syscall(SYS_gettid);
    if (!is_first || !inherit_chunk(recorder, writer, ns))
        take_own_chunk(recorder, writer);
    vpmm_trace_clock_tune(&recorder->clock);
    (void)pthread_setcancelstate(cancelling, &cancelling);
    errno = saved_errno;
    return writer->chunk != NULL;
}

void vpmm_recorder_write(struct vpmm_recorder *recorder, struct vpmm_recorder_writer *writer,
                         const struct vpmm_trace_entry *entry)
{
    if ((!writer->chunk || writer->n == ENTRIES) && !begin_chunk(recorder, writer, entry->ns)) {
        vpmm_atomic_add(shared64(&recorder->header->dropped), 1);
        return;
    }
    if (entry->kind > VPMM_TRACE_THREAD)
        vpmm_trace_header_raise(recorder->header);
    put(writer, entry);
}

/* ---- the end ---- */

/* Nobody makes room any more once it is known how much was used: what is written after this lies
 * before the end of the file, whoever writes it. */
void vpmm_recorder_end(struct vpmm_recorder *recorder)
{
    if (!take_file(recorder))
        return;
    vpmm_atomic_store(&recorder->is_full, 1);
    uint64_t used = vpmm_atomic_exchange(&recorder->next, NEVER);
    uint64_t n_ready = vpmm_atomic_load(&recorder->n_ready);
    if (used > n_ready)
        used = n_ready;
    vpmm_atomic_store(shared32(&recorder->header->is_ended), 1);
    hide(recorder, offset_of(used), offset_of(n_ready));
    if (!vpmm_recorder_is_cut(recorder))
        vpmm_trace_file_cut(&recorder->file, offset_of(used));
    give_file(recorder);
}

uint64_t vpmm_recorder_dropped(const struct vpmm_recorder *recorder)
{
    return vpmm_atomic_load(shared64(&recorder->header->dropped));
}

bool vpmm_recorder_absorb(struct vpmm_recorder *recorder, const void *address)
{
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t offset = (uint64_t)((uintptr_t)address - (uintptr_t)recorder->header);
    if (!recorder->header || offset >= recorder->mapped_bytes)
        return false;
    char *page = (char *)recorder->header + offset / page_bytes * page_bytes;
    if (mmap(page, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
             0) == MAP_FAILED)
        return false;
    vpmm_atomic_store(&recorder->is_cut, 1);
    vpmm_atomic_store(&recorder->is_full, 1);
    return true;
}

bool vpmm_recorder_is_cut(const struct vpmm_recorder *recorder)
{
    return vpmm_atomic_load(&recorder->is_cut) != 0;
}

void vpmm_recorder_forget(struct vpmm_recorder *recorder)
{
    vpmm_trace_file_close(&recorder->file);
    if (recorder->header)
        (void)munmap(recorder->header, recorder->mapped_bytes);
    recorder->header = NULL;
}
