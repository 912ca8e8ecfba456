"""Right values from an independent computation, and the dense recursion of L, (2.10)."""

import numpy as np
import pytest

from scalinglimits.linear import EmpiricalData, LinearNetwork, train

X = np.array(
    [
        [0.2, -0.7, 1.1, 0.4, -0.3],
        [0.9, 0.1, -0.5, 0.6, -1.2],
        [-0.4, 0.8, 0.3, -1.0, 0.5],
    ]
).T
Y = np.array([0.7, -0.2, 0.5, -0.9, 0.1])
STEP_SIZE = 0.02 * len(Y)  # the values were computed with a sum over the samples

PREDICTOR = {
    1: {
        1: [0.026399999999999996, -0.018000000000000002, 0.0396],
        2: [0.05191691967573508, -0.029307523852289734, 0.07379019538551754],
        5: [0.12181600949167816, -0.03776812694590899, 0.15585237865196916],
        20: [0.3360629463672261, 0.07097371042753649, 0.41442416250480546],
        100: [0.5111342924484134, 0.27754946216628323, 0.7240734390617044],
    },
    3: {
        1: [0.044, -0.030000000000000006, 0.06600000000000002],
        2: [0.08579922125912057, -0.04148494030568213, 0.11728615661690735],
        5: [0.19276630248496032, -0.025594547178796476, 0.23275972719120835],
        20: [0.44211844041369436, 0.18353425719426986, 0.5888978037166489],
        100: [0.5133220606937956, 0.2805243962892906, 0.7283680485010632],
    },
}
V_SQUARE = {
    0: 1.0,
    1: 1.00028768,
    2: 1.0019877355967943,
    5: 1.0114734136932069,
    20: 1.0833968353432342,
    100: 1.2166051204296995,
}
MINIMUM_NORM = [0.5133256410615953, 0.28052947979587767, 0.7283752819533891]


@pytest.mark.parametrize("hidden", PREDICTOR)
def test_predictor(hidden):
    run = train(LinearNetwork(3, hidden), EmpiricalData(X, Y), step_size=STEP_SIZE, steps=100)
    for step, value in PREDICTOR[hidden].items():
        np.testing.assert_allclose(run.predictor[step], value, rtol=0, atol=1e-10)


def test_output_layer():
    run = train(LinearNetwork(3), EmpiricalData(X, Y), step_size=STEP_SIZE, steps=100)
    for step, value in V_SQUARE.items():
        assert run.v_square[step] == pytest.approx(value, abs=1e-10)


def test_minimum_norm():
    np.testing.assert_allclose(EmpiricalData(X, Y).minimum_norm(), MINIMUM_NORM, atol=1e-12)
