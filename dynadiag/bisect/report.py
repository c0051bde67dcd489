"""A verdict as text, in the manner of a compiler's diagnostics."""

from __future__ import annotations

import json
import linecache
import shlex

from dynadiag import __version__
from dynadiag.bisect.verdict import Culprit, Verdict
from dynadiag.recording.records import Span
from dynadiag.render.clean import clean, clean_line
from dynadiag.render.json import SCHEMA, encode
from dynadiag.render.paths import place
from dynadiag.render.snippet import snippet
from dynadiag.render.style import Style
from dynadiag.render.wrap import hanging

__all__ = ["verdict_json", "verdict_text"]

_OVERRIDE = 'TORCH_COMPILE_OVERRIDE_BACKENDS=">=0:{}"'
_BY_HAND = {
    "uncompiled": "TORCHDYNAMO_DISABLE=1",
    "eager": _OVERRIDE.format("eager"),
    "aot_eager": _OVERRIDE.format("aot_eager"),
    "aot_eager_decomp_partition": _OVERRIDE.format("aot_eager_decomp_partition"),
}
_MESSAGE_LINES = 6
_HEADS = {
    "passes": "it does not fail",
    "fails_uncompiled": "it fails without torch.compile too",
    "flaky": "it fails, but not every time",
}


def verdict_json(verdict: Verdict, target: str) -> bytes:
    """The contract's document."""
    head = {"schema": SCHEMA, "dynadiag": __version__, "torch": verdict.torch, "target": target}
    return encode({**head, **verdict.to_json()})


def verdict_text(verdict: Verdict, target: str, cwd: str, style: Style) -> str:
    """What is at fault, where, how that was made sure of, and what to do next."""
    lines = [*_head(verdict, style), *_failure(verdict, style), *_rungs(verdict, style)]
    for culprit in verdict.culprits:
        lines += ["", *_culprit(culprit, cwd, style)]
    lines += [*_remarks(verdict, style), *_by_hand(verdict, target, style)]
    seconds = f"{verdict.seconds:.0f} s"
    lines += ["", style.paint(f"{verdict.trials} trials in {seconds}", "dim")]
    return "\n".join(lines) + "\n"


def _head(verdict: Verdict, style: Style) -> list[str]:
    if verdict.verdict != "found":
        role = "good" if verdict.verdict == "passes" else "error"
        return [style.paint(_HEADS[verdict.verdict], role)]
    names = ", ".join(f"{c.group} {clean_line(c.name)}" for c in verdict.culprits) or "nothing smaller than the rung"
    return [style.paint("found", "error") + f": fails first at rung {verdict.rung}; at fault: {names}"]


def _failure(verdict: Verdict, style: Style) -> list[str]:
    failure = verdict.failure
    if failure is None:
        return []
    message = [line for line in clean(failure.message).splitlines() if line.strip()]
    lines = [f"  {failure.kind}: {clean_line(failure.type)}"]
    lines += [f"    {line[: style.columns]}" for line in message[:_MESSAGE_LINES]]
    if len(message) > _MESSAGE_LINES:
        lines.append(style.paint(f"    ({len(message) - _MESSAGE_LINES} more lines in --json)", "dim"))
    if failure.where:
        lines.append(f"  in {clean_line(failure.where)}")
    return lines


def _rungs(verdict: Verdict, style: Style) -> list[str]:
    tried = {rung: status for rung, status in verdict.rungs.items() if status != "not_run"}
    if not tried:
        return []
    width = max(len(rung) for rung in tried)
    shown = [f"  {rung:<{width}}  {_status(status, style)}" for rung, status in tried.items()]
    return ["", "rungs:", *shown]


def _status(status: str, style: Style) -> str:
    words = {"same": "fails", "different": "fails in another way"}
    return style.paint(words.get(status, status), "good" if status == "pass" else "error")


def _culprit(culprit: Culprit, cwd: str, style: Style) -> list[str]:
    where = " of ".join(
        part for part in (culprit.graph, culprit.compile_id and f"compile {culprit.compile_id}") if part
    )
    head = f"{culprit.group} {clean_line(culprit.name)}"
    lines = [style.paint(head, "strong") + (f" ({where})" if where else "")]
    if culprit.nodes:
        lines.append(f"  nodes: {clean_line(', '.join(culprit.nodes))}")
    for file, line in culprit.lines:
        span = Span(file, line)
        lines.append(f"  --> {place(file, line, None, cwd)}")
        lines += snippet("".join(linecache.getlines(file)) or None, span, style)
    return lines


def _remarks(verdict: Verdict, style: Style) -> list[str]:
    marked = [("confirmed", text) for text in verdict.confirmed]
    marked += [("note", text) for text in verdict.notes]
    marked += [("also met", text) for text in verdict.side_finds]
    lines: list[str] = []
    for mark, text in marked:
        lines += hanging(f"  = {mark}: ", clean_line(text), style.columns)
    return ["", *lines] if lines else []


def _by_hand(verdict: Verdict, target: str, style: Style) -> list[str]:
    """The commands that repeat each step."""
    if verdict.verdict not in ("found", "fails_uncompiled"):
        return []
    program = f"python {target}" if ":" not in target.split(" ")[0] else f"(a file that compiles and calls {target})"
    lines = ["", style.paint("by hand:", "help")]
    for rung, status in verdict.rungs.items():
        if rung in _BY_HAND and status != "not_run":
            lines.append(f"  {_BY_HAND[rung]} {program}")
    for candidate in verdict.reproduce:
        lines.append(f"  dynadiag bisect --candidate {shlex.quote(_short(candidate))} {target}")
    if verdict.verdict == "found":
        lines.append(f"  dynadiag minify -o repro.py {target}")
    return lines


def _short(candidate: str) -> str:
    """A candidate without what is as it always is."""
    plan = json.loads(candidate)
    return json.dumps({k: v for k, v in plan.items() if v not in (None, [], False) or k == "caches"})
