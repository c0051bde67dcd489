"""Reports two values that a repro compares, from the process of its trial: where they differ, and by what.

It runs beside torch, in a program of which the repro's assertion is about to fail.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dynadiag.minify.follow_up import ValuesCompared
from dynadiag.trial.context import TRIAL

_MAX_SHOWN = 4  # places: a reader looks at one or two
_MAX_PLAIN = 8  # values of a list that are shown together
_MAX_TEXT = 80  # characters of a value that is no number


@dataclass(frozen=True, slots=True)
class _Difference:
    """What of two parts differs: places with both values, and how many elements of how many. ``size`` is the largest
    distance, of numbers as a comparison with equal tolerances sees it.
    """

    rows: tuple[tuple[str, str, str], ...] = ()
    apart: int = 0
    total: int = 0
    size: float = math.inf


def show_values(left: Any, right: Any) -> None:
    """Report both values to the search, by the part that differs most: others may differ by rounding."""
    digests = _digest(left), _digest(right)
    differing = [found for place, a, b in _pairs(left, right) if (found := _compared(place, a, b)).rows]
    most = max(differing, key=lambda found: found.size, default=_Difference())
    TRIAL.send(ValuesCompared(digests, most.rows, most.apart, most.total))


def _pairs(left: Any, right: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The parts of lists, tuples and dicts that stand in one place of both; where these have no parts in common, or a
    few plain values, they are one.
    """
    if isinstance(left, dict) and isinstance(right, dict) and left.keys() == right.keys():
        keys: Iterable[Any] = left
    elif _is_whole(left) or _is_whole(right) or len(left) != len(right) or (_is_plain(left) and _is_plain(right)):
        yield place, left, right
        return
    else:
        keys = range(len(left))
    for key in keys:
        yield from _pairs(left[key], right[key], f"{place}[{key!r}]")


def _is_whole(value: Any) -> bool:
    return not isinstance(value, list | tuple)


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """The parts of lists, tuples and dicts, with their places; a few plain values are shown as one."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _leaves(part, f"{place}[{key!r}]")
    elif isinstance(value, list | tuple) and not _is_plain(value):
        for index, part in enumerate(value):
            yield from _leaves(part, f"{place}[{index}]")
    else:
        yield place, value


def _is_plain(value: Sequence[Any]) -> bool:
    return len(value) <= _MAX_PLAIN and not any(isinstance(part, torch.Tensor | list | tuple | dict) for part in value)


def _digest(value: Any) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for place, part in _leaves(value):
        if isinstance(part, torch.Tensor):
            bits = part.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            digest.update(f"{place} {part.dtype} {tuple(part.shape)} ".encode() + bits.numpy().tobytes())
        else:
            digest.update(f"{place} {part!r}".encode())
    return digest.hexdigest()


def _compared(place: str, left: Any, right: Any) -> _Difference:
    if not (isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor)):
        plain = all(not isinstance(each, dict) and (_is_whole(each) or _is_plain(each)) for each in (left, right))
        same = plain and (left == right or (left != left and right != right))  # NaN
        return _Difference(((place, *_texts(left, right)),) if not same else ())
    for form in ("dtype", "shape"):
        if (one := getattr(left, form)) != (other := getattr(right, form)):
            return _Difference(((f"{place}.{form}", *_texts(one, other)),))
    # Copies: compiled code may return a tensor that its storage does not hold, of which no part can be taken.
    left, right = (each.detach().cpu().clone(memory_format=torch.contiguous_format) for each in (left, right))
    return _compared_elements(place, left, right)


def _compared_elements(place: str, left: torch.Tensor, right: torch.Tensor) -> _Difference:
    differing = ~torch.isclose(left, right, 0, 0, equal_nan=True)
    distance = _distance(left, right).where(differing, torch.tensor(-1.0, dtype=torch.float64)).reshape(-1)
    count = int(differing.sum())
    largest = distance.topk(min(count, _MAX_SHOWN)).indices.sort().values
    where = [tuple(int(i) for i in torch.unravel_index(flat, left.shape)) for flat in largest]
    elements = ((f"{place}{list(at) if at else ''}", left[at].item(), right[at].item()) for at in where)
    rows = tuple((name, *_texts(one, other)) for name, one, other in elements)
    return _Difference(rows, count, left.numel(), float(distance.max()) if count else 0.0)


def _distance(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The distance of two tensors, relative where numbers are large; infinite where only one is NaN."""
    wide = torch.complex128 if left.is_complex() else torch.float64
    left, right = left.to(wide), right.to(wide)
    return ((left - right).abs() / (1 + right.abs())).nan_to_num(nan=torch.inf)


def _texts(left: Any, right: Any) -> tuple[str, str]:
    """Both values as texts: numbers with all digits where they differ in the last ones alone."""
    values = [v.item() if isinstance(v, torch.Tensor) and v.numel() == 1 else v for v in (left, right)]
    one, other = map(_text, values)
    return (one, other) if one != other else (repr(values[0])[:_MAX_TEXT], repr(values[1])[:_MAX_TEXT])


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(tuple(value) if isinstance(value, torch.Size) else value)
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]} ..."
