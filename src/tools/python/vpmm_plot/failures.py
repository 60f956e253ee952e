# SPDX-License-Identifier: MIT
"""How the command ends when there is no picture: each failure is one line of text, without the command's name."""


class Failure(Exception):
    """What was asked for cannot be had."""
    status = 1


class Wrong(Failure):
    """An argument, or a file, that is not what it should be."""
    status = 2


class WrongUse(Wrong):
    """Of them, an argument: help tells what is accepted."""
