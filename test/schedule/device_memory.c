/* SPDX-License-Identifier: MIT */
#include "device_memory.h"

static enum vpmm_status device_facts(void *self, int number, struct vpmm_device_facts *facts_out)
{
    struct gpu *device = self;
    struct step step = {.what = "ask for a device's facts"};
    step_touch(&step, &device->fails_nth, TOUCH_WRITES);
    device_do(&step);
    expect(number == 0);
    if (device_call_fails(device, CALL_DEVICE_FACTS))
        return device->failure;
    *facts_out = (struct vpmm_device_facts){.total_bytes = device->total_pages * DEVICE_PAGE_BYTES,
                                            .granularity_bytes = DEVICE_PAGE_BYTES,
                                            .has_vmm = true};
    return VPMM_OK;
}

static enum vpmm_status memory_info(void *self, uint64_t *free_out, uint64_t *total_out)
{
    const struct gpu *device = self;
    *free_out = *total_out = device->total_pages * DEVICE_PAGE_BYTES;
    return VPMM_OK;
}

static enum vpmm_status peer_possible(void *self, int device, int peer, bool *possible_out)
{
    (void)self;
    expect(device != peer);
    *possible_out = true;
    return VPMM_OK;
}

static enum vpmm_status default_pool_trim(void *self, int device)
{
    (void)self;
    (void)device;
    return VPMM_OK;
}

static enum vpmm_status address_reserve(void *self, uint64_t bytes, uint64_t *address_out)
{
    struct gpu *device = self;
    struct step step = {.what = "reserve addresses"};
    step_touch(&step, &device->n_reserved_pages, TOUCH_WRITES);
    device_do(&step);
    uint32_t pages = (uint32_t)(bytes / DEVICE_PAGE_BYTES);
    if (device_call_fails(device, CALL_ADDRESS_RESERVE))
        return device->failure;
    if (pages > DEVICE_PAGES - device->n_reserved_pages)
        return VPMM_NO_MEMORY;
    *address_out = DEVICE_BASE + device->n_reserved_pages * DEVICE_PAGE_BYTES;
    device->n_reserved_pages += pages;
    return VPMM_OK;
}

static enum vpmm_status address_free(void *self, uint64_t address, uint64_t bytes)
{
    (void)self;
    (void)address;
    (void)bytes;
    return VPMM_OK;
}

static enum vpmm_status extent_create(void *self, int number, uint64_t bytes,
                                      vpmm_extent_handle *extent_out)
{
    struct gpu *device = self;
    struct step step = {.what = "create an extent"};
    step_touch(&step, &device->n_extents, TOUCH_WRITES);
    device_do(&step);
    expect(number == 0);
    if (device_call_fails(device, CALL_EXTENT_CREATE))
        return device->failure;
    expect(device->n_extents + 1 < DEVICE_EXTENTS);
    uint32_t extent = ++device->n_extents;
    device->extents[extent].pages = bytes / DEVICE_PAGE_BYTES;
    device->extents[extent].is_alive = true;
    *extent_out = extent;
    return VPMM_OK;
}

static enum vpmm_status extent_release(void *self, vpmm_extent_handle extent)
{
    struct gpu *device = self;
    struct step step = {.what = "release an extent"};
    step_touch(&step, &device->extents[extent], TOUCH_WRITES);
    device_do(&step);
    expect(device->extents[extent].is_alive);
    device->extents[extent].is_alive = false;
    return VPMM_OK;
}

/* A step that writes the pages of a range; the number of the first, and how many. */
static uint32_t touch_pages(struct gpu *device, const char *what, uint64_t address, uint64_t bytes,
                            struct step *step, uint32_t *n_out)
{
    uint32_t first = (uint32_t)((address - DEVICE_BASE) / DEVICE_PAGE_BYTES);
    uint32_t n = (uint32_t)(bytes / DEVICE_PAGE_BYTES);
    expect(first + n <= device->n_reserved_pages && n > 0 && n < STEP_TOUCHES);
    *step = (struct step){.what = what};
    for (uint32_t i = first; i < first + n; i++)
        step_touch(step, &device->pages[i], TOUCH_WRITES);
    *n_out = n;
    return first;
}

static enum vpmm_status map(void *self, uint64_t address, uint64_t bytes, vpmm_extent_handle extent)
{
    struct gpu *device = self;
    struct step step;
    uint32_t n;
    uint32_t first = touch_pages(device, "map", address, bytes, &step, &n);
    step_touch(&step, &device->extents[extent], TOUCH_WRITES);
    device_do(&step);
    expect(device->extents[extent].is_alive && device->extents[extent].pages == n);
    for (uint32_t i = first; i < first + n; i++) {
        expect(!device->pages[i].extent);
        device->pages[i].extent = (uint32_t)extent;
        device->pages[i].devices = 0;
    }
    device->extents[extent].n_mapped += n;
    return VPMM_OK;
}

static enum vpmm_status set_access(void *self, uint64_t address, uint64_t bytes, const int *devices,
                                   int n_devices)
{
    struct gpu *device = self;
    struct step step;
    uint32_t n;
    uint32_t first = touch_pages(device, "set access", address, bytes, &step, &n);
    device_do(&step);
    if (device_call_fails(device, CALL_SET_ACCESS))
        return device->failure;
    for (uint32_t i = first; i < first + n; i++) {
        expect(device->pages[i].extent);
        for (int j = 0; j < n_devices; j++)
            device->pages[i].devices |= UINT64_C(1) << devices[j];
    }
    return VPMM_OK;
}

static enum vpmm_status unmap(void *self, uint64_t address, uint64_t bytes)
{
    struct gpu *device = self;
    struct step step;
    uint32_t n;
    uint32_t first = touch_pages(device, "unmap", address, bytes, &step, &n);
    device_do(&step);
    if (device_call_fails(device, CALL_UNMAP))
        return device->failure;
    for (uint32_t i = first; i < first + n; i++) {
        expect(device->pages[i].extent);
        device->extents[device->pages[i].extent].n_mapped--;
        device->pages[i].extent = 0;
        device->pages[i].devices = 0;
    }
    return VPMM_OK;
}

void device_memory_fill(struct vpmm_driver *driver)
{
    driver->device_facts = device_facts;
    driver->memory_info = memory_info;
    driver->peer_possible = peer_possible;
    driver->default_pool_trim = default_pool_trim;
    driver->address_reserve = address_reserve;
    driver->address_free = address_free;
    driver->extent_create = extent_create;
    driver->extent_release = extent_release;
    driver->map = map;
    driver->set_access = set_access;
    driver->unmap = unmap;
}
