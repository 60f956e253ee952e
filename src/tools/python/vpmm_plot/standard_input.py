# SPDX-License-Identifier: MIT
"""Standard input as a file, which readers want to read twice."""
from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Iterator

from failures import Failure, Wrong

NAME = "standard input"
JSON_MOST = 1 << 28


def _save_json(head: bytes, to: Path) -> None:
    content = head + sys.stdin.buffer.read(JSON_MOST)
    if len(content) > JSON_MOST:
        raise Wrong(f"{NAME}: more than {JSON_MOST >> 20} MiB of JSON")
    to.write_bytes(content)


def _convert(head: bytes, to: Path, vpmm: Path) -> None:
    """By `vpmm trace convert`, which refuses at once what cannot be a trace, however long it is."""
    with subprocess.Popen([str(vpmm), "trace", "convert", "-", "--to", "vpmm", "-o", str(to)], stdin=subprocess.PIPE,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as converter:
        assert converter.stdin and converter.stderr
        with contextlib.suppress(BrokenPipeError):
            converter.stdin.write(head)
            shutil.copyfileobj(sys.stdin.buffer, converter.stdin)
        with contextlib.suppress(BrokenPipeError):
            converter.stdin.close()
        said = converter.stderr.read().decode(errors="replace").splitlines() or [f"{NAME}: it cannot be converted"]
    if converter.returncode != 0:
        kind = Wrong if converter.returncode == Wrong.status else Failure
        raise kind(said[0].removeprefix("vpmm trace: "))


@contextlib.contextmanager
def as_file(vpmm: Path) -> Iterator[Path]:
    """A file with all of it, as long as the block lasts. What is wrong with that is wrong with standard input. Raises
    Failure."""
    with tempfile.TemporaryDirectory(prefix="vpmm-plot-") as folder:
        path = Path(folder) / NAME
        try:
            if sys.stdin is None:
                raise Wrong(f"{NAME} is closed")
            head = sys.stdin.buffer.read(64)
            if head.lstrip()[:1] == b"{":
                _save_json(head, path)
            else:
                _convert(head, path, vpmm)
            yield path
        except OSError as error:
            raise Failure(f"{NAME}: {error.strerror or error}") from error
        except Failure as failure:
            failure.args = (str(failure).replace(str(path), NAME),)
            raise
