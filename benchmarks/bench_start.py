"""Start-up: importing the package and asking the command for help, beside a bare interpreter."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

__all__ = ["main"]

WORK = {
    "bare interpreter": ["-c", "pass"],
    "import scalinglimits": ["-c", "import scalinglimits"],
    "scalinglimits --help": ["-m", "scalinglimits", "--help"],
    "import torch": ["-c", "import torch"],
}


def main() -> list[dict[str, Any]]:
    """Time each start, the best of five.

    Returns:
        One record for each row: ``name``, ``seconds``, ``ratio`` to the bare interpreter.
    """
    seconds = {name: min(_start(arguments) for _ in range(5)) for name, arguments in WORK.items()}
    bare = seconds["bare interpreter"]
    return [{"name": n, "seconds": s, "ratio": s / bare} for n, s in seconds.items()]


def _start(arguments: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    for row in main():
        print(row)
