"""Line tables of compiler stages: which source line each line of a stage came from, parsed from the stage's text.

Each parser takes the text that the tool wrote and the name of the source file. It returns the text to show, and pairs
(line of that text, line of the source), both 1-based. Code inlined from a library counts for the kernel's line that it
was inlined at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from dynadiag.kernels.graph_parser import split_lines

LineTable = tuple[str, list[tuple[int, int]]]

_LOCATION = re.compile(r"^(#loc\d*) = loc\((.*)\)$")
_USED = re.compile(r"loc\((#loc\d*)\)\s*$")
_FILE = re.compile(r"\"([^\"]*)\":(\d+):\d+")
_REFERENCE = re.compile(r"#loc\d*")
_CALLSITE = re.compile(r"callsite\(.* at (#loc\d*)\)")
_DEBUG = re.compile(r"!dbg (!\d+)")
_DILOCATION = re.compile(r"^(!\d+) = (?:distinct )?!DILocation\(line: (\d+),.*?scope: (!\d+)(?:, inlinedAt: (!\d+))?")
_PTX_LOC = re.compile(r"^\s*\.loc\s+(\d+) (\d+) \d+(?:.*inlined_at (\d+) (\d+))?")
_PTX_FILE = re.compile(r"^\s*\.file\s+(\d+) \"(.*)\"")
_DEBUG_SECTION = (".section\t.debug", ".section .debug", ".section\t.AMDGPU")
_SASS = re.compile(r"^\s*//## File \"([^\"]*)\", line (\d+)")
_SASS_INLINED = re.compile(r"inlined at \"([^\"]*)\", line (\d+)")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/")
_OBJDUMP_FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
_OBJDUMP_INSTRUCTION = re.compile(r"^\s*[0-9a-f]+:\t")
_OBJDUMP_LINE = re.compile(r"^(?:inlined by )?(\S.*):(\d+)(?: \(.*\))?$")


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage. `lines` are pairs (line of the text, line of the kernel's source), both 1-based."""

    name: str
    text: str
    lines: tuple[tuple[int, int], ...] = ()


def parse_stage(stage: str, text: str, file: str) -> Stage:
    """Return a stage with the text to show and its line table. A stage without a parser has an empty table."""
    reader = PARSERS.get(stage)
    shown, lines = reader(text, file) if reader else (text, [])
    return Stage(stage, shown, tuple(lines))


def _mlir(text: str, file: str) -> LineTable:
    """TTIR and TTGIR: ``loc(#loc3)`` at the end of a line, ``#loc3 = loc("kernel.py":33:20)`` anywhere.

    The locations are removed from the text that is shown.
    """
    lines = split_lines(text)
    known = {found[1]: found[2] for line in lines if (found := _LOCATION.match(line))}
    shown: list[str] = []
    pairs = []
    for line in lines:
        if _LOCATION.match(line):
            continue
        shown.append(re.sub(r" loc\((?:#loc\d*|\"[^\"]*\"\(#loc\d*\)|unknown)\)", "", line))
        found = _USED.search(line)
        number = _mlir_line(found[1], known, file) if found else None
        if number is not None:
            pairs.append((len(shown), number))
    return "\n".join(shown) + "\n", pairs


def _mlir_line(name: str, known: Mapping[str, str], file: str, depth: int = 0) -> int | None:
    """Resolve a location to a line of the file: its own, or the line that it was inlined at."""
    body = known.get(name, "")
    if depth > 20:
        return None
    if site := _CALLSITE.match(body):
        return _mlir_line(site[1], known, file, depth + 1)
    if (found := _FILE.search(body)) and found[1].endswith(file):
        return int(found[2])
    for reference in _REFERENCE.findall(body):
        if (number := _mlir_line(reference, known, file, depth + 1)) is not None:
            return number
    return None


def _llvm(text: str, _file: str) -> LineTable:
    """LLVM IR: ``!dbg !14`` at an instruction, ``!14 = !DILocation(line: 23, ..., inlinedAt: !9)`` below.

    The outermost location is always in the kernel's own source.
    """
    lines = split_lines(text)
    places = {found[1]: (int(found[2]), found[4]) for line in lines if (found := _DILOCATION.match(line))}
    end = next((number for number, line in enumerate(lines) if line.startswith("!")), len(lines))
    pairs = []
    for number, line in enumerate(lines[:end], 1):
        found = _DEBUG.search(line)
        if found and (place := _outermost_line(found[1], places)) is not None:
            pairs.append((number, place))
    return "\n".join(lines[:end]) + "\n", pairs


