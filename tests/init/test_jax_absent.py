"""Without JAX, the JAX initialisers can be made, and say what is missing when they are used."""

import sys

import pytest

from scalinglimits.init.jax import depth_stack, variance_scaling
from scalinglimits.laws import Independent


def test_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)  # what import sees where it is not installed
    for init in (variance_scaling(1.0, "fan_in", "normal"), depth_stack(Independent())):
        with pytest.raises(ImportError, match=r"needs JAX: pip install 'scalinglimits\[jax\]'"):
            init(None, (2, 3, 4))
