"""Reduces a Python program while a predicate holds: its statements, definitions, calls and expressions.

A pass is a function from a syntax tree to the edits that it proposes. It may propose anything, because the predicate
runs each candidate: a wrong guess costs a trial and nothing else. The package knows neither torch nor how a candidate
is run.
"""

from __future__ import annotations

from minifier.source.merge_modules import MergeError, merge_program
from minifier.source.observed import Observed, observer_file
from minifier.source.observer import fill_memory
from minifier.source.plan import reduce_source
from minifier.source.reduction import SourceReduction, count_lines, count_tokens

__all__ = [
    "MergeError",
    "Observed",
    "SourceReduction",
    "count_lines",
    "count_tokens",
    "fill_memory",
    "merge_program",
    "observer_file",
    "reduce_source",
]
