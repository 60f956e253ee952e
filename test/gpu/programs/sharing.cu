/* SPDX-License-Identifier: MIT */
/* Two processes share memory by legacy IPC: this one exports, a copy of this program that it starts
 * imports and tells what it sees. Every answer is printed. */
#include "common.cuh"

#include <cuda.h>

#include <csignal>
#include <cstdarg>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr size_t BYTES = 40 * MIB + 4096;

/* What the importer is told to do. */
enum class Wish {
    OPEN,
    CLOSE,
    FREE,
    CHECK,
    FILL,
    FACTS,
    SAME
};

struct Command {
    Wish wish;
    unsigned flags, place; /* place: of the importer's pointers */
    uint64_t seed;
    cudaIpcMemHandle_t handle;
};

struct Answer {
    char text[256];
    unsigned long long wrong;
};

template <typename F> F entry(const char *name, unsigned version)
{
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result;
    MUST(cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result));
    return reinterpret_cast<F>(found);
}

typedef CUresult (*GetAddressRange)(CUdeviceptr *, size_t *, CUdeviceptr);
typedef CUresult (*GetAttribute)(void *, CUpointer_attribute, CUdeviceptr);

int legacy_ipc(const void *p)
{
    unsigned capable = 9;
    entry<GetAttribute>("cuPointerGetAttribute",
                        4000)(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                              reinterpret_cast<CUdeviceptr>(p));
    return static_cast<int>(capable);
}

const char *name_of(cudaError_t status)
{
    cudaGetLastError();
    return cudaGetErrorName(status);
}

/* ---- the importer ---- */

char *pointers[16];

void say(Answer &answer, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(answer.text, sizeof answer.text, format, arguments);
    va_end(arguments);
}

void facts(Answer &answer, const char *p)
{
    CUdeviceptr address = reinterpret_cast<CUdeviceptr>(p), base = 0;
    size_t size = 0;
    cudaPointerAttributes attributes = {};
    CUresult range =
        entry<GetAddressRange>("cuMemGetAddressRange", 3020)(&base, &size, address + BYTES - 1);
    cudaError_t known = cudaPointerGetAttributes(&attributes, p + MIB);
    say(answer, "range %d, base %s, %zu bytes; %s, type %d, device %d; legacy IPC %d",
        static_cast<int>(range), base == address ? "right" : "wrong", size, name_of(known),
        static_cast<int>(attributes.type), attributes.device, legacy_ipc(p));
}

unsigned long long count_wrong(const void *p, uint64_t seed)
{
    Tally *tally = tally_make();
    check(p, BYTES, seed, tally, cudaStreamLegacy);
    Tally copy = tally_read(tally);
    MUST(cudaFree(tally));
    return copy.wrong;
}

void obey(const Command &command, Answer &answer)
{
    char *&p = pointers[command.place];
    void *opened = nullptr;
    switch (command.wish) {
    case Wish::OPEN: {
        cudaError_t status = cudaIpcOpenMemHandle(&opened, command.handle, command.flags);
        if (status == cudaSuccess) {
            p = static_cast<char *>(opened);
        }
        say(answer, "open with flags %u: %s", command.flags, name_of(status));
        break;
    }
    case Wish::CLOSE:
        say(answer, "close: %s", name_of(cudaIpcCloseMemHandle(p)));
        break;
    case Wish::FREE:
        say(answer, "cudaFree: %s", name_of(cudaFree(p)));
        break;
    case Wish::CHECK:
        answer.wrong = count_wrong(p, command.seed);
        say(answer, "wrong words %llu", answer.wrong);
        break;
    case Wish::FILL:
        fill(p, BYTES, command.seed, cudaStreamLegacy);
        MUST(cudaDeviceSynchronize());
        say(answer, "filled");
        break;
    case Wish::FACTS:
        facts(answer, p);
        break;
    case Wish::SAME:
        say(answer, "the same address: %s", p == pointers[0] ? "yes" : "no");
        break;
    }
}

int import_all(int socket)
{
    begin();
    Command command;
    while (recv(socket, &command, sizeof command, MSG_WAITALL) == ssize_t{sizeof command}) {
        Answer answer = {};
        obey(command, answer);
        if (send(socket, &answer, sizeof answer, 0) != ssize_t{sizeof answer}) {
            return 1;
        }
    }
    return 0;
}

/* ---- the exporter ---- */

class Importer {
  public:
    /* Before any CUDA call: what forks is no CUDA program yet, and what it starts is a new one. */
    Importer()
    {
        int sockets[2];
        /* An importer that held another's socket would keep that from ending. */
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
            _Exit(1);
        }
        process_ = fork();
        if (process_ == 0) {
            fcntl(sockets[1], F_SETFD, 0);
            std::string number = std::to_string(sockets[1]);
            execl("/proc/self/exe", "sharing", "import", number.c_str(), nullptr);
            _Exit(1);
        }
        close(sockets[1]);
        socket_ = sockets[0];
    }

    unsigned long long tell(Wish wish, unsigned place = 0, uint64_t seed = 0,
                            const cudaIpcMemHandle_t *handle = nullptr,
                            unsigned flags = cudaIpcMemLazyEnablePeerAccess, bool aloud = true)
    {
        Command command = {};
        Answer answer = {};
        command.wish = wish;
        command.place = place;
        command.seed = seed;
        command.flags = flags;
        if (handle != nullptr) {
            command.handle = *handle;
        }
        if (send(socket_, &command, sizeof command, 0) != ssize_t{sizeof command} ||
            recv(socket_, &answer, sizeof answer, MSG_WAITALL) != ssize_t{sizeof answer}) {
            printf("the importer is gone\n");
            _Exit(1);
        }
        if (aloud) {
            printf("importer: %s\n", answer.text);
        }
        return answer.wrong;
    }

    void end(bool kills)
    {
        int status = 0;
        if (kills) {
            kill(process_, SIGKILL);
        }
        close(socket_);
        waitpid(process_, &status, 0);
        printf("the importer ended with %d, signal %d\n",
               WIFEXITED(status) ? WEXITSTATUS(status) : -1,
               WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    }

  private:
    pid_t process_;
    int socket_;
};

