"""Guards while torch has them as objects: where each came from, and which of them failed.

A recompile's own reason names only the first failing guard. Here every leaf guard of every cache entry is checked
again, each against its own value, so that all changes are known at once. Values are read without calling the user's
code: only plain numbers, strings, dtypes and the like are written out, anything else by its type.
"""

from __future__ import annotations

import ast
import enum
import functools
import re
from collections import deque
from collections.abc import Iterator
from types import BuiltinFunctionType, CodeType
from typing import Any

import torch

from dynadiag.capture.code_locations import is_stdlib_or_torch
from dynadiag.torch_private import ambient_state

_TENSOR = re.compile(
    r"check_tensor\((?P<source>.*), (?P<type>\w+), DispatchKeySet\((?P<keys>[^)]*)\), (?P<dtype>torch\.\w+), "
    r"device=(?P<device>[^,]*), requires_grad=(?P<requires_grad>\w+), "
    r"size=\[(?P<size>.*?)\], stride=\[(?P<stride>.*?)\]\)"
)
_SOURCES = re.compile(r"[LG](?:\[[^\[\]]*\]|\.\w+(?:\(\))?)+")  # L['args'][0].size()[1] in an expression
_IDENTITY = re.compile(r"___check_(?P<what>obj|type)_id\(.*, (?P<id>\d+)\)(?:, type=(?P<type><.*?>)(?=\s|$))?")
_LENGTH = re.compile(r"^(?:len\(.*\) == (?P<was>\d+)|not \S+)$")  # torch writes `not xs` for an empty list
_SINGLETON = re.compile(r"^.* is (?P<was>(not )?(None|True|False|\.\.\.))$")
_EQUALS = re.compile(r"^(?P<source>.*?) == (?P<was>.*)$")
_PLAIN_TYPES = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
# ``__len__`` of the builtin types, which runs no code of the user's.
_BUILTIN_LENGTHS = {kind.__len__ for kind in (list, tuple, dict, set, frozenset, str, bytes, deque)}
_DICT_LENGTH = re.compile(r"len\((?P<source>.*)\) != (?P<was>\d+)")
_ITEM_FUNCTION = "_dynadiag_item"
_ROOTS = ("", "L")  # sources of the root manager: its leaves guard the process, not a value
_MAX_TEXT = 200  # characters of a value that are recorded


def guard_locations(guards: Any) -> list[list[Any]]:
    """Return ``[kind, source, file, line, function]`` for each guard whose user stack torch kept.

    The line is the innermost of the user's.
    """
    found = []
    for guard in guards:
        stack = guard.user_stack
        if not stack:
            continue
        theirs = [frame for frame in stack if not is_stdlib_or_torch(frame.filename)]
        frame = theirs[-1] if theirs else stack[-1]
        found.append([guard.create_fn_name(), guard.name, frame.filename, frame.lineno, frame.name])
    return found


