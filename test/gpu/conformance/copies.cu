/* SPDX-License-Identifier: MIT */
/* Every kind of copy and memset between every two kinds of memory, with the bytes that arrive. */
#include "conformance.cuh"

namespace {

constexpr size_t WIDTH = 3000, ROWS = 2000, BYTES = WIDTH * ROWS;

cudaStream_t stream;

struct Kind {
    const char *name;
    cudaError_t (*make)(void **);
};

const Kind KINDS[] = {
    {"cudaMalloc", [](void **p) { return cudaMalloc(p, BYTES); }},
    {"cudaMallocAsync", [](void **p) { return cudaMallocAsync(p, BYTES, stream); }},
    {"managed", [](void **p) { return cudaMallocManaged(p, BYTES); }},
    {"pinned", [](void **p) { return cudaMallocHost(p, BYTES); }},
    {"pageable",
     [](void **p) {
         *p = malloc(BYTES);
         return cudaSuccess;
     }},
};

struct Copy {
    const char *name;
    cudaError_t (*copy)(void *to, const void *from);
};

const Copy COPIES[] = {
    {"cudaMemcpy",
     [](void *to, const void *from) { return cudaMemcpy(to, from, BYTES, cudaMemcpyDefault); }},
    {"cudaMemcpyAsync",
     [](void *to, const void *from) {
         return cudaMemcpyAsync(to, from, BYTES, cudaMemcpyDefault, stream);
     }},
    {"cudaMemcpy2D",
     [](void *to, const void *from) {
         return cudaMemcpy2D(to, WIDTH, from, WIDTH, WIDTH, ROWS, cudaMemcpyDefault);
     }},
    {"cudaMemcpy2DAsync",
     [](void *to, const void *from) {
         return cudaMemcpy2DAsync(to, WIDTH, from, WIDTH, WIDTH, ROWS, cudaMemcpyDefault, stream);
     }},
    {"cudaMemcpy3D",
     [](void *to, const void *from) {
         cudaMemcpy3DParms params = {};
         params.srcPtr = make_cudaPitchedPtr(const_cast<void *>(from), WIDTH, WIDTH, ROWS / 4);
         params.dstPtr = make_cudaPitchedPtr(to, WIDTH, WIDTH, ROWS / 4);
         params.extent = make_cudaExtent(WIDTH, ROWS / 4, 4);
         params.kind = cudaMemcpyDefault;
         return cudaMemcpy3D(&params);
     }},
    {"cudaMemcpyPeer",
     [](void *to, const void *from) { return cudaMemcpyPeer(to, 0, from, 0, BYTES); }},
};

/* cudaMemcpyPeer is told devices, so it is given their memory alone. */
bool is_peer(const Copy &way)
{
    return strcmp(way.name, "cudaMemcpyPeer") == 0;
}

bool is_host(const Kind &kind)
{
    return kind.name[0] == 'p';
}

void *make(const Kind &kind)
{
    void *p = nullptr;
    MUST(kind.make(&p));
    MUST(cudaStreamSynchronize(stream));
    return p;
}

void unmake(void *p)
{
    if (cudaFree(p) != cudaSuccess && cudaFreeHost(p) != cudaSuccess) {
        free(p);
    }
    (void)cudaGetLastError();
}

void between(const Kind &source, const Kind &target)
{
    std::vector<unsigned char> bytes(BYTES), back(BYTES);
    for (size_t i = 0; i < BYTES; i++) {
        bytes[i] = static_cast<unsigned char>(mix(i));
    }
    void *from = make(source), *to = make(target);
    printf("\n[%s to %s]\n", source.name, target.name);
    MUST(cudaMemcpy(from, bytes.data(), BYTES, cudaMemcpyDefault));
    for (const Copy &way : COPIES) {
        if (is_peer(way) && (is_host(source) || is_host(target))) {
            continue;
        }
        MUST(cudaMemcpy(to, std::vector<unsigned char>(BYTES).data(), BYTES, cudaMemcpyDefault));
        printf("%s\n", way.name);
        CALL(way.copy(to, from));
        CALL(cudaDeviceSynchronize());
        MUST(cudaMemcpy(back.data(), to, BYTES, cudaMemcpyDefault));
        ASK(back == bytes);
    }
    unmake(from);
    unmake(to);
}

/* Copies and memsets that reach over two blocks, and into the middle of one. */
void odd(const Kind &kind)
{
    void *p = make(kind), *q = make(kind);
    printf("\n[odd, %s]\n", kind.name);
    CALL(cudaMemset2D(p, WIDTH, 4, WIDTH, ROWS));
    CALL(cudaMemset2D(p, WIDTH, 5, WIDTH - 1, ROWS));
    CALL(cudaMemset3D(make_cudaPitchedPtr(p, WIDTH, WIDTH, ROWS), 6,
                      make_cudaExtent(WIDTH, ROWS, 1)));
    ASK(holds(p, BYTES, 6));
    CALL(cudaMemcpy(at(q, 1), p, BYTES - 1, cudaMemcpyDefault));
    ASK(holds(at(q, 1), BYTES - 1, 6));
    CALL(cudaMemset2D(p, WIDTH, 5, WIDTH, ROWS + 1));
    CALL(cudaMemcpy(at(q, 1), p, BYTES, cudaMemcpyDefault));
    CALL(cudaMemcpy(q, at(p, 7), BYTES, cudaMemcpyDefault));
    CALL(cudaMemcpy(q, p, 0, cudaMemcpyDefault));
    CALL(cudaMemcpy(q, p, BYTES, static_cast<cudaMemcpyKind>(9)));
    CALL(cudaMemcpy2D(q, 16, p, WIDTH, WIDTH, ROWS, cudaMemcpyDefault));
    CALL(cudaMemPrefetchAsync(p, BYTES, {cudaMemLocationTypeDevice, 0}, 0, stream));
    CALL(cudaDeviceSynchronize());
    unmake(p);
    unmake(q);
}

void arrays()
{
    cudaArray_t array;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<unsigned char>();
    void *p = make(KINDS[0]), *q = make(KINDS[1]);
    section("arrays");
    MUST(cudaMallocArray(&array, &format, WIDTH, ROWS));
    CALL(cudaMemset(p, 8, BYTES));
    CALL(cudaMemcpy2DToArray(array, 0, 0, p, WIDTH, WIDTH, ROWS, cudaMemcpyDefault));
    CALL(cudaMemcpy2DFromArray(q, WIDTH, array, 0, 0, WIDTH, ROWS, cudaMemcpyDefault));
    ASK(holds(q, BYTES, 8));
    CALL(cudaMemcpy2DToArray(array, 1, 0, p, WIDTH, WIDTH, ROWS, cudaMemcpyDefault));
    CALL(cudaFreeArray(array));
    unmake(p);
    unmake(q);
}

} /* namespace */

int main()
{
    begin();
    stream = stream_make(cudaStreamNonBlocking);
    for (const Kind &source : KINDS) {
        for (const Kind &target : KINDS) {
            between(source, target);
        }
    }
    odd(KINDS[0]);
    odd(KINDS[1]);
    arrays();
    return 0;
}
