/* SPDX-License-Identifier: MIT */
/* Bytes become a file that may be a trace. Whatever it is, reading it ends with all items or one
 * line about damage; what is read keeps what trace/reader.h promises, twice the same; and it can be
 * written in any form, of which those that are read give the same again. */
#define _GNU_SOURCE
#include "trace_input.h"

#include "trace/live.h"
#include "trace/writer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

/* What reading a file came to. */
struct account {
    uint64_t n_items; /* but frees of NULL */
    uint64_t n_mallocs, n_frees, n_made_up, live_bytes;
    uint64_t digest;     /* of all items in their order */
    uint64_t order;      /* of those that can be in a file of our own, without their times */
    uint64_t is_damaged; /* 0 or 1: no byte of this is padding */
};

static void check_line(const char *line)
{
    assert_in_range(strnlen(line, 256), 1, 255);
    for (; *line; line++)
        assert_true((unsigned char)*line >= ' ' && *line != 0x7f);
}

static uint64_t digest(uint64_t before, uint64_t word)
{
    uint64_t mixed = (before ^ word) * 0x9e3779b97f4a7c15u;
    return mixed ^ mixed >> 29;
}

static void digest_item(struct account *account, const struct vpmm_trace_item *item)
{
    const struct vpmm_trace_entry *entry = &item->entry;
    uint64_t own = digest(digest(entry->kind, entry->address), item->thread);
    own = digest(digest(own, entry->stream), entry->duration_ns);
    account->digest = digest(digest(digest(account->digest, own), entry->bytes), entry->ns);
    account->digest = digest(account->digest, item->moment_ns);
    account->n_made_up += item->is_made_up;
    if (!item->is_made_up && entry->kind < VPMM_TRACE_KINDS)
        account->order = digest(account->order, own);
}

static void count_item(struct account *account, struct vpmm_live *live,
                       const struct vpmm_trace_item *item)
{
    const struct vpmm_trace_entry *entry = &item->entry;
    struct vpmm_live_block block = {.address = entry->address, .bytes = entry->bytes};
    account->n_items += !vpmm_trace_frees_nothing(item);
    if (item->is_known && entry->kind == VPMM_TRACE_MALLOC) {
        assert_false(vpmm_live_take(live, entry->address, &block));
        assert_true(vpmm_live_put(live, &block));
        account->n_mallocs++;
        account->live_bytes += entry->bytes;
    } else if (item->is_known) {
        assert_int_equal(entry->kind, VPMM_TRACE_FREE);
        assert_true(vpmm_live_take(live, entry->address, &block));
        assert_true(block.bytes == entry->bytes);
        account->n_frees++;
        account->live_bytes -= entry->bytes;
    } else if (entry->kind == VPMM_TRACE_FREE && !(entry->flags & VPMM_TRACE_IS_FAILED)) {
        assert_false(vpmm_live_take(live, entry->address, &block));
    }
    digest_item(account, item);
}

static struct account read_all(struct vpmm_trace_reader *reader)
{
    struct account account = {0};
    struct vpmm_live live = {0};
    struct vpmm_trace_item item;
    uint64_t moment_ns = 0;
    while (vpmm_trace_next(reader, &item)) {
        assert_true(item.moment_ns >= moment_ns);
        moment_ns = item.moment_ns;
        count_item(&account, &live, &item);
    }
    assert_false(vpmm_trace_next(reader, &item));
    account.is_damaged = vpmm_trace_damage(reader) != NULL;
    if (account.is_damaged)
        check_line(vpmm_trace_damage(reader));
    vpmm_live_finish(&live);
    return account;
}

/* The file in `form`, in memory. */
static int write_all(struct vpmm_trace_reader *reader, enum vpmm_trace_form form,
                     struct vpmm_trace_left_out *left_out)
{
    char path[64], message[256];
    struct vpmm_trace_writer *writer;
    struct vpmm_trace_item item;
    int fd = memfd_create("written", MFD_CLOEXEC);
    assert_true(fd >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const struct vpmm_trace_facts facts = vpmm_trace_reader_facts(reader);
    assert_true(vpmm_trace_rewind(reader));
    assert_int_equal(vpmm_trace_create(path, form, &facts, &writer, message), VPMM_OK);
    while (vpmm_trace_next(reader, &item))
        assert_true(vpmm_trace_put(writer, &item));
    *left_out = vpmm_trace_left_out(writer);
    assert_int_equal(vpmm_trace_finish(writer, message), VPMM_OK);
    return fd;
}

static void check_form(struct vpmm_trace_reader *reader, const struct account *account,
                       enum vpmm_trace_form form)
{
    char message[256];
    struct vpmm_trace_left_out left_out;
    struct vpmm_trace_reader *again;
    int fd = write_all(reader, form, &left_out);
    if (form == VPMM_TRACE_FORM_SNAPSHOT || form == VPMM_TRACE_FORM_CHROME) {
        close(fd);
        return;
    }
    assert_int_equal(vpmm_trace_open_fd(fd, "written", form, &again, message), VPMM_OK);
    close(fd);
    const struct account second = read_all(again);
    vpmm_trace_close(again);
    assert_false(second.is_damaged);
    if (form == VPMM_TRACE_FORM_VPMM) {
        assert_true(second.order == account->order);
        return;
    }
    assert_true(second.n_items == account->n_items - left_out.queued - left_out.failed -
                                      left_out.pool - left_out.unknown);
    assert_true(second.n_mallocs == account->n_mallocs && second.n_frees == account->n_frees);
    assert_true(second.live_bytes == account->live_bytes);
}

static void check_reader(struct vpmm_trace_reader *reader)
{
    static const enum vpmm_trace_form forms[] = {VPMM_TRACE_FORM_VPMM, VPMM_TRACE_FORM_CSV,
                                                 VPMM_TRACE_FORM_RMM, VPMM_TRACE_FORM_SNAPSHOT,
                                                 VPMM_TRACE_FORM_CHROME};
    const struct account first = read_all(reader);
    assert_true(vpmm_trace_rewind(reader));
    const struct account second = read_all(reader);
    assert_memory_equal(&first, &second, sizeof first);
    check_form(reader, &first, forms[first.digest % (sizeof forms / sizeof forms[0])]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char message[256] = "";
    struct input input = {data, data + bytes};
    struct vpmm_trace_reader *reader;
    enum vpmm_trace_form form;
    int before = dup(STDERR_FILENO);
    close(before);
    int fd = trace_input_file(&input, &form);
    enum vpmm_status status = vpmm_trace_open_fd(fd, "input", form, &reader, message);
    close(fd);
    if (status == VPMM_OK) {
        check_reader(reader);
        vpmm_trace_close(reader);
    } else {
        assert_true(status == VPMM_INVALID || status == VPMM_NOT_SUPPORTED);
        check_line(message);
    }
    int after = dup(STDERR_FILENO);
    close(after);
    assert_int_equal(before, after);
    return 0;
}