def failing_guards(entry: Any, f_locals: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every guard of one cache entry that fails for ``f_locals``: guard, source, was, now, against."""
    wrapper = entry.guard_manager
    root = getattr(wrapper, "root", None)
    if root is None or wrapper.closure_vars is None:  # torch invalidated the entry: it has a message, no guards
        yield _invalidated(str(getattr(wrapper, "invalidation_reason", "")), str(entry.compile_id))
        return
    scope = {**wrapper.closure_vars, "L": f_locals, "G": wrapper.global_scope["G"]}
    lookup = _GuardScope(dict(wrapper.global_scope), scope)
    found = [*_leaf_failures(root, lookup, f_locals), *_shape_failures(root, lookup, f_locals)]
    for failure in found or _length_failures(root, lookup, f_locals):
        yield {**failure, "against": str(entry.compile_id)}


def _invalidated(reason: str, against: str) -> dict[str, Any]:
    """Parse ``Cache line invalidated because L['self'] got deallocated``."""
    found = re.search(r"because (?P<source>.*) got deallocated", reason)
    changed = {"source": found["source"], "was": "alive", "now": "deallocated"} if found else {}
    return {"guard": reason, "against": against, **changed}


class _GuardScope:
    """Evaluates torch's own guard expressions in the scope that torch evaluates them in.

    An item of a dict is read as torch's guards read it, without the ``__getitem__`` and ``__missing__`` of a subclass:
    those may make a new object at each call, or add the key.
    """

    def __init__(self, globals_: dict[str, Any], scope: dict[str, Any]) -> None:
        self._globals = {**globals_, _ITEM_FUNCTION: _plain_item}  # comprehensions only see globals
        self.closure_vars = scope  # with `L` and `G`

    def evaluate(self, expression: str) -> Any:
        return eval(_compiled(expression), self._globals, self.closure_vars)  # noqa: S307 - torch's code in torch's process


class _PlainItems(ast.NodeTransformer):
    """Rewrites ``a[b]`` to ``_ITEM_FUNCTION(a, b)``."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.slice, ast.Slice):
            return node
        return ast.Call(ast.Name(_ITEM_FUNCTION, ast.Load()), [node.value, node.slice], [])


@functools.lru_cache(maxsize=4096)
def _compiled(expression: str) -> CodeType:
    tree = _PlainItems().visit(ast.parse(expression.strip(), "<guard>", "eval"))
    return compile(ast.fix_missing_locations(tree), "<guard>", "eval")


def _plain_item(container: Any, key: Any) -> Any:
    if not isinstance(container, dict):
        return container[key]
    if not dict.__contains__(container, key):
        raise KeyError(key)
    return dict.__getitem__(container, key)


def _leaf_failures(manager: Any, lookup: _GuardScope, f_locals: dict[str, Any]) -> Iterator[dict[str, Any]]:
    source = manager.get_source()
    try:
        value = f_locals if source in _ROOTS else lookup.evaluate(source)
    except (KeyError, AttributeError, IndexError, TypeError, NameError) as error:
        yield {
            "guard": f"{source} exists",
            "source": source,
            "was": "present",
            "now": f"gone ({type(error).__name__})",
        }
        return
    failed = [leaf for leaf in manager.get_leaf_guards() if callable(leaf) and not leaf(value)]
    for leaf in failed:
        is_root = source in _ROOTS
        yield from _describe_root_leaf(leaf, lookup, value) if is_root else _describe_leaf(leaf, source, value)
    if not failed and _has_other_type(manager, value):
        yield _type_failure(manager, source, value)
        return
    for child in _child_managers(manager):
        yield from _leaf_failures(child, lookup, f_locals)


def _child_managers(manager: Any) -> list[Any]:
    """The managers below a manager. A dict's keys and values have theirs in a separate table."""
    pairs = manager.get_key_value_managers().values() if hasattr(manager, "get_key_value_managers") else ()
    found = [child for pair in pairs for child in pair]
    if not pairs:
        found = manager.get_child_managers()
    return [child for child in found if child is not None]


def _has_other_type(manager: Any, value: Any) -> bool:
    """Whether a dict has another type than its manager expects. No leaf guard checks that."""
    of_items = hasattr(manager, "get_key_value_managers") and isinstance(value, dict)
    return of_items and type(value) is not manager.get_type_of_guarded_value()


def _type_failure(manager: Any, source: str, value: Any) -> dict[str, Any]:
    was = manager.get_type_of_guarded_value()
    guard = f"___check_type_id({source}, {id(was)}), type={was}"
    return {"guard": guard, "source": source, "was": str(was), "now": str(type(value))}


def _describe_leaf(leaf: Any, source: str, value: Any) -> Iterator[dict[str, Any]]:
    text = "; ".join(leaf.verbose_code_parts())
    code, comment = _split_comment(text)
    common = {"guard": code, "kind": type(leaf).__name__, "comment": comment}
    tensor = _TENSOR.match(code)
    if tensor and isinstance(value, torch.Tensor):
        differences = list(_tensor_differences(tensor, source, value))
        differences = differences or [_dispatch_key_difference(tensor, source, value)]
        yield from ({**common, **difference} for difference in differences)
    elif tensor:
        yield {**common, "source": source, "was": f"Tensor({tensor['size']})", "now": short_value(value)}
    else:
        yield {**common, "source": source, **_was_and_now(code, value)}


def _describe_root_leaf(leaf: Any, lookup: _GuardScope, value: Any) -> Iterator[dict[str, Any]]:
    """A guard on a mode, a setting or a default. Of an unknown one only the text is recorded."""
    code, comment = _split_comment("; ".join(leaf.verbose_code_parts()))
    common = {"guard": code, "kind": type(leaf).__name__, "comment": comment, "source": None, "was": None, "now": None}
    if code.startswith("___check_global_state"):
        yield from ({**common, **change} for change in _global_state(leaf, code, value))
    else:
        yield {**common, **(ambient_state.ambient_change(code, lookup.closure_vars) or {})}


def _split_comment(text: str) -> tuple[str, str]:
    code, _, comment = text.partition("  # ")
    return code.strip(), comment.strip()


def _was_and_now(code: str, value: Any) -> dict[str, str | None]:
    if match := _IDENTITY.match(code):
        if match["what"] == "type":
            return {"was": match["type"], "now": str(type(value))}
        number = int(match["id"])
        return {
            "was": _singleton_of_id(number)
            or _member_of_id(number, value)
            or f"another object {match['type'] or ''}".strip(),
            "now": short_value(value),
        }
    if match := _LENGTH.match(code):
        return {"was": f"length {match['was'] or 0}", "now": f"length {len(value)}" if _is_sized(value) else None}
    if match := _SINGLETON.match(code):
        return {"was": match["was"], "now": short_value(value)}
    if match := _EQUALS.match(code):
        return {"was": match["was"][:_MAX_TEXT], "now": short_value(value)}
    return {"was": None, "now": short_value(value)}


def _is_sized(value: Any) -> bool:
    """Whether its length can be read without running the user's code."""
    return type(value).__len__ in _BUILTIN_LENGTHS if hasattr(type(value), "__len__") else False


def _singleton_of_id(number: int) -> str | None:
    """The singletons whose identity gives their value."""
    return next((repr(one) for one in (True, False, None) if id(one) == number), None)


def _member_of_id(number: int, value: Any) -> str | None:
    """The member of the value's enumeration that has this identity."""
    members = vars(type(value)).get("_member_map_", {}) if isinstance(value, enum.Enum) else {}
    return next((short_value(one) for one in members.values() if id(one) == number), None)


def _tensor_differences(match: re.Match[str], source: str, value: torch.Tensor) -> Iterator[dict[str, Any]]:
    """The differences between the tensor that was guarded on and the new one."""
    was_size, was_stride = _sizes(match["size"]), _sizes(match["stride"])
    if type(value).__name__ != match["type"]:
        yield {"source": f"{source}.__class__", "was": match["type"], "now": type(value).__name__}
    if str(value.dtype) != match["dtype"]:
        yield {"source": f"{source}.dtype", "was": match["dtype"], "now": str(value.dtype)}
    if match["requires_grad"] != str(value.requires_grad):
        yield {
            "source": f"{source}.requires_grad",
            "was": match["requires_grad"],
            "now": str(value.requires_grad),
        }
    if len(was_size) != value.dim():
        yield {"source": f"{source}.dim()", "was": str(len(was_size)), "now": str(value.dim())}
        return
    now_stride = value.stride() if value.layout is torch.strided else ()
    for name, was, now in (("size", was_size, tuple(value.shape)), ("stride", was_stride, now_stride)):
        for index, (old, new) in enumerate(zip(was, now, strict=False)):
            if old is not None and old != str(new):
                yield {"source": f"{source}.{name}()[{index}]", "was": old, "now": str(new)}


def _dispatch_key_difference(match: re.Match[str], source: str, value: torch.Tensor) -> dict[str, Any]:
    """The difference when neither shape nor dtype changed: the kind of tensor (a subclass, a sparse or wrapped one)."""
    now = ambient_state.dispatch_keys(value)
    return {"source": source, "was": f"dispatch keys {match['keys']}", "now": f"dispatch keys {now}"}


def _sizes(text: str) -> list[str | None]:
    items = [item.strip() for item in text.split(",") if item.strip()]
    return [None if item == "None" else item for item in items]


def _global_state(leaf: Any, code: str, value: Any) -> Iterator[dict[str, str | None]]:
    """The global settings that changed. torch names them in the verbose check of the guard."""
    names = "".join(leaf.check_verbose(value).verbose_code_parts).partition("GLOBAL_STATE changed:")[2].split()
    for change in ambient_state.global_state_changes(code, names):
        yield {**change, "guard": f"GLOBAL_STATE changed: {change['source']}"}
    if not names:
        yield {"source": None, "guard": "GLOBAL_STATE changed", "was": None, "now": None}


def _length_failures(root: Any, lookup: _GuardScope, f_locals: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Failed checks of a dict's length. Its manager makes them itself, and torch reports them in the verbose check."""
    for part in root.check_verbose(f_locals).verbose_code_parts:
        if match := _DICT_LENGTH.match(part):
            source = match["source"]
            now = f"length {len(lookup.evaluate(source))}"
            yield {
                "guard": f"len({source}) == {match['was']}",
                "source": source,
                "was": f"length {match['was']}",
                "now": now,
            }


def _shape_failures(root: Any, lookup: _GuardScope, f_locals: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Failed symbolic-shape guards.

    They are one guard at the root with many parts, each an expression over the locals.
    """
    for leaf in root.get_epilogue_lambda_guards():
        if not callable(leaf) or leaf(f_locals):
            continue
        for part in leaf.verbose_code_parts():
            code, comment = _split_comment(part)
            try:
                holds = bool(lookup.evaluate(code))
            except (KeyError, AttributeError, IndexError, TypeError, NameError, SyntaxError, ValueError):
                holds = True  # it cannot be checked again: torch's own reason is used
            if not holds:
                source = next(iter(_SOURCES.findall(code)), None)
                now = lookup.evaluate(source) if source else None
                yield {
                    "guard": code,
                    "kind": "SHAPE_ENV",
                    "source": source,
                    "was": code,
                    "now": short_value(now),
                    "comment": comment,
                }


def short_value(value: Any) -> str:
    """Return a value as a short text, without calling the user's code."""
    if type(value) in _PLAIN_TYPES:
        text = repr(value)
    elif isinstance(value, torch.Tensor):
        text = f"Tensor{tuple(value.shape)}"
    elif isinstance(value, enum.Enum) and isinstance(name := vars(value).get("_name_"), str):
        text = f"{type(value).__qualname__}.{name}"
    elif type(value) in (list, tuple, dict, set):
        text = f"{type(value).__name__} of length {len(value)}"
    else:
        name = getattr(value, "__name__" if isinstance(value, BuiltinFunctionType) else "__qualname__", None)
        text = f"{name} ({type(value).__name__})" if isinstance(name, str) else f"a {type(value).__qualname__}"
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"
