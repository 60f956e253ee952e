/* SPDX-License-Identifier: MIT */
/* The public interface of libvpmm.so. A program needs none of it: preloading the library is enough.
 */
#ifndef VPMM_VPMM_H
#define VPMM_VPMM_H

#define VPMM_VERSION_MAJOR 0
#define VPMM_VERSION_MINOR 1
#define VPMM_VERSION_PATCH 0

#endif
