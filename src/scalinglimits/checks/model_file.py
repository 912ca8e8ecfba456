"""A user's FILE.py that defines `build`, `step` and `batches`, for the command line."""

from __future__ import annotations

__all__ = ["ModelFile", "load_model_file"]

import importlib.util
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor, nn

try:  # the copy that joblib pickles with: its own before version 1.6
    from joblib.externals import cloudpickle
except ImportError:
    import cloudpickle

_NEEDED = {
    "build": "build(width, depth), which returns a torch.nn.Module",
    "step": "step(model, batch), which returns the loss",
    "batches": "batches(), which returns an iterable of batches, or a sequence of them",
}


@dataclass(frozen=True)
class ModelFile:
    """What a file defines.

    Attributes:
        path: of the file.
        build: from width and depth to a model.
        step: from model and batch to the loss; None if it was not needed.
        batches: a function that returns an iterable of batches, or one; None if not needed.
        learning_rate: the file's `LEARNING_RATE`, or None.
        module: the file itself, run.
    """

    path: Path
    build: Callable[..., nn.Module]
    step: Callable[[nn.Module, Any], Tensor] | None
    batches: Callable[[], Iterable[Any]] | Iterable[Any] | None
    learning_rate: float | None = None
    module: ModuleType | None = None

    def function(self, name: str) -> Callable[..., Any]:
        """Return a function of the file by its name.

        Args:
            name: such as "build".

        Returns:
            The function.

        Raises:
            ValueError: if the file defines no function of this name.
        """
        found = getattr(self.module, name, None)
        if not callable(found):
            raise ValueError(f"{self.path} must define a function {name}; got {found!r}")
        return found


def load_model_file(
    path: str | Path, needed: Iterable[str] = ("build", "step", "batches")
) -> ModelFile:
    """Run a Python file and take `build`, `step` and `batches` from it.

    The file is the user's own program: it is run as `python FILE.py` would run it, except that its
    `__name__` is not `"__main__"`. Modules beside it can be imported.

    Args:
        path: of the file.
        needed: which of the three must be there.

    Returns:
        What the file defines.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is no Python file, or does not define what is needed.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"`FILE` must be an existing Python file; got {path}")
    if path.suffix != ".py":
        raise ValueError(f"`FILE` must be a Python file; got {path}")
    name = f"_scalinglimits_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickles of the file look their module up by name.
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise ValueError(f"{path}, line {error.lineno}: {error.msg}") from error
    finally:
        sys.path.remove(str(path.parent.resolve()))
    # Worker processes cannot import the file by its name: they get its functions whole.
    cloudpickle.register_pickle_by_value(module)
    found = {key: getattr(module, key, None) for key in _NEEDED}
    missing = [key for key in needed if found[key] is None]
    if missing:
        raise ValueError(f"{path} must define " + " and ".join(_NEEDED[key] for key in missing))
    for key in ("build", "step"):
        if found[key] is not None and not callable(found[key]):
            raise ValueError(f"{path} must define {_NEEDED[key]}; got {type(found[key]).__name__}")
    return ModelFile(
        path=path,
        build=found["build"],  # type: ignore[arg-type]
        step=found["step"],
        batches=found["batches"],
        learning_rate=getattr(module, "LEARNING_RATE", None),
        module=module,
    )
