"""Under the recorder a sample prints the same (with a hash of its results), ends the same, and leaves no file."""

from __future__ import annotations

import re

import pytest

from tests.samples.running import SAMPLES, bare, explained

_PROGRESS = re.compile(r"dynadiag: \d+ s: \d+ compiled; compiling ")
_FAST = ("control_flow", "graph_breaks")
_ALL = sorted(path.stem for path in SAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in _FAST else pytest.mark.slow) for n in _ALL])
def test_a_sample_is_the_same_with_the_recorder(name: str) -> None:
    path = SAMPLES / f"{name}.py"
    alone, recorded = bare(path), explained(path).ended
    assert "result " in alone.stdout
    assert recorded.stdout.startswith(alone.stdout)
    first, *report = recorded.stdout[len(alone.stdout) :].splitlines()
    assert any(line.startswith("dynadiag ") for line in report), "the report follows"
    assert not first.startswith("dynadiag "), "its headline comes first"
    assert recorded.code == alone.code == 0
    assert recorded.left == alone.left
    assert _without_numbers(recorded.stderr.splitlines()[:-1]) == _without_numbers(alone.stderr.splitlines())


def _without_numbers(lines: list[str]) -> list[str]:
    """Log lines without their time and process id, and without our own progress, one line in ten seconds."""
    return [line.split("] ", 1)[-1] for line in lines if not _PROGRESS.match(line)]
