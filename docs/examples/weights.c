/* SPDX-License-Identifier: MIT */
/* weights FILE BUDGET PASSES: the tensors of a safetensors file as the weights of a model, in so
 * many bytes of device memory. A pass uses one tensor after the other, in the order of the file.
 * Here the work on each is a copy back to the host, which must bring the bytes of the file.
 *
 *     cc weights.c $(pkg-config --cflags --libs vpmm) -lcuda -o weights
 *     vpmm run -- ./weights model.safetensors 1073741824 10 */
#include <vpmm/vpmm.h>

#include <cuda.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TENSORS_MAX 4096u

struct model {
    struct vpmm_weights *weights;
    char message[512]; /* where calls say why they failed */
    FILE *file;
    uint32_t n;
    struct vpmm_source_tensor tensors[TENSORS_MAX];
    uint64_t addresses[TENSORS_MAX];
    CUstream stream;
};

static void cuda(CUresult result)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "CUDA: error %d\n", (int)result);
    exit(1);
}

static void vpmm(const struct model *model, enum vpmm_result result)
{
    if (result == VPMM_DONE)
        return;
    fprintf(stderr, "%s: %s\n", vpmm_result_text(result), model->message);
    exit(1);
}

/* Every tensor is a group of its own: it is used alone. */
static void add_tensors(struct model *model, const char *path)
{
    uint32_t source;
    vpmm(model, vpmm_weights_open(model->weights, path, &source));
    for (model->n = 0; model->n < TENSORS_MAX; model->n++) {
        struct vpmm_source_tensor *tensor = &model->tensors[model->n];
        uint32_t number;
        tensor->size_bytes = sizeof *tensor;
        if (vpmm_weights_tensor(model->weights, source, model->n, tensor) != VPMM_DONE)
            break;
        struct vpmm_weight weight = {
            .size_bytes = sizeof weight,
            .name = tensor->name,
            .kind = VPMM_WEIGHT_STREAMED,
            .group = model->n,
            .bytes = tensor->bytes,
        };
        vpmm(model,
             vpmm_weights_add(model->weights, &weight, &model->addresses[model->n], &number));
        vpmm(model, vpmm_weights_from(model->weights, number, source, tensor->name));
    }
}

static void make(struct model *model, const char *path, uint64_t budget_bytes)
{
    struct vpmm_weights_options options = {
        .size_bytes = sizeof options,
        .budget_bytes = budget_bytes,
        .message = model->message,
        .message_bytes = sizeof model->message,
    };
    struct vpmm_weights_need need = {.size_bytes = sizeof need};
    vpmm(model, vpmm_weights_make(&options, &model->weights));
    add_tensors(model, path);
    enum vpmm_result result = vpmm_weights_seal(model->weights, &need);
    if (result == VPMM_DONE || result == VPMM_BUDGET_TOO_SMALL)
        printf("floor %llu all %llu\n", (unsigned long long)need.floor_bytes,
               (unsigned long long)need.all_bytes);
    vpmm(model, result);
}

/* The work on a tensor: its bytes come back as the file has them. */
static void work(struct model *model, uint32_t i)
{
    const struct vpmm_source_tensor *tensor = &model->tensors[i];
    char *found = malloc(tensor->bytes), *expected = malloc(tensor->bytes);
    if (!found || !expected)
        exit(1);
    cuda(cuMemcpyDtoHAsync(found, model->addresses[i], tensor->bytes, model->stream));
    cuda(cuStreamSynchronize(model->stream));
    if (fseek(model->file, (long)tensor->offset, SEEK_SET) != 0 ||
        fread(expected, 1, tensor->bytes, model->file) != tensor->bytes ||
        memcmp(found, expected, tensor->bytes) != 0) {
        fprintf(stderr, "%s: wrong bytes\n", tensor->name);
        exit(1);
    }
    free(found);
    free(expected);
}

static void pass(struct model *model)
{
    vpmm(model, vpmm_weights_begin(model->weights, model->stream));
    for (uint32_t i = 0; i < model->n; i++) {
        vpmm(model, vpmm_weights_use(model->weights, i, model->stream));
        work(model, i);
        vpmm(model, vpmm_weights_done(model->weights, i, model->stream));
    }
    vpmm(model, vpmm_weights_end(model->weights, model->stream));
}

int main(int argc, char **argv)
{
    static struct model model;
    CUcontext context;
    if (argc != 4) {
        fprintf(stderr, "usage: %s FILE BUDGET PASSES\n", argv[0]);
        return 2;
    }
    cuda(cuInit(0));
    cuda(cuDevicePrimaryCtxRetain(&context, 0));
    cuda(cuCtxSetCurrent(context));
    cuda(cuStreamCreate(&model.stream, CU_STREAM_NON_BLOCKING));
    model.file = fopen(argv[1], "rb");
    if (!model.file) {
        perror(argv[1]);
        return 1;
    }
    make(&model, argv[1], strtoull(argv[2], NULL, 10));
    for (long i = 0; i < atol(argv[3]); i++)
        pass(&model);
    struct vpmm_weights_stats stats = {.size_bytes = sizeof stats};
    vpmm(&model, vpmm_weights_stats(model.weights, &stats));
    printf("passes %llu held at most %llu of %llu, resident %llu, copied %llu, staged %llu\n",
           (unsigned long long)stats.passes, (unsigned long long)stats.held_peak_bytes,
           (unsigned long long)stats.budget_bytes, (unsigned long long)stats.resident_bytes,
           (unsigned long long)stats.copied_bytes, (unsigned long long)stats.staged_bytes);
    vpmm(&model, vpmm_weights_destroy(model.weights));
    return 0;
}
