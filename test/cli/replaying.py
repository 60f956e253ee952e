# SPDX-License-Identifier: MIT
"""What the tests of vpmm replay share: the command in a process of its own, and small traces."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import unittest

MIB = 1 << 20
# Three pages, a free of two of them, and two pages again.
SMALL = (f"A,1000,{3 * MIB},10,0,a\n"
         f"A,2000,{2 * MIB},10,1,a\n"
         "F,1000,,10,2,a\n"
         f"A,3000,{4 * MIB},10,3,a\n")
# The second does not fit beside the first in 16 MiB.
TOO_LARGE = f"A,1000,{8 * MIB},10,0,a\nA,2000,{10 * MIB},10,1,a\nF,1000,,10,2,a\nF,2000,,10,3,a\n"
arguments = argparse.Namespace()


def vpmm(*words, trace="", gpu=None):
    """Without `gpu`, which is the simulated driver's environment, that driver knows no device."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("VPMM_")}
    env["LD_LIBRARY_PATH"] = arguments.sim
    env.update({"VPMM_SIM_DEVICES": "0"} if gpu is None else gpu)
    return subprocess.run([arguments.vpmm, "replay", *words], input=trace, env=env, capture_output=True, text=True,
                          check=False, timeout=300)


class Case(unittest.TestCase):
    def replays(self, trace, *options, gpu=None, status=0):
        result = vpmm("--json", *options, "-", trace=trace, gpu=gpu)
        self.assertEqual(result.returncode, status, result.stderr)
        if status == 0:
            self.assertEqual(result.stderr, "")
        return json.loads(result.stdout)

    def one_pass(self, trace, *options, **more):
        passes = self.replays(trace, "--passes", "1", *options, **more)["replays"][0]["passes"]
        self.assertEqual(len(passes), 1)
        return passes[0]

    def refuse(self, status, said, *words, **more):
        """One line that says so and, after bad arguments, one that says where help is."""
        result = vpmm(*words, **more)
        self.assertEqual((result.returncode, result.stdout), (status, ""), result.stderr)
        lines = result.stderr.splitlines()
        self.assertRegex(lines[0], rf"\Avpmm replay: .*{said}")
        self.assertIn(lines[1:], ([], ["See 'vpmm help replay'."]))
        return lines


def run(about):
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--vpmm", required=True)
    parser.add_argument("--sim", required=True, help="folder of the simulated driver")
    parser.add_argument("--library", dest="shared_library", help="to be preloaded")
    parser.add_argument("--traces", type=pathlib.Path, required=True)
    _, rest = parser.parse_known_args(namespace=arguments)
    unittest.main(argv=[sys.argv[0], *rest])
