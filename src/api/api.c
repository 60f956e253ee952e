/* SPDX-License-Identifier: MIT */
/* libvpmm_api.a: the public interface for programs, whether the library is preloaded or not. It
 * needs nothing of ours but that library's one symbol, and must not fail where that is missing. */
#define _GNU_SOURCE
#include "vpmm/vpmm.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#define PUBLIC __attribute__((visibility("default")))

/* Whatever thread looks finds the same. */
static _Atomic(const struct vpmm_interface *) found;
static atomic_bool is_looked_for;

static const struct vpmm_interface *look(void)
{
    vpmm_interface_fn *interface;
    void *symbol = dlsym(RTLD_DEFAULT, "vpmm_interface_1");
    if (symbol) {
        memcpy(&interface, &symbol, sizeof interface);
        atomic_store_explicit(&found, interface(), memory_order_relaxed);
    }
    atomic_store_explicit(&is_looked_for, true, memory_order_release);
    return atomic_load_explicit(&found, memory_order_relaxed);
}

static const struct vpmm_interface *loaded(void)
{
    if (!atomic_load_explicit(&is_looked_for, memory_order_acquire))
        return look();
    return atomic_load_explicit(&found, memory_order_relaxed);
}

/* The library's table, if it has the member; NULL where it is older, or not there: then `return`
 * WITHOUT(table). */
#define WITH(member)                                                                               \
    with(offsetof(struct vpmm_interface, member) + sizeof(((struct vpmm_interface *)0)->member))
#define WITHOUT() (loaded() ? VPMM_TOO_OLD : VPMM_NOT_LOADED)

static const struct vpmm_interface *with(size_t end)
{
    const struct vpmm_interface *interface = loaded();
    return interface && interface->size_bytes >= end ? interface : NULL;
}

/* Whatever the library does not fill in is 0. False: it has no room for its own size. */
static bool clear(void *figures, size_t size)
{
    if (size < sizeof size)
        return false;
    memset((char *)figures + sizeof size, 0, size - sizeof size);
    return true;
}

PUBLIC const char *vpmm_result_text(enum vpmm_result result)
{
    static const char *const texts[] = {
        [VPMM_DONE] = "done",
        [VPMM_NOT_LOADED] = "libvpmm.so is not preloaded",
        [VPMM_NOT_ACTIVE] = "libvpmm.so leaves this process to CUDA",
        [VPMM_NO_POOL] = "the device has no pool",
        [VPMM_BUSY] = "something under way stands in the way",
        [VPMM_DRIVER_FAILED] = "the driver failed",
        [VPMM_WRONG] = "an argument is not what it should be",
        [VPMM_TOO_OLD] = "the libvpmm.so that is preloaded is too old",
        [VPMM_BUDGET_TOO_SMALL] = "the budget is too small",
        [VPMM_OTHER_ORDER] = "another order than the recorded one",
        [VPMM_DEVICE_FULL] = "out of device memory",
        [VPMM_NO_HOST_MEMORY] = "out of host memory",
        [VPMM_BAD_SOURCE] = "a file does not hold what it should",
    };
    size_t number = (size_t)result;
    return number < sizeof texts / sizeof *texts ? texts[number] : "no result of vpmm";
}

PUBLIC const char *vpmm_loaded_version(void)
{
    const struct vpmm_interface *interface = loaded();
    return interface ? interface->version : NULL;
}

PUBLIC int vpmm_next_device(int after)
{
    const struct vpmm_interface *interface = WITH(next_device);
    return interface ? interface->next_device(after) : -1;
}

PUBLIC enum vpmm_result vpmm_snapshot_take(int device, struct vpmm_snapshot *snapshot)
{
    const struct vpmm_interface *interface = WITH(snapshot_take);
    if (!snapshot || !clear(snapshot, snapshot->size_bytes))
        return VPMM_WRONG;
    return interface ? interface->snapshot_take(device, snapshot) : WITHOUT();
}

PUBLIC enum vpmm_result vpmm_requests_count(enum vpmm_request_kind kind,
                                            struct vpmm_requests *requests)
{
    const struct vpmm_interface *interface = WITH(requests_count);
    if (!requests || !clear(requests, requests->size_bytes))
        return VPMM_WRONG;
    return interface ? interface->requests_count(kind, requests) : WITHOUT();
}

PUBLIC enum vpmm_result vpmm_trim(int device, uint64_t keep_bytes, uint64_t *given_back_out)
{
    const struct vpmm_interface *interface = WITH(trim);
    if (given_back_out)
        *given_back_out = 0;
    return interface ? interface->trim(device, keep_bytes, given_back_out) : WITHOUT();
}

