"""Bad input is refused before any work, by name."""

import math

import numpy as np
import pytest

from scalinglimits.linear import (
    EmpiricalData,
    LinearNetwork,
    band_matrix,
    explicit_limit,
    train,
    train_replicates,
)

X, Y = np.eye(3), np.ones(3)
DATA = EmpiricalData(X, Y)
FINITE = LinearNetwork(3, width=10)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"in_features": 0}, ValueError, "`in_features` must be at least 1; got 0"),
        ({"in_features": 2.0}, TypeError, "`in_features` must be an integer"),
        ({"hidden": -1}, ValueError, "`hidden` must be at least 0"),
        ({"width": 0}, ValueError, "`width` must be at least 1; got 0"),
        ({"width": 2.5}, TypeError, "`width` must be an integer or math.inf; got 2.5"),
        ({"width": math.nan}, TypeError, "`width` must be an integer or math.inf; got nan"),
        ({"width": True}, TypeError, "`width` must be an integer or math.inf; got True"),
        ({"width": 10**19}, ValueError, r"`width` must be at most 10\*\*18"),
        ({"width": [5]}, ValueError, "`width` must have length 2; got 1"),
        ({"width": [5, math.inf]}, ValueError, "`width` must be all finite or all infinite"),
        ({"out_features": 0}, ValueError, "`out_features` must be at least 1"),
        ({"matrices": "sparse"}, ValueError, "`matrices` must be one of"),
        ({"matrices": 3}, TypeError, "`matrices` must be 'gaussian', 'haar' or a law"),
        ({"vectors": "normal"}, TypeError, "`vectors` must be None or a law"),
        ({"residual_scale": math.inf}, ValueError, "`residual_scale` must be finite"),
        (
            {"residual_scale": 1.0, "width": [5, 6]},
            ValueError,
            "`width` must be the same in all layers of a residual network",
        ),
        ({"parametrization": "sp"}, ValueError, "`parametrization` must be one of"),
        ({"scale": 0.0}, ValueError, "`scale` must be greater than 0"),
        ({"scale": "1"}, TypeError, "`scale` must be a real number"),
        ({"relative_widths": [1.0]}, ValueError, "`relative_widths` must have length 2"),
        ({"relative_widths": 2.0}, TypeError, "`relative_widths` must be a sequence"),
        (
            {"relative_widths": [1.0, 2.0], "width": 5},
            ValueError,
            "`relative_widths` must be None at finite width",
        ),
    ],
)
def test_network(arguments, error, message):
    with pytest.raises(error, match=message):
        LinearNetwork(**{"in_features": 3, **arguments})


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"step_size": -0.1}, ValueError, "`step_size` must be greater than 0; got -0.1"),
        ({"step_size": math.nan}, ValueError, "`step_size` must be finite"),
        ({"step_size": None}, ValueError, "`step_size` must be given, or `layer_step_sizes`"),
        ({"layer_step_sizes": [1.0] * 3}, ValueError, "`step_size` must be given, or"),
        (
            {"step_size": None, "layer_step_sizes": [0.1, 0.1]},
            ValueError,
            "`layer_step_sizes` must have length 3; got 2",
        ),
        (
            {"step_size": None, "layer_step_sizes": [0.1, -0.1, 0.1]},
            ValueError,
            "`layer_step_sizes` must be at least 0",
        ),
        ({"steps": -1}, ValueError, "`steps` must be at least 0"),
        ({"steps": 1.0}, TypeError, "`steps` must be an integer"),
        ({"seed": 1.5}, TypeError, "`seed` must be an integer"),
        ({"seed": -1}, ValueError, "`seed` must be at least 0"),
        ({"momentum": 1.0}, ValueError, "`momentum` must be less than 1"),
        ({"momentum": -0.5}, ValueError, "`momentum` must be at least 0"),
        ({"tolerance": 1.0}, ValueError, "`tolerance` must be less than 1"),
        ({"stop_at": "soon"}, TypeError, "`stop_at` must be a real number"),
        (
            {"stop_at": 0.1, "loss": lambda p, y: p - y},
            ValueError,
            "`stop_at` must be a function when the loss has no value",
        ),
        ({"record_states": [-1]}, ValueError, "`record_states` must be at least 0"),
        ({"record_states": [3]}, ValueError, "`record_states` must be at most `steps`, 2; got 3"),
    ],
)
def test_train(options, error, message):
    with pytest.raises(error, match=message):
        train(LinearNetwork(3), DATA, **{"step_size": 0.1, "steps": 2, **options})


