# SPDX-License-Identifier: MIT
"""What the programs that are recorded share: where and how large they run, what they draw their sizes from, and how they
end. With --tiny and --device cpu each is done in seconds without a GPU."""
import argparse
import random
from dataclasses import dataclass
from typing import Optional, Sequence, TypeVar

Value = TypeVar("Value")
SEED = 7


@dataclass
class Scale:
    """All sizes are drawn from `random`, and from nothing that the device computes: they are the same in every run."""

    device: str
    is_tiny: bool
    random: random.Random

    def of(self, full: Value, tiny: Value) -> Value:
        return tiny if self.is_tiny else full


def parse(text: str, arguments: Optional[Sequence[str]] = None) -> Scale:
    """What the command line asks for; `text` says what the program does."""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="sizes for a look at it without a GPU")
    options = parser.parse_args(arguments)
    return Scale(options.device, options.tiny, random.Random(SEED))


def finish(steps: int, result: float) -> int:
    """Says how much was done, and a number that depends on all of it; the program's exit status."""
    print(f"steps,{steps},steps")
    print(f"result,{result:.4g},")
    return 0 if result == result else 1
