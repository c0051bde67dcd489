"""Times one function uncompiled and compiled in several ways, each variant in its own process: does compiling pay?"""

from __future__ import annotations

from dynadiag.compare.comparison import Comparison, Settings, compare
from dynadiag.compare.row import Row, Standing, standing
from dynadiag.compare.variant import AMP, DYNAMIC, MODES, STEPS, Variant, variants

__all__ = [
    "AMP",
    "DYNAMIC",
    "MODES",
    "STEPS",
    "Comparison",
    "Row",
    "Settings",
    "Standing",
    "Variant",
    "compare",
    "standing",
    "variants",
]
