"""The proved changes of `dynadiag fix`, read from its JSON: what each is for, and the lines that it replaces."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from dynadiag.check.measurement import Problem
from dynadiag.errors import UnreadableInput

_NO_NEWLINE = "\\"  # begins the line of a diff that says that the one before has no newline at its end
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")


@dataclass(frozen=True, slots=True)
class Replacement:
    """Lines of a file, from 1 and the end exclusive, and the text that takes their place. ``file`` is absolute."""

    file: str
    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class ProvedFix:
    """A change that was proved. ``alone`` is false where it was proved together with others."""

    title: str
    replacements: tuple[Replacement, ...]
    alone: bool


class _FixedProblem(msgspec.Struct):
    """What a fix is for, in the JSON."""

    kind: str
    gb_id: str | None
    file: str | None
    line: int | None


class _FixEntry(msgspec.Struct):
    """A fix in the JSON."""

    problem: _FixedProblem = msgspec.field(name="for")
    verdict: str
    title: str
    diff: str


class _FixesJson(msgspec.Struct):
    """The fields of the JSON that are read."""

    folder: str
    fixes: tuple[_FixEntry, ...]


@dataclass(frozen=True, slots=True)
class ProvedFixes:
    """The proved changes by what they are for. ``notes`` say which changes are left out."""

    by_place: dict[tuple[str, str | None, str | None, int | None], ProvedFix]
    notes: tuple[str, ...] = ()

    def of(self, item: Problem) -> ProvedFix | None:
        """The change for a problem, if one was proved."""
        kind = next((kind for kind in ("break", "recompile") if item.rule == f"new-{kind}"), "")
        return self.by_place.get((kind, item.gb_id if kind == "break" else None, item.file, item.line))


NO_FIXES = ProvedFixes({})


def read_fixes(paths: Sequence[Path]) -> ProvedFixes:
    """Read documents of `dynadiag fix --json`. Raises `UnreadableInput` for anything else.

    A change of a file that has changed since the search is left out.
    """
    found, notes = {}, []
    for path in paths:
        document = _read(path)
        proved = [entry for entry in document.fixes if entry.verdict == "proved" and entry.diff]
        alone = len({entry.diff for entry in proved}) == 1
        for entry in proved:
            at = entry.problem
            replacements = _replacements(entry.diff, Path(document.folder))
            if replacements is None:
                notes.append(f"the fix for {at.file}:{at.line} is left out: the file was changed since `dynadiag fix`")
            else:
                id_ = at.gb_id if at.kind == "break" else None
                found[at.kind, id_, at.file, at.line] = ProvedFix(entry.title, tuple(replacements), alone)
    return ProvedFixes(found, tuple(dict.fromkeys(notes)))


def _read(path: Path) -> _FixesJson:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_FixesJson)
    except OSError as error:
        raise UnreadableInput(f"{path}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableInput(f"{path}: not a document of `dynadiag fix --json FILE` ({error})") from error


def _replacements(diff: str, folder: Path) -> list[Replacement] | None:
    """The changes of a unified diff, without their context; ``None`` if a file has changed since."""
    found: list[Replacement] = []
    texts: dict[str, list[str]] = {}
    for name, number, sign, text in _diff_lines(diff):
        file = str(folder / name)
        if file not in texts:
            texts[file] = _lines(Path(file))
        if sign in " -" and texts[file][number - 1 : number] != [text]:
            return None
        if sign == " ":
            continue
        follows = found and (found[-1].file, found[-1].end) == (file, number)
        last = found.pop() if follows else Replacement(file, number, number, "")
        if sign == _NO_NEWLINE:
            last = replace(last, text=last.text.removesuffix("\n"))
        else:
            added = f"{text}\n" if sign == "+" else ""
            last = replace(last, end=last.end + (sign == "-"), text=last.text + added)
        if last.text or last.end > last.start:
            found.append(last)
    return found


def _diff_lines(diff: str) -> Iterator[tuple[str, int, str, str]]:
    """Each line of a unified diff: its file, its number in the old file, its sign and its text."""
    file, number, left = "", 0, [0, 0]
    for line in diff.split("\n"):
        if not any(left) and line.startswith("--- a/"):
            file = line.removeprefix("--- a/").rstrip()
        elif not any(left) and (head := _HUNK.match(line)):
            left = [int(head[2] or 1), int(head[3] or 1)]
            number = int(head[1]) + (left[0] == 0)
        elif line[:1] == _NO_NEWLINE:
            yield file, number, _NO_NEWLINE, ""
        elif any(left) and line[:1] in " +-":
            yield file, number, line[:1], line[1:]
            number += line[:1] != "+"
            left = [left[0] - (line[:1] != "+"), left[1] - (line[:1] != "-")]


def _lines(file: Path) -> list[str]:
    """The lines of a file, without their ends; none if it cannot be read."""
    try:
        return file.read_bytes().decode("utf-8").split("\n")
    except (OSError, UnicodeDecodeError):
        return []
