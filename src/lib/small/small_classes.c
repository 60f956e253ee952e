/* SPDX-License-Identifier: MIT */
/* What slabs hold, by the kind of requests that they serve. Must not take a lock or a latch,
 * because a signal handler asks, and other processes do. */
#include "small/small_internal.h"

const char *vpmm_small_class_name(unsigned class)
{
    static const char *const names[VPMM_SMALL_CLASSES] = {
        [VPMM_SHELF_FINE] = "fine",
        [VPMM_SHELF_MIDDLE] = "middle",
        [VPMM_SHELF_COARSE] = "coarse",
        [VPMM_SHELF_WIDE] = "wide",
    };
    return names[class];
}

/* Grains of live pieces among those that begin in one word of starts. */
static uint64_t add_word(const struct vpmm_slab *slab, uint32_t i, struct vpmm_small_class *class)
{
    uint64_t n_grains = 0;
    for (uint64_t seen = vpmm_atomic_load(&slab->starts[i]); seen; seen &= seen - 1) {
        uint32_t grain = i * 64 + (uint32_t)__builtin_ctzll(seen);
        if (grain >= slab->n_grains)
            break;
        const struct vpmm_piece *piece = &slab->pieces[grain];
        uint64_t bytes = vpmm_atomic_load(&piece->bytes);
        if (vpmm_piece_state(piece) != VPMM_PIECE_LIVE)
            continue;
        class->blocks++;
        class->bytes += bytes;
        n_grains += (bytes + VPMM_GRAIN_BYTES - 1) / VPMM_GRAIN_BYTES;
    }
    return n_grains;
}

static void add_slab(const struct vpmm_slab *slab, struct vpmm_small_class *class)
{
    uint64_t n_grains = 0;
    for (uint32_t i = 0; i <= (slab->n_grains - 1) / 64; i++)
        n_grains += add_word(slab, i, class);
    if (n_grains > slab->n_grains)
        n_grains = slab->n_grains;
    class->pages += slab->pages;
    class->free_bytes += (slab->n_grains - n_grains) * VPMM_GRAIN_BYTES;
    uint64_t share = n_grains ? (n_grains * VPMM_SMALL_FILLS - 1) / slab->n_grains : 0;
    class->pages_by_fill[share] += slab->pages;
}

void vpmm_small_classes(const struct vpmm_small *small,
                        struct vpmm_small_class classes_out[VPMM_SMALL_CLASSES])
{
    uint32_t n = vpmm_table_end(&small->slabs);
    for (unsigned i = 0; i < VPMM_SMALL_CLASSES; i++)
        classes_out[i] = (struct vpmm_small_class){.pages = 0};
    for (uint32_t number = 1; number < n; number++) {
        const struct vpmm_slab *slab = vpmm_slab_at(small, number);
        uint32_t shelf = slab ? vpmm_atomic_load(&slab->shelf) : 0;
        if (slab && vpmm_atomic_load(&slab->address) && slab->n_grains && slab->starts &&
            shelf < VPMM_SMALL_CLASSES)
            add_slab(slab, &classes_out[shelf]);
    }
}
