"""The rules: the kinds of finding, each with what a view needs to know of it. A new kind is one more entry."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

__all__ = ["Rule", "RuleView"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleView:
    """How the findings of a rule are shown.

    ``word`` begins a paragraph, ``noun`` is what one is in a count, and ``badge`` what the page and the browser call
    it. ``role`` is its colour, ``sign`` stands beside a line of source. ``notes`` begins the list of those that are
    only notes. ``rank`` orders findings of one severity. ``has_source`` and ``has_cause``: the text report shows the
    line and the cause. A function that was compiled again needs neither: its name says enough, and the facts of a guard
    have its old and its new value.
    """

    word: str
    noun: str
    badge: str
    role: str = "error"
    sign: str = "✗"
    notes: str | None = None
    rank: int = 2
    has_source: bool = False
    has_cause: bool = False


class Rule(StrEnum):
    """The kind of a finding. In JSON, and for a program that reads one, it is its name."""

    view: RuleView

    FAILED_COMPILE = (
        "failed-compile",
        RuleView(word="error", noun="failed compile", badge="failed compile", rank=0, has_source=True, has_cause=True),
    )
    FAILED_PROGRAM = (
        "failed-program",
        RuleView(word="error", noun="failed program", badge="failed program", has_source=True),
    )
    DIVERGENCE = (
        "divergence",
        RuleView(word="divergence", noun="divergence", badge="ranks diverge", has_source=True, has_cause=True),
    )
    BREAK = (
        "break",
        RuleView(
            word="break",
            noun="graph break",
            badge="graph break",
            role="break",
            sign="⚠",
            notes="graph breaks at no cost, nothing to do",
            has_source=True,
            has_cause=True,
        ),
    )
    RECOMPILE = (
        "recompile",
        RuleView(
            word="recompile",
            noun="recompile",
            badge="recompile",
            role="recompile",
            sign="↻",
            notes="recompiles that follow from another",
        ),
    )
    RECOMPILE_LIMIT = (
        "recompile-limit",
        RuleView(word="gave up", noun="function that torch gave up", badge="gave up"),
    )
    UNCOMPILED = (
        "uncompiled",
        RuleView(
            word="uncompiled",
            noun="skipped function",
            badge="uncompiled",
            role="break",
            sign="⚠",
            notes="functions left to Python",
            rank=1,
        ),
    )
    CACHE_BYPASS = (
        "cache-bypass",
        RuleView(word="cache bypass", noun="cache bypass", badge="cache bypass", role="break", sign="⚠"),
    )
    CUDA_GRAPH = (
        "cuda-graph",
        RuleView(
            word="cuda graph",
            noun="code without a CUDA graph",
            badge="no CUDA graph",
            role="break",
            sign="⚠",
            has_source=True,
            has_cause=True,
        ),
    )
    WRONG_VALUE = (
        "wrong-value",
        RuleView(word="wrong value", noun="wrong value", badge="wrong value", has_source=True, has_cause=True),
    )
    NOT_FINITE = (
        "not-finite",
        RuleView(
            word="not finite",
            noun="value that is not finite",
            badge="not finite",
            role="break",
            sign="⚠",
            has_source=True,
            has_cause=True,
        ),
    )
    LOW_PRECISION = (
        "low-precision",
        RuleView(
            word="low precision",
            noun="value of low precision",
            badge="low precision",
            role="break",
            sign="⚠",
            has_source=True,
            has_cause=True,
        ),
    )

    ASSUMED = (
        "assumed",
        RuleView(
            word="assumed",
            noun="assumption of a draft",
            badge="assumption of a draft",
            role="break",
            sign="⚠",
            has_source=True,
            has_cause=True,
        ),
    )

    def __new__(cls, name: str, view: RuleView) -> Self:
        rule = str.__new__(cls, name)
        rule._value_, rule.view = name, view
        return rule

    @property
    def is_recompile(self) -> bool:
        """Whether a function was compiled again, at the limit or before it."""
        return self in (Rule.RECOMPILE, Rule.RECOMPILE_LIMIT)
