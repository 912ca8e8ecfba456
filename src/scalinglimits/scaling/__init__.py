"""The scaling plan of a user's own PyTorch model: what each parameter must get as it grows."""

from scalinglimits.scaling._schedule import AuditReport, PlanScheduler
from scalinglimits.scaling.entry import ROLES, InitLaw, PlanEntry
from scalinglimits.scaling.make import make_plan
from scalinglimits.scaling.plan import ScalingPlan
from scalinglimits.scaling.rules import DEPTH_RULES, OPTIMIZERS, WIDTH_RULES

__all__ = [
    "DEPTH_RULES",
    "OPTIMIZERS",
    "ROLES",
    "WIDTH_RULES",
    "AuditReport",
    "InitLaw",
    "PlanEntry",
    "PlanScheduler",
    "ScalingPlan",
    "make_plan",
]
