/* SPDX-License-Identifier: MIT */
/* Tells the listener what the heap has done with memory. Must not be called with a lock of ours
 * held, because the listener may take time. */
#include "heap/heap_internal.h"

static void tell(struct vpmm_heap *heap, struct vpmm_watch_event event)
{
    event.device = heap->params.device;
    vpmm_watch_tell(heap->params.watch, &event);
}

/* Steps of one kind that lie side by side are told of as one. */
void vpmm_heap_tell_plan(struct vpmm_heap *heap, const struct vpmm_plan *plan,
                         enum vpmm_status status, uint64_t stuck_pages, uint64_t begin_ns)
{
    uint64_t pages = status ? stuck_pages : plan->pages;
    uint64_t end = plan->address + pages * heap->page_bytes;
    if (!heap->params.watch)
        return;
    for (uint32_t i = 0; i < plan->n_steps && plan->steps[i].address < end;) {
        const struct vpmm_step *first = &plan->steps[i];
        uint64_t bytes = 0;
        while (i < plan->n_steps && plan->steps[i].kind == first->kind &&
               plan->steps[i].address == first->address + bytes && plan->steps[i].address < end)
            bytes += plan->steps[i++].pages * heap->page_bytes;
        if (status && first->kind == VPMM_STEP_MOVE)
            continue;
        tell(heap,
             (struct vpmm_watch_event){
                 .kind = first->kind == VPMM_STEP_CREATE ? VPMM_WATCH_GROW : VPMM_WATCH_STITCH,
                 .address = first->address,
                 .bytes = bytes,
                 .begin_ns = begin_ns,
             });
    }
}

void vpmm_heap_tell_removal(struct vpmm_heap *heap, const struct vpmm_removal *removal,
                            uint64_t begin_ns)
{
    struct vpmm_watch_event event = {
        .kind = VPMM_WATCH_UNMAP,
        .address = removal->address,
        .bytes = removal->pages * heap->page_bytes,
        .begin_ns = begin_ns,
    };
    tell(heap, event);
    event.kind = VPMM_WATCH_RELEASE;
    if (removal->extent)
        tell(heap, event);
}

void vpmm_heap_tell_release(struct vpmm_heap *heap, uint64_t bytes)
{
    if (bytes)
        tell(heap, (struct vpmm_watch_event){.kind = VPMM_WATCH_RELEASE,
                                             .bytes = bytes,
                                             .begin_ns = vpmm_heap_now_ns(heap)});
}

void vpmm_heap_tell_wait(struct vpmm_heap *heap, const struct vpmm_stream *stream,
                         uint64_t begin_ns)
{
    tell(heap, (struct vpmm_watch_event){
                   .kind = stream ? VPMM_WATCH_STREAM_WAIT : VPMM_WATCH_HOST_WAIT,
                   .stream_id = stream ? stream->id : 0,
                   .begin_ns = begin_ns,
               });
}

void vpmm_heap_tell_death(struct vpmm_heap *heap, const struct vpmm_region_view *region,
                          uint64_t begin_ns)
{
    tell(heap, (struct vpmm_watch_event){
                   .kind = VPMM_WATCH_FREE,
                   .address = region->address,
                   .bytes = region->owner.bytes,
                   .begin_ns = begin_ns,
               });
}
