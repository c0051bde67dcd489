"""The patterns that a program taught Inductor, as settings: written with the call that registered them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from dynadiag.minify.source import CannotCarryError, Carrier
from dynadiag.torch_private import patterns as torch_private

__all__ = ["expression_of_pattern", "registering", "taught"]

_HOME = "torch._inductor.pattern_matcher"
_PASSES = ("pass_dict", "pass_dicts")


def taught() -> list[tuple[torch_private.Registration, str]]:
    """Every registration with one of torch's own passes, with a name that tells it from the others."""
    found = [made for made in torch_private.registrations() if all(map(torch_private.pass_place, made.passes))]
    return [(made, f"pattern {number} {made.name}") for number, made in enumerate(found)]


def registering(made: torch_private.Registration, carrier: Carrier, passes: Mapping[int, str] | None = None) -> str:
    """The line that registers it anew. ``passes`` has expressions for passes of the program's, by identity.

    Raises `CannotCarryError`.
    """
    carrier.require(_HOME)
    words = [f"{name}={_argument(name, value, carrier, passes or {})}" for name, value in made.arguments.items()]
    call = f"{_HOME}.{made.register}({', '.join(words)})"
    return f"{call}({carrier.undecorated(made.handler)})" if made.handler is not None else call


def _argument(name: str, value: Any, carrier: Carrier, passes: Mapping[int, str]) -> str:
    if name in _PASSES and isinstance(value, (list, tuple)):
        return f"[{', '.join(_pass(one, carrier, passes) for one in value)}]"
    if name in _PASSES:
        return _pass(value, carrier, passes)
    if name == "example_inputs":
        return f"[{', '.join(_example(one, carrier) for one in value)}]"
    return carrier.expression(value)


def _pass(value: Any, carrier: Carrier, passes: Mapping[int, str]) -> str:
    known = passes.get(id(value)) or torch_private.pass_place(value)
    if known is None:
        return carrier.expression(value)
    if known.startswith("torch."):
        carrier.require_home(known)
    return known


def _example(value: Any, carrier: Carrier) -> str:
    """What a pattern is traced with: its type and sizes count, its values don't."""
    if not isinstance(value, torch.Tensor):
        return carrier.expression(value)
    grad = ", requires_grad=True" if value.requires_grad else ""
    return f"torch.empty({tuple(value.shape)}, dtype={value.dtype}{grad})"


def expression_of_pattern(value: Any, carrier: Carrier) -> str | None:
    """A pattern, or a pass of the program's own with all that was registered with it; None for other things."""
    parts = torch_private.parts_of(value)
    if parts is None:
        return None
    kind, args, named = parts
    carrier.require(_HOME)
    if kind.endswith(".MULTIPLE"):
        return kind
    words = [*map(carrier.expression, args), *(f"{name}={carrier.expression(v)}" for name, v in named.items())]
    text = f"{kind}({', '.join(words)})"
    return _own_pass(value, text, carrier) if kind.endswith(".PatternMatcherPass") else text


def _own_pass(value: Any, text: str, carrier: Carrier) -> str:
    place = torch_private.pass_place(value)
    if place is not None:
        carrier.require_home(place)
        return place
    own = [made for made in torch_private.registrations() if any(one is value for one in made.passes)]
    if len({id(e) for entries in value.patterns.values() for e in entries}) != sum(len(m.entries) > 0 for m in own):
        raise CannotCarryError("a PatternMatcherPass with patterns that were not registered one by one")
    known, name = carrier.defines(value), carrier.variable("patterns", value)
    if known:
        return name
    carrier.blocks.append(f"{name} = {text}")
    carrier.blocks.extend(registering(made, carrier, {id(value): name}) for made in own)
    return name
