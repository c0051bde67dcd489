"""Counts, lists, durations and shortened values, as every report writes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import PurePath

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_BYTES = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB"))
_THOUSANDS = ("", "k", "M", "G", "T", "P")
_LISTED = 6  # names in one list; more are counted
_BRIEF = 32  # characters of a value
_AROUND = 20  # characters that are shown on either side of a difference

# What a trial showed, in words: whether a failure is that of the first trial is what a search asks.
STATUS_WORDS = {"same": "same failure", "different": "other failure", "invalid": "cannot run"}


def count(number: int, noun: str) -> str:
    """``1 graph``, ``2 graphs``, ``2 graph breaks``, ``2 cache bypasses``."""
    return f"{number:,} {noun}" + ("" if number == 1 else "es" if noun.endswith("s") else "s")


def list_some(items: Sequence[str], most: int = _LISTED) -> str:
    """The first few items, and how many more there are."""
    more = len(items) - most
    return ", ".join(items[:most]) + (f" and {more} more" if more > 0 else "")


def list_lines(places: Iterable[tuple[str, int]]) -> str:
    """Files with their lines, each line once.

    >>> list_lines([("/home/me/block.py", 19), ("/home/me/block.py", 18), ("net.py", 4)])
    'block.py:18, 19; net.py:4'
    """
    files: dict[str, set[int]] = {}
    for file, line in places:
        files.setdefault(file, set()).add(line)
    return "; ".join(f"{PurePath(file).name}:{', '.join(map(str, sorted(lines)))}" for file, lines in files.items())


def first_line(message: str) -> str:
    """The first line of a message, with what a colon at its end announces.

    >>> first_line("Lowering:\\n  target: relu\\n  args[0]")
    'Lowering: target: relu'
    """
    told: list[str] = []
    for line in filter(None, map(str.strip, message.splitlines())):
        told.append(line)
        if not line.endswith(":"):
            break
    return " ".join(" ".join(told).split())


def duration(seconds: float) -> str:
    """Seconds to read: ``0.04 s``, ``3.2 s``, ``124 s``."""
    if seconds < 0.995:
        return f"{seconds:.2f} s"
    return f"{seconds:.1f} s" if seconds < 99.95 else f"{seconds:.0f} s"


def short_duration(seconds: float) -> str:
    """Three digits in the unit that fits: ``1.25 s``, ``31.0 ms``, ``7.40 µs``."""
    scale, unit = next((pair for pair in _UNITS if seconds >= pair[0]), _UNITS[-1])
    value = seconds / scale
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f} {unit}"


def si_number(value: float | None) -> str:
    """``16.4k``: three digits and a unit of a thousand."""
    if value is None:
        return "?"
    number, unit = float(value), 0
    while number >= 999.5 and unit + 1 < len(_THOUSANDS):
        number, unit = number / 1000, unit + 1
    return f"{number:.0f}" if not unit else f"{number:.3g}{_THOUSANDS[unit]}"


def size_text(size: float | None) -> str:
    """``14.6 MB``: bytes in three digits, with units of 1,024; ``-`` where it is not known."""
    if size is None:
        return "-"
    scale, unit = next((pair for pair in _BYTES if size >= pair[0]), (1, "B"))
    return f"{size / scale:.3g} {unit}" if size < 1000 * scale else f"{size / scale:.0f} {unit}"


def list_counted(names: Iterable[str]) -> str:
    """Names in a list, each once: the same operator may be at fault in several graphs.

    >>> list_counted(["relu", "tanh", "relu"])
    'relu (2 times), tanh'
    """
    met = Counter(names)
    return ", ".join(name if times == 1 else f"{name} ({times} times)" for name, times in met.items())


def brief(text: str | None, most: int = _BRIEF) -> str:
    """The text on one line in at most ``most`` characters, its middle left out where it is longer.

    >>> brief("abcdefghij", 7)
    'abc…hij'
    """
    line = " ".join((text or "")[: 40 * most].split())
    left = most // 2
    return line if len(line) <= most else f"{line[:left]}…{line[left + 1 - most :]}"


def shorten(text: str, most: int) -> str:
    """The text in at most ``most`` characters, its end left out where it is longer.

    >>> shorten("abcdefghij", 7)
    'abcdef…'
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def whole_sentences(text: str, most: int) -> str:
    """As many whole sentences of the text as fit in ``most`` characters, of a longer first one its beginning.

    >>> whole_sentences("No such type. Register it before the export.", 30)
    'No such type.'
    """
    end = text.rfind(". ", 0, most) if len(text) > most else -1
    return shorten(text, most) if end < 0 else text[: end + 1]


def brief_pair(was: str, now: str, most: int = _BRIEF) -> tuple[str, str]:
    """Two texts on one line each, of long ones only the part that differs, with a little around it.

    >>> brief_pair("f(" + "abc, " * 9 + "1)", "f(" + "abc, " * 9 + "2)")
    ('…abc, abc, abc, abc, 1)', '…abc, abc, abc, abc, 2)')
    """
    was, now = (" ".join(text.split()) for text in (was, now))
    if max(len(was), len(now)) > most:
        shorter = min(len(was), len(now))
        start = next((i for i in range(shorter) if was[i] != now[i]), shorter)
        end = next((i for i in range(shorter - start) if was[-1 - i] != now[-1 - i]), shorter - start)
        first, last = max(0, start - _AROUND), max(0, end - _AROUND)
        was, now = (f"{'…' * (first > 0)}{text[first : len(text) - last]}{'…' * (last > 0)}" for text in (was, now))
    return brief(was, most), brief(now, most)
