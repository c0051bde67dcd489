"""Normalizes what a program printed for comparison: moved lines and names of folders do not count."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

# A warning is printed with the line that gave it, and with that line's text: both move with an edit.
_WARNING = re.compile(r"^(?:\S.*?):\d+: (\w*Warning: .*)\n(?:  \S.*\n?)?", re.M)
# What torch says about its own work: a break that is gone takes its warning with it.
# Its text may have frames of a stack; it ends with the line of torch's that gives it.
_TORCH_WARNING = re.compile(r'^\S*[/\\]torch[/\\]\S+\.py:\d+: \w*Warning: (?:.*\n)*?(?:  (?!File ")\S.*\n)', re.M)
# A warning of torch's C++ names the user's line, and says where in torch it comes from.
_TORCH_CPP_WARNING = re.compile(
    r"^\S.*?:\d+: \w*Warning: (?:(?!.*:\d+: \w*Warning: ).*\n)*?.*\(Triggered internally at .*\)\n(?:  \S.*\n)?", re.M
)
_TORCH_LOG = re.compile(r"^[VIWE]\d{4} \d\d:\d\d:\d\d\.\d+ .*[/\\]?torch[/\\]\S+\.py:\d+\].*\n", re.M)
_FRAME = re.compile(r'^(  File ".*?", line )\d+', re.M)
_SOURCE_LINE = re.compile(r"(\bFile: \S+\.py:)\d+( in )")  # of a node, as torch prints graphs
_PLACE = re.compile(r'^  File "(.*?)", line (\d+)', re.M)
_SHOWN_WARNING = re.compile(r"\w*Warning: ")  # as `comparable` leaves it
_EXCEPTION = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit|Unsupported)(?::.*)?$", re.M)
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?")
ROUNDING = 0.01  # relative difference beyond which two decimal numbers differ by more than rounding
_EPSILON = 1e-9  # of the comparison itself: 2.37 - 2.369 is a little more than 0.001
_SHOWN = 80  # characters of a line that differs
UNSTABLE = "\x00"  # a line, or the numbers of it, that differ from run to run of the unchanged program


def comparable(text: str, folders: Iterable[str] = ()) -> str:
    """The text without what an edit may change: line numbers in warnings, tracebacks and graphs, torch's warnings about
    its own work, and these folders.
    """
    for folder in folders:
        text = text.replace(folder, "")
    own = _TORCH_LOG.sub("", _TORCH_CPP_WARNING.sub("", _TORCH_WARNING.sub("", text)))
    return _SOURCE_LINE.sub(r"\1\2", _FRAME.sub(r"\1", _WARNING.sub(r"\1\n", own)))


def comparable_run(text: str, folders: Iterable[str]) -> str:
    """What a whole run printed, comparable, with each warning once. Python shows a warning again whenever somebody has
    changed a filter meanwhile, which torch does while it compiles.
    """
    shown, kept = set[str](), []
    for line in comparable(text, folders).splitlines(keepends=True):
        if not _SHOWN_WARNING.match(line) or line not in shown:
            kept.append(line)
        shown.add(line)
    return "".join(kept)


def last_exception(text: str) -> str | None:
    """The last exception that a program has shown, as Python shows it.

    >>> last_exception("Traceback ...\\n  File ...\\nValueError: no rows\\n")
    'ValueError: no rows'
    """
    shown = _EXCEPTION.findall(text)
    return shown[-1][:200] if shown else None


def last_line(text: str) -> str | None:
    """The file and line of the last frame in the last traceback of a program's output.

    >>> last_line('Traceback ...\\n  File "/home/me/train.py", line 3, in f\\n    g()\\nValueError: no rows\\n')
    'train.py:3'
    """
    places = _PLACE.findall(text)
    return f"{Path(places[-1][0]).name}:{places[-1][1]}" if places else None


def mask_unstable(one: str, other: str) -> str:
    """The first of two runs of the unchanged program, with what differs in the second marked.

    >>> mask_unstable("loss 1\\n2 s\\n", "loss 1\\n3 s\\n")
    'loss 1\\n\\x00 s\\n'
    """
    first, second = one.split("\n"), other.split("\n")
    if len(first) != len(second):
        return UNSTABLE
    return "\n".join(a if a == b else _masked(a, b) for a, b in zip(first, second, strict=True))


def _masked(one: str, other: str) -> str:
    numbers = _NUMBER.sub(UNSTABLE, one)
    return numbers if numbers == _NUMBER.sub(UNSTABLE, other) else UNSTABLE


def difference(expected: str, actual: str, spread: float = 0.0) -> str | None:
    """The first line that differs, in words; ``None`` if the texts agree. ``expected`` may be masked.

    Decimal numbers may differ by this relative ``spread``, and then by one in their last place.

    >>> difference("loss 2.37, 3 rows", "loss 2.369, 3 rows", spread=1e-4)
    >>> difference("loss 2.37, 3 rows", "loss 2.37, 4 rows", spread=1e-4)
    "it prints 'loss 2.37, 4 rows' where the unchanged program prints 'loss 2.37, 3 rows'"
    """
    if expected == UNSTABLE:
        return None
    first, second = expected.split("\n"), actual.split("\n")
    for a, b in zip(first, second, strict=False):
        if a != b and not (UNSTABLE in a and a in (UNSTABLE, _NUMBER.sub(UNSTABLE, b))) and not _close(a, b, spread):
            return _line_difference(a, b, first, second)
    if len(first) != len(second):
        return f"{len(second) - 1} lines instead of {len(first) - 1}"
    return None


def spread_of(one: str, other: str) -> float:
    """By how much decimal numbers differ at most between two runs of the unchanged program, relative to their size.

    Lines that differ otherwise, and numbers that differ by more than a hundredth, do not count: they are no rounding.
    """
    lines = zip(one.split("\n"), other.split("\n"), strict=False)
    pairs = (pair for a, b in lines for pair in _decimals(a, b) or ())
    apart = (abs(a - b) / max(abs(a), abs(b)) for a, b, _ in pairs if a != b)
    return max((share for share in apart if share <= ROUNDING), default=0.0)


def _close(one: str, other: str, spread: float) -> bool:
    pairs = _decimals(one, other) if spread else None
    return pairs is not None and all(
        abs(a - b) <= (spread * max(abs(a), abs(b)) + last) * (1 + _EPSILON) for a, b, last in pairs
    )


def _decimals(one: str, other: str) -> list[tuple[float, float, float]] | None:
    """The decimal numbers of two lines, in pairs with one in the last place of the finer; None if else they differ."""
    first, second = _NUMBER.findall(one), _NUMBER.findall(other)
    if _NUMBER.sub(UNSTABLE, one) != _NUMBER.sub(UNSTABLE, other):
        return None
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if a != b]
    if any("." not in f"{a}{b}" for a, b in pairs):
        return None
    return [(float(a), float(b), min(map(_last_place, (a, b)))) for a, b in pairs]


def _last_place(number: str) -> float:
    """
    >>> _last_place("2.369e-3")
    1e-06
    """
    digits, _, exponent = number.partition("e")
    return float(f"1e{int(exponent or 0) - len(digits.partition('.')[2])}")


def has_same_lines(one: str, other: str) -> bool:
    """Return whether two texts have the same lines. The order of the lines and the numbers in them may differ."""
    first, second = (sorted(_NUMBER.sub(UNSTABLE, text).splitlines()) for text in (one, other))
    return first == second


def _line_difference(expected: str, actual: str, first: list[str], second: list[str]) -> str:
    if sorted(first) == sorted(second):
        return f"the same lines in another order: {actual[:80]!r} comes before {expected[:80]!r}"
    pairs = zip(expected, actual, strict=False)
    first_other = next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(expected), len(actual)))
    start = max(0, first_other - _SHOWN // 2)
    shown, was = (text[start : start + _SHOWN] for text in (actual, expected))
    return f"it prints {shown!r} where the unchanged program prints {was!r}"
