# SPDX-License-Identifier: MIT
"""`vpmm plot`, which starts this with the path of the `vpmm` command as the first argument. Ends with 0 when the picture
is written, 1 when it cannot be had, 2 for wrong arguments or a file that is no trace."""
from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import List

import options
import standard_input
from failures import Failure, WrongUse


def kinds_of(chosen: options.Options, n_views: int) -> List[str]:
    if chosen.kind != "all":
        return [chosen.kind]
    return ["memory", "map", "sizes"] if n_views == 1 else ["compare", "map"]


def subtitle(views: list) -> str:
    import units
    parts = []
    for view in views:
        counted = f"{units.count_text(view.shown_blocks().start.size)} blocks in " if view.entries.size else "replay of "
        text = counted + units.time_text(view.last - view.first)
        text += f", device {view.device} of {view.n_devices}" if view.n_devices > 1 else ""
        text += f", {units.count_text(view.trace.dropped)} entries dropped" if view.trace.dropped else ""
        parts.append(text)
    if len(views) == 1:
        program = views[0].trace.program
        return (f"{program}: " if program and program != views[0].name else "") + parts[0]
    return "   ·   ".join(f"{view.name}: {part}" for view, part in zip(views, parts)) if len(views) < 4 else ""


def views_in(path: Path, label: str, chosen: options.Options, vpmm: Path) -> list:
    import replays
    import traces
    import view
    name, times = traces.plain(label), (chosen.begin_ns, chosen.end_ns)
    if replays.is_json(path):
        return replays.read(path, name, *times)
    return [view.view_of(traces.read(path, name, vpmm), chosen.device, *times)]


def views_of(chosen: options.Options, vpmm: Path) -> list:
    views = []
    for path, label in chosen.files:
        if path is None:
            with standard_input.as_file(vpmm) as read:
                views += views_in(read, label, chosen, vpmm)
        else:
            views += views_in(path, label, chosen, vpmm)
    if chosen.kind == "compare" and len(views) < 2:
        raise WrongUse("--kind compare takes two traces or replays, and more")
    if len(views) > options.VIEWS_MOST:
        raise WrongUse(f"{len(views)} traces and replays; at most {options.VIEWS_MOST} fit into one picture")
    return views


def picture(chosen: options.Options, vpmm: Path) -> bytes:
    import figure
    import traces
    views = views_of(chosen, vpmm)
    title = traces.plain(chosen.title if chosen.title is not None else ", ".join(one.name for one in views))
    if chosen.form == ".html":
        import page
        return page.page(views, title, subtitle(views), chosen)
    return figure.draw(figure.Request(kinds_of(chosen, len(views)), chosen.colour_by, title, subtitle(views), chosen.is_dark,
                                      chosen.width_px, chosen.height_px, chosen.dpi, chosen.form == ".svg"), views)


def rights_at(path: Path) -> int:
    """Those of the file that is replaced, or those that a new file gets."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def replace(path: Path, content: bytes) -> None:
    """All of it or nothing. Raises OSError."""
    handle, name = tempfile.mkstemp(prefix=".vpmm-plot-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(name, rights_at(path))
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def write(path: Path, content: bytes) -> None:
    """A link stays one, and so does a pipe."""
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)
        else:
            replace(Path(os.path.realpath(path)), content)
    except OSError as error:
        raise Failure(f"{path}: cannot be written: {error.strerror}") from error


def main(arguments: List[str]) -> int:
    try:
        chosen = options.parse(arguments[1:])
        try:
            import numpy  # noqa: F401
        except ImportError as error:
            raise Failure(f"needs NumPy ({error}): apt-get install python3-numpy, or pip install numpy") from error
        write(chosen.out, picture(chosen, Path(arguments[0])))
    except Failure as failure:
        options.say(str(failure))
        if isinstance(failure, WrongUse):
            print("See 'vpmm help plot'.", file=sys.stderr)
        return failure.status
    except MemoryError:
        options.say("not enough memory for so many entries; --from and --to choose a part")
        return Failure.status
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
