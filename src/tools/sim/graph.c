/* SPDX-License-Identifier: MIT */
/* Graphs that captures have made: instantiated, launched and destroyed. The nodes of a captured
 * graph must not change, because executable graphs share them. */
#include "sim/sim_internal.h"

#include <stdlib.h>

struct graph *graph_new(struct sim *sim)
{
    (void)sim;
    struct graph *graph = allocate(sizeof *graph);
    graph->refs = 1;
    return graph;
}

/* What its allocation nodes allocated ends with the graph, unless a queued free is to end it. */
void graph_drop(struct sim *sim, struct graph *graph)
{
    if (--graph->refs != 0)
        return;
    for (size_t i = 0; i < graph->n; i++) {
        work_finish(&graph->nodes[i].work);
        free(graph->nodes[i].before);
    }
    while (graph->n_allocs > 0) {
        struct plain *plain = graph->allocs[--graph->n_allocs];
        plain->graph = NULL;
        if (!plain->freed || plain->graph_frees || plain->parked)
            plain_end(sim, plain);
    }
    free(graph->nodes);
    free(graph->allocs);
    free(graph);
}

static CUresult graph_of(struct sim *sim, CUgraph handle, struct graph **graph_out)
{
    return object_find(sim, OBJECT_GRAPH, (uintptr_t)handle, graph_out) == OBJECT_LIVE
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_graph_destroy(struct sim *sim, CUgraph handle)
{
    struct graph *graph = NULL;
    CUresult result = call_enter(sim, "cuGraphDestroy");
    if (result == CUDA_SUCCESS)
        result = graph_of(sim, handle, &graph);
    if (result == CUDA_SUCCESS) {
        object_retire(sim, (uintptr_t)handle);
        graph_drop(sim, graph);
    }
    return call_leave(sim, "cuGraphDestroy", result);
}

CUresult sim_graph_count(struct sim *sim, CUgraph handle, size_t *n_nodes_out,
                         size_t *n_memory_nodes_out)
{
    struct graph *graph = NULL;
    CUresult result = call_enter(sim, "cuGraphGetNodes");
    if (result == CUDA_SUCCESS)
        result = graph_of(sim, handle, &graph);
    if (result == CUDA_SUCCESS) {
        size_t n_memory = 0;
        for (size_t i = 0; i < graph->n; i++)
            n_memory += graph->nodes[i].work.kind == WORK_ALLOC;
        if (n_nodes_out != NULL)
            *n_nodes_out = graph->n;
        if (n_memory_nodes_out != NULL)
            *n_memory_nodes_out = n_memory;
    }
    return call_leave(sim, "cuGraphGetNodes", result);
}

/* The nodes of a captured graph never change, so an executable one is another reference. */
CUresult sim_graph_instantiate(struct sim *sim, CUgraph handle, unsigned long long flags,
                               CUgraphExec *exec_out)
{
    struct graph *graph = NULL;
    (void)flags;
    CUresult result = call_enter(sim, "cuGraphInstantiate");
    if (result == CUDA_SUCCESS)
        result = graph_of(sim, handle, &graph);
    if (result == CUDA_SUCCESS) {
        graph->refs++;
        *exec_out = (CUgraphExec)(uintptr_t)object_add(sim, OBJECT_EXEC, graph);
    }
    return call_leave(sim, "cuGraphInstantiate", result);
}

CUresult sim_graph_exec_destroy(struct sim *sim, CUgraphExec handle)
{
    struct graph *graph = NULL;
    CUresult result = call_enter(sim, "cuGraphExecDestroy");
    if (result == CUDA_SUCCESS &&
        object_find(sim, OBJECT_EXEC, (uintptr_t)handle, &graph) != OBJECT_LIVE)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        object_retire(sim, (uintptr_t)handle);
        graph_drop(sim, graph);
    }
    return call_leave(sim, "cuGraphExecDestroy", result);
}

/* The nodes run between two marks on the stream, in any order that their edges allow. */
static void graph_queue(struct sim *sim, const struct graph *graph, struct stream *stream)
{
    struct work work = {.kind = WORK_MARK, .name = "cuGraphLaunch"};
    struct op **ops = allocate(graph->n * sizeof(struct op *));
    struct op *first = op_new(stream->context, stream, &work);
    struct op *last = op_new(stream->context, stream, &work);
    stream_order(sim, stream, first);
    op_submit(sim, first);
    op_follow(last, first);
    for (size_t i = 0; i < graph->n; i++) {
        struct work copy = work_copy(&graph->nodes[i].work);
        ops[i] = op_new(stream->context, stream, &copy);
        op_follow(ops[i], first);
        for (size_t j = 0; j < graph->nodes[i].n_before; j++)
            op_follow(ops[i], ops[graph->nodes[i].before[j]]);
        op_submit(sim, ops[i]);
        op_follow(last, ops[i]);
    }
    op_submit(sim, last);
    op_set(&stream->tail, last);
    for (size_t i = 0; i < graph->n; i++)
        op_drop(ops[i]);
    free(ops);
    op_drop(first);
    op_drop(last);
}

static CUresult launch(struct sim *sim, CUgraphExec handle, CUstream stream_handle)
{
    struct graph *graph;
    struct stream *stream;
    if (object_find(sim, OBJECT_EXEC, (uintptr_t)handle, &graph) != OBJECT_LIVE)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(stream_of(sim, stream_handle, &stream));
    TRY(stream->context->error);
    if (stream->capture != NULL)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    TRY(capture_implicit(sim, stream, "cuGraphLaunch"));
    for (size_t i = 0; i < graph->n_allocs; i++)
        TRY(plain_revive(sim, graph->allocs[i]));
    graph_queue(sim, graph, stream);
    return CUDA_SUCCESS;
}

CUresult sim_graph_launch(struct sim *sim, CUgraphExec exec, CUstream stream)
{
    CUresult result = call_enter(sim, "cuGraphLaunch");
    if (result == CUDA_SUCCESS)
        result = launch(sim, exec, stream);
    return call_leave(sim, "cuGraphLaunch", result);
}
