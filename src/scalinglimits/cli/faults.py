"""What a command says when something goes wrong: one clear line, and where in the user's file."""

from __future__ import annotations

__all__ = ["describe", "interrupted"]

import re
import sysconfig
import traceback
from collections.abc import Sequence
from pathlib import Path

_RESUMABLE = ("demo", "propagate", "phase", "transfer", "figure")
"""Commands that keep their cells."""
_FRAME = re.compile(r'^ *File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)$', re.M)


def describe(error: Exception) -> tuple[str, str] | None:
    """Return what to tell the user about an error, or None if it is a fault of this program.

    Args:
        error: as raised.

    Returns:
        Lines that led to the error, if the user's own file or its modules raised it, else "";
        and what is wrong, in one line.

    Example:
        >>> describe(ValueError("`width` must be positive; got 0"))
        ('', '`width` must be positive; got 0')
        >>> describe(FileExistsError(17, "File exists", "results"))
        ('', 'results: File exists')
        >>> describe(ZeroDivisionError()) is None
        True
    """
    from scalinglimits.sweeps import SweepError

    if isinstance(error, SweepError):
        # A worker's traceback comes as text.
        head, _, text = str(error).partition("\n")
        last = text.strip().splitlines()[-1:] or [""]
        frames = [(m["file"], m["line"], m["function"]) for m in _FRAME.finditer(text)]
        where, function = _place(_own(frames))
        said = f"{where}{function}: {last[0]}" if where else last[0]
        return "", f"{head.split(', of the sweep')[0]} failed: {said}"
    stack = traceback.extract_tb(error.__traceback__)
    users = [
        frame.f_code.co_filename
        for frame, _ in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__", "")).startswith("_scalinglimits_")
    ]
    if users:
        first = next(i for i, frame in enumerate(stack) if frame.filename == users[0])
        own = _own([(f.filename, str(f.lineno), f.name) for f in stack[first:]])
        lines = traceback.format_list(
            [f for f in stack[first:] if (f.filename, str(f.lineno), f.name) in own]
        )
        where, function = _place(own)
        return "".join(lines), f"{where}{function}: {type(error).__name__}: {error}"
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return "", f"{error.filename}: {error.strerror}"
    if isinstance(error, ValueError | TypeError | OSError | ModuleNotFoundError):
        return "", str(error)
    return None


def interrupted(arguments: Sequence[str]) -> str:
    """Return what to tell the user after Ctrl-C.

    Args:
        arguments: of the command line.

    Returns:
        One line, which promises to go on only where a command does.

    Example:
        >>> interrupted(["check", "model.py"])
        'interrupted'
    """
    command = next((part for part in arguments if not part.startswith("-")), "")
    if command in _RESUMABLE:
        return "interrupted; run the same command again to go on where it stopped"
    return "interrupted"


def _own(frames: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Of a stack, the lines that are neither this package's nor an installed one's."""
    here = str(Path(__file__).resolve().parents[1])
    foreign = (here, "<", sysconfig.get_path("stdlib"))
    return [
        frame
        for frame in frames
        if not frame[0].startswith(foreign) and "site-packages" not in Path(frame[0]).parts
    ]


def _place(frames: list[tuple[str, str, str]]) -> tuple[str, str]:
    if not frames:
        return "", ""
    file, line, function = frames[-1]
    return f"{file}, line {line}", "" if function == "<module>" else f", in {function}"
