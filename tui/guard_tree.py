"""Guards as a tree of the values that they check: ``L['self']`` contains ``L['self'].layers[0].weight``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dynadiag.explanation.formatting import count
from dynadiag.recording.records import Guard
from dynadiag.recording.torch_text.guards import tensor_check
from dynadiag.recording.torch_text.sources import source_components, source_text
from dynadiag.render.paths import source_location
from tui.styled_text import Fragment, one_line
from tui.widgets.tree import Branch

__all__ = ["condition_text", "guard_branches"]

_MAX_EXPANDED = 40  # with more guards, branches start closed


def condition_text(guard: Guard) -> str:
    """The condition of a guard on one line. Of a tensor the type and the shape come first, which calls differ in.

    torch prints none for the second and later values of a check that covers several.
    """
    check = tensor_check(guard.expression)
    if check is None:
        return one_line(source_text(guard.expression)) if guard.expression else "-"
    size, stride = (f"[{', '.join(values)}]" for values in (check.size, check.stride))
    return one_line(
        f"{check.dtype.removeprefix('torch.')}, size={size}, stride={stride}, requires_grad={check.requires_grad}, "
        f"device={check.device}, DispatchKeySet({check.dispatch_keys})"
    )


@dataclass(slots=True)
class _SourceNode:
    children: dict[str, _SourceNode] = field(default_factory=dict)
    guards: list[Guard] = field(default_factory=list)

    def guard_count(self) -> int:
        return len(self.guards) + sum(child.guard_count() for child in self.children.values())


def guard_branches(guards: Sequence[Guard], cwd: str | None) -> list[Branch]:
    """Return the root branches of the tree."""
    root = _SourceNode()
    for guard in guards:
        here = root
        for step in source_components(guard.source):
            here = here.children.setdefault(step, _SourceNode())
        here.guards.append(guard)
    return _child_branches(root, "", cwd, is_open=len(guards) <= _MAX_EXPANDED)


def _child_branches(value: _SourceNode, path: str, cwd: str | None, *, is_open: bool) -> list[Branch]:
    own = [_guard_branch(guard, cwd) for guard in value.guards]
    return [
        *own,
        *(_source_branch(step, child, f"{path}\n{step}", cwd, is_open) for step, child in value.children.items()),
    ]


def _source_branch(step: str, value: _SourceNode, path: str, cwd: str | None, is_open: bool) -> Branch:
    """Return the branch of a value. A value with a single child and no guard shares one line with it."""
    name = step
    while not value.guards and len(value.children) == 1:
        ((step, value),) = value.children.items()
        name += step
        path = f"{path}\n{step}"
    parts: tuple[Fragment, ...] = ((one_line(name), "strong"), (f"  {count(value.guard_count(), 'guard')}", "dim"))
    return Branch(
        f"value{path}", parts, None, lambda: _child_branches(value, path, cwd, is_open=is_open), expanded=is_open
    )


def _guard_branch(guard: Guard, cwd: str | None) -> Branch:
    at = source_location(guard.file, guard.line, None, cwd) if guard.file else ""
    parts: list[Fragment] = [(one_line(guard.kind), "key"), (f"  {condition_text(guard)[:300]}", "")]
    if at:
        parts.append((f"  {at}", "dim"))
    return Branch(f"guard/{guard.index}", tuple(parts))
