# SPDX-License-Identifier: MIT
"""Feeds every check a tree that breaks its rule and sees it complain at the right place, and one that does not."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import binary
import cppcheck
import environment
import format as formatting
import headers
import house
import layers
import pages
import sizes
import tidy
import words

HERE = os.path.dirname(os.path.abspath(__file__))
LICENCE = "/* SPDX-License-Identifier: MIT */\n"
API_DEF = LICENCE + "#ifndef VPMM_API\n#define VPMM_API(name)\n#endif\nVPMM_API(cuOne)\nVPMM_API(cuTwo)\n"


class CheckTest(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.root)
        self.tree = house.Tree(self.root, os.path.join(self.root, "build"))

    def write(self, path, text):
        absolute = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(absolute), exist_ok=True)
        with open(absolute, "w", encoding="utf-8") as file:
            file.write(text)

    def complaints(self, check):
        return [(complaint.path, complaint.line) for complaint in check(self.tree)]

    def texts(self, check):
        return "\n".join(map(str, check(self.tree)))


class Layers(CheckTest):
    def bad(self, path, line):
        self.write(path, LICENCE + line + "\n")
        self.assertEqual(self.complaints(layers.check), [(path, 2)], line)
        os.remove(os.path.join(self.root, path))

    def test_bad_includes(self):
        self.bad("src/lib/pool/pool.c", '#include "heap/heap.h"')
        self.bad("src/lib/pool/pool.c", "#include <pthread.h>")
        self.bad("src/lib/pool/pool.c", '#include "driver/driver.h"')
        self.bad("src/lib/heap/heap.c", '#include "pool/region.h"')
        self.bad("src/lib/heap/heap.c", '#include "driver/cuda.h"')
        self.bad("src/lib/heap/heap.c", '#include "internal.h"')
        self.bad("src/lib/heap/heap.c", '#  include  <cuda.h>')
        self.bad("src/lib/driver/driver.h", "#include <cuda.h>")
        self.bad("src/lib/route/route.c", '#include "observe/observe_dump.h"')
        self.bad("src/lib/preload/entry.c", '#include "sim/engine.h"')
        self.bad("src/lib/base/lock.c", '#include "config/config.h"')
        self.bad("src/lib/base/lock.c", "#include <heap/heap.h>")
        self.bad("src/lib/base/lock.c", '#include "../heap/heap.h"')
        self.bad("src/lib/base/lock.c", "#include HEADER")
        self.bad("src/lib/base/lock.c", "#include_next <stdint.h>")
        self.bad("src/lib/base/words.inc", '#include "heap/heap.h"')

    def test_unknown_folder(self):
        self.write("src/lib/misc/misc.c", LICENCE)
        self.assertEqual(self.complaints(layers.check), [("src/lib/misc/misc.c", 1)])

    def test_good_includes(self):
        self.write("src/lib/heap/heap.c", '#include "heap/heap_internal.h"\n#include "pool/pool.h"\n#include "base/tree.h"\n'
                                      '#include "driver/driver.h"\n/* #include "preload/entry.h" */\n')
        self.write("src/lib/preload/entry.c", '#include "driver/cuda.h"\n#include <cuda.h>\n')
        self.assertEqual(self.complaints(layers.check), [])


class Environment(CheckTest):
    def test_second_site(self):
        self.write("src/lib/config/config.c", "extern char **environ;\n")
        self.write("src/tools/sim/machine.c", 'int x = getenv("X") != 0;\n')
        self.write("src/lib/route/route.c", '/* getenv */\nint x = getenv("X") != 0;\n')
        self.assertEqual(self.complaints(environment.check), [("src/lib/route/route.c", 2)])

    def test_second_site_in_the_same_file(self):
        self.write("src/lib/config/config.c", 'extern char **environ;\nint y = getenv("X") != 0;\n')
        self.assertEqual(self.complaints(environment.check), [("src/lib/config/config.c", 2)])

    def test_other_spellings(self):
        self.write("src/lib/preload/api.def", 'A(__secure_getenv("X"))\n')
        self.write("src/lib/route/route.c", 'const char *path = "/proc/self/environ";\n')
        self.assertEqual(self.complaints(environment.check), [("src/lib/preload/api.def", 1), ("src/lib/route/route.c", 1)])

    def test_writes(self):
        self.write("src/lib/config/config.c", "int x(void) { return clearenv(); }\n")
        self.assertEqual(self.complaints(environment.check), [("src/lib/config/config.c", 1)])


class Sizes(CheckTest):
    def setUp(self):
        super().setUp()
        try:
            sizes.need_ctags()
        except house.CannotCheck as reason:
            self.skipTest(str(reason))

    def test_long_function(self):
        body = "    x++;\n"
        self.write("src/lib/base/a.c", "int x;\nvoid shorter(void)\n{\n" + 57 * body + "}\n")
        self.write("src/lib/base/b.c", "int x;\nvoid longer(void)\n{\n" + 58 * body + "}\n")
        self.assertEqual(self.complaints(sizes.check), [("src/lib/base/b.c", 2)])

    def test_long_functions_of_other_languages(self):
        self.write("test/a.cu", "__global__ void\nlonger(int x)\n{\n" + 58 * "    x++;\n" + "}\n")
        self.write("test/a.py", "class A:\n    def longer():\n" + 60 * "        x = 1\n")
        self.write("scripts/b", "#!/usr/bin/env python3\ndef longer():\n" + 60 * "    x = 1\n")
        self.assertEqual(sorted(self.complaints(sizes.check)), [("scripts/b", 2), ("test/a.cu", 2), ("test/a.py", 2)])

    def test_long_file(self):
        self.write("test/a.c", 400 * "\n")
        self.write("test/b.c", 401 * "\n")
        self.write("scripts/c", "#!/bin/sh\n" + 400 * "\n")
        self.write("test/d", "#!/bin/sh\n" + 400 * "\n")
        self.write("src/e.def", 401 * "\n")
        self.write("docs/f.md", 401 * "\n")
        self.assertEqual(sorted(self.complaints(sizes.check)),
                         [("scripts/c", 401), ("src/e.def", 401), ("test/b.c", 401), ("test/d", 401)])


class Words(CheckTest):
    def test_bad_lines(self):
        for line in ("TO" + "DO later", "in /wor" + "k/main", "/hom" + "e/me", "see share" + "d/NOTES", "https://pyp" + "i.org/x",
                     "blank at the end ", "<<" + "<<<<< mine"):
            self.write("docs/x.md", "fine\n" + line + "\n")
            self.assertEqual(self.complaints(words.check), [("docs/x.md", 2)], line)

    def test_good_lines(self):
        self.write("docs/x.md", "static, shared/per-thread cudart\nnetwork/main\n")
        self.assertEqual(self.complaints(words.check), [])

    def test_licence(self):
        self.write("test/unit/a.c", "int x;\n")
        self.write("test/unit/b.c", LICENCE + "int x;\n")
        self.write("scripts/run", "#!/bin/sh\n")
        self.write("scripts/good", "#!/bin/sh\n# SPDX-License-Identifier: MIT\n")
        self.assertEqual(self.complaints(words.check), [("scripts/run", 1), ("test/unit/a.c", 1)])

    def test_opening(self):
        for path, text, is_good in (
                ("src/lib/base/a.c", "/* Counts. Must not lock. */\nint x;\n", True),
                ("src/tools/cli/a.c", "/* Counts in signal handlers, so it must\n * not lock. */\nint x;\n", True),
                ("src/lib/base/a.h", "/* Counts. */\nint x(void);\n", True),
                ("test/unit/a.c", "int x;\n", True),
                ("src/lib/base/a.c", "int x;\n", False),
                ("src/lib/base/a.h", "#include <stdint.h>\n/* Counts. */\n", False),
                ("src/lib/base/a.c", "/* Counts. */\n/* Must not lock. */\nint x;\n", False),
                ("src/api/a.c", "\n/* Counts. Must not lock. */\nint x;\n", False)):
            self.write(path, LICENCE + text)
            self.assertEqual(self.complaints(words.check), [] if is_good else [(path, 2)], text)
            os.remove(os.path.join(self.root, path))


class Pages(CheckTest):
    LONG = 99 * "x" + " y"

    def test_long_lines(self):
        self.write("README.md", "fine\n" + self.LONG + "\n")
        self.write("docs/a.md", f"| table |\n{self.LONG}\n```\ncode\n```\n- {self.LONG[3:]}\n  {self.LONG}\n")
        self.assertEqual(self.complaints(pages.check), [("README.md", 2), ("docs/a.md", 2), ("docs/a.md", 7)])

    def test_what_cannot_be_wrapped(self):
        self.write("docs/a.md", f"| {self.LONG} |\n```sh\n{self.LONG}\n```\n- item\n  ```\n  {self.LONG}\n  ```\n")
        self.assertEqual(self.complaints(pages.check), [])

    def test_other_pages(self):
        self.write("docs/OPTIONS.md", self.LONG + "\n")
        self.write("docs/a.txt", self.LONG + "\n")
        self.write("test/bench/a.md", self.LONG + "\n")
        self.assertEqual(self.complaints(pages.check), [])


class Format(CheckTest):
    def setUp(self):
        super().setUp()
        try:
            formatting.find_formatter()
        except house.CannotCheck as reason:
            self.skipTest(str(reason))

    def test_switched_off(self):
        self.write(".clang-format", "BasedOnStyle: LLVM\n")
        self.write("src/lib/base/a.c", "int a;\n// clang-" + "format off\nint  b;\n")
        self.assertEqual(self.complaints(formatting.check), [("src/lib/base/a.c", 2)])

    def test_unreadable_configuration(self):
        self.write(".clang-format", "NoSuchOption: 1\n")
        self.write("src/lib/base/a.c", "int a;\n")
        self.assertEqual(self.complaints(formatting.check), [(".clang-format", 1)])

    def test_unformatted(self):
        self.write(".clang-format", "BasedOnStyle: LLVM\nIndentWidth: 4\n")
        self.write("src/lib/base/a.c", "int a;\nint  b;\n")
        self.write("src/lib/base/b.c", "int a;\n")
        self.assertEqual(self.complaints(formatting.check)[0], ("src/lib/base/a.c", 2))
        self.assertNotIn("b.c", self.texts(formatting.check))


class Headers(CheckTest):
    def test_incomplete(self):
        self.write("src/lib/base/a.h", "uint64_t a(void);\n")
        self.write("src/lib/base/b.h", "#include <stdint.h>\nuint64_t b(void);\n")
        self.write("test/unit/c.h", "#include <fcntl.h>\nint mode = O_TMPFILE;\nuint64_t c(void);\n")
        self.assertEqual(self.complaints(headers.check), [("src/lib/base/a.h", 1), ("test/unit/c.h", 1)])
        self.assertNotIn("O_TMPFILE", self.texts(headers.check))

    def test_public(self):
        self.write("include/vpmm/a.h", "int a(int class);\n")
        self.write("src/lib/base/a.h", "int a(int class);\n")
        if shutil.which("g++"):
            self.assertIn("include/vpmm/a.h:1: does not compile alone as C++", self.texts(headers.check))
        self.assertNotIn("src/base", self.texts(headers.check))


class Binary(CheckTest):
    def compile(self, source, code, *options):
        folder, name = source.split("/")
        self.write(f"build/src/lib/{folder}/lib{folder}.a.p/{name}", code)
        path = os.path.join(self.root, f"build/src/lib/{folder}/lib{folder}.a.p/{name}")
        subprocess.run(["gcc", "-fPIC", "-O1", *options, "-c", path, "-o", path + ".o"], check=True)
        return path + ".o"

    def link(self, code, *options):
        binary.symbols.cache_clear()
        self.write(binary.API, API_DEF)
        path = self.compile("preload/wrap.c", code)
        subprocess.run(["gcc", "-shared", path, "-o", os.path.join(self.tree.build, binary.LIBRARY), *options], check=True)

    def test_exports(self):
        self.link("void dlsym(void) {} void cuOne(void) {} void cudaFree(void) {} void extra(void) {}")
        text = self.texts(binary.check_exports)
        self.assertIn("extra is exported", text)
        self.assertIn("cudaFree: no name of the runtime", text)
        self.assertIn(binary.API + ":6: cuTwo is on the list", text)
        self.assertIn("vpmm_interface_1 is on the list", text)
        self.link("void dlsym(void) {} void cuOne(void) {} void cuTwo(void) {} void vpmm_interface_1(void) {}")
        self.assertEqual(self.texts(binary.check_exports), "")

    def test_needed(self):
        self.link("void dlsym(void) {}", "-Wl,--no-as-needed", "-lm")
        self.assertIn("needs libm.so", self.texts(binary.check_needed))
        self.link("extern int cuInit(int) __attribute__((weak)); int f(void) { return cuInit ? cuInit(0) : 0; }")
        self.assertIn("leaves cuInit to whoever loads it", self.texts(binary.check_needed))
        self.link("void dlsym(void) {}")
        self.assertEqual(self.texts(binary.check_needed), "")

    def test_variables(self):
        self.compile("pool/a.c", "int counter; int *count(void) { return &counter; }")
        self.compile("pool/b.c", "static __thread int depth; int f(void) { return depth++; }")
        self.compile("pool/c.c", "static const char *const texts[] = {\"a\"}; const char *t(int i) { return texts[i]; }")
        self.compile("pool/d.c", "__attribute__((section(\"own\"))) int counter = 1; int *count(void) { return &counter; }")
        self.compile("preload/entry.c", "int counter; int *entry(void) { return &counter; }")
        self.assertEqual(self.complaints(binary.check_variables),
                         [("src/lib/pool/a.c", 1), ("src/lib/pool/b.c", 1), ("src/lib/pool/d.c", 1)])

    def test_pool(self):
        self.compile("base/text.c", "void vpmm_text(void) {} void vpmm_lock_take(void) {}")
        self.compile("pool/a.c", "void vpmm_text(void); void vpmm_b(void); void *memcpy(void *, const void *, unsigned long);"
                                 "void a(void *p, void *q, unsigned long n) { vpmm_text(); vpmm_b(); memcpy(p, q, n); }")
        self.compile("pool/b.c", "void *malloc(unsigned long); void vpmm_lock_take(void);"
                                 "void *vpmm_b(void) { vpmm_lock_take(); return malloc(8); }")
        self.assertEqual(self.texts(binary.check_pool), "src/lib/pool/b.c:1: the pool must not use malloc\n"
                                                        "src/lib/pool/b.c:1: the pool must not use vpmm_lock_take")

    def test_folders(self):
        self.write("src/lib/pool/a.c", "\nvoid vpmm_heap(void);\n")
        self.compile("pool/a.c", "void vpmm_heap(void); void vpmm_base(void); void a(void) { vpmm_heap(); vpmm_base(); }")
        self.compile("heap/heap.c", "void vpmm_cuda(void); void vpmm_heap(void) { vpmm_cuda(); }")
        self.compile("driver/cuda.c", "void vpmm_cuda(void) {}")
        self.compile("base/base.c", "void vpmm_base(void) {}")
        self.write("src/lib/heap/heap.c", "")
        self.assertEqual(self.texts(binary.check_folders), "src/lib/heap/heap.c:1: heap must not use vpmm_cuda of driver\n"
                                                           "src/lib/pool/a.c:2: pool must not use vpmm_heap of heap")

    def test_use(self):
        self.write(binary.API, API_DEF)
        self.write("src/lib/base/a.c", "\nvoid vpmm_unused(void) {}\n")
        self.compile("base/a.c", "void vpmm_unused(void) {} void vpmm_used(void) {} void vpmm_heap_audit(void) {}")
        self.compile("preload/b.c", "void vpmm_used(void); void cuOne(void) { vpmm_used(); }")
        self.assertEqual(self.complaints(binary.check_use), [("src/lib/base/a.c", 2)])

    def test_objects_that_are_not_there(self):
        self.write("src/lib/pool/a.c", "")
        self.compile("base/a.c", "int vpmm_base(void) { return 1; }")
        with self.assertRaises(house.ToolFailed):
            list(binary.check_pool(self.tree))

    def test_overrides(self):
        self.write(binary.API, API_DEF)
        self.compile("preload/table.c", "void cuOne(void); void (*const table[])(void) = {cuOne};")
        self.compile("preload/call.c", "void cuTwo(void); void f(void) { cuTwo(); cuTwo(); }")
        self.compile("preload/own.c", "__attribute__((visibility(\"default\"))) void cuOne(void) {} void h(void) { cuOne(); }",
                     "-fvisibility=hidden")
        self.compile("driver/call.c", "void *dlsym(void *, const char *); void *g(void) { return dlsym(0, \"x\"); }", "-O0")
        self.assertEqual(self.texts(binary.check_overrides),
                         "src/lib/driver/call.c:1: calls dlsym, which the library itself intercepts\n"
                         "src/lib/preload/call.c:1: calls cuTwo, which the library itself intercepts\n"
                         "src/lib/preload/own.c:1: calls cuOne, which the library itself intercepts")


class Analysis(CheckTest):
    """A source with one mistake that only this tool sees, in a tree that has the project's own settings."""

    def setUp(self):
        super().setUp()
        for path in (".clang-tidy", "test/.clang-tidy", "src/tools/sim/.clang-tidy"):
            with open(os.path.join(HERE, "..", "..", path), encoding="utf-8") as file:
                self.write(path, file.read())
        self.write("src/lib/base/good.c", "int good(int x);\nint good(int x)\n{\n    return x;\n}\n")

    def build(self, *paths):
        entries = [{"directory": self.tree.build, "file": f"../{path}", "command": f"cc -I../src/lib -c ../{path}"}
                   for path in paths]
        self.write("build/compile_commands.json", json.dumps(entries))

    def found(self, check):
        try:
            return self.complaints(check)
        except house.CannotCheck as reason:
            self.skipTest(str(reason))

    def test_tidy(self):
        null = "int bad(const int *p);\nint bad(const int *p)\n{\n    return p ? 0 : *p;\n}\n"
        self.write("src/lib/base/bad.c", null)
        self.write("src/tools/sim/bad.c", null)
        self.write("src/lib/base/bad.h", "#define TWICE(x) x * 2\n")
        self.write("src/lib/base/macro.c", '#include "base/bad.h"\nint y = TWICE(2);\n')
        self.write("test/alone.c", "int f(int x)\n{\n    return x == x;\n}\n")
        self.write("test/null.c", null)
        self.build("src/lib/base/good.c", "src/lib/base/bad.c", "src/lib/base/macro.c", "src/tools/sim/bad.c", "test/null.c")
        self.assertEqual(self.found(tidy.check), [("src/lib/base/bad.c", 4), ("src/lib/base/bad.h", 1), ("src/tools/sim/bad.c", 4),
                                                  ("test/alone.c", 3)])

    def test_tidy_with_unreadable_settings(self):
        self.write(".clang-tidy", "NoSuchOption: 1\n")
        self.build("src/lib/base/good.c")
        with self.assertRaises(house.ToolFailed):
            self.found(tidy.check)

    def test_cppcheck(self):
        self.write("src/lib/base/bad.c", "int bad(unsigned x)\n{\n    return x + 5 < 0 ? 1 : 0;\n}\n")
        self.write("src/lib/base/said.c", "int f(unsigned x)\n{\n    /* cppcheck-suppress unsignedLessThanZero ; to be seen */\n"
                                      "    return x + 5 < 0 ? 1 : 0;\n}\n")
        self.write("test/bad.c", "int bad(unsigned x)\n{\n    return x + 5 < 0 ? 1 : 0;\n}\n")
        self.build("src/lib/base/good.c", "src/lib/base/bad.c", "src/lib/base/said.c", "test/bad.c")
        self.assertEqual(self.found(cppcheck.check), [("src/lib/base/bad.c", 3)])

    def test_missing_tool(self):
        with self.assertRaises(house.CannotCheck) as raised:
            house.find_tool("no-such-tool", 1, "some-package")
        self.assertIn("apt-get install some-package", str(raised.exception))


if __name__ == "__main__":
    unittest.main()
