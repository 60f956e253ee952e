# SPDX-License-Identifier: MIT
"""Usage: old_exports.py symbols.def VERSION
Prints the version script of a driver of that version: it exports nothing that is newer."""
import re
import sys

ROW = re.compile(r"^SYMBOL(?:_PAIR)?\(\w+, (\d+), (\w+)(?:, (\w+))?\)", re.MULTILINE)


def main(table: str, version: str) -> None:
    with open(table, encoding="utf-8") as file:
        rows = ROW.findall(file.read())
    newer = sorted({name for since, *names in rows if int(since) > int(version) for name in names if name})
    hidden = "".join(f"        {name};\n" for name in newer)
    print(f"{{\n    global:\n        cu*;\n        vpmm_sim_*;\n    local:\n{hidden}        *;\n}};")


main(*sys.argv[1:])
