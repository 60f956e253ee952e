/* SPDX-License-Identifier: MIT */
/* Keeps what a thread learnt of streams where no other thread writes. Must not keep anything beyond
 * its epoch, and must not leave memory behind for each thread that ends. */
#define _GNU_SOURCE
#include "order/memo.h"

#include "order/order_internal.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A stream has a place of its own, and three beside it where another one has that: so four streams
 * never push one another out, whatever their handles. */
#define WAYS 4u

/* 2 to the 4th; more do not fit where the library is opened by a program. */
#define NEAR 16u

/* 2 to the 11th: for threads that name more streams. */
#define FAR 2048u

/* The far memos of one thread. When it has ended, another thread takes them over. So there are
 * never more than there were threads at one time. */
struct vpmm_far_memos {
    struct vpmm_memo memos[FAR];
    pid_t thread;
    struct vpmm_far_memos *next;
};

#define OF_THREAD _Thread_local __attribute__((tls_model("initial-exec")))
static OF_THREAD struct vpmm_memo near[NEAR];
static OF_THREAD struct vpmm_far_memos *far; /* of the order of that number */
static OF_THREAD uint64_t far_order;
static OF_THREAD unsigned turn;

/* Handles that lie close together differ most in the highest bits. */
static uint64_t mixed(vpmm_stream_handle handle)
{
    return (uint64_t)(uintptr_t)handle * UINT64_C(0x9e3779b97f4a7c15);
}

static struct vpmm_memo *near_place(vpmm_stream_handle handle)
{
    return &near[mixed(handle) >> 60];
}

/* NULL: the thread has none of this order. */
static struct vpmm_memo *far_place(const struct vpmm_order *order, vpmm_stream_handle handle)
{
    bool has_any = far && far_order == order->number;
    return has_any ? &far->memos[mixed(handle) >> 53] : NULL;
}

/* The first of the four among which that place is; `all` are aligned so. */
static struct vpmm_memo *set_of(struct vpmm_memo *all, const struct vpmm_memo *place)
{
    return all + ((size_t)(place - all) & ~(size_t)(WAYS - 1));
}

static bool is_of(const struct vpmm_memo *memo, vpmm_stream_handle handle, uint64_t epoch)
{
    return memo->stream.handle == handle && memo->epoch == epoch;
}

static const struct vpmm_memo *find_in(const struct vpmm_memo *set, vpmm_stream_handle handle,
                                       uint64_t epoch)
{
    for (unsigned i = 0; i < WAYS; i++)
        if (is_of(&set[i], handle, epoch))
            return &set[i];
    return NULL;
}

VPMM_NOINLINE static const struct vpmm_memo *find_far(const struct vpmm_order *order,
                                                      vpmm_stream_handle handle, uint64_t epoch)
{
    struct vpmm_memo *place = far_place(order, handle);
    if (!place || is_of(place, handle, epoch))
        return place;
    return find_in(set_of(far->memos, place), handle, epoch);
}

const struct vpmm_memo *vpmm_memo_find(const struct vpmm_order *order, vpmm_stream_handle handle)
{
    uint64_t epoch = vpmm_atomic_load(&order->epoch);
    struct vpmm_memo *own = near_place(handle);
    if (is_of(own, handle, epoch))
        return own;
    const struct vpmm_memo *memo = find_in(set_of(near, own), handle, epoch);
    return memo ? memo : find_far(order, handle, epoch);
}

/* A place of the set that has that handle, or else one that holds nothing of the epoch; NULL: there
 * is neither. */
static struct vpmm_memo *room_in(struct vpmm_memo *set, struct vpmm_memo *own,
                                 vpmm_stream_handle handle, uint64_t epoch)
{
    struct vpmm_memo *room = own->epoch != epoch ? own : NULL;
    for (unsigned i = 0; i < WAYS; i++) {
        if (set[i].stream.handle == handle)
            return &set[i];
        if (!room && set[i].epoch != epoch)
            room = &set[i];
    }
    return room;
}

pid_t vpmm_thread_self(void)
{
    return (pid_t)syscall(SYS_gettid);
}

bool vpmm_thread_has_ended(pid_t thread)
{
    int error = errno;
    bool has_ended = syscall(SYS_tgkill, getpid(), thread, 0) != 0 && errno == ESRCH;
    errno = error;
    return has_ended;
}

/* Those of a thread that has ended, or new ones; NULL without memory. */
static struct vpmm_far_memos *take_far(struct vpmm_order *order, pid_t thread)
{
    int error = errno;
    vpmm_lock_take(&order->lock);
    struct vpmm_far_memos *taken = order->far_memos;
    while (taken && !vpmm_thread_has_ended(taken->thread))
        taken = taken->next;
    if (!taken && (taken = order->memory->map(order->memory->self, sizeof *taken)) != NULL) {
        taken->next = order->far_memos;
        order->far_memos = taken;
    }
    if (taken)
        taken->thread = thread;
    vpmm_lock_give(&order->lock);
    errno = error;
    return taken;
}

void vpmm_memo_keep(struct vpmm_order *order, const struct vpmm_memo *memo)
{
    vpmm_stream_handle handle = memo->stream.handle;
    struct vpmm_memo *own = near_place(handle), *set = set_of(near, own);
    struct vpmm_memo *room = room_in(set, own, handle, memo->epoch);
    /* Another thread may take the far memos over, and its per-thread handle is another stream. */
    bool may_be_far = !room && !vpmm_stream_is_special(handle);
    if (may_be_far && far_order != order->number) {
        far = take_far(order, vpmm_thread_self());
        far_order = order->number;
    }
    if (may_be_far && (own = far_place(order, handle)) != NULL) {
        set = set_of(far->memos, own);
        room = room_in(set, own, handle, memo->epoch);
    }
    *(room ? room : &set[turn++ % WAYS]) = *memo;
}

void vpmm_memos_finish(struct vpmm_order *order)
{
    while (order->far_memos) {
        struct vpmm_far_memos *memos = order->far_memos;
        order->far_memos = memos->next;
        order->memory->unmap(order->memory->self, memos, sizeof *memos);
    }
}
