"""One piece of advice of the table, and the trials that it had."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["AdviceEntry", "AdviceTrial", "tried", "usual"]


@dataclass(frozen=True, slots=True)
class AdviceTrial:
    """A program on which advice was applied. ``case`` is the id of its graph break, None where it is about another.

    ``outcome`` is what happened.
    """

    program: str
    case: str | None = None
    outcome: str = "gone, same results"


@dataclass(frozen=True, slots=True)
class AdviceEntry:
    """One piece of advice. ``text`` may have ``{slots}`` that the case fills.

    ``otherwise`` is how far it was checked where no trial is on such a case: "consistent" for advice that is chosen by
    what is known of the case, "unchecked" for what usually helps. ``source`` is "torch" for words of torch's: then the
    text is what such a hint contains.
    """

    text: str
    trials: tuple[AdviceTrial, ...] = ()
    otherwise: str = "consistent"
    source: str = "dynadiag"

    def checked(self, case: str | None) -> str:
        """How far this was checked for a case: a trial counts if it is on such a break, or not about a break."""
        return "tried" if any(each.case in (None, case) for each in self.trials) else self.otherwise


def tried(text: str, *programs: str) -> AdviceEntry:
    """Return advice that is chosen by what is known of the case, with the programs that it was tried on."""
    return AdviceEntry(text, tuple(AdviceTrial(program) for program in programs))


def usual(text: str, **programs: str) -> AdviceEntry:
    """Return what usually helps with graph breaks of a family, with its programs by the id of their break."""
    return AdviceEntry(text, tuple(AdviceTrial(program, case) for case, program in programs.items()), "unchecked")
