"""Finds what fails in a program after the statement that fails first. A search notes what its trials show."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from dynadiag.minify.source_trials import FILE, UNCOMPILED, SourceTrials
from minifier.source.without_line import programs_without_line

__all__ = ["look_for_next_failure"]

_MAX_STATEMENTS = 4  # that are left out, one after the other
_MAX_FORMS = 6  # of a program without one statement


def look_for_next_failure(trials: SourceTrials, text: str) -> None:
    """Run the program without the statement that fails, and without the one that fails then, until it passes or fails
    in another way: a function may fail again further down.

    Each program that counts passes uncompiled, as the whole program ``text`` does.
    """
    left_out: list[str] = []
    failure = trials.run(text, trials.compiled, "compiled")
    while trials.matches(failure, text):
        line = next((line for file, line in failure.lines if Path(file).name == FILE), None)
        if line is None or len(left_out) == _MAX_STATEMENTS:
            return
        forms = islice(programs_without_line(text, line, trials.observe(text)), _MAX_FORMS)
        passing = (form for form in forms if trials.run(form[1], UNCOMPILED, "uncompiled").passed)
        statement, text = next(passing, ("", ""))
        if not text:
            return
        left_out.append(f"`{statement}`")
        failure = trials.run(text, trials.compiled, "compiled")
    if failure.signature is not None and not failure.is_hang:  # the rest may well compile longer than what failed
        trials.search.note_other_failure(failure.signature, f"without {', '.join(left_out)}")
