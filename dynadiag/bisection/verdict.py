"""The verdict of a bisection: as data, as a JSON document, and as text in the manner of a compiler's diagnostics."""

from __future__ import annotations

import json
import linecache
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dynadiag.bisection.document import BisectDocument, CulpritDocument, FailureDocument
from dynadiag.explanation.formatting import count, list_counted
from dynadiag.explanation.registry import installed_torch
from dynadiag.recording.records import Span
from dynadiag.recording.torch_text.failures import parse_compiler_output
from dynadiag.render.clean import clean, clean_line
from dynadiag.render.json_document import LineDocument, document_of, encode
from dynadiag.render.paths import source_location
from dynadiag.render.printer import Printer
from dynadiag.render.wrap import wrap_indented
from dynadiag.trial.plan import Plan
from dynadiag.trial.signature import Signature

EXIT_CODES = {"found": 0, "passes": 3, "fails_uncompiled": 4, "flaky": 5, "stopped": 5}


@dataclass(frozen=True, slots=True)
class Culprit:
    """One part of the compiler that is at fault. ``nodes`` are its FX nodes, where one name stands for several."""

    group: str  # the contract's "class"
    name: str
    compile_id: str | None = None
    graph: str | None = None
    lines: tuple[tuple[str, int], ...] = ()
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Verdict:
    """The answer of a bisection.

    ``confirmed`` are the two trials that verify it, in words. ``other_failures`` are different failures that trials
    showed. ``printed`` is the end of the first run's output, for a failure without a message. ``target`` is what was
    tried. ``command`` is the target with its arguments, as shell words for our own commands; empty for a call of this
    process, which no command can name. ``accuracy`` says whether calls were compared, ``exports`` whether it calls
    torch.export, on which no variable of the environment works. ``headline`` is the first line of the text, where that
    of the verdict says too little. ``shows_machine_fault`` is a program of one line that shows that no code compiles on
    this machine. ``reproduce`` are candidates for ``bisect --candidate``.
    """

    verdict: str  # "found" | "passes" | "fails_uncompiled" | "flaky" | "stopped"
    rungs: dict[str, str]
    rung: str | None = None
    failure: Signature | None = None
    culprits: tuple[Culprit, ...] = ()
    notes: tuple[str, ...] = ()
    other_failures: tuple[str, ...] = ()
    confirmed: tuple[str, ...] = ()
    printed: tuple[str, ...] = ()
    reproduce: tuple[str, ...] = ()
    torch: str | None = None
    target: str = ""
    command: str = ""
    accuracy: bool = False
    exports: bool = False
    headline: str = ""
    shows_machine_fault: str = ""
    trials: int = 0
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        return EXIT_CODES[self.verdict]

    def __repr__(self) -> str:
        return self.text(Printer()).rstrip("\n")

    def __str__(self) -> str:
        return self.text(Printer())

    def text(self, printer: Printer) -> str:
        """The report, with files relative to the current folder."""
        return verdict_text(self, str(Path.cwd()), printer)

    def to_json(self) -> str:
        """The contract's document as JSON text."""
        return encode(self.document()).decode()

    def document(self) -> BisectDocument:
        """The contract's document."""
        return document_of(
            BisectDocument,
            self,
            torch=self.torch or installed_torch(),  # after a crash or a hang no trial has reported it
            failure=FailureDocument.of(self.failure),
            culprits=tuple(map(_culprit_document, self.culprits)),
            seconds=round(self.seconds, 2),
            side_finds=self.other_failures,
        )


