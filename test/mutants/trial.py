# SPDX-License-Identifier: MIT
"""One run over a list of mutants: the unchanged tree first, then each mutant in the next free work copy."""
import os
import queue
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import planting
import verdict
from workcopy import BuildFailed, WorkCopy

TESTS_LIMIT_S = 600
# A mutant that hangs gets this much more time than the unchanged tree needs.
HANG_FACTOR, HANG_LIMIT_S = 4, 5


class Unusable(Exception):
    """The unchanged tree cannot be built or does not pass: nothing can be said of any mutant."""


def why_it_does_not_build(output):
    found = re.search(r"^.*\b(?:error|undefined reference)\b:?.*$", output, re.MULTILINE)
    return " ".join((found.group() if found else output).split())[:verdict.LINE_MAX]


class Trial:
    def __init__(self, root, folder, mutants, n_workers, options):
        self.mutants, self.options, self.homes = mutants, options, planting.homes(root)
        n_jobs = max(1, (os.cpu_count() or 1) // n_workers)
        self.copies = [WorkCopy(root, folder / str(i), n_jobs) for i in range(n_workers)]
        self.seconds = {}  # of each test on the unchanged tree
        self.lock = threading.Lock()
        self.is_over = False

    def together(self, work):
        """work(copy) for all copies at once; raises what one of them raises."""
        with ThreadPoolExecutor(len(self.copies)) as pool:
            try:
                for done in [pool.submit(work, copy) for copy in self.copies]:
                    done.result()
            except BaseException:
                self.is_over = True
                raise

    def share_out(self, items, work):
        """work(copy, item) for every item, in whatever copy is free."""
        waiting = queue.SimpleQueue()
        for item in items:
            waiting.put(item)

        def take(copy):
            while not self.is_over:
                try:
                    item = waiting.get_nowait()
                except queue.Empty:
                    return
                work(copy, item)

        self.together(take)

    def prepare(self):
        """Builds every copy unchanged, and runs each test that a mutant names once. Raises Unusable."""
        names = sorted({mutant.test for mutant in self.mutants})

        def make(copy):
            copy.fetch()
            copy.configure(self.options)
            unknown = [name for name in names if name not in copy.tests]
            if unknown:
                raise Unusable("no such test: %s" % unknown[0])
            copy.build(names)

        def check(copy, test):
            run = copy.run_test(test, TESTS_LIMIT_S)
            if run.code != 0:
                reason = verdict.telling(run.output) or "ended with %s" % run.code
                if run.code is None:
                    reason = "not done in %d s" % TESTS_LIMIT_S
                raise Unusable("the unchanged tree fails %s: %s" % (test, reason))
            with self.lock:
                self.seconds[test] = run.seconds

        try:
            self.together(make)
        except BuildFailed as failure:
            raise Unusable("the unchanged tree cannot be built: %s" % why_it_does_not_build(str(failure))) from failure
        self.share_out(names, check)

    def try_mutant(self, copy, mutant):
        """The verdict. The copy is as it was afterwards."""
        begun = time.monotonic()

        def error(message):
            return verdict.Verdict(mutant.name, verdict.ERROR, "", message, time.monotonic() - begun)

        try:
            file = planting.home(mutant, self.homes)
            original = copy.read(file)
            planted = planting.plant(original, mutant)
        except planting.DoesNotApply as reason:
            return error("does not apply: %s" % reason)
        limit_s = self.seconds[mutant.test] * HANG_FACTOR + HANG_LIMIT_S if mutant.hangs else TESTS_LIMIT_S
        copy.write(file, planted)
        try:
            copy.build([mutant.test])
            return verdict.judge(mutant, copy.run_test(mutant.test, limit_s), time.monotonic() - begun)
        except BuildFailed as reason:
            return error("does not compile: %s" % why_it_does_not_build(str(reason)))
        finally:
            copy.write(file, original)

    def run(self, tell):
        """tell(mutant, verdict) as each comes; all verdicts."""
        verdicts = []

        def plant_and_tell(copy, mutant):
            found = self.try_mutant(copy, mutant)
            with self.lock:
                verdicts.append(found)
                tell(mutant, found)

        # Mutants of one file follow each other: then what was restored is not compiled without need.
        by_file = sorted(self.mutants, key=lambda mutant: (self.homes.get(mutant.function, []), mutant.test))
        self.share_out(by_file, plant_and_tell)
        return verdicts
