"""Text as sequences of characters: a short real one built in, or the user's own file."""

from __future__ import annotations

__all__ = ["Text", "load_text"]

import os
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np


@dataclass(frozen=True, eq=False)
class Text:
    """A text, encoded by its own characters.

    Attributes:
        symbols: the distinct characters, sorted; a token is an index into them.
        tokens: the text as tokens, int64 of shape (length,).
    """

    symbols: str
    tokens: np.ndarray

    def decode(self, tokens: np.ndarray) -> str:
        """Turn tokens back into characters.

        Args:
            tokens: integers below the number of symbols, one-dimensional.

        Returns:
            The text.
        """
        return "".join(self.symbols[token] for token in np.asarray(tokens).tolist())


def load_text(path: str | os.PathLike[str] | None = None) -> Text:
    """Load a text: the opening of *Alice's Adventures in Wonderland*, or a file.

    Args:
        path: a UTF-8 file; None takes the built-in text (3 kB, public domain).

    Returns:
        The text with its alphabet.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is empty or not UTF-8.

    Example:
        >>> text = load_text()
        >>> text.decode(text.tokens[:5])
        'Alice'
    """
    if path is None:
        content = resources.files("scalinglimits.data").joinpath("alice.txt").read_text("utf-8")
    else:
        file = Path(path)
        if not file.is_file():
            raise FileNotFoundError(f"`path` must be an existing file; got {str(path)!r}")
        try:
            content = file.read_text("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{file} must be UTF-8 text; got {error}") from None
    if not content:
        raise ValueError(f"{path} must hold some text; got an empty file")
    codes = np.frombuffer(content.encode("utf-32-le"), dtype=np.uint32)
    symbols, tokens = np.unique(codes, return_inverse=True)
    return Text("".join(map(chr, symbols)), tokens.astype(np.int64))
