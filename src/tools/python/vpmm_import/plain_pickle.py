# SPDX-License-Identifier: MIT
"""Walks through a pickle that is made of plain containers, numbers and strings, and nothing else: no class, no function and no
object of any is ever looked up, so nothing in the file is ever called. What it holds is never in memory as a whole: the
lists are handed to whoever reads it, a batch of items at a time, and of strings only the words that it knows are kept."""
import os
import re
from functools import partial
from typing import Any, BinaryIO, Callable, Dict, Iterator, List

from opaque import LOST, OTHER, RELEASED, TEXT, Opaque
from shapes import Shapes

# How much is read at a time; more than MARGIN.
PIECE = 1 << 18
# Longer than any opcode with its argument, where that is looked at.
MARGIN = 64
WORD_MOST = 48
WORDS_KEPT_MOST = 1 << 16
BATCH = 1000
DEPTH_MOST = 100_000
# References and nothing else, added to a list: the frames of a stack that others have, too.
REFERENCES = re.compile(rb"\((?:h.|j....){2,1000}e", re.DOTALL)
DECIMAL = re.compile(rb"[0-9]{1,18}\n")

MARK, STOP, EMPTY_DICT, INT1, LONG1, GET1, GET4, MEMOIZE = b"(.}K\x8ahj\x94"
# Opcode: bytes of its argument, which says nothing.
EMPTY = {b"N": 0, b"\x88": 0, b"\x89": 0, b")": 0, b"\x8f": 0, b"G": 8}
# Opcode: bytes of the length in front of it, and whether it is a string.
SIZED = {b"\x8c": (1, True), b"X": (4, True), b"\x8d": (8, True), b"C": (1, False), b"B": (4, False), b"\x8e": (8, False),
         b"\x96": (8, False), b"\x8b": (4, False)}
CALLS = {b"c": "GLOBAL", b"\x93": "STACK_GLOBAL", b"i": "INST", b"o": "OBJ", b"R": "REDUCE", b"b": "BUILD", b"\x81": "NEWOBJ",
         b"\x92": "NEWOBJ_EX", b"\x82": "EXT1", b"\x83": "EXT2", b"\x84": "EXT4"}
OUTSIDE = {b"P": "PERSID", b"Q": "BINPERSID", b"\x97": "NEXT_BUFFER", b"\x98": "READONLY_BUFFER"}


class NotPlain(Exception):
    """The file is no pickle, or one that holds more than plain data."""


