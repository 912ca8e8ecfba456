"""Run all benchmarks and print one table: seconds, and ratios measured in the same run."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

__all__ = ["main"]


def main() -> None:
    """Run the benchmarks whose names are given, or all of them."""
    folder = Path(__file__).parent
    names = sorted(path.stem.removeprefix("bench_") for path in folder.glob("bench_*.py"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"among {', '.join(names)}; all by default")
    chosen = parser.parse_args().names or names
    unknown = set(chosen) - set(names)
    if unknown:
        parser.error(
            f"unknown benchmark {', '.join(sorted(unknown))}; there are {', '.join(names)}"
        )
    sys.path.insert(0, str(folder))
    console = Console(width=120)
    for name in chosen:
        table = Table("work", "seconds", "ratio", title=name, title_justify="left")
        for row in importlib.import_module(f"bench_{name}").main():
            ratio = row.get("ratio")
            table.add_row(
                row["name"], f"{row['seconds']:.3g}", "" if ratio is None else f"{ratio:.3g}"
            )
        console.print(table)


if __name__ == "__main__":
    main()
