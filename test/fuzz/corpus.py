# SPDX-License-Identifier: MIT
"""A corpus is kept as text, one input a line in hexadecimal digits, and fuzzed as a folder of files.

corpus.py unpack CORPUS FOLDER: writes each line as a file named by its hash.
corpus.py pack FOLDER CORPUS: writes each file as a line, short inputs first."""
import hashlib
import pathlib
import sys


def unpack(corpus, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for line in corpus.read_text(encoding="ascii").splitlines():
        data = bytes.fromhex(line)
        (folder / hashlib.sha1(data).hexdigest()).write_bytes(data)


def pack(folder, corpus):
    inputs = {path.read_bytes() for path in folder.iterdir()}
    lines = [data.hex() + "\n" for data in sorted(inputs, key=lambda data: (len(data), data))]
    corpus.write_text("".join(lines), encoding="ascii")
    print(f"{corpus}: {len(lines)} inputs, {sum(map(len, lines))} bytes")


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in ("pack", "unpack"):
        sys.exit(__doc__)
    step = pack if sys.argv[1] == "pack" else unpack
    step(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))


if __name__ == "__main__":
    main()
