# SPDX-License-Identifier: MIT
"""Runs batches side by side, and those by themselves that need all of the device."""
from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Callable, Iterable, List, Set

from batch import Batch

LOOK_SECONDS = 0.5


class SideBySide:
    """So many batches at a time. `look` is called now and then while the first thread waits."""

    def __init__(self, n_jobs: int, work: Callable[[Batch], None], needs_all: Callable[[Batch], bool],
                 look: Callable[[], None]) -> None:
        self.n_jobs = n_jobs
        self.work = work
        self.needs_all = needs_all
        self.look = look
        self.pool = ThreadPoolExecutor(n_jobs)
        self.running: Set[Future[None]] = set()

    def run(self, batches: Iterable[Batch]) -> None:
        """Begins them in their order, but that those which need all of the device wait for each other: the other jobs
        stand still once for several of them."""
        waiting: List[Batch] = []
        for tested in batches:
            if not self.needs_all(tested):
                self.begin(tested)
                continue
            waiting.append(tested)
            if len(waiting) >= max(self.n_jobs // 2, 1):
                self.run_alone(waiting)
                waiting = []
        self.run_alone(waiting)
        self.wait_for_fewer_than(1)

    def run_alone(self, waiting: List[Batch]) -> None:
        for tested in waiting:
            self.wait_for_fewer_than(1)
            self.begin(tested)
        self.wait_for_fewer_than(1)

    def begin(self, tested: Batch) -> None:
        self.wait_for_fewer_than(self.n_jobs)
        self.running.add(self.pool.submit(self.work, tested))

    def wait_for_fewer_than(self, n: int) -> None:
        while len(self.running) >= n:
            done, self.running = wait(self.running, timeout=LOOK_SECONDS, return_when=FIRST_COMPLETED)
            for future in done:
                future.result()
            self.look()
