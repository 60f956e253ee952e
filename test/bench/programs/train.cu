/* SPDX-License-Identifier: MIT */
/* train API STEPS: a network of three layers learns to tell ten kinds of made-up points apart. Every
 * tensor is allocated where it is needed and freed after its last use, as a plain program does it;
 * the products are cuBLAS's. Prints the time of a step, the last loss and how often it allocated.
 */
#include "bench.cuh"

#include <cmath>
#include <cublas_v2.h>

namespace {

constexpr int N_POINTS = 512, N_LAYERS = 3, N_KINDS = 10;
constexpr int WIDTHS[N_LAYERS + 1] = {784, 512, 256, N_KINDS};
constexpr int WARM_STEPS = 5, THREADS = 256;
constexpr float RATE = 0.05f;

void must_blas(cublasStatus_t status)
{
    if (status != CUBLAS_STATUS_SUCCESS) {
        give_up("cuBLAS failed");
    }
}

__global__ void fill(float *values, int n, uint64_t seed, float scale)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        uint64_t mixed = (i + seed * 1000003 + 1) * 0x9e3779b97f4a7c15ull;
        mixed ^= mixed >> 29;
        mixed *= 0xbf58476d1ce4e5b9ull;
        values[i] = scale * (static_cast<float>(mixed >> 40) / (1 << 23) - 1);
    }
}

/* Points of a kind lie around one place. */
__global__ void make_points(float *points, const float *places, int n, int width)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n * width) {
        points[i] = 0.5f * points[i] + places[i / width % N_KINDS * width + i % width];
    }
}

__global__ void rectify(float *out, const float *in, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = fmaxf(in[i], 0);
    }
}

__global__ void rectify_back(float *gradient, const float *in, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && in[i] <= 0) {
        gradient[i] = 0;
    }
}

/* The softmax of each point less what it should be, and its loss. */
__global__ void judge(float *gradient, float *losses, const float *scores, int n)
{
    int point = blockIdx.x * blockDim.x + threadIdx.x;
    if (point >= n) {
        return;
    }
    const float *own = scores + point * N_KINDS;
    float most = own[0], sum = 0;
    for (int i = 1; i < N_KINDS; i++) {
        most = fmaxf(most, own[i]);
    }
    for (int i = 0; i < N_KINDS; i++) {
        sum += expf(own[i] - most);
    }
    int kind = point % N_KINDS;
    for (int i = 0; i < N_KINDS; i++) {
        gradient[point * N_KINDS + i] = (expf(own[i] - most) / sum - (i == kind)) / n;
    }
    losses[point] = logf(sum) + most - own[kind];
}

class Network {
  public:
    explicit Network(const Allocator &allocator)
        : allocator_(allocator), stream_(stream_make(cudaStreamNonBlocking))
    {
        must_blas(cublasCreate(&blas_));
        must_blas(cublasSetStream(blas_, stream_));
        for (int i = 0; i < N_LAYERS; i++) {
            weights_[i] = tensor(WIDTHS[i] * WIDTHS[i + 1]);
            fill_in(weights_[i], WIDTHS[i] * WIDTHS[i + 1], i, 1 / std::sqrt(1.f * WIDTHS[i]));
        }
        places_ = tensor(N_KINDS * WIDTHS[0]);
        fill_in(places_, N_KINDS * WIDTHS[0], 77, 1);
    }

    ~Network()
    {
        for (float *weight : weights_) {
            drop(weight);
        }
        drop(places_);
        must_blas(cublasDestroy(blas_));
        MUST(cudaStreamDestroy(stream_));
    }

    /* One step; the mean loss before it. */
    float step(uint64_t seed)
    {
        float *values[N_LAYERS + 1], *sums[N_LAYERS];
        values[0] = tensor(N_POINTS * WIDTHS[0]);
        fill_in(values[0], N_POINTS * WIDTHS[0], 1000 + seed, 1);
        make_points<<<blocks(N_POINTS * WIDTHS[0]), THREADS, 0, stream_>>>(values[0], places_,
                                                                           N_POINTS, WIDTHS[0]);
        for (int i = 0; i < N_LAYERS; i++) {
            int n = N_POINTS * WIDTHS[i + 1];
            sums[i] = tensor(n);
            multiply(CUBLAS_OP_N, CUBLAS_OP_N, WIDTHS[i + 1], N_POINTS, WIDTHS[i], weights_[i],
                     values[i], sums[i]);
            values[i + 1] = tensor(n);
            rectify<<<blocks(n), THREADS, 0, stream_>>>(values[i + 1], sums[i], n);
        }
        float *losses = tensor(N_POINTS), *gradient = tensor(N_POINTS * N_KINDS);
        judge<<<blocks(N_POINTS), THREADS, 0, stream_>>>(gradient, losses, sums[N_LAYERS - 1],
                                                         N_POINTS);
        float loss = mean(losses);
        drop(losses);
        drop(values[N_LAYERS]);
        for (int i = N_LAYERS - 1; i >= 0; i--) {
            gradient = back(i, gradient, values[i], i > 0 ? sums[i - 1] : nullptr);
            drop(sums[i]);
            drop(values[i]);
        }
        drop(gradient);
        return loss;
    }

