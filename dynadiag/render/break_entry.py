"""One kind of graph break in plain words: `dynadiag explain GB0124`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dynadiag import __version__
from dynadiag.explanation.break_remedies import REMEDIES
from dynadiag.explanation.registry import BreakEntry, installed_torch
from dynadiag.render.json_document import SCHEMA, encode
from dynadiag.render.printer import Printer
from dynadiag.render.wrap import wrap_indented


def entry_text(entry: BreakEntry, printer: Printer | None = None) -> str:
    """Return what the break means, what torch says about it, and what to do about it. It ends in a line end."""
    printer = printer or Printer()
    first, *rest = wrap_indented(f"{entry.gb_id}: ", entry.gb_type, printer.columns)
    head = printer.paint(first[: len(entry.gb_id)], "break") + printer.paint(first[len(entry.gb_id) :], "strong")
    lines = [head, *(printer.paint(line, "strong") for line in rest), ""]
    lines += _block("What it means", [entry.family.meaning], printer)
    lines += _block("torch says", [entry.explanation] if entry.explanation else [], printer)
    lines += _block("torch's hints, unchecked", entry.hints, printer)
    lines += _block("What to do", _remedies(entry), printer)
    lines += _block("Reported with", [entry.context] if entry.context else [], printer)
    return "\n".join(lines).rstrip("\n") + "\n"


def entry_json(entry: BreakEntry) -> bytes:
    """Return the same as JSON."""
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "dynadiag": __version__,
        "torch": installed_torch(),
        "gb_id": entry.gb_id,
        "gb_type": entry.gb_type,
        "meaning": entry.family.meaning,
        "explanation": entry.explanation,
        "hints": list(entry.hints),
        "remedies": [REMEDIES[key].text for key in entry.family.remedies],
        "context": entry.context,
    }
    return encode(document)


def _remedies(entry: BreakEntry) -> list[str]:
    """What usually removes such a break. Advice that was tried on one says so."""
    remedies = [REMEDIES[key] for key in entry.family.remedies]
    tried = [any(trial.case == entry.gb_id for trial in remedy.trials) for remedy in remedies]
    return [f"{remedy.text} (tried)" if at else remedy.text for remedy, at in zip(remedies, tried, strict=True)]


def _block(title: str, texts: Sequence[str], printer: Printer) -> list[str]:
    if not texts:
        return []
    mark = "- " if len(texts) > 1 else ""
    lines = [line for text in texts for line in wrap_indented(f"  {mark}", text, printer.columns)]
    return [printer.paint(f"{title}:", "help"), *lines, ""]
