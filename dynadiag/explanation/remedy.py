"""A remedy: what helps against a problem, with the facts that it presupposes and the programs on which it was tried.

A remedy is data. `Remedy.needs` reads the typed facts of a case and returns the slots of the text, or None where one of
the presuppositions of the text does not hold: a remedy whose text would be untrue is not given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from dynadiag.explanation.findings import Advice

_ASIDES = (
    "apart",
    "copy",
    "least",
    "cycles",
    "like",
    "limit",
    "option",
    "plain",
    "range",
    "shared",
    "unless",
    "who",
)  # slots of whole sentences, which most cases leave empty

F = TypeVar("F")
Slots = Mapping[str, str] | None

MOST = 2  # remedies of one finding: more are not read


class Subject(str):
    """What a sentence is about: ``{names:has}`` writes it with its verb, which agrees in number.

    >>> "{0:has} changed; {1:is} new".format(Subject("`a`, `b`", many=True), Subject("`c`"))
    '`a`, `b` have changed; `c` is new'
    """

    _many: bool

    def __new__(cls, text: str, *, many: bool = False) -> Subject:
        made = super().__new__(cls, text)
        made._many = many
        return made

    def __format__(self, verb: str) -> str:
        if not verb:
            return str(self)
        return f"{self!s} {_PLURALS[verb] if self._many else verb}"


_PLURALS = {"has": "have", "is": "are", "was": "were"}


class _Unfilled(dict[str, str]):
    """What stands for a slot where there is no case."""

    def __missing__(self, name: str) -> str:
        return "" if name in _ASIDES else Subject(name.upper())


@dataclass(frozen=True, slots=True)
class Trial:
    """A program on which a remedy was tried.

    ``torch`` are the versions on which it works ("2.13"), empty where it works on all that are supported. ``case`` is
    the id of the program's graph break, None where the remedy is about another problem. ``outcome`` is what happened.
    ``by`` is the command that tries it where the test suite cannot, as it needs a GPU.
    """

    program: str
    torch: tuple[str, ...] = ()
    case: str | None = None
    outcome: str = "gone, same results"
    by: str = ""


@dataclass(frozen=True, slots=True)
class Remedy(Generic[F]):
    """What helps against problems whose facts are of type ``F``.

    ``says`` is a text with ``{slots}``. ``needs`` returns the slots where each presupposition of the text is a fact
    that holds, else None. ``ends``: it ends the problem, rather than explains it or makes it cheaper. ``usual``: it
    usually helps with problems of this kind, and counts as checked only where it was tried on one. The rewrites of
    `dynadiag fix` name the remedies that they carry out.
    """

    key: str
    says: str
    needs: Callable[[F], Slots] = lambda _: {}
    ends: bool = True
    trials: tuple[Trial, ...] = ()
    usual: bool = False

    @property
    def text(self) -> str:
        """The text without a case: what fills a slot is in capitals."""
        return slotted(self.says)

    def advice(self, facts: F, *, torch: str | None = None, case: str | None = None) -> Advice | None:
        """Return what a report says of a case, None where the remedy does not fit it.

        ``torch`` is the version that the case was recorded on, ``case`` the id of its graph break.
        """
        slots = self.needs(facts)
        if slots is None:
            return None
        trials = [trial for trial in self.trials if trial.case in (None, case)]
        here = any(not trial.torch or torch is None or _release(torch) in trial.torch for trial in trials)
        elsewhere = () if here else tuple(dict.fromkeys(version for trial in trials for version in trial.torch))
        checked = "tried" if here else "unchecked" if self.usual else "consistent"
        return Advice(self.says.format(**slots), checked, key=self.key, elsewhere=elsewhere)


def copied(kept: str) -> str:
    """What to write in a side of `torch.cond` that has this value without computing it; empty where none has."""
    return f" No side may return an operand, or a view of one: write `{kept}.clone()` for `{kept}`." if kept else ""


def tried(*programs: str) -> tuple[Trial, ...]:
    """Return the trials of a remedy that worked on each of these programs."""
    return tuple(Trial(program) for program in programs)


def slots_if(holds: object, **slots: str) -> Slots:
    """Return the slots if the presuppositions hold, else None."""
    return slots if holds else None


def slotted(text: str) -> str:
    """Return a text with slots as it is without a case."""
    return text.format_map(_Unfilled())


def advise(
    remedies: Iterable[Remedy[F]], facts: F, *, torch: str | None = None, case: str | None = None, most: int = MOST
) -> tuple[Advice, ...]:
    """Return the advice of the remedies that fit a case: those that end the problem first, at most ``most``."""
    fitting = [
        (remedy.ends, advice)
        for remedy in remedies
        if (advice := remedy.advice(facts, torch=torch, case=case)) is not None
    ]
    return tuple(advice for _, advice in sorted(fitting, key=lambda pair: not pair[0]))[:most]


def _release(version: str) -> str:
    """``2.13`` of ``2.13.0+cpu``."""
    return ".".join(version.split("+")[0].split(".")[:2])