def test_data_and_network():
    with pytest.raises(TypeError, match="`network` must be a LinearNetwork"):
        train(3, DATA, step_size=0.1, steps=2)
    with pytest.raises(TypeError, match="`data` must be a measure"):
        train(LinearNetwork(3), 3, step_size=0.1, steps=2)
    with pytest.raises(ValueError, match="`data` must have in_features 4, as the network; got 3"):
        train(LinearNetwork(4), DATA, step_size=0.1, steps=2)
    with pytest.raises(ValueError, match="`data` must have out_features 2, as the network; got 1"):
        train(LinearNetwork(3, out_features=2), DATA, step_size=0.1, steps=2)
    with pytest.raises(ValueError, match="`data` must give a measure for each step; got no more"):
        train(LinearNetwork(3), [DATA], step_size=0.1, steps=2)
    with pytest.raises(ValueError, match="`data` must give a measure for each step; got no more"):
        train(LinearNetwork(3), [], step_size=0.1, steps=2)
    with pytest.raises(ValueError, match="`data` must give a measure for each step; got 5"):
        train(LinearNetwork(3), [DATA, 5], step_size=0.1, steps=2)
    other = EmpiricalData(np.eye(2), np.ones(2))
    with pytest.raises(ValueError, match="`data` must be measures with 3 inputs and 1 targets"):
        train(LinearNetwork(3), [DATA, other], step_size=0.1, steps=2)


def test_seeds():
    with pytest.raises(ValueError, match="`seed` must be given at finite width"):
        train(FINITE, DATA, step_size=0.1, steps=2)
    with pytest.raises(ValueError, match="`seed` must be given for 'ntk'"):
        train(LinearNetwork(3, parametrization="ntk"), DATA, step_size=0.1, steps=2)
    with pytest.raises(ValueError, match="`seed` must be given at finite width"):
        band_matrix(FINITE, 5)
    run = train(LinearNetwork(3), DATA, step_size=0.1, steps=2)
    with pytest.raises(ValueError, match="`generator` must be given to the space"):
        run.state.entries(3)


def test_scales_of_a_kernel_limit():
    with pytest.raises(ValueError, match="`width` must be finite for the scales of 'standard'"):
        _ = LinearNetwork(3, parametrization="standard").scales


def test_entries():
    run = train(FINITE, DATA, step_size=0.1, steps=2, seed=0)
    with pytest.raises(ValueError, match="`count` must be at least 1"):
        run.state.entries(0)
    with pytest.raises(ValueError, match="`count` must be between 0 and the width 10; got 11"):
        run.state.entries(11)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"replicates": 0}, ValueError, "`replicates` must be at least 1"),
        ({"replicates": []}, ValueError, "`replicates` must be at least one index"),
        ({"replicates": [-1]}, ValueError, "`replicates` must be at least 0"),
        ({"replicates": 1.5}, TypeError, "`replicates` must be an integer"),
        ({"seed": None}, TypeError, "`seed` must be an integer"),
        ({"record": [3]}, ValueError, "`record` must be steps between 0 and 2"),
        ({"record": []}, ValueError, "`record` must be steps between 0 and 2"),
        ({"momentum": 1.0}, ValueError, "`momentum` must be less than 1"),
        ({"tolerance": 0.0}, ValueError, "`tolerance` must be greater than 0"),
    ],
)
def test_replicates(options, error, message):
    arguments = {"replicates": 2, "step_size": 0.1, "steps": 2, "seed": 0, **options}
    with pytest.raises(error, match=message):
        train_replicates(FINITE, DATA, **arguments)


@pytest.mark.parametrize(
    "network",
    [
        LinearNetwork(3, hidden=2),
        LinearNetwork(3, matrices="haar"),
        LinearNetwork(3, residual_scale=0.5),
    ],
)
def test_explicit_form(network):
    with pytest.raises(ValueError, match="`network` must have one Gaussian hidden matrix"):
        explicit_limit(network, DATA, step_size=0.1, steps=2)


def test_explicit_size():
    with pytest.raises(ValueError, match="`size` must be at least 3"):
        explicit_limit(LinearNetwork(3), DATA, step_size=0.1, steps=2, size=2)
