"""Findings as text, in the manner of rustc. Their order and severity say what leads and what is left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from dynadiag.explanation.explanation import Explanation
from dynadiag.explanation.findings import Advice, Fact, Finding
from dynadiag.explanation.formatting import count
from dynadiag.explanation.rules import Rule
from dynadiag.recording.torch_text.breaks import with_places
from dynadiag.render.clean import clean_line
from dynadiag.render.paths import fit_path, short_stack, source_location
from dynadiag.render.printer import Printer, source_lines
from dynadiag.render.runtime_cost import cost_text
from dynadiag.render.wrap import truncate_end, truncate_middle, width

_MAX_SHOWN = 10  # findings of one rule that a report shows without --all
_MAX_PLACES = 10  # further places of one finding that it shows without --all
_MAX_LABEL = 32  # columns of an id


def finding_text(item: Finding, explanation: Explanation, printer: Printer) -> list[str]:
    return FindingPrinter(explanation, printer).finding(item)


class FindingPrinter:
    """Prints the findings of an explanation. Advice that it printed before is not repeated."""

    def __init__(self, explanation: Explanation, printer: Printer) -> None:
        self._explanation, self._printer = explanation, printer
        self._cwd = explanation.run.cwd
        self._advised: dict[str, Finding] = {}  # the finding that each piece of advice was printed for

    def section(self) -> list[str]:
        """A paragraph for each finding, the most important first, then lists of the notes.

        Ten of each rule are shown without ``--all``.
        """
        printer = self._printer
        lines: list[str] = []
        hidden: dict[Rule, int] = {}
        shown: dict[Rule, int] = {}
        for item in self._explanation.findings:
            if item.severity == "note" and not (printer.all_ and item.rule != Rule.UNCOMPILED):
                continue
            shown[item.rule] = shown.get(item.rule, 0) + 1
            if printer.all_ or shown[item.rule] <= _MAX_SHOWN:
                lines += [*self.finding(item), ""]
            else:
                hidden[item.rule] = hidden.get(item.rule, 0) + 1
        for rule, number in hidden.items():
            more = count(number, f"more {rule.view.noun}")
            lines += [printer.paint(f"... and {more}; --all shows them", "dim"), ""]
        for rule in Rule:
            lines += self._notes(rule)
        return lines

    def finding(self, item: Finding) -> list[str]:
        """One finding: its head, its place with the source, its facts, the calls that lead there, and the advice."""
        printer = self._printer
        first = item.own_span
        lines = [*self._head(item), printer.location(source_location(first.file, first.line, first.column, self._cwd))]
        if item.rule.view.has_source or item.entry:
            lines += printer.snippet(self._explanation.sources.get(first.file or ""), first)
        if (fact := owner_fact(item)) is not None:
            lines += self._fact(fact)
        lines += self._facts(item)
        if frames := short_stack(item.called, self._cwd):
            indent, room = printer.below_fact("called")
            innermost, *outer = (fit_path(frame, room) for frame in frames)
            lines += [*printer.fact("called", innermost), *(indent + line for line in outer)]
        return [*lines, *self._helps(item)]

    def _head(self, item: Finding) -> list[str]:
        label, printer = _labelled(item), self._printer
        first, *rest = printer.wrap(item.title, f"{label}: ")
        role = item.rule.view.role
        lead = printer.paint(first[: len(label)], role) + printer.paint(first[len(label) :], "strong")
        return [lead, *(printer.paint(line, "strong") for line in rest)]

    def _facts(self, item: Finding) -> list[str]:
        printer, lines = self._printer, list[str]()
        if item.cause and item.rule.view.has_cause:
            # torch lists frames in its explanation: their places are written as elsewhere in the report
            lines += printer.fact(
                "why",
                with_places(item.cause, lambda file, line: source_location(file, line, None, self._cwd)),
            )
        if item.caused_by is not None:
            lines += printer.fact("because of", finding_name(self._explanation.findings[item.caused_by]))
        also = causes = 0
        for index, fact in enumerate(item.evidence):
            also += fact.label == "also"
            causes += fact.detail and bool(fact.note)
            if printer.all_ or not (fact.detail or (fact.label == "also" and also > _MAX_PLACES)):
                lines += self._fact(fact if printer.all_ else _with_count(item.evidence, index))
        if not printer.all_ and causes:
            lines += printer.fact("and", f"{count(causes, 'more cause')}; --all shows them")
        if not printer.all_ and also > _MAX_PLACES:
            lines += printer.fact("and", f"{count(also - _MAX_PLACES, 'more line')}; --all shows them")
        if item.cost.call and self._explanation.warm:
            lines += printer.fact("costs", cost_text(item.cost.call, self._explanation.warm))
        return lines

    def _fact(self, fact: Fact) -> list[str]:
        """A label and a text, and below them a place with its line of source."""
        printer, span = self._printer, fact.span
        lines = printer.fact(fact.label, fact.text) if fact.text else []
        if span is None or span.file is None or span.line is None:
            return lines
        at = source_location(span.file, span.line, None, self._cwd)
        source = source_lines(self._explanation.sources.get(span.file, ""))
        code = clean_line(source[span.line - 1]) if 1 <= span.line <= len(source) else ""
        if not fact.text:
            return printer.fact(fact.label, f"{at}: {code}" if code else at)
        indent, room = printer.below_fact(fact.label)
        lines.append(f"{indent}at {fit_path(at, room - len('at '))}")
        return [*lines, f"{indent}{printer.paint(truncate_end(code, room), 'dim')}"] if code else lines

    def _helps(self, item: Finding) -> list[str]:
        """The advice. If all advice of an earlier finding is among it, that finding is named instead."""
        if item.caused_by is not None:
            return []
        advised = self._advised
        earlier = next((advised[advice.text] for advice in item.advice if advice.text in advised), None)
        fresh, again = list(item.advice), list[str]()
        if earlier is not None and {advice.text for advice in earlier.advice} <= {each.text for each in item.advice}:
            fresh = [advice for advice in item.advice if advice not in earlier.advice]
            again = self._printer.help(f"as for {_labelled(earlier)}, {earlier.function}")
        for advice in item.advice:
            advised.setdefault(advice.text, item)
        return [*(line for advice in fresh for line in self._advice(advice)), *again]

    def _advice(self, advice: Advice) -> list[str]:
        """Advice that fits the case is help. Unchecked advice is a hint, which says where it comes from."""
        if advice.checked != "unchecked":
            tried = f" (Tried on torch {', '.join(advice.elsewhere)}.)" if advice.elsewhere else ""
            return self._printer.help(f"{advice.text.rstrip()}{tried}")
        whose = "torch's own, unchecked" if advice.source == "torch" else "unchecked"
        return self._printer.labelled("hint", f"{advice.text.rstrip()} ({whose})", "help")

    def _notes(self, rule: Rule) -> list[str]:
        """A list of the notes of a rule, a line each. They follow from other findings, or cost nothing."""
        printer = self._printer
        notes = [item for item in self._explanation.findings if item.severity == "note" and item.rule == rule]
        if rule is Rule.BREAK:  # the paragraph of a break has those that follow from it
            notes = [item for item in notes if item.is_free]
        if rule.view.notes is None or not notes or (printer.all_ and rule is not Rule.UNCOMPILED):
            return []
        lines = [printer.paint(f"{rule.view.notes}: {len(notes)}", "strong")]
        for item in printer.first(notes, _MAX_SHOWN):
            lines += self._note(item)
        if len(notes) > _MAX_SHOWN and not printer.all_:
            lines.append(printer.paint(f"    ... and {len(notes) - _MAX_SHOWN} more; --all shows them", "dim"))
        return [*lines, ""]

    def _note(self, item: Finding) -> list[str]:
        """``    prog.py:37 in train: see break GB0008 at line 43``."""
        printer = self._printer
        at = f"{source_location(item.span.file, item.span.line, None, self._cwd)} in {clean_line(item.function)}"
        cause = None if item.caused_by is None else self._explanation.findings[item.caused_by]
        reason = item.title if cause is None else f"see {finding_name(cause)}"
        why = clean_line(reason)
        details = printer.wrap(item.evidence[0].text, "        ") if printer.all_ and item.evidence else []
        if width(at) + width(why) + 6 <= printer.columns:
            return [f"    {at}: {why}", *details]
        return [f"    {fit_path(at, printer.columns - 5)}:", *(details or printer.wrap(why, "        "))]


def _with_count(facts: Sequence[Fact], index: int) -> Fact:
    """A guard, with the number of those for the same change behind it, which a short report leaves out."""
    fact = facts[index]
    same = takewhile(lambda each: each.detail and each.label == "guard" and not each.note, facts[index + 1 :])
    more = sum(1 for _ in same) if fact.label == "guard" else 0
    if not more:
        return fact
    return replace(fact, text=f"{fact.text}; and {count(more, 'more guard')} for the same change, which --all shows")


def owner_fact(item: Finding) -> Fact | None:
    """Whose the line is, of a finding that is told at the line of the program that leads there."""
    whose = "Python's own library" if item.owner == "Python" else item.owner
    return Fact("in", f"{whose}: what you can change is the line above", item.span) if item.entry else None


def _labelled(item: Finding) -> str:
    """The word of the rule, with what stands in brackets after it."""
    word = item.rule.view.word
    return f"{word}[{truncate_middle(clean_line(item.label), _MAX_LABEL)}]" if item.label else word


def finding_name(item: Finding) -> str:
    """How a report refers to a finding: by what its paragraph begins with, and its line."""
    named = f"{item.rule.view.word} {item.id}" if item.id else f"{item.rule.view.word}[{item.label}]"
    return f"{named} at line {item.span.line}" if item.span.line else named
