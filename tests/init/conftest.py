"""The tests of the JAX initialisers are collected where JAX is installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("jax") else ["test_jax.py"]
