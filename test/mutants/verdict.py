# SPDX-License-Identifier: MIT
"""What became of a mutant: judged from how its build and its tests ended, without looking at anything else."""
import re
import signal
from typing import NamedTuple, Optional

CAUGHT, SURVIVED, ERROR = "caught", "SURVIVED", "ERROR"
SKIP = 77
ABORTED = -signal.SIGABRT

# What a failed test says, the most telling first; where a group is marked, that alone.
TELLING = [
    r"^schedule: \S+: thread .*",
    r"^model: (FAILED.*\n.+)",
    r"simulated device: .*",
    r"\S*: .*: Assertion .* failed.*",
    r"^AssertionError: .*",
    r"^\w+(?:\.\w+)*(?:Error|Expired|Exception): .*",
    r"^ERROR: (.*)(?<!\))$",
    r"^\[  ERROR   \] --- (?!\[)(.*\S.*)",
    r"^(?:\d+ (?!!=))*((?!\[).*\S)\n\[   LINE   \] --- ",
    r"error: Failure!(?!Test \w+ failed)(.+)",
    r"^Could not run test: (.*)",
    r"Test failed with exception: .*",
    r"^fuzz_\w+\.c:\d+: .*",
    r"^[-+](?![-+]).*",
    r".*\b(?:error|fail).*",
]
TELLING = [re.compile(pattern, re.MULTILINE) for pattern in TELLING]
CASE = re.compile(r"^\[  (?:FAILED  |ERROR   )\] (?:\S+: )?(\w+)$|^(?:FAIL|ERROR): (\w+) \(|^\[ RUN      \] (\w+)$",
                  re.MULTILINE)
PLACE = re.compile(r"^\[   LINE   \] --- (?:\S*/)?([\w.]+:\d+): error: Failure!", re.MULTILINE)
# These are about the place where the test runs, never about what it tests.
FALSE = re.compile(r"No such file or directory|cannot open shared object|cannot stat|command not found|"
                   r"ModuleNotFoundError|ImportError|ninja: |FileNotFoundError|No space left on device", re.IGNORECASE)
LINE_MAX = 200


class Run(NamedTuple):
    """One test that has ended: `code` is None where it was stopped at its time limit."""
    test: str
    code: Optional[int]
    output: str
    seconds: float


class Verdict(NamedTuple):
    name: str
    kind: str
    test: str
    message: str
    seconds: float


def first(pattern, output):
    for match in pattern.finditer(output):
        line = " ".join(match.group(match.lastindex or 0).split())
        if line:
            return line[:LINE_MAX]
    return None


def cases(output):
    """The test cases that failed; where none says so, the one that had begun last."""
    found = [match.groups() for match in CASE.finditer(output)]
    failed = [a or b for a, b, begun in found if a or b]
    begun = [begun for a, b, begun in found if begun]
    return failed or begun[-1:]


def telling(output):
    """The line that says what is wrong, with the case that said it; None when nothing does."""
    for pattern in TELLING:
        line = first(pattern, output)
        if line:
            failed = cases(output)[:1]
            place = PLACE.search(output)
            if place and place.group(1) not in line:
                line += " (%s)" % place.group(1)
            return ": ".join(failed + [line])
    return None


def is_crash(run, message):
    """Whether it ended otherwise than by an assertion; cmocka goes on after a signal."""
    return (run.code < 0 and run.code != ABORTED) or "Test failed with exception" in message


def judge(mutant, run, seconds):
    """The verdict of the run of the mutant's test."""
    kind, message = ERROR, telling(run.output)
    if run.code == 0:
        kind, message = SURVIVED, "passed " + run.test
    elif run.code == SKIP:
        message = "skipped"
    elif run.code is None:
        kind = CAUGHT if mutant.hangs else ERROR
        message = "stopped after %.0f s%s" % (run.seconds, "" if mutant.hangs else ", and is not marked as a hang")
    elif message is None:
        message = "ended with %d and said nothing that tells" % run.code
    elif FALSE.search(run.output):
        message = "failed for want of something: %s" % first(FALSE, run.output)
    elif is_crash(run, message):
        message += ": a crash, and no assertion"
    else:
        kind = CAUGHT
    return Verdict(mutant.name, kind, "" if kind == SURVIVED else run.test, message, seconds)


def summary(verdicts):
    counts = {kind: sum(verdict.kind == kind for verdict in verdicts) for kind in (CAUGHT, SURVIVED, ERROR)}
    return "mutants: %d planted, %d caught, %d survived, %d errors" % (
        len(verdicts), counts[CAUGHT], counts[SURVIVED], counts[ERROR])
