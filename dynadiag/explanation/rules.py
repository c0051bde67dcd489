"""The rules: the kinds of finding, each with what a view needs to know of it. A new kind is one more entry."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

_SIGNS = {"error": "✗", "break": "⚠", "recompile": "↻"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleView:
    """How the findings of a rule are shown.

    ``word`` begins a paragraph, ``noun`` is what one is in a count, and ``name`` what the page and the browser call
    it, where that is not the word. ``role`` is its colour. ``notes`` begins the list of those that are only notes.
    ``rank`` orders findings of one severity. ``has_source`` and ``has_cause``: the text report shows the line and the
    cause. A function that was compiled again needs neither: its name says enough, and the facts of a guard have its old
    and its new value.
    """

    word: str
    noun: str
    name: str = ""
    role: str = "error"
    notes: str | None = None
    rank: int = 2
    has_source: bool = True
    has_cause: bool = True

    @property
    def badge(self) -> str:
        """What the page and the browser call it."""
        return self.name or self.word

    @property
    def sign(self) -> str:
        """What stands beside a line of source."""
        return _SIGNS[self.role]


class Rule(StrEnum):
    """The kind of a finding. In JSON, and for a program that reads one, it is its name."""

    view: RuleView

    FAILED_COMPILE = (
        "failed-compile",
        RuleView(word="error", noun="failed compile", name="failed compile", rank=0),
    )
    FAILED_PROGRAM = (
        "failed-program",
        RuleView(word="error", noun="failed program", name="failed program"),
    )
    DIVERGENCE = "divergence", RuleView(word="divergence", noun="divergence", name="ranks diverge")
    BREAK = (
        "break",
        RuleView(
            word="break",
            noun="graph break",
            name="graph break",
            role="break",
            notes="graph breaks at no cost, nothing to do",
        ),
    )
    RECOMPILE = (
        "recompile",
        RuleView(
            word="recompile",
            noun="recompile",
            role="recompile",
            notes="recompiles that follow from another",
            has_source=False,
            has_cause=False,
        ),
    )
    RECOMPILE_LIMIT = (
        "recompile-limit",
        RuleView(word="gave up", noun="function that torch gave up", has_source=False, has_cause=False),
    )
    UNCOMPILED = (
        "uncompiled",
        RuleView(
            word="uncompiled",
            noun="skipped function",
            role="break",
            notes="functions left to Python",
            rank=1,
            has_source=False,
            has_cause=False,
        ),
    )
    CACHE_BYPASS = (
        "cache-bypass",
        RuleView(word="cache bypass", noun="cache bypass", role="break", has_source=False, has_cause=False),
    )
    CUDA_GRAPH = (
        "cuda-graph",
        RuleView(word="cuda graph", noun="code without a CUDA graph", name="no CUDA graph", role="break"),
    )
    WRONG_VALUE = "wrong-value", RuleView(word="wrong value", noun="wrong value")
    NOT_FINITE = "not-finite", RuleView(word="not finite", noun="value that is not finite", role="break")
    LOW_PRECISION = "low-precision", RuleView(word="low precision", noun="value of low precision", role="break")
    ASSUMED = (
        "assumed",
        RuleView(word="assumed", noun="assumption of a draft", name="assumption of a draft", role="break"),
    )

    def __new__(cls, name: str, view: RuleView) -> Self:
        rule = str.__new__(cls, name)
        rule._value_, rule.view = name, view
        return rule

    @property
    def is_recompile(self) -> bool:
        """Whether a function was compiled again, at the limit or before it."""
        return self in (Rule.RECOMPILE, Rule.RECOMPILE_LIMIT)
