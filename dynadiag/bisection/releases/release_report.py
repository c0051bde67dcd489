"""What a search over releases found, as the document of `bisect --torch` and as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dynadiag.bisection.document import BisectDocument, FailureDocument, ReleaseChangeDocument
from dynadiag.bisection.releases.searcher import ReleaseResult
from dynadiag.diff.comparison import compare_recordings
from dynadiag.diff.difference import Comparison
from dynadiag.explanation.formatting import count
from dynadiag.recording.opening import open_recording
from dynadiag.render.clean import clean_line
from dynadiag.render.diff import comparison_text
from dynadiag.render.printer import Printer
from dynadiag.render.wrap import wrap_indented
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.signature import Signature

EXIT_CODES = {"found": 0, "passes": 3, "fails_in_all": 4, "flaky": 5, "stopped": 5}
_HEADLINES = {
    "passes": "it fails with none of the releases that were tried",
    "fails_in_all": "it fails from the first release to the last",
    "flaky": "it fails, but not every time",
    "stopped": "no answer: too few releases could be tried",
}
_STATUSES = {"same": "fails", "different": "fails in another way"}
_COMMITS = "https://github.com/pytorch/pytorch/compare/v{}...v{}"
_MAX_MESSAGE_LINES = 4
_MAX_LINE = 300  # characters of a line of the message


@dataclass(frozen=True, slots=True)
class ReleaseChange:
    """Two releases between which the failure came (``came``) or was mended, oldest first, and how their runs differ.

    ``comparison`` and ``text`` are of the two recordings; without one of them there is neither.
    """

    before: str
    after: str
    came: bool
    recordings: tuple[Path, ...] = ()
    comparison: Comparison | None = None
    text: str = ""

    @property
    def commits(self) -> str:
        """Where the commits between the two releases can be read."""
        return _COMMITS.format(self.before, self.after)

    def document(self) -> ReleaseChangeDocument:
        """The change in the document."""
        found = self.comparison
        return ReleaseChangeDocument(
            before=self.before,
            after=self.after,
            came=self.came,
            commits=self.commits,
            recordings=tuple(map(str, self.recordings)),
            first=found.first if found else None,
            differences=found.differences if found else (),
            notes=found.notes if found else (),
        )


def compare_sides(before: str, after: str, came: bool, recordings: Sequence[Path], printer: Printer) -> ReleaseChange:
    """The change between two releases, with their recordings compared. Raises `UnreadableInput`."""
    if len(recordings) < 2:
        return ReleaseChange(before, after, came, tuple(recordings))
    with open_recording(recordings[0]) as old, open_recording(recordings[1]) as new:
        found = compare_recordings(old, new)
        return ReleaseChange(before, after, came, tuple(recordings), found, comparison_text(found, old, new, printer))


@dataclass(frozen=True, slots=True)
class ReleaseReport:
    """The answer of a search over releases, and what there is to tell with it.

    ``torch`` is the release of the program's own environment, ``kept`` a line on the environments that stay.
    """

    target: str
    torch: str
    result: ReleaseResult
    failure: Signature | None
    changes: tuple[ReleaseChange, ...] = ()
    kept: str = ""
    trials: int = 0
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        return EXIT_CODES[self.result.verdict]

    def document(self) -> BisectDocument:
        """The contract's document."""
        return BisectDocument(
            torch=self.torch,
            target=self.target,
            verdict=self.result.verdict,
            rung=None,
            rungs={},
            failure=FailureDocument.of(self.failure),
            culprits=(),
            trials=self.trials,
            seconds=round(self.seconds, 2),
            notes=tuple(self._notes()),
            side_finds=(),
            confirmed=(),
            printed=(),
            reproduce=(),
            versions={self._name(index): status for index, status in enumerate(self.result.statuses) if status},
            installs=self.result.installs,
            changes=tuple(change.document() for change in self.changes),
            **(self._sides() if self.result.verdict == "found" else {}),
        )

    def text(self, printer: Printer) -> str:
        """The report."""
        lines = [self._headline(printer), *self._failure_lines(printer), "", "releases of torch:"]
        width = max(len(self._name(index)) for index in range(len(self.result.candidates)))
        lines += [self._row(index, width, printer) for index in range(len(self.result.candidates))]
        for change in self.changes:
            lines += ["", *_change_lines(change, printer)]
        notes = [line for note in self._notes() for line in wrap_indented("  = note: ", note, printer.columns)]
        lines += ["", *notes] if notes else []
        end = f"{count(self.trials, 'trial')} in {self.seconds:.0f} s, {count(self.result.installs, 'install')}"
        lines += ["", *([self.kept] if self.kept else []), printer.paint(end, "dim")]
        return "\n".join(lines) + "\n"

    def _name(self, index: int) -> str:
        return str(self.result.candidates[index].version)

    def _sides(self) -> dict[str, Any]:
        """The releases on either side of each change, by their field in the document."""
        sides = asdict(self.result.boundaries)
        return {name: self._name(index) for name, index in sides.items() if index is not None}

    def _headline(self, printer: Printer) -> str:
        verdict = self.result.verdict
        answers = [index for index, status in enumerate(self.result.statuses) if status in ("same", "pass")]
        if verdict == "stopped" and len(answers) == 1:
            text = f"no answer: it fails with torch {self._name(answers[0])}, and no other release could be tried"
            return printer.paint(text, "error")
        if verdict != "found":
            return printer.paint(_HEADLINES[verdict], "good" if verdict == "passes" else "error")
        sides, parts = self._sides(), []
        if "first_bad" in sides:
            parts.append(f"it came between torch {sides['last_good']} and {sides['first_bad']}")
        if "first_good" in sides:
            parts.append(f"it was mended between torch {sides['last_bad']} and {sides['first_good']}")
        return printer.paint("found", "error") + ": " + ", and ".join(parts)

    def _failure_lines(self, printer: Printer) -> Iterator[str]:
        failure = self.failure
        if failure is None:
            return
        yield f"  {failure.kind}" + ("" if failure.type == failure.kind else f": {clean_line(failure.type)}")
        for line in [line for line in failure.message.splitlines() if line.strip()][:_MAX_MESSAGE_LINES]:
            yield from wrap_indented("    ", clean_line(line[:_MAX_LINE]), printer.columns)

    def _row(self, index: int, width: int, printer: Printer) -> str:
        status, trial = self.result.statuses[index], self.result.trials.get(index)
        if status is None:
            return printer.paint(f"  {self._name(index):<{width}}  not tried", "dim")
        role = {"pass": "good", "same": "error"}.get(status, "dim")
        figure = f" ({trial.value:g})" if trial is not None and trial.value is not None else ""
        reason = self.result.reasons.get(index) or (
            _other_failure(trial.outcome) if trial and status == "different" else ""
        )
        why = f": {clean_line(reason)}" if reason else ""
        return f"  {self._name(index):<{width}}  {printer.paint(_STATUSES.get(status, status), role)}{figure}{why}"

    def _notes(self) -> Iterator[str]:
        result = self.result
        if result.contradiction is not None:
            yield result.contradiction
        if result.stopped:
            yield "the search ended before its answer: more releases would have to be installed than it had said"
        yield from (f"{name} {text}" for name, text in self._skipped())

    def _skipped(self) -> Iterator[tuple[str, str]]:
        """Releases at a boundary that say nothing: the change may lie on either side of them."""
        found = self.result.boundaries
        gaps = [(found.last_good, found.first_bad), (found.last_bad, found.first_good)]
        between = {
            index for low, high in gaps if low is not None and high is not None for index in range(low + 1, high)
        }
        for index in sorted(between):
            status = self.result.statuses[index]
            text = {"different": "fails in another way", "invalid": "could not be tried"}.get(
                status or "", "was not tried"
            )
            yield self._name(index), f"{text}: the change may lie on either side of it"


def _other_failure(outcome: Outcome) -> str:
    """How a run ended that does not fail as it should."""
    failure = outcome.signature
    if failure is None:
        return ""
    if failure.kind == "hang":
        return f"stopped after {outcome.seconds:.0f} s; --timeout S gives it more"
    return failure.text


def _change_lines(change: ReleaseChange, printer: Printer) -> Iterator[str]:
    what = "came" if change.came else "mended"
    yield printer.paint(f"{what} between {change.before} and {change.after}", "strong") + f": {change.commits}"
    if change.comparison is None:
        yield "  the two runs were not recorded: they cannot be compared"
    elif change.comparison.same:
        yield "  the compiler did the same in both runs, as far as it was recorded"
    yield from (f"  {line}".rstrip() for line in change.text.splitlines())
