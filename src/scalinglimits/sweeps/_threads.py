"""One thread for a cell, so that a result does not depend on how many cores the process had.

A sum over several threads is added in an order that depends on their number, and its last bits
with it. BLAS and OpenMP libraries that are loaded already are limited through `threadpoolctl`, and
PyTorch through its own setting. A library that the cell is the first to import reads its limit from
the environment while it loads; afterwards it gets the number that it would have chosen itself.
"""

from __future__ import annotations

__all__ = ["single_thread"]

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from threadpoolctl import ThreadpoolController

_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS")


@contextmanager
def single_thread() -> Iterator[None]:
    """Limit BLAS, OpenMP and PyTorch to one thread, and restore them afterwards."""
    controller = ThreadpoolController()
    torch = sys.modules.get("torch")
    torch_threads = torch.get_num_threads() if torch is not None else None
    environment = {name: os.environ.get(name) for name in _VARIABLES}
    modules = len(sys.modules)
    os.environ.update(dict.fromkeys(_VARIABLES, "1"))
    try:
        with controller.limit(limits=1):
            if torch is not None:
                torch.set_num_threads(1)
            yield
    finally:
        for name, value in environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        # Libraries arrive with imports; without a new module there is nothing to look for.
        if len(sys.modules) > modules:
            known = {library.filepath for library in controller.lib_controllers}
            for library in ThreadpoolController().lib_controllers:
                if library.filepath not in known:
                    library.set_num_threads(_default_threads(environment, library.user_api))
        if torch is None and "torch" in sys.modules:
            torch = sys.modules["torch"]
            torch_threads = _default_threads(environment, "openmp")
        if torch is not None and torch_threads is not None:
            torch.set_num_threads(torch_threads)


def _default_threads(environment: Mapping[str, str | None], user_api: str) -> int:
    """The number of threads that a library would have chosen in this environment."""
    names = _VARIABLES[:1] if user_api == "openmp" else (*_VARIABLES[1:], _VARIABLES[0])
    for name in names:
        first = (environment[name] or "").split(",")[0].strip()
        if first.isdigit() and int(first) > 0:
            return int(first)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
