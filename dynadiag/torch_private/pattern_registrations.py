"""The patterns that a program registers with Inductor's pattern matcher: their arguments, and where they are stored.

Read in torch 2.11.0, 2.13.0 and 2.15.0. All of this runs in a trial's process, which is ours and ends with the trial.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._inductor import pattern_matcher

from dynadiag.torch_private.monkeypatches import compiler_modules, function_of, is_foreign

_MATCHER_MODULE = "torch._inductor.pattern_matcher"
_DECORATORS = ("register_graph_pattern", "register_lowering_pattern")


@dataclass(slots=True)
class Registration:
    """One call of a ``register`` function, with its arguments.

    For a decorator, ``handler`` is the decorated function.
    """

    register: str
    arguments: dict[str, Any]
    handler: Any = None
    entries: list[Any] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The qualified name of the handler or of the search function."""
        function = self.handler if self.handler is not None else self.arguments["search_fn"]
        return str(getattr(function, "__qualname__", function))

    @property
    def passes(self) -> list[Any]:
        """The passes that apply the pattern."""
        given = self.arguments.get("pass_dict", self.arguments.get("pass_dicts"))
        return list(given) if isinstance(given, (list, tuple)) else [given]

    def undo(self) -> None:
        """Remove the registered patterns from their passes."""
        for known in self.passes:
            for entries in (
                known.patterns if isinstance(known, pattern_matcher.PatternMatcherPass) else known
            ).values():
                entries[:] = [entry for entry in entries if all(entry is not mine for mine in self.entries)]


_finished: list[Registration] = []
_in_progress: list[Registration] = []  # calls in progress; they own the entries that are made meanwhile


def track_patterns() -> None:
    """Remember what is registered from now on. torch keeps only the traced form of a replacement."""
    inner = pattern_matcher.PatternEntry.register

    @functools.wraps(inner)
    def register(self: Any, *args: Any, **kwargs: Any) -> None:
        if _in_progress:
            _in_progress[-1].entries.append(self)
        inner(self, *args, **kwargs)

    pattern_matcher.PatternEntry.register = register
    for name in _DECORATORS:
        setattr(pattern_matcher, name, _track_decorator(name, getattr(pattern_matcher, name)))
    pattern_matcher.register_replacement = _track_call("register_replacement", pattern_matcher.register_replacement)


def _track_call(name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(inner)
    def call(*args: Any, **kwargs: Any) -> Any:
        made = Registration(name, _bound_arguments(inner, args, kwargs))
        return _run_registration(made, lambda: inner(*args, **kwargs))

    return call


def _track_decorator(name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(inner)
    def call(*args: Any, **kwargs: Any) -> Any:
        decorator = inner(*args, **kwargs)
        arguments = _bound_arguments(inner, args, kwargs)
        return lambda handler: _run_registration(Registration(name, arguments, handler), lambda: decorator(handler))

    return call


def _bound_arguments(function: Callable[..., Any], args: Any, kwargs: Any) -> dict[str, Any]:
    return dict(inspect.signature(function).bind(*args, **kwargs).arguments)


def _run_registration(made: Registration, act: Callable[[], Any]) -> Any:
    _in_progress.append(made)
    try:
        result = act()
    finally:
        _in_progress.pop()
    _finished.append(made)
    return result


def user_registrations() -> Iterator[Registration]:
    """Yield the registrations that the user made, not torch's own."""
    for made in _finished:
        function = function_of(made.handler if made.handler is not None else made.arguments["search_fn"])
        if function is not None and is_foreign(function):
            yield made


def pass_path(wanted: Any) -> str | None:
    """Return the path of a pass of torch's: ``torch._inductor.fx_passes.joint_graph.pass_patterns[0]``."""
    for home, module in compiler_modules():
        for name, value in list(vars(module).items()):
            if value is wanted:
                return f"{home}.{name}"
            places = enumerate(value) if isinstance(value, list) else value.items() if type(value) is dict else ()
            for key, held in places:
                if held is wanted and isinstance(key, (int, str)):
                    return f"{home}.{name}[{key!r}]"
    return None


def constructor_parts(value: Any) -> tuple[str, list[Any], dict[str, Any]] | None:
    """Return (class in source, arguments, keyword arguments) that rebuild a pattern or an empty pass, or None."""
    kind = f"{_MATCHER_MODULE}.{type(value).__name__}"
    if isinstance(value, pattern_matcher.PatternMatcherPass):
        named = {name: getattr(value, name, None) for name in ("pass_name", "subsystem")}
        return kind, [], {name: text for name, text in named.items() if text is not None}
    if isinstance(value, pattern_matcher.Multiple):
        return f"{_MATCHER_MODULE}.MULTIPLE", [], {}
    if isinstance(value, pattern_matcher._TargetExpr):
        users = {} if value.users == 1 else {"users" if "VarArgs" in kind else "_users": value.users}
        args, named = getattr(value, "args", ()), getattr(value, "kwargs", {})
        # The operators that a pattern was given. torch adds all overloads of a packet.
        packets = [fn for fn in value.fns if isinstance(fn, torch._ops.OpOverloadPacket)]
        given = [fn for fn in value.fns if getattr(fn, "overloadpacket", None) not in packets]
        return kind, [given[0] if len(given) == 1 else given, *args], {**named, **users}
    for name in ("name", "outputs", "inner_pattern"):
        if isinstance(value, pattern_matcher.PatternExpr) and hasattr(value, name):
            return kind, [getattr(value, name)], {}
    if isinstance(value, pattern_matcher.ListOf):
        return kind, [value.pattern], {"partial": value.partial}
    return (kind, [], {}) if isinstance(value, pattern_matcher.PatternExpr) else None
