"""Plain gradient descent on the weights that a program would store: the naive twin."""

import numpy as np


def program_form(network, weights, tau):
    """Stored weights `[u, w_1, ..., v]`, multipliers and step sizes, from weights of order one."""
    m = [float(w) for w in network.widths]
    n = network.hidden
    sizes = list(tau) if np.ndim(tau) else [tau] * (n + 2)
    fan_in = [1.0, *m]
    raw = [weights.U, *weights.Z, weights.V]
    kind = network.parametrization
    if kind == "mup":
        deviations = [1.0, *(m[i] ** -0.5 for i in range(n)), 1 / m[n]]
        rates = [m[0], *(m[i + 1] / m[i] for i in range(n)), 1 / m[n]]
        multipliers = [1.0] * (n + 2)
    elif kind == "ntk":
        deviations, rates = [1.0] * (n + 2), [1.0] * (n + 2)
        multipliers = [1.0, *(k**-0.5 for k in fan_in[1:])]
    elif kind == "standard":
        deviations = [1.0, *(k**-0.5 for k in fan_in[1:])]
        rates, multipliers = [1.0] * (n + 2), [1.0] * (n + 2)
    else:
        deviations = [1.0] * (n + 2)
        rates = [m[0], *(m[i + 1] * m[i] for i in range(n)), m[n]]
        multipliers = [1.0, *(1 / k for k in fan_in[1:])]
    stored = [a * s for a, s in zip(raw, deviations, strict=True)]
    return stored, multipliers, [t * r for t, r in zip(sizes, rates, strict=True)]


def layers(network, stored, multipliers):
    """The matrices that act on the input one after the other."""
    out = [multipliers[0] * stored[0]]
    for w, c in zip(stored[1:-1], multipliers[1:-1], strict=True):
        if network.residual_scale is None:
            out.append(c * w)
        else:
            out.append(np.eye(len(w)) + network.residual_scale * c * w)
    out.append(network.scale * multipliers[-1] * stored[-1].T)
    return out


def predictor(network, stored, multipliers):
    product = np.eye(network.in_features)
    for layer in layers(network, stored, multipliers):
        product = layer @ product
    return product.T


def descend(network, weights, gradients, tau, steps, momentum=0.0):
    """Predictors and stored weights after each step; `gradients(k, predictor)` is `xi`."""
    stored, multipliers, rates = program_form(network, weights, tau)
    inner = 1.0 if network.residual_scale is None else network.residual_scale
    velocity = [np.zeros_like(w) for w in stored]
    history, states = [], []
    for k in range(steps + 1):
        lam = predictor(network, stored, multipliers)
        history.append(lam)
        states.append([w.copy() for w in stored])
        xi = np.reshape(gradients(k, lam), (network.in_features, -1))
        chain = layers(network, stored, multipliers)
        last = len(stored) - 1
        for i in range(last + 1):
            after = np.eye(1 if network.out_features == 1 else network.out_features)
            for layer in chain[:i:-1]:
                after = after @ np.atleast_2d(layer)
            before = np.eye(network.in_features)
            for layer in chain[:i]:
                before = layer @ before
            gradient = after.T @ xi.T @ before.T if i < last else (before @ xi)
            if i == last:
                factor = network.scale * multipliers[i]
                gradient = gradient.reshape(stored[i].shape)
            else:
                factor = multipliers[i] * (inner if i > 0 else 1.0)
            velocity[i] = momentum * velocity[i] + factor * gradient
        stored = [w - r * v for w, r, v in zip(stored, rates, velocity, strict=True)]
    return np.array(history), states
