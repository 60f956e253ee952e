/* SPDX-License-Identifier: MIT */
/* The public interface of libvpmm.so. A program needs none of it: preloading the library is enough.
 */
#ifndef VPMM_VPMM_H
#define VPMM_VPMM_H

/* The version that these declarations belong to; the build checks that it is the project's. */
#define VPMM_VERSION "0.1.0"

#endif
