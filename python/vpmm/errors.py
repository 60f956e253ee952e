# SPDX-License-Identifier: MIT
"""One exception for each result of include/vpmm/vpmm.h that is no success."""


class VpmmError(RuntimeError):
    """A call failed; the text says why."""


class NotLoaded(VpmmError):
    """libvpmm.so is not preloaded, or leaves this process to CUDA: start the program with `vpmm run -- ...`."""


class Busy(VpmmError):
    """Another call, a pass or a capture stands in the way."""


class DriverFailed(VpmmError):
    """The driver refused something."""


class BudgetTooSmall(VpmmError):
    """`floor` bytes are needed at least."""

    def __init__(self, text, floor=0):
        super().__init__(text)
        self.floor = floor


class OtherOrder(VpmmError):
    """Weights were used in another order than the recorded one."""


class DeviceFull(VpmmError):
    """The device, or VPMM_LIMIT, has too little memory."""


class NoHostMemory(VpmmError):
    """The host, or the control group, has too little memory."""


class BadSource(VpmmError):
    """A file is missing, damaged, or does not hold what the model needs."""


class Unsupported(VpmmError):
    """The model does something that cannot work with weights that move."""


BY_RESULT = {1: NotLoaded, 2: NotLoaded, 4: Busy, 5: DriverFailed, 6: ValueError, 7: NotLoaded, 8: BudgetTooSmall,
             9: OtherOrder, 10: DeviceFull, 11: NoHostMemory, 12: BadSource}
TEXTS = {1: "libvpmm.so is not preloaded: start the program with `vpmm run -- ...`",
         2: "libvpmm.so leaves this process to CUDA", 4: "something under way stands in the way",
         5: "the driver failed", 6: "an argument is not what it should be", 7: "the preloaded libvpmm.so is too old",
         8: "the budget is too small", 9: "another order than the recorded one", 10: "out of device memory",
         11: "out of host memory", 12: "a file does not hold what it should"}


def of_result(result, message, floor=0):
    """The exception for a result other than 0."""
    text = message or TEXTS.get(result, f"result {result}")
    kind = BY_RESULT.get(result, VpmmError)
    return kind(text, floor) if kind is BudgetTooSmall else kind(text)
