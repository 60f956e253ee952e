/* SPDX-License-Identifier: MIT */
/* Metadata memory that other processes can map: pieces of one shared file without a name. Must not
 * use the file's descriptor before a look whether it still is that file, because programs close
 * descriptors that they do not know. */
#define _GNU_SOURCE
#include "base/arena.h"

#include "base/write.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Names of newer headers. */
#ifndef MFD_NOEXEC_SEAL
#    define MFD_NOEXEC_SEAL 8u
#endif
#ifndef F_SEAL_FUTURE_WRITE
#    define F_SEAL_FUTURE_WRITE 0x0010
#endif

/* Descriptors below are what programs expect to get, and what stray writes name. */
#define LOWEST_DESCRIPTOR 512
/* From this size on memory is cleared by giving it back. */
#define REMOVED_BYTES ((uint64_t)256 << 10)

/* ---- whether there may be one ---- */

static bool is_limited(unsigned resource, uint64_t bytes)
{
    struct rlimit limit;
    return getrlimit(resource, &limit) != 0 ||
           (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < bytes);
}

/* Where memory is never overcommitted, the first use of a page that is not to be had would end the
 * program. */
static bool may_overcommit(void)
{
    char mode = '2';
    int fd = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, &mode, 1);
    (void)close(fd);
    return n == 1 && mode != '2';
}

/* A limit of the address space is the program's to use up. */
static bool is_allowed(uint64_t bytes)
{
    return !is_limited(RLIMIT_FSIZE, bytes) && !is_limited(RLIMIT_AS, UINT64_MAX) &&
           may_overcommit();
}

/* ---- the file ---- */

static int make_file(void)
{
    unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int fd = (int)syscall(SYS_memfd_create, VPMM_ARENA_NAME, flags | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL)
        fd = (int)syscall(SYS_memfd_create, VPMM_ARENA_NAME, flags);
    if (fd < 0)
        return -1;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR);
    if (high < 0)
        high = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    (void)close(fd);
    return high;
}

/* The limit of the size of files was asked about before; another thread may have changed it. */
static bool size_file(int fd, uint64_t bytes)
{
    struct vpmm_shield shield;
    if (!vpmm_shield_raise(&shield))
        return false;
    bool is_done = ftruncate(fd, (off_t)bytes) == 0;
    vpmm_shield_lower(&shield);
    return is_done;
}

/* Once it is mapped: nobody makes it shorter under our feet, or a reader's, and from now on nobody
 * gets a way to write to it. The mapping that is there stays writable. Kernels before 5.1 do not
 * know the second. */
static void seal_file(int fd)
{
    const int shape = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    if (fcntl(fd, F_ADD_SEALS, shape | F_SEAL_FUTURE_WRITE) != 0)
        (void)fcntl(fd, F_ADD_SEALS, shape);
    (void)fchmod(fd, S_IRUSR);
}

/* The program may have closed it, and opened another in its place. */
static bool has_file(const struct vpmm_arena *arena)
{
    struct stat facts;
    return fstat(arena->fd, &facts) == 0 && facts.st_dev == arena->device &&
           facts.st_ino == arena->inode;
}

static void close_file(const struct vpmm_arena *arena)
{
    if (has_file(arena))
        (void)close(arena->fd);
}

/* ---- pieces ---- */

/* The smallest power of two that is a page or more and not less than `bytes`. */
static unsigned class_of(const struct vpmm_arena *arena, uint64_t bytes)
{
    uint64_t least = bytes > arena->page_bytes ? bytes : arena->page_bytes;
    return 64 - (unsigned)__builtin_clzll(least - 1);
}

static bool is_ours(const struct vpmm_arena *arena, const void *address)
{
    return (uintptr_t)address - (uintptr_t)arena->header < arena->bytes;
}

/* Latch. What was never handed out cannot be touched, so that nobody fills it by locking all
 * memory. */
static void *take_new(struct vpmm_arena *arena, uint64_t bytes)
{
    uint64_t used = vpmm_atomic_load(&arena->header->used_bytes);
    char *piece = (char *)arena->header + used;
    if (bytes > arena->bytes - used || mprotect(piece, bytes, PROT_READ | PROT_WRITE) != 0)
        return NULL;
    vpmm_atomic_store(&arena->header->used_bytes, used + bytes);
    return piece;
}

static void *take(struct vpmm_arena *arena, unsigned class)
{
    void **piece;
    vpmm_latch_take(&arena->latch, VPMM_RANK_MEMORY);
    piece = arena->given_back[class];
    if (piece) {
        arena->given_back[class] = *piece;
        *piece = NULL;
    } else {
        piece = take_new(arena, (uint64_t)1 << class);
    }
    vpmm_latch_give(&arena->latch, VPMM_RANK_MEMORY);
    return piece;
}

static void *arena_map(void *self, size_t bytes)
{
    struct vpmm_arena *arena = self;
    void *piece = bytes <= arena->bytes ? take(arena, class_of(arena, bytes)) : NULL;
    if (piece)
        return piece;
    piece = vpmm_memory_system.map(vpmm_memory_system.self, bytes);
    if (piece)
        vpmm_atomic_store(&arena->header->has_spilled, 1);
    return piece;
}