class InterruptedSearch(KeyboardInterrupt):
    """Raised after Ctrl-C. ``verdict`` says what is known so far."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__()
        self.verdict = verdict


def _culprit_document(culprit: Culprit) -> CulpritDocument:
    file, line = culprit.lines[-1] if culprit.lines else (None, None)
    lines = tuple(LineDocument(*each) for each in culprit.lines)
    place = (culprit.compile_id, culprit.graph, file, line)
    return CulpritDocument(culprit.group, culprit.name, *place, lines, culprit.nodes)


_OVERRIDE = 'TORCH_COMPILE_OVERRIDE_BACKENDS=">=0:{}"'
ENVIRONMENT_OF_RUNG = {
    "uncompiled": "TORCHDYNAMO_DISABLE=1",
    "eager": _OVERRIDE.format("eager"),
    "aot_eager": _OVERRIDE.format("aot_eager"),
    "aot_eager_decomp_partition": _OVERRIDE.format("aot_eager_decomp_partition"),
}
_MAX_MESSAGE_LINES = 6
_TORCH_ADVICE = "Set TORCHDYNAMO_VERBOSE=1"  # of torch, about a stack trace that is not shown here
_HEADLINES = {
    "passes": "it does not fail",
    "fails_uncompiled": "it fails without torch.compile too",
    "flaky": "it fails, but not every time",
    "stopped": "the search stopped before it found the culprit",
}
_MAX_OTHER_FAILURES = 5


def verdict_text(verdict: Verdict, cwd: str, printer: Printer) -> str:
    """What is at fault, where, how that was verified, and what to do next. Files are named relative to ``cwd``."""
    lines = [*_head(verdict, printer), *_failure(verdict, printer), *_rungs(verdict, printer)]
    for culprit in verdict.culprits:
        lines += ["", *_culprit(culprit, cwd, printer)]
    lines += [*_notes(verdict, printer), *_reproduce_commands(verdict, printer)]
    lines += ["", printer.paint(f"{count(verdict.trials, 'trial')} in {verdict.seconds:.0f} s", "dim")]
    return "\n".join(lines) + "\n"


def _head(verdict: Verdict, printer: Printer) -> list[str]:
    if verdict.verdict != "found":
        role = "good" if verdict.verdict == "passes" else "error"
        where = f"; it fails first at rung {verdict.rung}" if verdict.verdict == "stopped" and verdict.rung else ""
        return [printer.paint(verdict.headline or _HEADLINES[verdict.verdict], role) + where]
    blamed = list_counted(map(_blamed, verdict.culprits)) or "nothing smaller than the rung"
    if verdict.shows_machine_fault:
        blamed = "this machine, where no code compiles"
    return [printer.paint("found", "error") + f": {_where_it_fails(verdict)}; at fault: {blamed}"]


def _blamed(culprit: Culprit) -> str:
    """The culprit in the first line. A graph's name says little beside that of the only node that fails."""
    name = f"{culprit.group} {clean_line(culprit.name)}"
    if culprit.group == "graph" and len(culprit.nodes) == 1:
        return f"{clean_line(culprit.nodes[0])} of {name}"
    return name


def _where_it_fails(verdict: Verdict) -> str:
    """The rung. Below it the program may fail with another error, for another reason."""
    rungs = list(verdict.rungs)
    below = rungs[: rungs.index(verdict.rung)] if verdict.rung in rungs else []
    other = next((rung for rung in below if verdict.rungs[rung] == "different"), None)
    if other is None:
        return f"fails first at rung {verdict.rung}"
    return f"fails this way at rung {verdict.rung}, and first at {other} with another error"


def _failure(verdict: Verdict, printer: Printer) -> list[str]:
    failure = verdict.failure
    if failure is None:
        return []
    said = clean(failure.message).splitlines()
    message = [line for line in said if line.strip() and not line.startswith(_TORCH_ADVICE)]
    head = failure.kind if failure.type == failure.kind else f"{failure.kind}: {clean_line(failure.type)}"
    lines = [f"  {head}" + (f", on rank {failure.rank}" if failure.rank is not None else "")]
    told = _telling_lines(failure.message, message)
    for line in told:
        lines += wrap_indented("    ", line, printer.columns)
    if len(message) > len(told):
        lines.append(printer.paint(f"    ({len(message) - len(told)} more lines in --json)", "dim"))
    if failure.where:
        lines.append(f"  in {clean_line(failure.where)}")
    if verdict.printed:
        lines += ["  printed last:", *(f"    {clean_line(line)}" for line in verdict.printed)]
    return lines


def _telling_lines(message: str, lines: Sequence[str]) -> Sequence[str]:
    """The first lines of a message; of what a compiler printed its first error, which stands below its command."""
    output = parse_compiler_output(message)
    if output is None:
        return lines[:_MAX_MESSAGE_LINES]
    return [lines[0], *(clean(text) for text in (f"error: {output.error}", output.code) if text)]


def _rungs(verdict: Verdict, printer: Printer) -> list[str]:
    tried = {rung: status for rung, status in verdict.rungs.items() if status != "not_run"}
    if not tried:
        return []
    width = max(len(rung) for rung in tried)
    shown = [f"  {rung:<{width}}  {_status(status, printer)}" for rung, status in tried.items()]
    return ["", "rungs:", *shown]


