# SPDX-License-Identifier: MIT
"""The conditions under which a program is run bare and preloaded: what becomes of standard error, limits, refused system
calls, namespaces, control groups. A condition that this machine cannot make raises CannotMake with the reason."""
import contextlib
import ctypes
import os
import resource
import shutil
import signal
import struct
import subprocess

LIBC = ctypes.CDLL(None, use_errno=True)
NOBODY = 65534
CGROUPS = ("/sys/fs/cgroup/memory", "/sys/fs/cgroup")


class CannotMake(Exception):
    pass


class Way:
    """How a program is started: what runs in the child before it, its standard error, and words before its command."""

    def __init__(self, *prepare, stderr=subprocess.DEVNULL, before=(), argument="", folder=None):
        self.prepare, self.stderr, self.before, self.argument, self.folder = prepare, stderr, list(before), argument, folder

    def enter(self):
        for step in self.prepare:
            step()


# ---- limits ----

def limit(number, most):
    hard = resource.getrlimit(number)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    return lambda: resource.setrlimit(number, (most, most))


def limits(number, *values):
    name = next(name for name in dir(resource) if name.startswith("RLIMIT_") and getattr(resource, name) == number)
    return {f"{name} {value}": (lambda value=value: Way(limit(number, value))) for value in values}


def become_nobody():
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


# ---- standard error ----

def broken_pipe():
    reader, writer = os.pipe()
    os.close(reader)
    return Way(stderr=writer)


def full_pipe():
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    os.set_blocking(writer, True)
    return Way(stderr=writer, argument=reader)


def limited_file(folder):
    file = os.open(os.path.join(folder, "errors"), os.O_WRONLY | os.O_CREAT)
    os.write(file, b"x" * 8)
    return Way(limit(resource.RLIMIT_FSIZE, 8), stderr=file)


# ---- system calls ----

def refuse(answer, *numbers):
    """Lets the system refuse these calls with this errno."""
    def step():
        rules = [(0x20, 0, 0, 0)]
        for number in numbers:
            rules += [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | answer)]
        rules.append((0x06, 0, 0, 0x7fff0000))
        code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
        program = struct.pack("HxxxxxxP", len(rules), ctypes.addressof(code))
        buffer = ctypes.create_string_buffer(program)
        if LIBC.prctl(38, 1, 0, 0, 0) != 0 or LIBC.prctl(22, 2, buffer, 0, 0) != 0:
            os._exit(99)
    return step


# What the library may ask for and an ordinary program does not (x86-64).
CALLS = {"memfd_create": 319, "madvise": 28, "mincore": 27, "pwritev2": 328, "pwritev": 296, "rt_sigtimedwait": 128,
         "rt_sigpending": 127, "poll": 7, "eventfd2": 290, "socket": 41, "flock": 73, "fchmod": 91, "ftruncate": 77,
         "statfs": 137, "fstatfs": 138, "getrandom": 318, "setrlimit": 160, "rename": 82, "unlink": 87}


# ---- namespaces ----

def unshared(*flags, script='exec "$@"'):
    def make():
        if shutil.which("unshare") is None or subprocess.run(["unshare", *flags, "true"], capture_output=True,
                                                             check=False).returncode != 0:
            raise CannotMake(f"unshare {' '.join(flags)} is refused")
        return Way(before=["unshare", *flags, "sh", "-c", script, "sh"])
    return make


def mounted(options, folder):
    """A file system of its own on the folder of the reports."""
    return unshared("-m", script=f'mount -t tmpfs -o {options} none "{folder}" && exec "$@"')()


def full_disk(folder):
    return unshared("-m", script=f'mount -t tmpfs -o size=16k none "{folder}" && '
                                 f'{{ cat /dev/zero >"{folder}/filled" 2>/dev/null; exec "$@"; }}')()


# ---- memory ----

def small_cgroup(folder):
    name = f"vpmm-trust-{os.getpid()}"
    for top in CGROUPS:
        path = os.path.join(top, name)
        try:
            os.mkdir(path)
            for bound in ("memory.limit_in_bytes", "memory.max"):
                if os.path.exists(os.path.join(path, bound)):
                    with open(os.path.join(path, bound), "w", encoding="utf-8") as file:
                        file.write(str(256 << 20))
                    return Way(lambda: join(path), argument=path)
            os.rmdir(path)
        except OSError:
            with contextlib.suppress(OSError):
                os.rmdir(path)
    raise CannotMake("no control group for memory can be made")


def join(path):
    with open(os.path.join(path, "cgroup.procs"), "w", encoding="utf-8") as file:
        file.write(str(os.getpid()))


def block_signals():
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP})


def gone_folder(folder):
    os.chdir(folder)
    os.mkdir("gone")
    os.chdir("gone")
    os.rmdir(os.path.join(folder, "gone"))


def all_of(folder):
    """{name: function that makes the Way}; `folder` is where the reports of this run go."""
    found = {
        "nothing special": Way,
        "stderr closed": lambda: Way(lambda: os.close(2)),
        "stdin and stderr closed": lambda: Way(lambda: os.close(0), lambda: os.close(2)),
        "stderr a broken pipe": broken_pipe,
        "stderr a full pipe": full_pipe,
        "stderr /dev/full": lambda: Way(stderr=os.open("/dev/full", os.O_WRONLY)),
        "stderr a file at its limit": lambda: limited_file(folder),
        "stderr for reading only": lambda: Way(stderr=os.open("/dev/null", os.O_RDONLY)),
        "read-only folder": lambda: mounted("ro", folder),
        "full disk": lambda: full_disk(folder),
        "no space for names": lambda: mounted("nr_inodes=1", folder),
        "no /proc": unshared("-m", script='mount -t tmpfs none /proc && exec "$@"'),
        "no /dev": unshared("-m", script='mount -t tmpfs none /dev && exec "$@"'),
        "read-only root": unshared("-m", script='mount -o remount,bind,ro / 2>/dev/null; exec "$@"'),
        "user namespace": unshared("-U"),
        "user namespace with root": unshared("-U", "-r"),
        "process namespace": unshared("-p", "-f"),
        "network and IPC namespace": unshared("-n", "-i"),
        "small control group": lambda: small_cgroup(folder),
        "nobody": lambda: Way(become_nobody),
        "nobody, without threads": lambda: Way(limit(resource.RLIMIT_NPROC, 0), become_nobody),
        "signals blocked": lambda: Way(block_signals),
        "files of mode 0": lambda: Way(lambda: os.umask(0o777)),
        "folder that is gone": lambda: Way(lambda: gone_folder(folder)),
        "calls refused, EPERM": lambda: Way(refuse(1, *CALLS.values())),
        "calls refused, ENOSYS": lambda: Way(refuse(38, *CALLS.values())),
    }
    found |= limits(resource.RLIMIT_FSIZE, 0, 1, 4096)
    found |= limits(resource.RLIMIT_NOFILE, 4, 8)
    found |= limits(resource.RLIMIT_STACK, 192 << 10)
    found |= limits(resource.RLIMIT_AS, 3 << 29, 3 << 31)
    found |= {f"locked memory up to {bytes_}":
              (lambda bytes_=bytes_: Way(limit(resource.RLIMIT_MEMLOCK, bytes_), become_nobody, argument="lock"))
              for bytes_ in (0, 1 << 30)}
    return found

