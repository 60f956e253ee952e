/* SPDX-License-Identifier: MIT */
/* What the readers and writers of traces use of zlib. A build without zlib has the same calls for
 * plain files (plain.c): they refuse what gzip compressed, and nothing else differs. */
#ifndef VPMM_TRACE_GZ_H
#define VPMM_TRACE_GZ_H

#ifdef VPMM_HAS_ZLIB
#    include <zlib.h>
#    define VPMM_GZ_INFLATES true
#else
#    define VPMM_GZ_INFLATES false
#    include <stdbool.h>
#    include <sys/types.h>

struct vpmm_plain_file;

/* As zlib's functions of these names; the compression level of a mode is refused with ENOTSUP. */
struct vpmm_plain_file *vpmm_plain_open(int fd, const char *mode);
int vpmm_plain_close(struct vpmm_plain_file *file);
int vpmm_plain_read(struct vpmm_plain_file *file, void *bytes_out, unsigned n_bytes);
char *vpmm_plain_line(struct vpmm_plain_file *file, char *line_out, int room);
int vpmm_plain_write(struct vpmm_plain_file *file, const void *bytes, unsigned n_bytes);
int vpmm_plain_flush(struct vpmm_plain_file *file);
int vpmm_plain_rewind(struct vpmm_plain_file *file);
off_t vpmm_plain_offset(struct vpmm_plain_file *file);
bool vpmm_plain_is_at_end(struct vpmm_plain_file *file);
/* False: gzip compressed it. */
bool vpmm_plain_is_plain(struct vpmm_plain_file *file);
void vpmm_plain_error(struct vpmm_plain_file *file, int *error_out);

typedef struct vpmm_plain_file *gzFile;
typedef off_t z_off_t;
enum {
    Z_OK = 0,
    Z_STREAM_END = 1,
    Z_FINISH = 4,
    Z_ERRNO = -1,
    Z_MEM_ERROR = -4,
    Z_BUF_ERROR = -5,
    Z_VERSION_ERROR = -6
};
#    define gzdopen vpmm_plain_open
#    define gzclose vpmm_plain_close
#    define gzread vpmm_plain_read
#    define gzgets vpmm_plain_line
#    define gzwrite vpmm_plain_write
#    define gzflush(file, how) vpmm_plain_flush(file)
#    define gzrewind vpmm_plain_rewind
#    define gzoffset vpmm_plain_offset
#    define gztell vpmm_plain_offset
#    define gzeof vpmm_plain_is_at_end
#    define gzdirect vpmm_plain_is_plain
#    define gzerror vpmm_plain_error
#    define gzbuffer(file, bytes) ((void)(file))
#endif

#endif