def _status(status: str, printer: Printer) -> str:
    words = {"same": "fails", "different": "fails in another way"}
    return printer.paint(words.get(status, status), "good" if status == "pass" else "error")


def _culprit(culprit: Culprit, cwd: str, printer: Printer) -> list[str]:
    where = " of ".join(
        part for part in (culprit.graph, culprit.compile_id and f"compile {culprit.compile_id}") if part
    )
    head = f"{culprit.group} {clean_line(culprit.name)}"
    lines = [printer.paint(head, "strong") + (f" ({where})" if where else "")]
    if culprit.nodes:
        lines.append(f"  nodes: {clean_line(', '.join(culprit.nodes))}")
    for file, line in culprit.lines:
        span = Span(file, line)
        lines.append(f"  --> {source_location(file, line, None, cwd)}")
        lines += printer.snippet("".join(linecache.getlines(file)) or None, span)
    return lines


def first_few(other_failures: Sequence[str]) -> list[str]:
    """The other failures for a reader: at most five, and how many more there are (all are in the JSON)."""
    more = len(other_failures) - _MAX_OTHER_FAILURES
    return [*other_failures[:_MAX_OTHER_FAILURES], *([f"and {more} more (--json)"] if more > 0 else [])]


def _notes(verdict: Verdict, printer: Printer) -> list[str]:
    marked = [("confirmed", text) for text in verdict.confirmed]
    marked += [("note", text) for text in verdict.notes]
    marked += [("other failure", text) for text in first_few(verdict.other_failures)]
    lines: list[str] = []
    for mark, text in marked:
        lines += wrap_indented(f"  = {mark}: ", clean_line(text), printer.columns)
    return ["", *lines] if lines else []


def _reproduce_commands(verdict: Verdict, printer: Printer) -> list[str]:
    """The commands that repeat each step."""
    if verdict.verdict not in ("found", "fails_uncompiled"):
        return []
    if verdict.shows_machine_fault:
        return ["", printer.paint("by hand:", "help"), f"  python -c {shlex.quote(verdict.shows_machine_fault)}"]
    if not verdict.command:
        return ["", printer.paint("by hand:", "help"), *_without_a_file(verdict)]
    bisect = f"dynadiag bisect --candidate {{}} {verdict.command}"
    tried = [rung for rung, status in verdict.rungs.items() if status != "not_run"]
    plans = {rung: _compact_plan(Plan(rung=rung, accuracy=verdict.accuracy, caches=False).key()) for rung in tried}
    lines = [_at_rung(rung, verdict) or bisect.format(shlex.quote(plan)) for rung, plan in plans.items()]
    lines += [bisect.format(shlex.quote(_compact_plan(candidate))) for candidate in verdict.reproduce]
    if verdict.verdict == "found":
        accuracy = " --accuracy" if verdict.accuracy else ""
        lines.append(f"dynadiag minify -o repro.py{accuracy} {verdict.command}")
    return ["", printer.paint("by hand:", "help"), *(f"  {line}" for line in lines)]


def _at_rung(rung: str, verdict: Verdict) -> str | None:
    """The command that runs the program at a rung without dynadiag; ``None`` if that does not show the failure."""
    if rung not in ENVIRONMENT_OF_RUNG or verdict.accuracy or verdict.exports or _is_function(verdict.target):
        return None
    return f"{ENVIRONMENT_OF_RUNG[rung]} python {verdict.command}"


def _is_function(target: str) -> bool:
    return not target.startswith("-m ") and ":" in target.rpartition("/")[2]


def _without_a_file(verdict: Verdict) -> list[str]:
    tried = [
        ENVIRONMENT_OF_RUNG[rung]
        for rung, status in verdict.rungs.items()
        if rung in ENVIRONMENT_OF_RUNG and status != "not_run" and not verdict.exports
    ]
    return [
        *(f"  {setting}  # in the environment before torch is imported" for setting in tried),
        "  dynadiag bisect FILE.py:NAME  # a function NAME that returns (fn, args)",
        "  dynadiag minify -o repro.py FILE.py:NAME",
    ]


def _compact_plan(candidate: str) -> str:
    """A candidate without the fields that have their default value."""
    plan = json.loads(candidate)
    return json.dumps({k: v for k, v in plan.items() if v not in (None, [], False) or k == "caches"})