PUBLIC enum vpmm_result vpmm_reap(int device, uint64_t *pending_bytes_out)
{
    const struct vpmm_interface *interface = WITH(reap);
    if (pending_bytes_out)
        *pending_bytes_out = 0;
    return interface ? interface->reap(device, pending_bytes_out) : WITHOUT();
}

PUBLIC enum vpmm_result vpmm_dump(int fd, enum vpmm_form form)
{
    const struct vpmm_interface *interface = WITH(dump);
    return interface ? interface->dump(fd, form) : WITHOUT();
}

/* ---- weights ---- */

#define CALL(member, ...)                                                                          \
    do {                                                                                           \
        const struct vpmm_interface *interface = WITH(member);                                     \
        return interface ? interface->member(__VA_ARGS__) : WITHOUT();                             \
    } while (0)

PUBLIC enum vpmm_result vpmm_weights_make(const struct vpmm_weights_options *options,
                                          struct vpmm_weights **weights_out)
{
    CALL(weights_make, options, weights_out);
}

PUBLIC enum vpmm_result vpmm_weights_destroy(struct vpmm_weights *weights)
{
    CALL(weights_destroy, weights);
}

PUBLIC enum vpmm_result vpmm_weights_add(struct vpmm_weights *weights,
                                         const struct vpmm_weight *weight, uint64_t *address_out,
                                         uint32_t *number_out)
{
    CALL(weights_add, weights, weight, address_out, number_out);
}

PUBLIC enum vpmm_result vpmm_weights_host(struct vpmm_weights *weights, uint32_t number,
                                          void **memory_out)
{
    CALL(weights_host, weights, number, memory_out);
}

PUBLIC enum vpmm_result vpmm_weights_read(struct vpmm_weights *weights, uint32_t number, int fd,
                                          uint64_t offset)
{
    CALL(weights_read, weights, number, fd, offset);
}

PUBLIC enum vpmm_result vpmm_weights_from(struct vpmm_weights *weights, uint32_t number,
                                          uint32_t source, const char *tensor)
{
    CALL(weights_from, weights, number, source, tensor);
}

PUBLIC enum vpmm_result vpmm_weights_open(struct vpmm_weights *weights, const char *path,
                                          uint32_t *source_out)
{
    CALL(weights_open, weights, path, source_out);
}

PUBLIC enum vpmm_result vpmm_weights_tensor(struct vpmm_weights *weights, uint32_t source,
                                            uint32_t number, struct vpmm_source_tensor *tensor)
{
    CALL(weights_tensor, weights, source, number, tensor);
}

PUBLIC enum vpmm_result vpmm_weights_order(struct vpmm_weights *weights, const uint32_t *groups,
                                           uint32_t n)
{
    CALL(weights_order, weights, groups, n);
}

PUBLIC enum vpmm_result vpmm_weights_seal(struct vpmm_weights *weights,
                                          struct vpmm_weights_need *need)
{
    CALL(weights_seal, weights, need);
}

PUBLIC enum vpmm_result vpmm_weights_begin(struct vpmm_weights *weights, void *stream)
{
    CALL(weights_begin, weights, stream);
}

PUBLIC enum vpmm_result vpmm_weights_use(struct vpmm_weights *weights, uint32_t group, void *stream)
{
    CALL(weights_use, weights, group, stream);
}

PUBLIC enum vpmm_result vpmm_weights_done(struct vpmm_weights *weights, uint32_t group,
                                          void *stream)
{
    CALL(weights_done, weights, group, stream);
}

PUBLIC enum vpmm_result vpmm_weights_end(struct vpmm_weights *weights, void *stream)
{
    CALL(weights_end, weights, stream);
}

PUBLIC enum vpmm_result vpmm_weights_cancel(struct vpmm_weights *weights, void *stream)
{
    CALL(weights_cancel, weights, stream);
}

PUBLIC enum vpmm_result vpmm_weights_budget(struct vpmm_weights *weights, uint64_t budget_bytes,
                                            struct vpmm_weights_need *need)
{
    CALL(weights_budget, weights, budget_bytes, need);
}

PUBLIC enum vpmm_result vpmm_weights_thaw(struct vpmm_weights *weights)
{
    CALL(weights_thaw, weights);
}

PUBLIC enum vpmm_result vpmm_weights_stats(struct vpmm_weights *weights,
                                           struct vpmm_weights_stats *stats)
{
    CALL(weights_stats, weights, stats);
}
