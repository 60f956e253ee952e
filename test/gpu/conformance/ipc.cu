/* SPDX-License-Identifier: MIT */
/* Memory shared between processes by the handles of cudaIpcGetMemHandle: one process allocates,
 * another one (this program again, with the handles on its standard input) opens, reads, writes
 * and closes; then again with the exporter's block freed first, and with handles of nothing. */
#include "conformance.cuh"

#include <sys/wait.h>
#include <unistd.h>

namespace {

struct Message {
    char kind; /* 'o': open and use; 'q': no more */
    size_t bytes, offset;
    cudaIpcMemHandle_t handle;
};

struct Child {
    int to, from;
    pid_t pid;
};

/* Before anything of CUDA, which does not survive a fork. */
Child child_start(const char *program)
{
    int to[2], from[2];
    if (pipe(to) != 0 || pipe(from) != 0) {
        _Exit(1);
    }
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(to[0], 3);
        dup2(from[1], 4);
        execl(program, program, "child", static_cast<char *>(nullptr));
        _Exit(1);
    }
    close(to[0]);
    close(from[1]);
    return {to[1], from[0], pid};
}

/* Hands over a handle and waits until the child has said what it sees. */
void ask(const Child &child, const Message &message)
{
    char word;
    fflush(stdout);
    if (write(child.to, &message, sizeof message) != sizeof message ||
        read(child.from, &word, 1) != 1) {
        printf("the other process is gone\n");
        _Exit(1);
    }
}

void exported(const Child &child, const char *what, void *block, size_t offset, size_t bytes)
{
    Message message = {'o', bytes, offset, {}};
    cudaIpcMemHandle_t again;
    printf("\n[%s, %zu bytes, from %zu]\n", what, bytes, offset);
    MUST(cudaMemset(block, 0x31, bytes));
    MUST(cudaDeviceSynchronize());
    cudaError_t status = CALL(cudaIpcGetMemHandle(&message.handle, at(block, offset)));
    CALL(cudaIpcGetMemHandle(&again, block));
    ASK(memcmp(&again, &message.handle, sizeof again) == 0);
    if (status != cudaSuccess) {
        return;
    }
    void *own;
    CALL(cudaIpcOpenMemHandle(&own, message.handle, cudaIpcMemLazyEnablePeerAccess));
    ask(child, message);
    ASK(holds(block, bytes, 0x32));
}

void parent(const Child &child)
{
    void *p, *q;
    cudaIpcMemHandle_t handle = {};
    begin();
    for (size_t bytes : SIZES) {
        MUST(cudaMalloc(&p, bytes));
        exported(child, "cudaMalloc", p, 0, bytes);
        exported(child, "cudaMalloc, interior", p, bytes / 2, bytes);
        CALL(cudaFree(p));
        MUST(cudaMallocAsync(&q, bytes, nullptr));
        exported(child, "cudaMallocAsync", q, 0, bytes);
        CALL(cudaFreeAsync(q, nullptr));
    }
    section("wrong handles");
    CALL(cudaIpcGetMemHandle(&handle, nullptr));
    CALL(cudaIpcGetMemHandle(&handle, &handle));
    MUST(cudaMalloc(&p, 16 * MIB));
    MUST(cudaFree(p));
    CALL(cudaIpcGetMemHandle(&handle, p));
    CALL(cudaIpcCloseMemHandle(p));
    CALL(cudaIpcCloseMemHandle(nullptr));
    Message last = {'q', 0, 0, {}};
    ask(child, last);
}

/* Opens twice, looks, writes, closes twice and once too often. */
void child_use(const Message &message)
{
    void *p = nullptr, *again = nullptr;
    cudaError_t status =
        CALL(cudaIpcOpenMemHandle(&p, message.handle, cudaIpcMemLazyEnablePeerAccess));
    if (status != cudaSuccess) {
        return;
    }
    CALL(cudaIpcOpenMemHandle(&again, message.handle, cudaIpcMemLazyEnablePeerAccess));
    ASK(again == p);
    ASK(holds(p, message.bytes, 0x31));
    observe(p, p);
    observe(p, at(p, message.bytes / 2));
    CALL(cudaFree(p));
    CALL(cudaMemset(p, 0x32, message.bytes));
    CALL(cudaDeviceSynchronize());
    CALL(cudaIpcCloseMemHandle(at(p, 1)));
    CALL(cudaIpcCloseMemHandle(p));
    CALL(cudaIpcCloseMemHandle(again));
    CALL(cudaIpcCloseMemHandle(p));
}

int child_main()
{
    Message message;
    begin();
    while (read(3, &message, sizeof message) == sizeof message) {
        bool is_last = message.kind == 'q';
        printf("the other process:\n");
        if (!is_last) {
            child_use(message);
        }
        fflush(stdout);
        if (write(4, "", 1) != 1 || is_last) {
            break;
        }
    }
    return 0;
}

} /* namespace */

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "child") == 0) {
        return child_main();
    }
    Child child = child_start(argv[0]);
    parent(child);
    int status = 1;
    waitpid(child.pid, &status, 0);
    printf("the other process ends with %d\n", WEXITSTATUS(status));
    return 0;
}