class Walk:
    """Of the file from where it is. `words`: strings that are kept, by their bytes; all others become TEXT. `new_list` makes
    what stands for a list: extend(items) takes items which may be forgotten afterwards. Dictionaries are dict, and have
    only items whose key is one of the words. What the pickle refers to a second time is RELEASED, but for words. What is
    neither a list, a dictionary, a whole number nor a string is OTHER."""

    def __init__(self, file: BinaryIO, words: Dict[bytes, str], new_list: Callable[[], Any]):
        self._file, self._words, self._new_list = file, words, new_list
        self._left = os.fstat(file.fileno()).st_size - file.tell()
        self._data, self._limit = b"", 0
        self._list = type(new_list())
        self._stack: List[Any] = []
        self._marks: List[int] = []
        self._begun = set()  # marks of which items were handed to their list already
        self._memo: Dict[int, str] = {}
        self._references: Dict[bytes, str] = {}  # what gets a word from the memo, with its opcode
        self._n_memo = 0
        self._lost_from = 1 << 64
        self._shapes = Shapes(self._references, self._released, new_list)

    def run(self) -> Any:
        """What the pickle holds. Raises NotPlain, and whatever extend raises."""
        try:
            return self._run()
        except IndexError:
            raise NotPlain("it is no whole pickle: an opcode takes more than there is") from None

    def _run(self) -> Any:
        data, at, limit = b"", 0, 0
        stack, memo, marks, others = self._stack, self._memo, self._marks, self._handlers()
        push = stack.append
        while True:
            if at >= limit:
                at = self._refill(at)
                data, limit = self._data, self._limit
            code = data[at]
            if code == GET1:
                push(memo.get(data[at + 1]) or self._released(data[at + 1]))
                at += 2
            elif code == LONG1:
                end = at + 2 + data[at + 1]
                push(int.from_bytes(data[at + 2:end], "little", signed=True) if end < at + MARGIN else OTHER)
                at = end
            elif code == INT1:
                push(data[at + 1])
                at += 2
            elif code == MARK:
                skipped = REFERENCES.match(data, at) if stack and stack[-1].__class__ is self._list else None
                if skipped:
                    stack[-1].extend([RELEASED])
                    at = skipped.end()
                else:
                    marks.append(len(stack))
                    at += 1
            elif code == MEMOIZE:
                self._put(self._n_memo)
                at += 1
            elif code == EMPTY_DICT:
                at = self._dictionary(at)
            elif code == GET4:
                number = int.from_bytes(data[at + 1:at + 5], "little")
                push(memo.get(number) or self._released(number))
                at += 5
            elif code == STOP:
                return self._last()
            else:
                at = others[code](at + 1)
                data, limit = self._data, self._limit

    def _refill(self, at: int) -> int:
        """Reads on, and returns where in the new data the old `at` is."""
        missing = at - len(self._data)
        if missing > 0:
            if missing > self._left:
                raise NotPlain("it is no whole pickle: it is cut off")
            self._file.seek(missing, os.SEEK_CUR)
            self._left -= missing
        piece = self._file.read(min(PIECE, self._left))
        self._left = self._left - len(piece) if piece else 0
        self._data = self._data[at:] + piece
        if not self._data:
            raise NotPlain("it is no whole pickle: it is cut off")
        self._limit = len(self._data) - (MARGIN if self._left and len(self._data) > MARGIN else 0)
        self._hand_on()
        if len(self._stack) + len(self._marks) > DEPTH_MOST:
            raise NotPlain(f"it nests deeper, or has more in one container, than {DEPTH_MOST}")
        return 0

    def _hand_on(self) -> None:
        """Gives a list its items before the last where more wait than Python's own pickler would let."""
        for place, mark in enumerate(self._marks):
            end = self._marks[place + 1] - 1 if place + 1 < len(self._marks) else len(self._stack) - 1
            if end - mark > BATCH and mark > 0 and self._stack[mark - 1].__class__ is self._list:
                self._stack[mark - 1].extend(self._stack[mark:end])
                del self._stack[mark:end]
                self._marks[place + 1:] = [later - (end - mark) for later in self._marks[place + 1:]]
                self._begun.add(mark)
                return

    def _dictionary(self, at: int) -> int:
        """One of a known shape whole, of any other the beginning. Returns the place behind it."""
        found = self._shapes.find(self._data, at)
        if not found:
            self._stack.append({})
            return at + 1
        holder, n_memo, end = found
        self._stack.append(holder)
        self._n_memo += n_memo
        return end

    def _released(self, number: int) -> Opaque:
        if number >= self._n_memo:
            raise NotPlain("it is no whole pickle: it refers to what is not there")
        return RELEASED if number < self._lost_from else LOST

    def _put(self, number: int) -> None:
        value = self._stack[-1]
        if number < self._n_memo:
            self._forget(number)
        self._n_memo = max(self._n_memo, number + 1)
        if value.__class__ is str and len(self._memo) < WORDS_KEPT_MOST:
            self._memo[number] = value
            self._references.update(dict.fromkeys(self._ways(number), value))
        elif value.__class__ is str:
            self._lost_from = min(self._lost_from, number)

    def _forget(self, number: int) -> None:
        self._memo.pop(number, None)
        for way in self._ways(number):
            self._references.pop(way, None)
        self._shapes.forget()

    def _ways(self, number: int) -> Iterator[bytes]:
        """The opcodes that get it."""
        if number < 256:
            yield bytes((GET1, number))
        if number < 1 << 32:
            yield b"j" + number.to_bytes(4, "little")

    def _last(self) -> Any:
        if len(self._stack) != 1 or self._marks:
            raise NotPlain("it is no whole pickle: it ends within a container")
        return self._stack.pop()

    def _taken(self, may_be_begun: bool = False) -> List[Any]:
        """What is on the stack since the last mark."""
        mark = self._marks.pop()
        if mark > len(self._stack):
            raise NotPlain("it is no whole pickle: a container ends that did not begin")
        if mark in self._begun:
            self._begun.discard(mark)
            if not may_be_begun:
                raise NotPlain("a list stands before more items than a snapshot has in anything else")
        items = self._stack[mark:]
        del self._stack[mark:]
        return items

    def _append(self, items: List[Any]) -> None:
        if self._stack[-1].__class__ is not self._list:
            raise NotPlain("it is no whole pickle: it adds to what is no list of its own")
        self._stack[-1].extend(items)

    def _set(self, items: List[Any]) -> None:
        holder = self._stack[-1]
        if holder.__class__ is not dict or len(items) % 2:
            raise NotPlain("it is no whole pickle: it sets items of what is no dictionary of its own")
        for key, value in zip(items[::2], items[1::2]):
            if key.__class__ is str:
                holder[key] = value
            elif key.__class__ is dict or key.__class__ is self._list:
                raise NotPlain("it is no whole pickle: a container is a key")

    def _number(self, at: int, n_bytes: int) -> int:
        if at + n_bytes > len(self._data):
            raise NotPlain("it is no whole pickle: it is cut off")
        return int.from_bytes(self._data[at:at + n_bytes], "little")

    # ---- what an opcode does: its handler takes the place behind it, and returns that of the next one ----

    def _handlers(self) -> List[Callable[[int], int]]:
        table = [self._refuse] * 256
        for code, n_bytes in EMPTY.items():
            table[code[0]] = partial(self._other, n_bytes)
        for code, (n_bytes, is_text) in SIZED.items():
            table[code[0]] = partial(self._sized, n_bytes, is_text)
        for code, n_values in ((b"\x85", 1), (b"\x86", 2), (b"\x87", 3)):
            table[code[0]] = partial(self._tuple, n_values)
        for code, n_bytes in ((b"q", 1), (b"r", 4)):
            table[code[0]] = partial(self._put_at, n_bytes)
        for code, handler in ((b"M", self._int2), (b"J", self._int4), (b"p", self._put_line), (b"g", self._get_line),
                              (b"]", self._empty_list), (b"t", self._others), (b"\x91", self._others), (b"\x90", self._add_items),
                              (b"l", self._list_of), (b"d", self._dict_of), (b"a", self._append_one), (b"e", self._append_all),
                              (b"s", self._set_one), (b"u", self._set_all), (b"\x80", self._protocol), (b"\x95", self._frame)):
            table[code[0]] = handler
        return table

    def _refuse(self, at: int) -> int:
        code = self._data[at - 1:at]
        if code in CALLS:
            raise NotPlain(f"it asks for a function or a class (opcode {CALLS[code]}), and a snapshot is plain data: "
                           "nothing of it was run")
        if code in OUTSIDE:
            raise NotPlain(f"it refers to objects outside of it (opcode {OUTSIDE[code]}), and a snapshot is plain data")
        raise NotPlain(f"it is no whole pickle: opcode 0x{code[0]:02x} is none of a snapshot")

    def _other(self, n_bytes: int, at: int) -> int:
        self._stack.append(OTHER)
        return at + n_bytes

    def _sized(self, n_bytes: int, is_text: bool, at: int) -> int:
        length = self._number(at, n_bytes)
        at += n_bytes
        word = self._words.get(self._data[at:at + length], TEXT) if length <= WORD_MOST else TEXT
        self._stack.append(word if is_text else OTHER)
        return at + length

    def _int2(self, at: int) -> int:
        self._stack.append(self._number(at, 2))
        return at + 2

    def _int4(self, at: int) -> int:
        value = self._number(at, 4)
        self._stack.append(value - ((value & 0x80000000) << 1))
        return at + 4

    def _tuple(self, n_values: int, at: int) -> int:
        for _ in range(n_values):
            self._stack.pop()
        return self._other(0, at)

    def _others(self, at: int) -> int:
        self._taken()
        return self._other(0, at)

    def _add_items(self, at: int) -> int:
        self._taken()
        return at

    def _empty_list(self, at: int) -> int:
        self._stack.append(self._new_list())
        return at

    def _list_of(self, at: int) -> int:
        items = self._taken()
        self._empty_list(at)
        self._append(items)
        return at

    def _dict_of(self, at: int) -> int:
        items = self._taken()
        self._stack.append({})
        self._set(items)
        return at

    def _append_one(self, at: int) -> int:
        self._append([self._stack.pop()])
        return at

    def _append_all(self, at: int) -> int:
        self._append(self._taken(may_be_begun=True))
        return at

    def _set_one(self, at: int) -> int:
        value = self._stack.pop()
        self._set([self._stack.pop(), value])
        return at

    def _set_all(self, at: int) -> int:
        self._set(self._taken())
        return at

    def _put_at(self, n_bytes: int, at: int) -> int:
        self._put(self._number(at, n_bytes))
        return at + n_bytes

    def _decimal(self, at: int) -> bytes:
        found = DECIMAL.match(self._data, at)
        if not found:
            raise NotPlain("it is no whole pickle: a line of digits is something else")
        return found.group()

    def _put_line(self, at: int) -> int:
        digits = self._decimal(at)
        self._put(int(digits))
        return at + len(digits)

    def _get_line(self, at: int) -> int:
        digits = self._decimal(at)
        self._stack.append(self._memo.get(int(digits)) or self._released(int(digits)))
        return at + len(digits)

    def _protocol(self, at: int) -> int:
        if self._number(at, 1) > 5:
            raise NotPlain("its protocol is none of 0 to 5")
        return at + 1

    def _frame(self, at: int) -> int:
        if self._number(at, 8) > len(self._data) - at - 8 + self._left:
            raise NotPlain("it is no whole pickle: it is cut off")
        return at + 8
