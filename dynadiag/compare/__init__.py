"""Times one function uncompiled and compiled in several ways, each variant in its own process: does compiling pay?"""

from __future__ import annotations

from dynadiag.compare.comparison import ComparisonOptions, VariantComparison, compare
from dynadiag.compare.variant import AMP, DYNAMIC, MODES, STEPS, Variant, variants
from dynadiag.compare.variant_result import RelativeSpeed, VariantResult, relative_speed

__all__ = [
    "AMP",
    "DYNAMIC",
    "MODES",
    "STEPS",
    "ComparisonOptions",
    "RelativeSpeed",
    "Variant",
    "VariantComparison",
    "VariantResult",
    "compare",
    "relative_speed",
    "variants",
]
