# SPDX-License-Identifier: MIT
"""Tells in words what the five pictures of the walkthrough show, for a reader who knows CUDA and not this project. It
reads the steps and judges nothing; walkthrough.py checks them."""
import textwrap

WIDTH = 96
LEGEND = """\
An ordinary CUDA program makes five calls on one stream. It knows nothing of VPMM: the library is preloaded under it and
serves its cudaMallocAsync. The line beside each call shows the addresses of VPMM's pool afterwards, from left to right.
Sizes are in pages, the unit in which VPMM maps memory; here a page is {page}.

  [4]   4 pages that the program has in use    [+4]  4 pages that the call just made returned
  [-6]  6 pages that are free
  [*3]  addresses of 3 pages without memory behind them: a hole, which costs nothing
  [z3]  old addresses of 3 pages that have moved; VPMM unmaps them when no kernel can use them any more
"""


def count(pages, what="page"):
    return f"{pages} {what}" if pages == 1 else f"{pages} {what}s"


def free_runs(step):
    """The lengths of the free pieces, in the order of their addresses."""
    return [pages for pages, state in step.layout() if state == "free"]


def pieces(step):
    runs = free_runs(step)
    if not runs:
        return "no page is free"
    if len(runs) == 1:
        return f"{count(runs[0])} {'is' if runs[0] == 1 else 'are'} free, in one piece"
    return f"{sum(runs)} pages are free, but in pieces of {' and '.join(map(str, runs))}, with pages in use between"


def first(step):
    held = step.metric("held")
    return (f"VPMM maps {count(held)} before it answers the first call, because this demo sets VPMM_PAGES={held}. The "
            "program gets the first 10.")


def second(step):
    return f"The next page goes to the program. Now {pieces(step)}."


def third(step):
    return ("The pages stay mapped, so that a later request gets them without a slow call of the driver. Now "
            f"{pieces(step)}.")


def fourth(step):
    return ("VPMM takes them from the smallest free piece that is large enough, so that large pieces stay whole. Now "
            f"{pieces(step)}.")


def fifth(before, step, moved):
    """The call for whose sake the pool exists."""
    runs, created = free_runs(before), step.metric("held") - before.metric("held")
    if max(runs, default=0) >= 11:
        return f"The free piece of {max(runs)} pages serves the 11. Nothing moves, and nothing is created."
    told = ("No free piece has 11 pages. An allocator that cannot remap creates up to 11 new ones here, and then holds "
            f"{before.metric('held') + 11} for 16 in use. VPMM maps free pages side by side at a new address instead, and "
            f"the program gets that address. {count(moved)} moved. No byte is copied: free pages have no contents "
            "to keep. ")
    return told + (f"VPMM created {count(created)}." if created else "VPMM created no page.")


def indent(text):
    return textwrap.fill(text, WIDTH, initial_indent="     ", subsequent_indent="     ")


def tell(steps, moved, page):
    """Prints the legend, the five pictures with what each means, and what came of it; `page` is the size in words."""
    print("\n" + LEGEND.format(page=page))
    calls = ("cudaMallocAsync of 10 pages", "cudaMallocAsync of 1 page", "cudaFreeAsync of the 10 pages",
             "cudaMallocAsync of 4 pages", "cudaMallocAsync of 11 pages")
    words = (first(steps[0]), second(steps[1]), third(steps[2]), fourth(steps[3]), fifth(steps[3], steps[4], moved))
    for number, (step, call, text) in enumerate(zip(steps, calls, words), 1):
        print(f"{number}. {call + ':':<32} {step.notation()}")
        print(indent(text))
        print(indent(f"In use: {step.metric('live')}. Held by the pool: {step.metric('held')}.") + "\n")
    last, end = steps[4:6]
    print(f"So the program has {count(last.metric('live'))} in use, and VPMM holds {last.metric('held')}. After the program "
          f"has freed everything,\nVPMM keeps the {end.metric('held')} pages for its next requests.")
