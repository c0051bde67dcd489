"""Writes `advice.md` from the table of advice: run by `make docs`, checked by `tests/test_docs.py`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

from dynadiag.explanation.advice_entry import AdviceEntry
from dynadiag.explanation.advice_table import SECTIONS, TABLE

PAGE = Path(__file__).with_name("advice.md")
_ASIDES = ("like", "limit", "plain", "who")  # slots of whole sentences, which most cases leave empty


class _Slots(dict[str, str]):
    """What stands for a slot on the page."""

    def __missing__(self, name: str) -> str:
        return "" if name in _ASIDES else name.upper()


def markdown() -> str:
    """The page: each section as a list, with the trials of each piece of advice."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    tried = sum(bool(entry.trials) for entry in TABLE.values())
    yield "# Advice"
    yield ""
    yield "<!-- written by `make docs` -->"
    yield ""
    yield f"A report can give {len(TABLE)} pieces of advice. Of these {tried} were tried: the test suite runs the named"
    yield "program as it is and as the advice says. A report calls advice tried only for the cases that are named here."
    yield "A hint of torch's that is not in the table is passed on as torch's own, unchecked. Words in capitals stand"
    yield "for what the case has there."
    for title, section in SECTIONS.items():
        yield ""
        yield f"## {title}"
        yield ""
        for key, entry in section.items():
            yield from _item(key, entry)


def _item(key: str, entry: AdviceEntry) -> Iterator[str]:
    trials = [f"`{each.program}`{f' ({each.case})' if each.case else ''}: {each.outcome}" for each in entry.trials]
    told = "; ".join(trials) or (
        "not tried; chosen by what is known of the case" if entry.otherwise == "consistent" else "not tried"
    )
    text = f"`...{entry.text}`, torch's own" if entry.source == "torch" else entry.text.format_map(_Slots())
    yield from textwrap.wrap(f"- **{key}**: {text}", 110, subsequent_indent="  ")
    yield from textwrap.wrap(
        f"Tried on: {told}" if entry.trials else told, 110, initial_indent="  ", subsequent_indent="  "
    )


if __name__ == "__main__":
    PAGE.write_text(markdown())
