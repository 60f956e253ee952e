# SPDX-License-Identifier: MIT
"""Plants deliberate bugs, one at a time, and sees that a test catches each.

Exit status: 0 all are caught, 1 some are not, 2 nothing could be found out."""
import argparse
import fcntl
import os
import pathlib
import shutil
import subprocess
import sys
import time

import planting
import verdict
from trial import Trial, Unusable

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def part(text):
    number, _, parts = text.partition("/")
    if not (number.isdigit() and parts.isdigit() and int(number) < int(parts)):
        raise argparse.ArgumentTypeError("I/N with I from 0 to N-1, not '%s'" % text)
    return int(number), int(parts)


def parse():
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a mutant; without names, all are tried")
    parser.add_argument("--check", action="store_true",
                        help="check that each can be planted, and that each rule and folder has one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="work copies (%(default)s)")
    parser.add_argument("--keep", action="store_true", help="keep the work copies: the next run starts faster")
    parser.add_argument("--part", type=part, metavar="I/N",
                        help="of the mutants in the order of their names, each N-th from the I-th (0 to N-1) on")
    parser.add_argument("--verbose", action="store_true", help="print each verdict as it comes")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help=argparse.SUPPRESS)
    parser.add_argument("--lists", type=pathlib.Path, default=HERE, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=pathlib.Path, help="of the work copies (build-mutants)")
    return parser.parse_args()


def chosen(mutants, arguments):
    names = set(arguments.names) or {mutant.name for mutant in mutants}
    unknown = names - {mutant.name for mutant in mutants}
    if unknown:
        raise Unusable("no such mutant: %s" % sorted(unknown)[0])
    if arguments.part:
        number, parts = arguments.part
        names = set(sorted(names)[number::parts])
    return [mutant for mutant in mutants if mutant.name in names]


def check(mutants, arguments):
    found = list(planting.complaints(mutants, arguments.root))
    print("\n".join(found) if found else "%d mutants" % len(mutants))
    return 1 if found else 0


def meson_options(root):
    """What the copies cannot find out by themselves."""
    finder = root / "scripts/find-cuda-headers"
    if not finder.exists():
        return []
    done = subprocess.run([str(finder)], stdout=subprocess.PIPE, universal_newlines=True, check=False)
    return ["-Dheaders_of_cuda=" + done.stdout.strip()] if done.returncode == 0 else []


def tell(mutant, found):
    print("%-8s  %s  (%s)" % (found.kind, mutant.name, mutant.rule))
    print("          %s%s  %.1f s" % (found.test + ": " if found.test else "", found.message, found.seconds), flush=True)


def tell_nothing(_mutant, _found):
    pass


def run(mutants, arguments):
    """The exit status."""
    folder = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    with open(str(folder / "lock"), "w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Unusable("another run works in %s" % folder) from None
        begun = time.monotonic()
        trial = Trial(arguments.root, folder, mutants, max(1, min(arguments.jobs, len(mutants))),
                          meson_options(arguments.root))
        try:
            trial.prepare()
            if arguments.verbose:
                print("the unchanged tree passes %d tests (%.0f s)" % (len(trial.seconds), time.monotonic() - begun),
                      flush=True)
            verdicts = trial.run(tell if arguments.verbose else tell_nothing)
        finally:
            if not arguments.keep:
                for copy in trial.copies:
                    shutil.rmtree(str(copy.tree.parent), ignore_errors=True)
        missed = [found for found in verdicts if found.kind != verdict.CAUGHT]
        for found in missed:
            print("not caught: %s: %s, %s" % (found.name, found.kind, found.message))
        print("%s, %d jobs, %.0f s" % (verdict.summary(verdicts), len(trial.copies), time.monotonic() - begun))
        return 1 if missed else 0


def main():
    arguments = parse()
    arguments.folder = (arguments.folder or arguments.root / "build-mutants").absolute()
    try:
        mutants = chosen(planting.read_lists(arguments.lists), arguments)
        return check(mutants, arguments) if arguments.check else run(mutants, arguments)
    except (Unusable, planting.BadList) as reason:
        print("mutants: %s" % reason, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
