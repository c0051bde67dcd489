"""Writes the patterns that a program registered with Inductor, as calls that register them again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from dynadiag.minify.source_export import CannotExportError, SourceExporter
from dynadiag.torch_private import pattern_registrations as torch_private

_MODULE = "torch._inductor.pattern_matcher"
_PASSES = ("pass_dict", "pass_dicts")


def registered_patterns() -> list[tuple[torch_private.Registration, str]]:
    """Every registration with torch's own passes, each with a unique name."""
    found = [made for made in torch_private.user_registrations() if all(map(torch_private.pass_path, made.passes))]
    return [(made, f"pattern {number} {made.name}") for number, made in enumerate(found)]


def registration_source(
    registration: torch_private.Registration, exporter: SourceExporter, passes: Mapping[int, str] | None = None
) -> str:
    """The line that registers a pattern. ``passes`` maps ids of the program's passes to expressions.

    Raises `CannotExportError`.
    """
    exporter.import_module(_MODULE)
    words = [
        f"{name}={_argument(name, value, exporter, passes or {})}" for name, value in registration.arguments.items()
    ]
    call = f"{_MODULE}.{registration.register}({', '.join(words)})"
    return (
        f"{call}({exporter.function_without_decorators(registration.handler)})"
        if registration.handler is not None
        else call
    )


def _argument(name: str, value: Any, carrier: SourceExporter, passes: Mapping[int, str]) -> str:
    if name in _PASSES and isinstance(value, (list, tuple)):
        return f"[{', '.join(_pass_expression(one, carrier, passes) for one in value)}]"
    if name in _PASSES:
        return _pass_expression(value, carrier, passes)
    if name == "example_inputs":
        return f"[{', '.join(_example_input(one, carrier) for one in value)}]"
    return carrier.expression(value)


def _pass_expression(value: Any, carrier: SourceExporter, passes: Mapping[int, str]) -> str:
    known = passes.get(id(value)) or torch_private.pass_path(value)
    if known is None:
        return carrier.expression(value)
    if known.startswith("torch."):
        carrier.import_module_of(known)
    return known


def _example_input(value: Any, carrier: SourceExporter) -> str:
    """An example input for tracing a pattern: dtype and shape matter, values do not."""
    if not isinstance(value, torch.Tensor):
        return carrier.expression(value)
    grad = ", requires_grad=True" if value.requires_grad else ""
    return f"torch.empty({tuple(value.shape)}, dtype={value.dtype}{grad})"


def pattern_expression(value: Any, exporter: SourceExporter) -> str | None:
    """A pattern, or a pass of the program with its patterns, as an expression. None for other objects."""
    parts = torch_private.constructor_parts(value)
    if parts is None:
        return None
    kind, args, named = parts
    exporter.import_module(_MODULE)
    if kind.endswith(".MULTIPLE"):
        return kind
    words = [*map(exporter.expression, args), *(f"{name}={exporter.expression(v)}" for name, v in named.items())]
    text = f"{kind}({', '.join(words)})"
    return _user_pass(value, text, exporter) if kind.endswith(".PatternMatcherPass") else text


def _user_pass(value: Any, text: str, carrier: SourceExporter) -> str:
    place = torch_private.pass_path(value)
    if place is not None:
        carrier.import_module_of(place)
        return place
    own = [made for made in torch_private.user_registrations() if any(one is value for one in made.passes)]
    if len({id(e) for entries in value.patterns.values() for e in entries}) != sum(len(m.entries) > 0 for m in own):
        raise CannotExportError("a PatternMatcherPass with patterns that were not registered one by one")
    known, name = carrier.defines(value), carrier.variable("patterns", value)
    if known:
        return name
    carrier.blocks.append(f"{name} = {text}")
    carrier.blocks.extend(registration_source(made, carrier, {id(value): name}) for made in own)
    return name