void *block_make(uint64_t seed)
{
    void *p;
    MUST(cudaMalloc(&p, BYTES));
    fill(p, BYTES, seed, cudaStreamLegacy);
    MUST(cudaDeviceSynchronize());
    return p;
}

cudaIpcMemHandle_t handle_of(void *p)
{
    cudaIpcMemHandle_t handle = {};
    SHOW(cudaIpcGetMemHandle(&handle, p));
    return handle;
}

void share(Importer &importer)
{
    char *p = static_cast<char *>(block_make(1));
    cudaIpcMemHandle_t handle = handle_of(p), again = handle_of(p), inside = handle_of(p + 8 * MIB);
    printf("legacy IPC %d; two handles are equal: %d\n", legacy_ipc(p),
           memcmp(&handle, &again, sizeof handle) == 0);
    void *own = nullptr;
    SHOW(cudaIpcOpenMemHandle(&own, handle, cudaIpcMemLazyEnablePeerAccess));
    importer.tell(Wish::OPEN, 1, 0, &handle, 2);
    importer.tell(Wish::OPEN, 0, 0, &handle);
    importer.tell(Wish::FACTS);
    importer.tell(Wish::CHECK, 0, 1);
    importer.tell(Wish::OPEN, 1, 0, &handle);
    importer.tell(Wish::SAME, 1);
    importer.tell(Wish::OPEN, 2, 0, &inside);
    importer.tell(Wish::SAME, 2);
    importer.tell(Wish::FREE);
    importer.tell(Wish::FILL, 0, 2);
    printf("wrong words here %llu\n", count_wrong(p, 2));
    importer.tell(Wish::CLOSE, 2);
    importer.tell(Wish::CLOSE, 1);
    importer.tell(Wish::CHECK, 0, 2);
    importer.tell(Wish::CLOSE, 0);
    importer.tell(Wish::CLOSE, 0);
    SHOW(cudaFree(p));
    importer.tell(Wish::OPEN, 3, 0, &handle);
}

void refuse()
{
    void *p;
    cudaIpcMemHandle_t handle = {};
    MUST(cudaMallocAsync(&p, BYTES, cudaStreamLegacy));
    MUST(cudaDeviceSynchronize());
    SHOW(cudaIpcGetMemHandle(&handle, p));
    printf("legacy IPC of cudaMallocAsync memory %d\n", legacy_ipc(p));
    MUST(cudaFreeAsync(p, cudaStreamLegacy));
    SHOW(cudaIpcCloseMemHandle(p));
    MUST(cudaDeviceSynchronize());
}

/* Several at once, again and again, and what is freed too early: CUDA says nothing of that. */
void many(Importer &importer)
{
    constexpr unsigned N = 12;
    void *blocks[N];
    unsigned long long wrong = 0;
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < N; i++) {
            blocks[i] = block_make(100 * round + i);
            cudaIpcMemHandle_t handle;
            MUST(cudaIpcGetMemHandle(&handle, blocks[i]));
            importer.tell(Wish::OPEN, i, 0, &handle, cudaIpcMemLazyEnablePeerAccess, false);
        }
        for (unsigned i = 0; i < N; i++) {
            wrong += importer.tell(Wish::CHECK, i, 100 * round + i, nullptr, 0, false);
            importer.tell(Wish::CLOSE, i, 0, nullptr, 0, false);
        }
        for (void *block : blocks) {
            MUST(cudaFree(block));
        }
    }
    printf("round by round: wrong words %llu\n", wrong);
}

/* The importer has it open while the exporter frees it and uses as much memory for something else.
 */
void free_early(Importer &importer)
{
    void *p = block_make(7), *others[4];
    cudaIpcMemHandle_t handle;
    MUST(cudaIpcGetMemHandle(&handle, p));
    importer.tell(Wish::OPEN, 0, 0, &handle, cudaIpcMemLazyEnablePeerAccess, false);
    MUST(cudaFree(p));
    for (void *&other : others) {
        other = block_make(8);
    }
    printf("# early_wrong_words %llu\n", importer.tell(Wish::CHECK, 0, 7, nullptr, 0, false));
    importer.tell(Wish::CLOSE, 0, 0, nullptr, 0, false);
    for (void *other : others) {
        MUST(cudaFree(other));
    }
}

} /* namespace */

int main(int n, char **arguments)
{
    if (n > 2) {
        return import_all(atoi(arguments[2]));
    }
    setvbuf(stdout, nullptr, _IOLBF, 0);
    Importer first, second;
    begin();
    share(first);
    refuse();
    many(first);
    free_early(first);
    first.end(false);

    void *p = block_make(3);
    cudaIpcMemHandle_t handle = handle_of(p);
    second.tell(Wish::OPEN, 0, 0, &handle);
    second.end(true);
    printf("wrong words here %llu\n", count_wrong(p, 3));
    SHOW(cudaFree(p));
    return 0;
}
