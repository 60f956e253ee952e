# SPDX-License-Identifier: MIT
import re
import shutil
import subprocess

import house

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
# Language of ctags -> its kinds of functions, and how its files end.
LANGUAGES = {
    "C": ("f", house.C_SOURCES),
    "C++": ("f", (".cu", ".cuh")),
    "Python": ("fm", (".py",)),
}
MEASURED = (*house.C_SOURCES, ".cu", ".cuh", ".def", ".py", ".sh", ".build")
# Path or path:function -> why it may be longer.
EXCUSED = {
    "test/preload/stub/names.def": "a list of names",
}


def is_source(tree, path):
    return path.endswith(MEASURED) or tree.read(path).startswith("#!")


def long_files(tree):
    for path in tree.files():
        n_lines = len(tree.read(path).splitlines())
        if n_lines > FILE_LINES_MAX and path not in EXCUSED and is_source(tree, path):
            yield house.Complaint(path, n_lines, f"{n_lines} lines; a file has at most {FILE_LINES_MAX}")


def paths_in(tree, language):
    return [path for path in tree.files() if path.endswith(LANGUAGES[language][1]) or
            (language == "Python" and re.match(r"#!.*python", tree.read(path)))]


def functions(tree, language, paths):
    """(path, name, first line, last line) of each function. ctags counts from the name's line."""
    output = house.tool_output("ctags", "-f", "-", f"--language-force={language}",
                               f"--kinds-{language}={LANGUAGES[language][0]}", "--fields=ne",
                               *map(tree.absolute, paths)) if paths else ""
    by_absolute = {tree.absolute(path): path for path in paths}
    for row in output.splitlines():
        name, absolute, *_ = row.split("\t")
        fields = dict(field.split(":", 1) for field in row.split('"\t')[-1].split("\t") if ":" in field)
        if "end" in fields:
            yield by_absolute[absolute], name, int(fields["line"]), int(fields["end"])


def long_functions(tree):
    for language in LANGUAGES:
        for path, name, first, last in functions(tree, language, paths_in(tree, language)):
            n_lines = last - first + 1
            if n_lines > FUNCTION_LINES_MAX and f"{path}:{name}" not in EXCUSED:
                yield house.Complaint(path, first,
                                      f"{name} has {n_lines} lines; a function has at most {FUNCTION_LINES_MAX}")


def need_ctags():
    ctags = shutil.which("ctags")
    if not ctags or "Universal Ctags" not in subprocess.run([ctags, "--version"], text=True, check=False,
                                                           stdout=subprocess.PIPE).stdout:
        raise house.CannotCheck("needs Universal Ctags (apt-get install universal-ctags)")


def check(tree):
    """No file above 400 lines, no function above 60."""
    need_ctags()
    yield from long_files(tree)
    yield from long_functions(tree)


if __name__ == "__main__":
    house.run(check)
