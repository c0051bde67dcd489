"""Compare runs to a baseline and to budgets. `Measurement` has the findings and figures of one run, `Baseline` the
known findings, `Configuration` the budgets. `check` compares them and returns a `CheckResult`.
"""

from __future__ import annotations

from dynadiag.check.baseline import Baseline, KnownFinding, read_baseline, updated_baseline
from dynadiag.check.configuration import Budgets, Configuration, find_configuration, parse_budgets
from dynadiag.check.measurement import Measurement, Occurrence, measure
from dynadiag.check.result import CheckResult, Problem, check

__all__ = [
    "Baseline",
    "Budgets",
    "CheckResult",
    "Configuration",
    "KnownFinding",
    "Measurement",
    "Occurrence",
    "Problem",
    "check",
    "find_configuration",
    "measure",
    "parse_budgets",
    "read_baseline",
    "updated_baseline",
]
