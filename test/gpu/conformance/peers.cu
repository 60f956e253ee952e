/* SPDX-License-Identifier: MIT */
/* Two devices: peer access enabled before or after an allocation and disabled again, pools opened
 * and closed, memory freed with either device current, and what is said of foreign memory. A
 * kernel that may not reach the memory would end the process's contexts, so none is tried. */
#include "conformance.cuh"

namespace {

constexpr size_t BYTES = 8 * MIB + 24;

void use(const char *what, int device)
{
    printf("device %d current: %s\n", device, what);
    MUST(cudaSetDevice(device));
}

struct Kind {
    const char *name;
    cudaError_t (*make)(void **, size_t);
};

cudaMemPool_t own_pool;

const Kind KINDS[] = {
    {"cudaMalloc", [](void **p, size_t n) { return cudaMalloc(p, n); }},
    {"cudaMallocAsync", [](void **p, size_t n) { return cudaMallocAsync(p, n, nullptr); }},
    {"cudaMallocFromPoolAsync",
     [](void **p, size_t n) { return cudaMallocFromPoolAsync(p, n, own_pool, nullptr); }},
};

/* Copies between memory of both devices with either one current. */
void copies(void *here, void *there)
{
    char word[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    for (int current : {0, 1}) {
        use("copies", current);
        CALL(cudaMemset(here, 2, BYTES));
        CALL(cudaMemset(there, 3, BYTES));
        CALL(cudaMemcpy(there, here, BYTES, cudaMemcpyDefault));
        CALL(cudaMemcpy(there, here, BYTES, cudaMemcpyDeviceToDevice));
        CALL(cudaMemcpy(here, there, BYTES, cudaMemcpyDefault));
        CALL(cudaMemcpyAsync(there, here, BYTES, cudaMemcpyDefault, nullptr));
        CALL(cudaMemcpyPeer(there, 1, here, 0, BYTES));
        CALL(cudaMemcpyPeer(here, 0, there, 1, BYTES));
        CALL(cudaMemcpyPeerAsync(there, 1, here, 0, BYTES, nullptr));
        CALL(cudaMemcpy2D(there, 4096, here, 4096, 4096, 2048, cudaMemcpyDefault));
        CALL(cudaMemcpy(here, word, 8, cudaMemcpyHostToDevice));
        CALL(cudaMemcpy(word, there, 8, cudaMemcpyDeviceToHost));
        CALL(cudaMemcpy(there, word, 8, cudaMemcpyDefault));
        CALL(cudaDeviceSynchronize());
        for (int owner : {0, 1}) {
            MUST(cudaSetDevice(owner));
            CALL(cudaDeviceSynchronize());
        }
        MUST(cudaSetDevice(current));
        runtime_attributes(here, here);
        runtime_attributes(there, there);
    }
}

void reach(int reader, void *block, const char *what)
{
    use(what, reader);
    Tally *tally = tally_make();
    fill(block, BYTES, 5, nullptr);
    check(block, BYTES, 5, tally, nullptr);
    tally_end(what, tally);
}

void pair_make(const Kind &kind, void *blocks[2])
{
    for (int device : {0, 1}) {
        use("allocation", device);
        if (device == 1 && kind.make == KINDS[2].make) {
            CALL(cudaMalloc(&blocks[1], BYTES));
        } else {
            CALL(kind.make(&blocks[device], BYTES));
        }
        CALL(cudaDeviceSynchronize());
    }
}

void pair_end(void *blocks[2], bool crosswise)
{
    for (int device : {0, 1}) {
        use("free", crosswise ? 1 - device : device);
        CALL(cudaFree(blocks[device]));
        CALL(cudaFree(blocks[device]));
        CALL(cudaDeviceSynchronize());
    }
}

void without_peers(const Kind &kind)
{
    void *blocks[2];
    section(kind.name);
    pair_make(kind, blocks);
    copies(blocks[0], blocks[1]);
    use("attributes", 1);
    observe(blocks[0], at(blocks[0], 100));
    pair_end(blocks, true);
}

void enable(bool on)
{
    for (int device : {0, 1}) {
        use(on ? "enable" : "disable", device);
        if (on) {
            CALL(cudaDeviceEnablePeerAccess(1 - device, 0));
            CALL(cudaDeviceEnablePeerAccess(1 - device, 0));
        } else {
            CALL(cudaDeviceDisablePeerAccess(1 - device));
            CALL(cudaDeviceDisablePeerAccess(1 - device));
        }
        CALL(cudaDeviceEnablePeerAccess(device, 0));
        CALL(cudaDeviceEnablePeerAccess(1 - device, 1));
    }
}

void with_peers()
{
    void *before[2], *after[2];
    section("peer access");
    pair_make(KINDS[0], before);
    enable(true);
    pair_make(KINDS[0], after);
    reach(1, before[0], "a block from before, device 1 in 0");
    reach(0, before[1], "a block from before, device 0 in 1");
    reach(1, after[0], "a block from after, device 1 in 0");
    reach(0, after[1], "a block from after, device 0 in 1");
    copies(before[0], after[1]);
    enable(false);
    copies(before[0], after[1]);
    pair_end(before, false);
    pair_end(after, true);
    enable(true);
    pair_make(KINDS[0], before);
    reach(1, before[0], "enabled again, device 1 in 0");
    pair_end(before, true);
    enable(false);
}

void pool_access(cudaMemPool_t pool, const Kind &kind)
{
    void *p;
    cudaMemAccessDesc access = {};
    cudaMemAccessFlags flags;
    cudaMemLocation there = {};
    access.location.type = there.type = cudaMemLocationTypeDevice;
    access.location.id = there.id = 1;
    section("access to a pool");
    use(kind.name, 0);
    CALL(cudaMemPoolGetAccess(&flags, pool, &there));
    VALUE(flags);
    CALL(kind.make(&p, BYTES));
    for (cudaMemAccessFlags mode : {cudaMemAccessFlagsProtReadWrite, cudaMemAccessFlagsProtRead,
                                    cudaMemAccessFlagsProtNone, cudaMemAccessFlagsProtReadWrite}) {
        access.flags = mode;
        MUST(cudaSetDevice(0));
        CALL(cudaMemPoolSetAccess(pool, &access, 1));
        CALL(cudaMemPoolGetAccess(&flags, pool, &there));
        VALUE(flags);
        CALL(cudaDeviceSynchronize());
        if (mode == cudaMemAccessFlagsProtReadWrite) {
            reach(1, p, "an opened pool");
        }
        use("attributes", 1);
        observe(p, p);
    }
    use("free", 1);
    CALL(cudaFreeAsync(p, nullptr));
    CALL(cudaDeviceSynchronize());
    use("free", 0);
    CALL(cudaFree(p));
    CALL(cudaDeviceSynchronize());
}

} /* namespace */

int main()
{
    begin();
    cudaMemPool_t standard;
    int can[2];
    own_pool = pool_make(0);
    MUST(cudaDeviceGetDefaultMemPool(&standard, 0));
    MUST(cudaDeviceCanAccessPeer(&can[0], 0, 1));
    MUST(cudaDeviceCanAccessPeer(&can[1], 1, 0));
    VALUE(can[0]);
    VALUE(can[1]);
    for (const Kind &kind : KINDS) {
        without_peers(kind);
    }
    if (can[0] != 0 && can[1] != 0) {
        with_peers();
        pool_access(own_pool, KINDS[2]);
        pool_access(standard, KINDS[1]);
    }
    section("a reset of one device");
    void *p, *q;
    use("allocation", 0);
    CALL(cudaMalloc(&p, BYTES));
    use("allocation", 1);
    CALL(cudaMalloc(&q, BYTES));
    CALL(cudaDeviceReset());
    use("after the reset of 1", 0);
    CALL(cudaMemset(p, 1, BYTES));
    CALL(cudaFree(q));
    CALL(cudaFree(p));
    use("after the reset of 1", 1);
    CALL(cudaMalloc(&q, BYTES));
    CALL(cudaMemset(q, 1, BYTES));
    ASK(holds(q, BYTES, 1));
    CALL(cudaFree(q));
    return 0;
}
