# SPDX-License-Identifier: MIT
"""Values of a pickle that nobody looks at."""


class Opaque:
    """A value that nobody looks at; `why`: what it is, in words."""

    def __init__(self, why: str):
        self.why = why


OTHER = Opaque("is of another kind")
TEXT = Opaque("is another word")
RELEASED = Opaque("is the same as something before it, which is not kept")
LOST = Opaque("is a word from before, and there are too many of them")
