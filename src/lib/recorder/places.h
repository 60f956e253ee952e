/* SPDX-License-Identifier: MIT */
/* Which thread of this process writes which chunk, so that what a thread left of its last one when
 * it ended goes to another thread. No thread tells when it ends: the system is asked whether it is
 * still there. Any thread. Private to this folder. */
#ifndef VPMM_TRACE_PLACES_H
#define VPMM_TRACE_PLACES_H

#include "recorder/recorder.h"

#include <stdbool.h>
#include <stdint.h>

/* Gives `thread`, the calling one, the place of one that has ended, and tells which chunk that one
 * wrote last. False: none was found; few are looked at. */
bool vpmm_trace_places_inherit(struct vpmm_trace_places *places, uint32_t thread,
                               uint32_t *place_out, uint64_t *chunk_out);

/* A place that nobody had; VPMM_TRACE_PLACES: none, all are taken. */
uint32_t vpmm_trace_places_take(struct vpmm_trace_places *places);

/* The calling thread, `thread`, writes `chunk` now; the place is its own, or none. */
void vpmm_trace_places_tell(struct vpmm_trace_places *places, uint32_t place, uint32_t thread,
                            uint64_t chunk);

#endif
