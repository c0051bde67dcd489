"""`explain` on programs after public reports: what a report says, what it must never say, and how long it may be.

`index.json` has for each program the report, the right answer (worked out from torch's own logs, each remedy tried by
hand), and what follows from that for the text; ``otherwise`` has what is right on another torch, and ``slow`` are those
that compile for seconds. ``python -m tests.reports.test_reports`` prints how many are right.
"""

# ruff: noqa: T201 - also a program

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import shared
from tests.samples.running import TORCH, explained

FOLDER = Path(__file__).parent
PROGRAMS = {path.stem: path for kind in ("programs", "exports") for path in sorted((FOLDER / kind).glob("*.py"))}
INDEX: dict[str, dict[str, Any]] = {
    **json.loads((FOLDER / "index.json").read_text()),
    **json.loads((FOLDER / "exports" / "index.json").read_text()),
}


def faults(name: str) -> list[str]:
    """What is wrong with the report on a program."""
    case, program = INDEX[name], PROGRAMS[name]
    ran = explained(program)
    text = ran.ended.stdout
    report = text[max(0, text.find("dynadiag 0.") - 200) :]  # the first line of a report stands above
    flat = " ".join(report.split())

    def is_in(pattern: str) -> bool:
        return bool(re.search(pattern, flat) or re.search(pattern, report, re.MULTILINE))

    lead = next((item["rule"] for item in ran.document["findings"]), None)
    named = [rf"\b{name}\.py:{line}\b|^ *{line} \|" for line in case.get("places", [])]
    lines = len(report.splitlines())
    return [
        *(f"not said: {pattern}" for pattern in (*case.get("says", []), *named) if not is_in(pattern)),
        *(f"said: {pattern}" for pattern in case.get("never", []) if is_in(pattern)),
        *([f"first: {lead}"] if lead not in case.get("lead", [lead]) else []),
        *([f"{lines} lines"] if lines > case.get("most_lines", lines) else []),
    ]


@pytest.mark.skipif(TORCH == "2.11", reason="it breaks elsewhere: the answers are for 2.13 and later")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * case.get("slow", False)) for name, case in INDEX.items()]
)
def test_a_report_on_a_public_program_is_right(name: str) -> None:
    if (otherwise := INDEX[name].get("otherwise", {}).get(TORCH)) is not None:
        pytest.skip(f"on torch {TORCH} {otherwise}")
    assert faults(name) == []


def test_each_program_has_its_answer() -> None:
    assert set(INDEX) == set(PROGRAMS)


def main() -> int:
    wrong = 0
    names = [name for name in sys.argv[1:] or INDEX if TORCH not in INDEX[name].get("otherwise", {})]
    for name in names:
        found = faults(name)
        wrong += bool(found)
        print(f"{'WRONG' if found else 'ok   '} {name} {'; '.join(found)}", flush=True)
    print(f"{len(names) - wrong} of {len(names)}")
    return min(wrong, 1)


if __name__ == "__main__":
    with shared.use():
        sys.exit(main())
