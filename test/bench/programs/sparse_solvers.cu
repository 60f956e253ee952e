/* SPDX-License-Identifier: MIT */
/* sparse_solvers: a program whose calls are worth recording. Equations on boxes of different sizes
 * are put together from their elements' contributions by sorting and adding, and solved: by
 * conjugate gradients, or by a Krylov method whose basis grows by a vector in each step. Vectors
 * are Thrust's, which allocates by cudaMalloc, also where it sorts and sums.
 */
#include "bench.cuh"

#include <cmath>
#include <thrust/binary_search.h>
#include <thrust/device_vector.h>
#include <thrust/inner_product.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/reduce.h>
#include <thrust/sort.h>
#include <thrust/transform.h>

namespace {

using Vector = thrust::device_vector<double>;
using Keys = thrust::device_vector<uint64_t>;

constexpr int N_BOXES = 14, CG_STEPS = 40, KRYLOV_STEPS = 24;

/* A matrix in rows; `offsets` has one more entry than there are rows. */
struct Matrix {
    Keys columns, offsets;
    Vector values;
};

/* The points of a box, each tied to its neighbours. */
struct Box {
    uint64_t width, height, depth;
    __host__ __device__ uint64_t n() const
    {
        return width * height * depth;
    }
};

/* Each element adds four numbers: to both of its ends, and between them. */
__global__ void contribute(Box box, uint64_t step, uint64_t *keys, double *values, uint64_t first)
{
    uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x, n = box.n();
    if (i >= n) {
        return;
    }
    uint64_t other = i + step < n ? i + step : i, at = 4 * (first * n + i);
    double weight = 1 + static_cast<double>(mix(i ^ step) >> 40) / (1 << 24);
    uint64_t found[4] = {i * n + i, other * n + other, i * n + other, other * n + i};
    for (int k = 0; k < 4; k++) {
        keys[at + k] = found[k];
        values[at + k] = other == i ? 0.1 : k < 2 ? weight + 0.01 : -weight;
    }
}

__global__ void multiply(const uint64_t *offsets, const uint64_t *columns, const double *values,
                         const double *x, double *y, uint64_t n)
{
    uint64_t row = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (row < n) {
        double sum = 0;
        for (uint64_t k = offsets[row]; k < offsets[row + 1]; k++) {
            sum += values[k] * x[columns[k]];
        }
        y[row] = sum;
    }
}

/* Of a place in the matrix. */
struct Row {
    uint64_t n;
    __host__ __device__ uint64_t operator()(uint64_t place) const
    {
        return place / n;
    }
};

struct Column {
    uint64_t n;
    __host__ __device__ uint64_t operator()(uint64_t place) const
    {
        return place % n;
    }
};

struct Scaled {
    double factor;
    __host__ __device__ double operator()(double x, double y) const
    {
        return y + factor * x;
    }
};

unsigned blocks_for(uint64_t n)
{
    return static_cast<unsigned>((n + THREADS - 1) / THREADS);
}

template <class T> T *raw(thrust::device_vector<T> &vector)
{
    return thrust::raw_pointer_cast(vector.data());
}

template <class T> const T *raw(const thrust::device_vector<T> &vector)
{
    return thrust::raw_pointer_cast(vector.data());
}

/* All contributions, sorted by row and column; those of one place are added. */
Matrix assemble(const Box &box)
{
    uint64_t n = box.n();
    const uint64_t steps[3] = {1, box.width, box.width * box.height};
    Keys keys(3 * 4 * n);
    Vector values(keys.size());
    for (int k = 0; k < 3; k++) {
        contribute<<<blocks_for(n), THREADS>>>(box, steps[k], raw(keys), raw(values), k);
        MUST(cudaGetLastError());
    }
    thrust::sort_by_key(keys.begin(), keys.end(), values.begin());
    Keys places(keys.size());
    Vector sums(keys.size());
    auto ends = thrust::reduce_by_key(keys.begin(), keys.end(), values.begin(), places.begin(),
                                      sums.begin());
    size_t n_values = ends.first - places.begin();
    Matrix matrix = {Keys(n_values), Keys(n + 1), Vector(sums.begin(), ends.second)};
    Keys rows(n_values);
    thrust::transform(places.begin(), ends.first, rows.begin(), Row{n});
    thrust::transform(places.begin(), ends.first, matrix.columns.begin(), Column{n});
    thrust::counting_iterator<uint64_t> row(0);
    thrust::lower_bound(rows.begin(), rows.end(), row, row + n + 1, matrix.offsets.begin());
    return matrix;
}

Vector product(const Matrix &matrix, const Vector &x)
{
    Vector y(x.size());
    multiply<<<blocks_for(x.size()), THREADS>>>(raw(matrix.offsets), raw(matrix.columns),
                                                raw(matrix.values), raw(x), raw(y), x.size());
    MUST(cudaGetLastError());
    return y;
}

double dot(const Vector &a, const Vector &b)
{
    return thrust::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

/* y + factor * x. */
Vector sum(double factor, const Vector &x, const Vector &y)
{
    Vector made(x.size());
    thrust::transform(x.begin(), x.end(), y.begin(), made.begin(), Scaled{factor});
    return made;
}

/* The square of what is left of the right side. */
double solve_by_gradients(const Matrix &matrix, const Vector &right)
{
    Vector x(right.size()), rest = right, way = right;
    double left = dot(rest, rest);
    for (int i = 0; i < CG_STEPS; i++) {
        Vector moved = product(matrix, way);
        double length = left / dot(way, moved), before = left;
        x = sum(length, way, x);
        rest = sum(-length, moved, rest);
        left = dot(rest, rest);
        way = sum(left / before, way, rest);
    }
    return left;
}

/* The last vector's share of a basis in which each vector is at right angles to all before. */
double grow_basis(const Matrix &matrix, const Vector &right)
{
    std::vector<Vector> basis;
    basis.push_back(sum(1 / std::sqrt(dot(right, right)) - 1, right, right));
    double norm = 0;
    for (int i = 0; i < KRYLOV_STEPS; i++) {
        Vector next = product(matrix, basis.back());
        for (const Vector &vector : basis) {
            next = sum(-dot(vector, next), vector, next);
        }
        norm = std::sqrt(dot(next, next));
        basis.push_back(sum(1 / norm - 1, next, next));
    }
    return norm;
}

} /* namespace */

int main()
{
    begin();
    Random random(11);
    double total = 0;
    for (int i = 0; i < N_BOXES; i++) {
        Box box = {60 + random.below(110), 60 + random.below(110), 60 + random.below(110)};
        Matrix matrix = assemble(box);
        Vector right(box.n(), 1.0);
        total += i % 2 == 0 ? solve_by_gradients(matrix, right) : grow_basis(matrix, right);
    }
    figure("boxes", N_BOXES, "boxes");
    figure("result", total, "");
    return std::isfinite(total) ? 0 : 1;
}
