"""The rules of `dynadiag check`: what can be wrong with a run, in words, and the budget that allows it."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from dynadiag.explanation.rules import Rule


class CheckRule(StrEnum):
    """A kind of problem. ``says`` is what it is, ``of`` are the rules of the findings that it is about.

    ``budget`` is the budget that takes the place of a baseline for such findings.
    """

    says: str
    of: tuple[Rule, ...]
    budget: str | None

    NEW_BREAK = "new-break", "A graph break that the baseline does not know", (Rule.BREAK,), "max_breaks"
    NEW_RECOMPILE = (
        "new-recompile",
        "A recompile that the baseline does not know",
        (Rule.RECOMPILE, Rule.RECOMPILE_LIMIT),
        "max_recompiles",
    )
    NEW_UNCOMPILED = "new-uncompiled", "A function that Dynamo leaves to Python", (Rule.UNCOMPILED,)
    NEW_CACHE_BYPASS = "new-cache-bypass", "A compile that a cache cannot keep", (Rule.CACHE_BYPASS,)
    NEW_WRONG_VALUE = "new-wrong-value", "A value of compiled code that is wrong", (Rule.WRONG_VALUE,)
    NEW_NOT_FINITE = "new-not-finite", "A value that is not finite", (Rule.NOT_FINITE,)
    NEW_LOW_PRECISION = "new-low-precision", "A value that loses precision", (Rule.LOW_PRECISION,)
    NEW_DIVERGENCE = "new-divergence", "Ranks of a job that do not do the same", (Rule.DIVERGENCE,)
    NEW_ASSUMED = "new-assumed", "What a draft of an export takes from its example", (Rule.ASSUMED,)
    COMPILED_LATE = "compiled-after-warm-up", "What is compiled after the warm-up"
    FAILED = "failed", "A program or a compile that fails", (Rule.FAILED_COMPILE, Rule.FAILED_PROGRAM)
    MAX_BREAKS = "max-breaks", "More graph breaks than the budget", (Rule.BREAK, Rule.FAILED_COMPILE)
    MAX_RECOMPILES = "max-recompiles", "More recompiles than the budget", (Rule.RECOMPILE, Rule.RECOMPILE_LIMIT)
    MAX_GRAPHS = "max-graphs", "More graphs than the budget"
    MAX_COMPILE_SECONDS = "max-compile-seconds", "More time compiling than the budget"
    MAX_MEMORY = "max-memory", "More memory than the budget"
    MAX_LAUNCHES = "max-launches", "More kernel calls than the budget"
    FALLBACK_KERNEL = "fallback-kernel", "An operator that Inductor leaves to ATen"
    CACHE_BYPASS = "cache-bypass", "More cache bypasses than the budget", (Rule.CACHE_BYPASS,)

    def __new__(cls, name: str, says: str = "", of: tuple[Rule, ...] = (), budget: str | None = None) -> Self:
        rule = str.__new__(cls, name)
        rule._value_, rule.says, rule.of, rule.budget = name, says, of, budget
        return rule

    @property
    def is_new(self) -> bool:
        """Whether it is a finding that the baseline does not know."""
        return self.startswith("new-")

    @classmethod
    def of_finding(cls, rule: str) -> Self:
        """The problem that a finding is. The first that is about its rule."""
        return next(each for each in cls if rule in each.of)
