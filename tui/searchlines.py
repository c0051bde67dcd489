"""What is said of a search, as lines: how to start one, how it goes, what it found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dynadiag.render.words import count
from tui.location import Location
from tui.roles import Line, line, one_line
from tui.searching import Search

__all__ = ["search_lines"]

_ENDED = {
    0: ("found", "good"),
    3: ("it does not fail", "break"),
    4: ("it fails uncompiled too", "break"),
    5: ("it fails, but not every time: no culprit can be named", "break"),
    6: ("the repro was written, and its proof failed", "break"),
    7: ("it fails where nothing can be reduced", "break"),
    130: ("stopped: what was tried is kept", "break"),
}


def search_lines(search: Search | None, trials: int) -> list[Line]:
    """The head of the screen."""
    if search is None:
        return [
            line((count(trials, "trial") if trials else "no search is recorded here", "strong")),
            line(("B", "key"), " bisects the program: which part of the compiler is at fault"),
            line(("M", "key"), " minifies it: a small program with the same failure"),
        ]
    lines = [line((f"$ {search.plan.text}", "strong")), line((f"in {search.plan.folder}", "dim"))]
    if search.running:
        last = search.trials[-1] if search.trials else None
        said = search.said[-1] if search.said else "starting"
        now = f"trial {last.number}: {last.label}: {last.status}" if last else said
        return [*lines, line(("● running  ", "good"), f"{one_line(now)}  ", ("x stops it", "dim"))]
    return [*lines, *_ended(search)]


def _ended(search: Search) -> Iterator[Line]:
    if search.code is None:
        return
    words, role = _ENDED.get(search.code, (f"ended with exit code {search.code}", "error"))
    if search.plan.kind == "minify" and search.code == 0:
        words = "written and proved"
    yield line((words, role), (f"  {count(len(search.trials), 'trial')}", "dim"))
    for culprit in search.document.get("culprits") or ():
        if isinstance(culprit, dict):
            yield _culprit(culprit)
    repro = search.document.get("repro")
    if isinstance(repro, str):
        yield line(
            ("repro  ", "key"),
            one_line(repro),
            ("  enter opens it in $EDITOR", "dim"),
            to=Location("file", document=repro),
        )
    if not search.document:
        yield from (line((one_line(text), "dim")) for text in list(search.said)[-3:])
    yield Line()
    yield from (line(text) for text in search.report)


def _culprit(data: dict[str, Any]) -> Line:
    file, number = data.get("file"), data.get("line")
    name = (f"{one_line(str(data.get('class')))} {one_line(str(data.get('name')))}", "error")
    if not isinstance(file, str) or not isinstance(number, int):
        return line(("culprit  ", "key"), name, ("  no source line is known", "dim"))
    compile_id = data.get("compile_id") if isinstance(data.get("compile_id"), str) else None
    target = Location("code", compile_id, document=f"source:{file}", line=number)
    return line(("culprit  ", "key"), name, (f"  {one_line(file)}:{number}", "dim"), to=target)