    size_t n_allocations() const
    {
        return n_allocations_;
    }

  private:
    static int blocks(int n)
    {
        return (n + THREADS - 1) / THREADS;
    }

    float *tensor(int n)
    {
        n_allocations_++;
        return static_cast<float *>(allocator_.allocate(n * sizeof(float), stream_));
    }

    void drop(float *p) const
    {
        allocator_.release(p, stream_);
    }

    void fill_in(float *values, int n, uint64_t seed, float scale) const
    {
        fill<<<blocks(n), THREADS, 0, stream_>>>(values, n, seed, scale);
    }

    /* c = a * b, as cuBLAS has it: columns first. */
    void multiply(cublasOperation_t a_form, cublasOperation_t b_form, int m, int n, int k,
                  const float *a, const float *b, float *c) const
    {
        const float one = 1, none = 0;
        must_blas(cublasSgemm(blas_, a_form, b_form, m, n, k, &one, a,
                              a_form == CUBLAS_OP_N ? m : k, b, b_form == CUBLAS_OP_N ? k : n,
                              &none, c, m));
    }

    float mean(const float *losses) const
    {
        float all[N_POINTS], sum = 0;
        MUST(cudaMemcpyAsync(all, losses, sizeof all, cudaMemcpyDeviceToHost, stream_));
        MUST(cudaStreamSynchronize(stream_));
        for (float loss : all) {
            sum += loss;
        }
        return sum / N_POINTS;
    }

    /* The gradient of the layer before, in place of this layer's, which also moves its weights. */
    float *back(int i, float *gradient, const float *values, const float *sums)
    {
        int width = WIDTHS[i + 1], before = WIDTHS[i], n = width * before;
        float *of_weights = tensor(n), *of_values = tensor(N_POINTS * before);
        multiply(CUBLAS_OP_N, CUBLAS_OP_T, width, before, N_POINTS, gradient, values, of_weights);
        multiply(CUBLAS_OP_T, CUBLAS_OP_N, before, N_POINTS, width, weights_[i], gradient,
                 of_values);
        const float rate = -RATE;
        must_blas(cublasSaxpy(blas_, n, &rate, of_weights, 1, weights_[i], 1));
        if (sums != nullptr) {
            rectify_back<<<blocks(N_POINTS * before), THREADS, 0, stream_>>>(of_values, sums,
                                                                             N_POINTS * before);
        }
        drop(of_weights);
        drop(gradient);
        return of_values;
    }

    const Allocator &allocator_;
    cudaStream_t stream_;
    cublasHandle_t blas_ = nullptr;
    float *weights_[N_LAYERS], *places_;
    size_t n_allocations_ = 0;
};

} /* namespace */

int main(int argc, char **argv)
{
    begin();
    Allocator allocator(word_at(argc, argv, 1));
    int n_steps = static_cast<int>(number_at(argc, argv, 2));
    Times steps;
    float first = 0, last = 0;
    size_t n_allocations;
    {
        Network network(allocator);
        for (int i = 0; i < WARM_STEPS + n_steps; i++) {
            double start_ns = now_ns();
            last = network.step(i);
            if (i == 0) {
                first = last;
            }
            if (i >= WARM_STEPS) {
                steps.add(now_ns() - start_ns);
            }
        }
        MUST(cudaDeviceSynchronize());
        n_allocations = network.n_allocations();
    }
    if (!(last < first)) {
        give_up("the network did not learn");
    }
    figure("step", steps.quantile(0.5), "ns");
    figure("loss", last, "nats");
    figure("allocations", static_cast<double>(n_allocations), "calls");
    return 0;
}
