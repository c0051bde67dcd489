"""Which numbers that are not finite come to what a graph returns.

A NaN that `where` or `nan_to_num` takes out again is no fault, and is not the cause of another one that is returned.
Who reads whom does not tell them apart: ``where(good, a, b)`` may take its NaN of either. So a node with a NaN that
reads numbers that are not finite runs again with those of each input alone, and one in place of the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

from dynadiag.grouping import reached
from dynadiag.node_values.summary import is_summarized
from dynadiag.trial.reference_run import tensors_in

_NAN, _INF = "nan", "inf"
_MAX_ALONE = 8  # inputs that are not finite, each of which is tried alone
_NARROWEST = 2  # bytes of a floating type that has the operators needed here

Kinds = frozenset[str]
Rerun = Callable[[Collection[Node]], Any]


def kinds_of(value: Any) -> Kinds:
    """Return which numbers that are not finite a value has."""
    found = set[str]()
    for tensor in map(_numbers, tensors_in(value)):
        if tensor is not None and not math.isfinite(sum(map(float, torch.aminmax(tensor)))):
            found |= {_NAN} if bool(tensor.isnan().any()) else set()
            found |= {_INF} if bool(tensor.isinf().any()) else set()
    return frozenset(found)


def _numbers(tensor: torch.Tensor) -> torch.Tensor | None:
    """The elements, or their absolute values; None where none is a floating number that can be read."""
    if not is_summarized(tensor) or not tensor.numel() or not (tensor.is_floating_point() or tensor.is_complex()):
        return None
    tensor = tensor.detach()
    return tensor.abs() if tensor.is_complex() else tensor if tensor.element_size() >= _NARROWEST else tensor.float()


def finite(value: Any) -> Any:
    """Return a value whose numbers that are not finite are one: it is in the domain of most operators."""

    def replaced(each: Any) -> Any:
        if not isinstance(each, torch.Tensor) or not kinds_of(each):
            return each
        return torch.where(each.isfinite(), each, torch.ones_like(each))

    return pytree.tree_map(replaced, value)


def _nans(value: Any) -> torch.Tensor:
    """Which elements of a value are NaN, in one row."""
    rows = [numbers.isnan().reshape(-1) for numbers in map(_numbers, tensors_in(value)) if numbers is not None]
    return torch.cat(rows) if rows else torch.zeros(0, dtype=torch.bool)


@dataclass(slots=True)
class NotFiniteFlow:
    """What of one run is not finite, by the name of the node, and what of each node that comes from."""

    kinds: dict[str, Kinds] = field(default_factory=dict)
    returned: list[tuple[str, ...]] | None = None  # the names of what is returned or written to inputs, at the end
    _from: dict[tuple[str, str], list[tuple[str, str]]] = field(default_factory=dict)

    def note(self, n: Node, value: Any, read: Mapping[Node, tuple[str, ...]], rerun: Rerun | None) -> bool:
        """Note a value. ``read`` are the names under which each input is known here.

        ``rerun`` runs the node with those inputs as they are, and the others `finite`; None where it cannot run again.
        Returns whether the node makes a NaN also where all that it reads is finite, though some is not.
        """
        own = self.kinds[n.name] = kinds_of(value)
        bad = {source: names for source, names in read.items() if self._kinds(names)}
        if not own or not bad:
            return False
        of_nan, makes_nan = self._nan_sources(value, list(bad), rerun) if _NAN in own else ([], False)
        for source in of_nan:
            kind = _NAN if _NAN in self._kinds(bad[source]) else _INF
            self._link((n.name, _NAN), bad[source], kind)
        for names in bad.values():
            self._link((n.name, _INF), names, _INF)
        return makes_nan

    def _kinds(self, names: Iterable[str]) -> Kinds:
        return frozenset().union(*(self.kinds.get(name, frozenset()) for name in names))

    def _link(self, to: tuple[str, str], names: Sequence[str], kind: str) -> None:
        self._from.setdefault(to, []).extend((name, kind) for name in names if kind in self.kinds.get(name, ()))

    def _nan_sources(self, value: Any, bad: list[Node], rerun: Rerun | None) -> tuple[list[Node], bool]:
        """The inputs that the NaN of a value come from, and whether it has others. All inputs if that is not known."""
        if rerun is None or len(bad) > _MAX_ALONE:
            return bad, False
        try:
            all_, own = _nans(value), _nans(rerun(()))
            alone = {source: _nans(rerun((source,))) & ~own for source in bad}
            told = own.clone()
            for each in alone.values():
                told |= each
            unexplained = bool((all_ & ~told).any())
        except Exception:  # noqa: BLE001 - an operator that asks for its inputs' strides, or does not run twice
            return bad, False
        of = [source for source, each in alone.items() if bool(each.any())]
        return bad if unexplained else of, bool((own & all_).any())

    def reaches(self) -> dict[str, bool] | None:
        """Return, of each node that is not finite, whether its NaN, or else its infinities, come to what is returned.

        None where the run did not come to its end.
        """
        if self.returned is None:
            return None
        returned = ((name, kind) for names in self.returned for name in names for kind in self.kinds.get(name, ()))
        seen = reached(returned, lambda each: self._from.get(each, ()))
        return {name: (name, _NAN if _NAN in kinds else _INF) in seen for name, kinds in self.kinds.items() if kinds}
