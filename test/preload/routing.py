# SPDX-License-Identifier: MIT
"""The look-ups that the CUDA runtime makes, static and shared, through the library under test onto
a stub driver."""
import os

import find_library
import harness
import look_ups


def toolkit(name):
    try:
        return find_library.find(name)
    except find_library.Missing as missing:
        raise AssertionError(str(missing)) from None


class Routing(look_ups.LookUps):
    def static(self):
        return harness.program("runtime-static", toolkit("libcudart_static.a"), "-lrt", "-ldl",
                               source="runtime.c")

    def test_static_runtime(self):
        self.check(self.spied([self.static()]))

    def test_shared_runtime(self):
        library = toolkit("libcudart.so")
        self.check(self.spied([harness.program("runtime-shared", library, source="runtime.c")],
                              folders=[os.path.dirname(library)]))

    def test_driver_without_look_up_function(self):
        run = self.spied([self.static()], form=0)
        self.assertEqual([row for row in run.look_ups if row[0] == "look-up"], [])
        self.assertLessEqual({"cuMemAlloc_v2", "cuMemFree_v2", "cuMemAllocAsync", "cuMemAllocAsync_ptsz",
                              "cuMemFreeAsync", "cuMemFreeAsync_ptsz"}, self.check_names(run, 400))

    def test_driver_with_the_older_look_up_function(self):
        run = self.spied([self.static()], form=4)
        self.check_names(run, 400)


if __name__ == "__main__":
    harness.main()
