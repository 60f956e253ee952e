# SPDX-License-Identifier: MIT
"""Dictionaries of a pickle that have the shape of one before them, which are quick to read: nearly all of a snapshot is such."""
import re
from typing import Any, Callable, Dict, List, Optional, Tuple

from opaque import RELEASED, Opaque

# A dictionary of references, whole numbers and lists of references. %b: where the list stands in the memo.
KEY = rb"(?:h.|j.{4})"
VALUE = (rb"h.|K.|\x8a(?:\x05.{5}|\x06.{6}|\x07.{7}|\x08.{8})|J.{4}|M..|j.{4}|"
         rb"\]%b(?:\((?:j.{4}|h.){2,1000}e|(?:j.{4}|h.)a)?")
ANY_VALUE, COUNTED_VALUE = VALUE % rb"\x94?", VALUE % rb"(\x94?)"
ITEM = re.compile(rb"(%b)(?:%b)" % (KEY, ANY_VALUE), re.DOTALL)
DICTIONARY = re.compile(rb"\}\x94?\(((?:%b(?:%b)){1,32})u" % (KEY, ANY_VALUE), re.DOTALL)
# Those that are tried, and all that are ever made.
SHAPES_TRIED = 4
LEARNED_MOST = 256
INT1, INT2, INT4, LONG1, EMPTY_LIST, MEMOIZE = b"KMJ\x8a]\x94"


class Shapes:
    """`references`: the words that opcodes get from the memo, which change while this is used; `opaque`: what stands at any
    other place of it. `new_list`: see Walk."""

    def __init__(self, references: Dict[bytes, str], opaque: Callable[[int], Opaque], new_list: Callable[[], Any]):
        self._references, self._opaque, self._new_list = references, opaque, new_list
        # Each with the names of its values; those without a name are where something stands in the memo.
        self._known: List[Tuple["re.Pattern[bytes]", List[Optional[str]]]] = []
        self._n_learned = 0

    def forget(self) -> None:
        """A reference is gone, or means something else."""
        self._known = []

    def find(self, data: bytes, at: int) -> Optional[Tuple[dict, int, int]]:
        """The dictionary at `at`, how much of it stands in the memo, and the place behind it."""
        return self._find(data, at) or (self._find(data, at) if self._learn(data, at) else None)

    def _find(self, data: bytes, at: int) -> Optional[Tuple[dict, int, int]]:
        for shape, names in self._known:
            found = shape.match(data, at)
            if found:
                return (*self._filled(names, found.groups()), found.end())
        return None

    def _learn(self, data: bytes, at: int) -> bool:
        """Whether there is a shape now that is found at `at`."""
        found = DICTIONARY.match(data, at) if self._n_learned < LEARNED_MOST else None
        if not found:
            return False
        keys = ITEM.findall(found.group(1))
        names = [self._references.get(key) for key in keys]
        parts = (rb"%b(%b)" % (re.escape(key), ANY_VALUE) if name else rb"%b(?:%b)" % (re.escape(key), COUNTED_VALUE)
                 for key, name in zip(keys, names))
        shape = re.compile(rb"\}(\x94?)\(%bu" % b"".join(parts), re.DOTALL)
        self._known = [(shape, [None, *names])] + self._known[:SHAPES_TRIED - 1]
        self._n_learned += 1
        return True

    def _filled(self, names: List[Optional[str]], values: Tuple[Optional[bytes], ...]) -> Tuple[dict, int]:
        holder, n_memo = {}, 0
        for name, value in zip(names, values):
            code = value[0] if value else 0
            if name is None:
                n_memo += code == MEMOIZE
            elif code == LONG1:
                holder[name] = int.from_bytes(value[2:], "little", signed=True)
            elif code == INT1:
                holder[name] = value[1]
            elif code == INT4 or code == INT2:
                holder[name] = int.from_bytes(value[1:], "little", signed=code == INT4)
            elif code != EMPTY_LIST:
                holder[name] = self._references.get(value) or self._opaque(int.from_bytes(value[1:], "little"))
            else:
                n_memo += value[1:2] == b"\x94"
                holder[name] = self._new_list()
                if len(value) > 2:
                    holder[name].extend([RELEASED])
        return holder, n_memo
