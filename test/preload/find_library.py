# SPDX-License-Identifier: MIT
"""Finds a library of the CUDA toolkit: in CUDA_HOME, in /usr/local/cuda, or in NVIDIA's packages of pip. As a command it
prints the path, or says what to install and ends with status 1."""
import glob
import os
import site
import sys
import sysconfig

# What to look for, and the pip package that has it.
PACKAGES = {
    "libcudart_static.a": "nvidia-cuda-runtime",
    "libcudart.so": "nvidia-cuda-runtime",
    "libcublas.so": "nvidia-cublas",
    "libnccl.so": "nvidia-nccl-cu13",
}


class Missing(Exception):
    """The text names the library and how to get it."""


def patterns(name):
    for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        if home:
            yield os.path.join(home, "lib64", name + "*")
            yield os.path.join(home, "lib", name + "*")
    for root in [sysconfig.get_paths()["purelib"], *site.getsitepackages(), site.getusersitepackages()]:
        yield os.path.join(root, "nvidia", "*", "lib", name + "*")


def find(name):
    """The path of the library whose file name is `name`, or `name` and a version."""
    for pattern in patterns(name):
        found = sorted(glob.glob(pattern), key=len, reverse=True)
        if found:
            return found[0]
    raise Missing(f"{name} was not found: set CUDA_HOME, install the CUDA toolkit in /usr/local/cuda, "
                  f"or run: pip install {PACKAGES[name]}")


if __name__ == "__main__":
    try:
        print(find(sys.argv[1]))
    except Missing as missing:
        sys.exit(str(missing))