def _outermost_line(name: str, places: Mapping[str, tuple[int, str | None]]) -> int | None:
    for _ in range(20):
        if name not in places:
            return None
        line, inlined = places[name]
        if inlined is None:
            return line
        name = inlined
    return None


def _ptx(text: str, file: str) -> LineTable:
    """PTX: ``.loc FILE LINE COLUMN [, ... inlined_at FILE LINE COLUMN]`` above instructions, which end in ``;``."""
    return _parse_loc_directives(text, file, lambda line: line.startswith("\t") and line.rstrip().endswith(";"))


def _amdgcn(text: str, file: str) -> LineTable:
    """AMD assembly: as PTX. A line that begins with a full stop is not an instruction."""
    return _parse_loc_directives(text, file, lambda line: line.startswith("\t") and line[1:2].isalpha())


def _parse_loc_directives(text: str, file: str, counts: Callable[[str], bool]) -> LineTable:
    files = {found[1]: found[2] for line in split_lines(text) if (found := _PTX_FILE.match(line))}

    def location_of(line: str) -> tuple[bool, int | None]:
        found = _PTX_LOC.match(line)
        if found is None:
            return False, None
        own, number = (found[3], found[4]) if found[3] else (found[1], found[2])
        return True, int(number) if files.get(own, file).endswith(file) and int(number) else None

    lines = split_lines(text)
    end = next((number for number, line in enumerate(lines) if line.lstrip().startswith(_DEBUG_SECTION)), len(lines))
    return _parse_running(lines[:end], location_of, counts)


def _sass(text: str, file: str) -> LineTable:
    """SASS: nvdisasm writes ``//## File "kernel.py", line 33 [inlined at ...]`` above instructions."""

    def location_of(line: str) -> tuple[bool, int | None]:
        found = _SASS.match(line)
        if found is None:
            return False, None
        chain = [(found[1], found[2]), *_SASS_INLINED.findall(line)]
        return True, next((int(number) for name, number in chain if name.endswith(file)), None)

    return _parse_running(split_lines(text), location_of, lambda line: bool(_INSTRUCTION.match(line)))


def _objdump(text: str, file: str) -> LineTable:
    """x86 or ARM assembly of the kernel's functions, from ``objdump --line-numbers --inlines``."""
    shown: list[str] = []
    pairs: list[tuple[int, int]] = []
    mine, here = False, None
    for line in split_lines(text):
        if found := _OBJDUMP_FUNCTION.match(line):
            mine, here = found[1].startswith("kernel"), None
            if mine:
                shown.append(f"{found[1]}:")
        elif mine and _OBJDUMP_INSTRUCTION.match(line):
            shown.append(line.rstrip())
            if here is not None:
                pairs.append((len(shown), here))
        elif mine and (found := _OBJDUMP_LINE.match(line)):
            here = int(found[2]) if found[1].endswith(file) else here if line.startswith("inlined by") else None
    return "\n".join(shown) + "\n", pairs


def _parse_running(
    lines: Iterable[str], location_of: Callable[[str], tuple[bool, int | None]], counts: Callable[[str], bool]
) -> LineTable:
    """Parse a text in which a location line holds for the lines after it. Location lines are not shown."""
    shown: list[str] = []
    pairs: list[tuple[int, int]] = []
    here: int | None = None
    for line in lines:
        is_place, number = location_of(line)
        if is_place:
            here = number
            continue
        shown.append(line)
        if here is not None and counts(line):
            pairs.append((len(shown), here))
    return "\n".join(shown) + "\n", pairs


PARSERS: dict[str, Callable[[str, str], LineTable]] = {
    "ttir": _mlir,
    "ttgir": _mlir,
    "llir": _llvm,
    "ptx": _ptx,
    "amdgcn": _amdgcn,
    "sass": _sass,
    "asm": _objdump,
}
