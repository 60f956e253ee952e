/* SPDX-License-Identifier: MIT */
/* many_streams: a program whose calls are worth recording. A field is simulated in pieces, each on
 * a stream of its own. In every step a piece makes its next state and sends its edges to both
 * neighbours, who wait for them by an event and free them on their own streams. Pieces grow and
 * shrink as what happens moves; some are divided in two, others are joined. Now and then all are
 * copied to be looked at, on one more stream.
 */
#include "bench.cuh"

#include <memory>

namespace {

constexpr size_t N_FIRST = 40, N_MOST = 72, N_LEAST = 24, N_STEPS = 160;
constexpr uint64_t SMALLEST = 100000, LARGEST = 8000000, LOOK_EVERY = 8, CHANGE_EVERY = 5;

/* cells' next state, from their neighbours' and from what lies beyond both ends. */
__global__ void advance(const double *now, double *next, uint64_t n, const double *before,
                        const double *after, uint64_t n_edge)
{
    uint64_t step = uint64_t{gridDim.x} * blockDim.x;
    for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) {
        double left = i > 0 ? now[i - 1] : before[n_edge - 1];
        double right = i + 1 < n ? now[i + 1] : after[0];
        next[i] = now[i] + 0.2 * (left - 2 * now[i] + right);
    }
}

__global__ void start(double *cells, uint64_t n, uint64_t seed)
{
    uint64_t step = uint64_t{gridDim.x} * blockDim.x;
    for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) {
        cells[i] = static_cast<double>(mix(seed ^ i) >> 40) / (1 << 24);
    }
}

double *allocate(uint64_t n, cudaStream_t stream)
{
    void *p;
    MUST(cudaMallocAsync(&p, n * sizeof(double), stream));
    return static_cast<double *>(p);
}

void release(double *p, cudaStream_t stream)
{
    MUST(cudaFreeAsync(p, stream));
}

void copy(double *to, const double *from, uint64_t n, cudaStream_t stream)
{
    MUST(cudaMemcpyAsync(to, from, n * sizeof(double), cudaMemcpyDeviceToDevice, stream));
}

/* A piece of the field, whose cells are on its stream. */
struct Piece {
    cudaStream_t stream = stream_make(cudaStreamNonBlocking);
    cudaEvent_t sent;
    uint64_t n;
    double *cells;
    double *edges[2] = {nullptr, nullptr}; /* sent to the piece before and to the one after */

    explicit Piece(uint64_t size) : n(size), cells(allocate(size, stream))
    {
        MUST(cudaEventCreateWithFlags(&sent, cudaEventDisableTiming));
    }
    Piece(const Piece &) = delete;
    ~Piece()
    {
        release(cells, stream);
        MUST(cudaEventDestroy(sent));
        MUST(cudaStreamDestroy(stream));
    }
    uint64_t n_edge() const
    {
        return n / 8;
    }
    void send()
    {
        for (int end = 0; end < 2; end++) {
            edges[end] = allocate(n_edge(), stream);
            copy(edges[end], cells + (end == 0 ? 0 : n - n_edge()), n_edge(), stream);
        }
        MUST(cudaEventRecord(sent, stream));
    }
};

using Pieces = std::vector<std::unique_ptr<Piece>>;

/* What both neighbours sent is freed here, behind its use. */
void take_step(Piece *piece, Piece *before, Piece *after)
{
    MUST(cudaStreamWaitEvent(piece->stream, before->sent, 0));
    MUST(cudaStreamWaitEvent(piece->stream, after->sent, 0));
    double *next = allocate(piece->n, piece->stream);
    advance<<<GRID, THREADS, 0, piece->stream>>>(piece->cells, next, piece->n, before->edges[1],
                                                 after->edges[0], before->n_edge());
    MUST(cudaGetLastError());
    release(before->edges[1], piece->stream);
    release(after->edges[0], piece->stream);
    release(piece->cells, piece->stream);
    piece->cells = next;
}

/* A piece of `n` cells, made of those of another one from `first` on as far as there are any. */
std::unique_ptr<Piece> part_of(const Piece &other, uint64_t first, uint64_t n)
{
    auto made = std::make_unique<Piece>(n);
    order_streams(other.stream, made->stream);
    start<<<GRID, THREADS, 0, made->stream>>>(made->cells, n, first);
    MUST(cudaGetLastError());
    copy(made->cells, other.cells + first, std::min(n, other.n - first), made->stream);
    order_streams(made->stream, other.stream);
    return made;
}

/* One piece becomes larger or smaller, or two; or two small ones become one. */
void change(Pieces *pieces, Random *random)
{
    size_t at = random->below(pieces->size() - 1);
    Piece &piece = *(*pieces)[at];
    if (pieces->size() < N_MOST && piece.n > LARGEST / 2) {
        auto second = part_of(piece, piece.n / 2, piece.n - piece.n / 2);
        (*pieces)[at] = part_of(piece, 0, piece.n / 2);
        pieces->insert(pieces->begin() + at + 1, std::move(second));
    } else if (pieces->size() > N_LEAST && piece.n + (*pieces)[at + 1]->n < LARGEST / 4) {
        (*pieces)[at] = part_of(piece, 0, piece.n + (*pieces)[at + 1]->n);
        pieces->erase(pieces->begin() + at + 1);
    } else {
        uint64_t n = piece.n * (50 + random->below(120)) / 100;
        (*pieces)[at] = part_of(piece, 0, std::min(std::max(n, SMALLEST), LARGEST));
    }
}

void look(const Pieces &pieces, cudaStream_t stream)
{
    for (const auto &piece : pieces) {
        double *shown = allocate(piece->n, stream);
        order_streams(piece->stream, stream);
        copy(shown, piece->cells, piece->n, stream);
        order_streams(stream, piece->stream);
        release(shown, stream);
    }
}

} /* namespace */

int main()
{
    begin();
    uint64_t threshold_bytes = UINT64_MAX;
    cudaMemPool_t pool;
    MUST(cudaDeviceGetDefaultMemPool(&pool, 0));
    MUST(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold_bytes));
    Random random(13);
    Pieces pieces;
    for (size_t i = 0; i < N_FIRST; i++) {
        pieces.push_back(std::make_unique<Piece>(SMALLEST + random.below(LARGEST - SMALLEST)));
        start<<<GRID, THREADS, 0, pieces[i]->stream>>>(pieces[i]->cells, pieces[i]->n, i);
        MUST(cudaGetLastError());
    }
    cudaStream_t looking = stream_make(cudaStreamNonBlocking);
    for (size_t step = 0; step < N_STEPS; step++) {
        for (const auto &piece : pieces) {
            piece->send();
        }
        for (size_t i = 0; i < pieces.size(); i++) {
            take_step(pieces[i].get(), pieces[(i + pieces.size() - 1) % pieces.size()].get(),
                      pieces[(i + 1) % pieces.size()].get());
        }
        for (size_t i = 0; step % CHANGE_EVERY == 0 && i < pieces.size() / 4; i++) {
            change(&pieces, &random);
        }
        if (step % LOOK_EVERY == 0) {
            look(pieces, looking);
            MUST(cudaDeviceSynchronize());
        }
    }
    MUST(cudaDeviceSynchronize());
    figure("pieces", static_cast<double>(pieces.size()), "pieces");
    return 0;
}
