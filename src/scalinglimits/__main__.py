"""Run the command line as ``python -m scalinglimits``."""

from scalinglimits.cli import main

main()
