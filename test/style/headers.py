# SPDX-License-Identifier: MIT
import shutil
import subprocess

import house

PUBLIC = "include/"


def compile_alone(tree, path, *command):
    """The first error, or None."""
    paths = [f"-I{tree.absolute(path)}" for path in ("src/lib", "src/tools", "include")]
    if tree.cuda_headers:
        paths += ["-isystem", tree.cuda_headers]
    result = subprocess.run([*command, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", *paths, "-"], text=True,
                            check=False, input=f'#include "{tree.absolute(path)}"\n', stderr=subprocess.PIPE)
    errors = [line for line in result.stderr.splitlines() if "error:" in line]
    return errors[0] if errors else None if result.returncode == 0 else result.stderr.strip()


def check(tree):
    """Each header compiles alone as C11; a public one also as C99 and as C++. Those of tests may use GNU's C library."""
    languages = [("C11", ["gcc", "-std=c11", "-x", "c"], ""),
                 ("C99", ["gcc", "-std=c99", "-x", "c"], PUBLIC)]
    if shutil.which("g++"):
        languages.append(("C++", ["g++", "-std=c++11", "-x", "c++"], PUBLIC))
    for path in tree.files(".h", under="src") + tree.files(".h", under="include") + tree.files(".h", under="test"):
        for language, command, prefix in languages:
            macros = ["-D_GNU_SOURCE"] if path.startswith("test/") else []
            error = compile_alone(tree, path, *command, *macros) if path.startswith(prefix) else None
            if error:
                yield house.Complaint(path, 1, f"does not compile alone as {language}: {error}")


if __name__ == "__main__":
    house.run(check)
