"""The command line."""

from scalinglimits.cli.app import app, main

__all__ = ["app", "main"]
