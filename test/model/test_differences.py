# SPDX-License-Identifier: MIT
"""Each program in the folder `differences` parts from bare by the rule that it is named after, up to a dot. Every rule has one.
What the environment chooses for other programs changes nothing.
Usage: test_differences.py MODEL DRIVER LIBRARY"""
from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def rules() -> set[str]:
    return set(re.findall(r'^    \{"([a-z-]+)",$', (HERE / "differences.c").read_text(), re.MULTILINE))


def parts_by(program: Path, model: str, driver: str, library: str) -> list[str]:
    """The rules that the model counted; it fails where another one or none explains the difference."""
    done = subprocess.run([model, "--driver", driver, "--library", library, "--replay", str(program)],
                          env={**os.environ, "VPMM_DISABLE": "1", "VPMM_STREAM_WAITS": "1"}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        return [f"exit {done.returncode}: {done.stdout}"]
    return re.findall(r"^model: 1 programs part by the rule ([a-z-]+):", done.stdout, re.MULTILINE)


def main(model: str, driver: str, library: str) -> int:
    programs = sorted((HERE / "differences").iterdir())
    failures = [f"no program shows the rule {name}" for name in sorted(rules() - {path.stem for path in programs})]
    for program in programs:
        found = parts_by(program, model, driver, library)
        if found != [program.stem]:
            failures.append(f"{program.name} parts by {found}")
    print("\n".join(failures) or f"{len(rules())} rules, shown by {len(programs)} programs")
    return 1 if failures or not programs else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