/* A sealed file gives no pages back. Those that were never touched need not be: clearing them would
 * be their first use. */
static void clear_touched(const struct vpmm_arena *arena, const char *address, uint64_t bytes)
{
    off_t at = (off_t)(address - (const char *)arena->header), end = at + (off_t)bytes;
    while (at < end) {
        off_t data = lseek(arena->fd, at, SEEK_DATA);
        if (data < 0 && errno == ENXIO)
            return;
        off_t hole = data < 0 ? -1 : lseek(arena->fd, data, SEEK_HOLE);
        if (hole < 0) {
            data = at;
            hole = end;
        }
        if (data < end)
            memset((char *)arena->header + data, 0, (size_t)((hole < end ? hole : end) - data));
        at = hole;
    }
}

static void clear(const struct vpmm_arena *arena, void *address, uint64_t bytes)
{
    uint64_t whole = (bytes + arena->page_bytes - 1) / arena->page_bytes * arena->page_bytes;
    int number = errno;
    bool is_large = bytes >= REMOVED_BYTES;
    bool is_clear = is_large && madvise(address, whole, MADV_REMOVE) == 0;
    if (is_large && !is_clear && has_file(arena)) {
        clear_touched(arena, address, bytes);
        /* Closed meanwhile, the descriptor may have told of another file. */
        is_clear = has_file(arena);
    }
    if (!is_clear)
        memset(address, 0, bytes);
    errno = number;
}

static void arena_unmap(void *self, void *address, size_t bytes)
{
    struct vpmm_arena *arena = self;
    if (!is_ours(arena, address)) {
        vpmm_memory_system.unmap(vpmm_memory_system.self, address, bytes);
        return;
    }
    unsigned class = class_of(arena, bytes);
    void **piece = address;
    clear(arena, address, bytes);
    vpmm_latch_take(&arena->latch, VPMM_RANK_MEMORY);
    *piece = arena->given_back[class];
    arena->given_back[class] = (void *)piece;
    vpmm_latch_give(&arena->latch, VPMM_RANK_MEMORY);
}

/* ---- the arena ---- */

static void copy_text(char *to, size_t room, const char *text)
{
    size_t length = strnlen(text, room - 1);
    memcpy(to, text, length);
    to[length] = 0;
}

static void write_header(const struct vpmm_arena *arena, const char *version, uint64_t layout)
{
    struct vpmm_arena_header *header = arena->header;
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    header->layout = layout;
    header->address = header;
    header->bytes = arena->bytes;
    header->pid = (uint64_t)getpid();
    header->started_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    copy_text(header->version, sizeof header->version, version);
    copy_text(header->program, sizeof header->program, program_invocation_short_name);
    vpmm_atomic_store(&header->used_bytes, arena->page_bytes);
    header->magic = VPMM_ARENA_MAGIC;
}

/* Maps the whole file, of which the first page alone can be touched yet. */
static bool map_file(struct vpmm_arena *arena)
{
    void *address = mmap(NULL, arena->bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, arena->fd, 0);
    if (address == MAP_FAILED)
        return false;
    /* A core dump would fill the holes. */
    (void)madvise(address, arena->bytes, MADV_DONTDUMP);
    if (mprotect(address, arena->page_bytes, PROT_READ | PROT_WRITE) != 0) {
        (void)munmap(address, arena->bytes);
        return false;
    }
    arena->header = address;
    return true;
}

bool vpmm_arena_create(struct vpmm_arena *arena, uint64_t bytes, const char *version,
                       uint64_t layout)
{
    struct stat facts;
    long page_bytes = sysconf(_SC_PAGESIZE);
    memset(arena, 0, sizeof *arena);
    if (page_bytes <= 0 || !is_allowed(bytes))
        return false;
    arena->bytes = bytes;
    arena->page_bytes = (uint64_t)page_bytes;
    arena->fd = make_file();
    if (arena->fd < 0)
        return false;
    if (!size_file(arena->fd, bytes) || fstat(arena->fd, &facts) != 0 || !map_file(arena)) {
        (void)close(arena->fd);
        return false;
    }
    seal_file(arena->fd);
    arena->device = facts.st_dev;
    arena->inode = facts.st_ino;
    arena->memory = (struct vpmm_memory){arena, arena_map, arena_unmap};
    write_header(arena, version, layout);
    return true;
}

void vpmm_arena_destroy(struct vpmm_arena *arena)
{
    close_file(arena);
    (void)munmap(arena->header, arena->bytes);
    memset(arena, 0, sizeof *arena);
}

void vpmm_arena_publish(struct vpmm_arena *arena, void *root)
{
    atomic_store_explicit(&arena->header->root, root, memory_order_release);
}

/* Whoever forked inside of us may still come back to it. */
void vpmm_arena_abandon(struct vpmm_arena *arena)
{
    char *address = (char *)arena->header;
    uint64_t used = vpmm_atomic_load(&arena->header->used_bytes);
    int flags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE;
    bool has_copy = has_file(arena) &&
                    mmap(address, used, PROT_READ | PROT_WRITE, flags, arena->fd, 0) != MAP_FAILED;
    uint64_t kept = has_copy ? used : 0;
    close_file(arena);
    (void)munmap(address + kept, arena->bytes - kept);
}
