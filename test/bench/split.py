# SPDX-License-Identifier: MIT
"""Ten programs whose recordings show how the pool does on what nobody tuned it for, and which of them are kept back.

Five may be looked at while the pool is changed: they are tuned on. The other five are replayed when the work is done, and
their figures are published whatever they are: they are untouched. The rule was written down before anything was recorded:
the names in the order of the SHA-256 of each, as lower-case hexadecimal; the first five are tuned on."""
from __future__ import annotations

from hashlib import sha256
from typing import Tuple

NAMES = ("serving", "graph-networks", "adapters", "segmentation", "gaussian-processes", "sparse-solvers", "fft-codes",
         "query-engines", "fsdp-ranks", "many-streams")
TUNED_MOST = 5


def in_order() -> Tuple[str, ...]:
    """All names in the order that decides."""
    return tuple(sorted(NAMES, key=lambda name: sha256(name.encode()).hexdigest()))


TUNED, UNTOUCHED = in_order()[:TUNED_MOST], in_order()[TUNED_MOST:]
# Recordings of each half lie in a folder of their own, so that whatever reads all traces does not read what is kept back.
TUNED_FOLDER, UNTOUCHED_FOLDER = "tuned", "untouched"


def recording_of(name: str) -> str:
    """Where the recording of one of the ten lies below a folder of traces."""
    return f"{UNTOUCHED_FOLDER if name in UNTOUCHED else TUNED_FOLDER}/{name}.csv.gz"
