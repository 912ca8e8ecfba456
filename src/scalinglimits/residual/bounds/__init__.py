r"""The theorems of R as functions of numbers, and sharper bounds beside them.

Every function takes a :class:`Setting` (and :math:`\delta`) and returns a :class:`Bound`: the
numbers, the assumptions with theirs, and whether they all hold. ``bound.require()`` refuses a
bound that is not guaranteed.

=====================================  ==========================================
function                               theorem
=====================================  ==========================================
:func:`hidden_change_bound`            Proposition 2
:func:`hidden_change_mean`             its proof: the mean, on both sides
:func:`hidden_norm_lower_bound`        Proposition 3 (i)
:func:`hidden_norm_upper_bound`        Proposition 3 (ii)
:func:`hidden_regime`                  Corollary 4
:func:`gradient_change_bound`          Proposition 6
:func:`gradient_change_mean`           Proposition 7
:func:`gradient_regime`                Corollary 8
:func:`smooth_change_bound`            Proposition 12
:func:`linear_explosion_bound`         Proposition 13
:func:`sharper_norm_upper_bound`       ours, from moments
:func:`sharper_norm_lower_bound`       ours, from moments
:func:`exact_norm_interval`            ours, from the exact law
=====================================  ==========================================

:func:`bound_curves` tabulates them against the depth, :func:`tightness` beside the exact law.
"""

from scalinglimits.residual.bounds.backward import (
    gradient_change_bound,
    gradient_change_mean,
    gradient_regime,
)
from scalinglimits.residual.bounds.comparison import tightness
from scalinglimits.residual.bounds.curves import bound_curves
from scalinglimits.residual.bounds.forward import (
    change_interval,
    hidden_change_bound,
    hidden_change_mean,
    hidden_norm_lower_bound,
    hidden_norm_upper_bound,
    hidden_regime,
    nontrivial_width,
)
from scalinglimits.residual.bounds.record import Bound, Setting
from scalinglimits.residual.bounds.sharper import (
    exact_norm_interval,
    sharper_norm_lower_bound,
    sharper_norm_upper_bound,
)
from scalinglimits.residual.bounds.smooth import linear_explosion_bound, smooth_change_bound

__all__ = [
    "Bound",
    "Setting",
    "bound_curves",
    "change_interval",
    "exact_norm_interval",
    "gradient_change_bound",
    "gradient_change_mean",
    "gradient_regime",
    "hidden_change_bound",
    "hidden_change_mean",
    "hidden_norm_lower_bound",
    "hidden_norm_upper_bound",
    "hidden_regime",
    "linear_explosion_bound",
    "nontrivial_width",
    "sharper_norm_lower_bound",
    "sharper_norm_upper_bound",
    "smooth_change_bound",
    "tightness",
]
