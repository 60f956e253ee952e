# SPDX-License-Identifier: MIT
"""The CSV of a measurement: one row a figure of a single run, and one row for each run that failed. Rows are only ever added,
so that one which was cut short goes on where it stopped."""
from __future__ import annotations

import csv
import os
import statistics
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Dict, Iterable, List, Optional, Sequence, Tuple

GOOD = "ok"


@dataclass(frozen=True)
class Session:
    """Where and when it was measured."""

    date: str = ""
    commit: str = ""
    kernel: str = ""
    driver: str = ""
    gpu: str = ""
    command: str = ""


@dataclass(frozen=True)
class Record:
    """One figure of one run. `status` says how the run ended; of a failed run there is a row without a figure."""

    work: str  # PART/NAME
    rival: str
    run: int
    status: str
    figure: str = ""
    value: float = 0.0
    unit: str = ""


SESSION_HEADS = [field.name for field in fields(Session)]
RECORD_HEADS = [field.name for field in fields(Record)]


def append(path: Path, session: Session, records: Iterable[Record]) -> None:
    """Adds rows that are on disk when it returns."""
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if is_new:
            writer.writerow([*SESSION_HEADS, *RECORD_HEADS])
        for record in records:
            row = list(astuple(record))
            row[RECORD_HEADS.index("value")] = f"{record.value:.9g}" if record.figure else ""
            writer.writerow([*astuple(session), *row])
        file.flush()
        os.fsync(file.fileno())


def read(paths: Sequence[Path]) -> Tuple[List[Session], List[Record]]:
    """All rows of some files. A last line that was cut short is passed over; raises ValueError for other bad lines."""
    sessions: Dict[Session, None] = {}
    records: List[Record] = []
    for path in paths:
        with path.open(newline="") as file:
            rows = list(csv.reader(file))
        if rows and rows[0] != [*SESSION_HEADS, *RECORD_HEADS]:
            raise ValueError(f"{path}: not a benchmark's results")
        for number, row in enumerate(rows[1:], 2):
            try:
                session, record = _row(row)
            except (ValueError, TypeError):
                if number == len(rows):
                    break
                raise ValueError(f"{path}:{number}: a bad line") from None
            sessions[session] = None
            records.append(record)
    return list(sessions), records


def _rival_of_today(work: str, rival: str) -> str:
    """Before the library as it comes served small requests, that had another name, and what leaves them to CUDA had its."""
    if rival.split("-")[0] == "small":
        return rival.replace("small", "pool")
    return rival.replace("pool", "bypass") if work.startswith("small/cudaMalloc") else rival


def _row(row: Sequence[str]) -> Tuple[Session, Record]:
    session = Session(*row[:len(SESSION_HEADS)])
    work, rival, run, status, figure, value, unit = row[len(SESSION_HEADS):]
    return session, Record(work, _rival_of_today(work, rival), int(run), status, figure, float(value) if figure else 0.0, unit)


class Results:
    """Medians over the runs of records. A later record of the same figure and run takes the place of an earlier one."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._ended: Dict[Tuple[str, str, int], str] = {}
        self._values: Dict[Tuple[str, str, str], Dict[int, float]] = {}
        self._units: Dict[Tuple[str, str], str] = {}
        self.add(records)

    def add(self, records: Iterable[Record]) -> None:
        for record in records:
            self._ended[record.work, record.rival, record.run] = record.status
            if record.figure:
                self._values.setdefault((record.work, record.rival, record.figure), {})[record.run] = record.value
                self._units[record.work, record.figure] = record.unit

    def is_done(self, work: str, rival: str, run: int) -> bool:
        return self._ended.get((work, rival, run)) == GOOD

    def runs(self, work: str, rival: str) -> int:
        """How many ended well."""
        return sum(status == GOOD for (w, r, _), status in self._ended.items() if (w, r) == (work, rival))

    def failures(self, work: Optional[str] = None, rival: Optional[str] = None) -> List[str]:
        """One line for each run that did not end well."""
        return [f"{w}, {r}, run {run}: {status}" for (w, r, run), status in self._ended.items()
                if status != GOOD and work in (None, w) and rival in (None, r)]

    def values(self, work: str, rival: str, figure: str) -> List[float]:
        """Of the runs that ended well, in their order."""
        by_run = self._values.get((work, rival, figure), {})
        return [by_run[run] for run in sorted(by_run) if self.is_done(work, rival, run)]

    def median(self, work: str, rival: str, figure: str) -> Optional[float]:
        values = self.values(work, rival, figure)
        return statistics.median(values) if values else None

    def figures(self, work: str) -> List[str]:
        """In the order in which they were first printed."""
        return list(dict.fromkeys(f for w, _, f in self._values if w == work))

    def rivals(self, work: str) -> List[str]:
        return list(dict.fromkeys(r for w, r, _ in self._ended if w == work))

    def works(self) -> List[str]:
        return list(dict.fromkeys(w for w, _, _ in self._ended))

    def unit(self, work: str, figure: str) -> str:
        return self._units.get((work, figure), "")
