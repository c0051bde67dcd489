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
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

import torch

from dynadiag.capture.code_locations import is_stdlib_or_torch
from dynadiag.recording.torch_text.guards import TensorCheck, class_name, read_condition, tensor_check
from dynadiag.torch_private import ambient_state

_PLAIN_TYPES = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
# ``__len__`` of the builtin types, which runs no code of the user's.
_BUILTIN_LENGTHS = {kind.__len__ for kind in (list, tuple, dict, set, frozenset, str, bytes, deque)}
_CONTAINERS = (list, tuple, set, frozenset)
# The types whose values have a name, and the attribute with it.
_NAMES = {
    FunctionType: "__qualname__",
    MethodType: "__qualname__",
    BuiltinFunctionType: "__name__",
    CodeType: "co_qualname",
    type: "__qualname__",
}
_MAX_ITEMS = 8  # of a container that are written out
_DICT_LENGTH = re.compile(r"len\((?P<source>.*)\) != (?P<was>\d+)")
_ITEM_FUNCTION = "_dynadiag_item"
_NOT_THERE = (KeyError, AttributeError, IndexError, TypeError, NameError)  # of a source that has no value any more
_ROOTS = ("", "L")  # sources of the root manager: its leaves guard the process, not a value
# An item of a subclass of dict (Counter, OrderedDict), which torch reads by the position of its key.
_BY_POSITION = re.compile(r"dict\.__getitem__\((?P<of>[^(),]+), (?P<key>list\(dict\.keys\((?P=of)\)\)\[\d+\])\)")
_ATTRIBUTE = re.compile(r"(?P<holder>.+)\.(?:__dict__|_modules|_parameters|_buffers)\['(?P<name>\w+)'\]", re.DOTALL)
_MAX_TEXT = 200  # characters of a value that are recorded


def guard_places(guards: Any, f_locals: dict[str, Any]) -> list[list[Any]]:
    """Return ``[kind, source, file, line, function]`` for each guard whose user stack torch kept.

    The line is the innermost of the user's. A sixth item names what is guarded on where the guard's text does not.
    """
    scope = _GuardScope({}, {"L": f_locals})
    found = []
    for guard in guards:
        stack = guard.user_stack
        if not stack:
            continue
        theirs = [frame for frame in stack if not is_stdlib_or_torch(frame.filename)]
        frame = theirs[-1] if theirs else stack[-1]
        kind = guard.create_fn_name()
        place = [kind, guard.name, frame.filename, frame.lineno, frame.name]
        named = _named(kind, guard.name, scope)
        found.append(place if named is None else [*place, named])
    return found


def _named(kind: str, source: str, scope: _GuardScope) -> str | None:
    """The code of a function, or the placements of a DTensor, which such a guard is on and does not name."""
    if kind not in ("CLOSURE_MATCH", "DTENSOR_SPEC_MATCH"):
        return None
    try:
        value = scope.evaluate(source)
    except _NOT_THERE:  # a global of the program's
        return None
    if kind == "DTENSOR_SPEC_MATCH":
        return ambient_state.placements(value)
    return short_value(value.__code__) if isinstance(value, FunctionType) else None


class ObjectNumbers:
    """Numbers the objects that are locals of compiled functions: two compiles may be for two objects.

    An object is held by a weak reference only. What has none (a number, a dict) has no number, and a tensor has none
    either: it is another one in each call.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._count = 0

    def of_locals(self, f_locals: Mapping[str, Any]) -> dict[str, int]:
        """Return the number of each local that has one."""
        numbers = ((name, self._number(value)) for name, value in f_locals.items())
        return {name: number for name, number in numbers if number is not None}

    def _number(self, value: Any) -> int | None:
        if isinstance(value, torch.Tensor) or not type(value).__weakrefoffset__:
            return None
        reference, number = self._known.get(id(value), (None, 0))
        if reference is None or reference() is not value:
            self._count += 1
            reference, number = weakref.ref(value), self._count
            self._known[id(value)] = reference, number
        return number


def failing_guards(entry: Any, f_locals: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every guard of one cache entry that fails for ``f_locals``: the known fields of a `GuardFailure`."""
    wrapper = entry.guard_manager
    root, against = getattr(wrapper, "root", None), str(entry.compile_id)
    if root is None or wrapper.closure_vars is None:  # torch invalidated the entry: it has a message, no guards
        yield {**_facts(str(getattr(wrapper, "invalidation_reason", ""))), "against": against}
        return
    scope = {**wrapper.closure_vars, "L": f_locals, "G": wrapper.global_scope["G"]}
    lookup = _GuardScope(dict(wrapper.global_scope), scope)
    free = entry.code.co_freevars
    failures = [*_leaf_failures(root, lookup, f_locals, ""), *_shape_failures(root, lookup, f_locals)]
    for failure in (*ambient_state.with_inference_mode(failures), *_length_failures(root, lookup, f_locals)):
        if failure.get("base") == "argument" and failure.get("subject") in [f"L['{name}']" for name in free]:
            failure["base"] = "closure"
        texts = ((name, failure[name]) for name in ("guard", "source", "subject") if failure.get(name))
        yield {**failure, **{name: _by_key(text, lookup) for name, text in texts}, "against": against}


def _by_key(text: str, lookup: _GuardScope) -> str:
    """A guard's text, with the key of each item that torch reads by position, as the program writes it."""

    def item(found: re.Match[str]) -> str:
        try:
            key = lookup.evaluate(found["key"])
        except _NOT_THERE:
            return found[0]
        return f"{found['of']}[{key!r}]" if type(key) in _PLAIN_TYPES else found[0]

    return _BY_POSITION.sub(item, text)


def _facts(code: str, **known: Any) -> dict[str, Any]:
    """What a guard's text says of itself, and what is known of it otherwise."""
    read = read_condition(code)
    names = ("guard", "source", "was", "now", "part", "subject", "index", "base", "was_type", "now_type", "terms")
    return {name: value for name in names if (value := getattr(read, name)) not in (None, ())} | known


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


def _leaf_failures(
    manager: Any, lookup: _GuardScope, f_locals: dict[str, Any], base: str, source: str = ""
) -> Iterator[dict[str, Any]]:
    """The failures of the guards on a value and on all in it. ``base`` is that of the value, if it is an attribute.

    ``source`` is where the value is, if its manager does not say so.
    """
    source = source or manager.get_source()
    try:
        value = f_locals if source in _ROOTS else lookup.evaluate(source)
    except _NOT_THERE:
        yield _gone(manager, lookup, source)
        return
    except AssertionError:  # a torch function mode that is gone: the guard on the stack of modes fails, too
        return
    failed = [leaf for leaf in manager.get_leaf_guards() if callable(leaf) and not _holds(leaf, value)]
    for leaf in failed:
        if source in _ROOTS:
            yield from _describe_root_leaf(leaf, lookup, value)
            continue
        for failure in _describe_leaf(leaf, source, value):
            if failure.get("base") == "attribute" and base:
                failure["base"] = base
            yield failure
    if not failed and _has_other_type(manager, value):
        was = manager.get_type_of_guarded_value()
        yield _other_type(f"___check_type_id({source}, {id(was)}), type={was}", source, str(was), value)
        return
    for child, place in _child_managers(manager, source):
        inside = base if source.endswith(".__dict__") else "" if source in _ROOTS else _base_inside(value, base)
        yield from _leaf_failures(child, lookup, f_locals, inside, place)


def _holds(leaf: Any, value: Any) -> bool:
    """Whether a guard holds. One on a length raises an exception of what has none."""
    try:
        return bool(leaf(value))
    except SystemError:
        return False


def _gone(manager: Any, lookup: _GuardScope, source: str) -> dict[str, Any]:
    """The failure of a source without a value. An attribute of a module that is None stands where plain attributes do,
    and one that is a module, a parameter or a buffer in a dict of its own: what changed then is the value.
    """
    found, was = _ATTRIBUTE.fullmatch(source), manager.get_type_of_guarded_value()
    if found is not None:
        try:
            holder = lookup.evaluate(found["holder"])
        except _NOT_THERE:
            holder = None
        places = vars(holder) if isinstance(holder, torch.nn.Module) else {}
        for place in (places, *(places.get(f"_{name}", {}) for name in ("modules", "parameters", "buffers"))):
            if found["name"] in place:
                return _other_type(f"{source} exists", source, str(was), place[found["name"]])
    return _facts(f"{source} exists")


def _base_inside(holder: Any, base: str) -> str:
    """The base of what a value holds, which is an attribute of that ``base`` itself.

    What a module holds, by way of other objects too, torch takes for a part of the module.
    """
    if isinstance(holder, torch.nn.Module):
        return "module attribute"
    return "held attribute" if base in ("module attribute", "held attribute") else "object attribute"


def _child_managers(manager: Any, source: str) -> Iterator[tuple[Any, str]]:
    """The managers below a manager, each with its source if it does not know that.

    A dict's keys and values have theirs in a separate table, by position. A value whose key torch does not guard (a
    hook of a module, whose key is its number) is looked up by position, and its manager has the key of the first call.
    """
    pairs = manager.get_key_value_managers() if hasattr(manager, "get_key_value_managers") else {}
    for position, (key, value) in pairs.items():
        if key is not None:
            yield key, ""
        if value is not None:
            yield value, "" if key is not None else f"{source}[list(dict.keys({source}))[{position}]]"
    if not pairs:
        yield from ((child, "") for child in manager.get_child_managers() if child is not None)


def _has_other_type(manager: Any, value: Any) -> bool:
    """Whether a dict has another type than its manager expects. No leaf guard checks that."""
    of_items = hasattr(manager, "get_key_value_managers") and isinstance(value, dict)
    return of_items and type(value) is not manager.get_type_of_guarded_value()


def _describe_leaf(leaf: Any, source: str, value: Any) -> Iterator[dict[str, Any]]:
    code, comment = _split_comment("; ".join(leaf.verbose_code_parts()))
    common = {"kind": type(leaf).__name__, "comment": comment}
    check = tensor_check(code)
    if (now := ambient_state.placements(value)) is not None:
        named = {"source": source, "subject": source, "base": "argument", "part": "value"}
        yield {**common, **named, "guard": code, "now": now, "now_type": "DTensorSpec"}
    elif check is not None and isinstance(value, torch.Tensor):
        yield from ({**common, "guard": code, **change} for change in _tensor_differences(check, source, value))
    elif check is not None:
        yield {**common, **_other_type(code, source, f"Tensor({', '.join(check.size)})", value), "was_type": "Tensor"}
    else:
        yield {**common, **_with_value(_facts(code), value)}


def _describe_root_leaf(leaf: Any, lookup: _GuardScope, value: Any) -> Iterator[dict[str, Any]]:
    """A guard on a mode, a setting or a default. Of an unknown one only the text is recorded."""
    code, comment = _split_comment("; ".join(leaf.verbose_code_parts()))
    common = {"kind": type(leaf).__name__, "comment": comment}
    if code.startswith("___check_global_state"):
        yield from ({**common, **change} for change in _global_state(leaf, code, value))
    else:
        yield {**_facts(code), **common, **(ambient_state.ambient_change(code, lookup.closure_vars) or {})}


def _split_comment(text: str) -> tuple[str, str]:
    code, _, comment = text.partition("  # ")
    return code.strip(), comment.strip()


def _other_type(code: str, source: str, was: str, value: Any) -> dict[str, Any]:
    """The failure of a value that is of another type. Two types of one name are told by two texts that are equal."""
    now = "None" if value is None else str(type(value))
    types = {"was_type": class_name(was) or was, "now_type": type(value).__name__}
    return {**_facts(code), "part": "type", "source": source, "subject": source, "was": was, "now": now, **types}


def _with_value(failure: dict[str, Any], value: Any) -> dict[str, Any]:
    """The failure of a guard on one value, with what the value is now."""
    part, was = failure.get("part"), failure.get("was")
    now: str | None = short_value(value)
    if part == "type":
        return _other_type(failure["guard"], failure["source"], was or "", value)
    if part == "identity":
        number = int(failure["index"])
        before = _singleton_of_id(number) or _member_of_id(number, value)
        failure |= {"part": "value", "was": before} if before else {}
        if before in _SINGLETON_TYPES:
            failure["was_type"] = _SINGLETON_TYPES[before]
    elif part == "length":
        now = f"length {len(value)}" if _is_sized(value) else None
    elif part in ("membership", "presence", "own attribute"):
        return failure
    elif part == "value" and was is not None:
        now = _distinct(was, now or "", value)
        failure["was"] = _cut(was)
    return {**failure, "now": now, "now_type": type(value).__name__}


def _distinct(was: str, now: str, value: Any) -> str:
    """A new value in a text that differs from that of the old one, if a longer one does."""
    if _cut(was) != now or type(value) not in _PLAIN_TYPES:
        return now
    full = repr(value)
    start = next(
        (at for at, (old, new) in enumerate(zip(was, full, strict=False)) if old != new), min(len(was), len(full))
    )
    tail = full[max(0, start - 20) :]
    return _cut(f"{full[0]}…{tail}" if isinstance(value, str) else f"…{tail}")


def _is_sized(value: Any) -> bool:
    """Whether its length can be read without running the user's code."""
    return type(value).__len__ in _BUILTIN_LENGTHS if hasattr(type(value), "__len__") else False


_SINGLETON_TYPES = {"True": "bool", "False": "bool", "None": "NoneType"}


def _singleton_of_id(number: int) -> str | None:
    """The singletons whose identity gives their value."""
    return next((repr(value) for value in (True, False, None) if id(value) == number), None)


def _member_of_id(number: int, value: Any) -> str | None:
    """The member of the value's enumeration that has this identity."""
    members = vars(type(value)).get("_member_map_", {}) if isinstance(value, enum.Enum) else {}
    return next((short_value(member) for member in members.values() if id(member) == number), None)


def _tensor_differences(check: TensorCheck, source: str, value: torch.Tensor) -> Iterator[dict[str, Any]]:
    """The differences between the tensor that was guarded on and the new one."""
    base = read_condition(f"{source} exists").base

    def changed(part: str, suffix: str, was: str, now: Any, **more: Any) -> dict[str, Any]:
        return {
            "part": part,
            "source": source + suffix,
            "subject": source,
            "base": base,
            "was": was,
            "now": str(now),
            **more,
        }

    keys, index = ambient_state.dispatch_keys(value, check.dispatch_keys)
    if (entered := ambient_state.entered_transform(keys, check.dispatch_keys)) is not None:
        yield entered
        return
    met = []
    if type(value).__name__ != check.type:
        types = {"was_type": check.type, "now_type": type(value).__name__}
        met.append(changed("type", ".__class__", check.type, type(value).__name__, **types))
    for part, was, now in (
        ("dtype", check.dtype, value.dtype),
        ("requires_grad", check.requires_grad, value.requires_grad),
    ):
        if was != str(now):
            met.append(changed(part, f".{part}", was, now))
    if len(check.size) != value.dim():
        met.append(changed("rank", ".dim()", str(len(check.size)), value.dim()))
    else:
        now_stride = value.stride() if value.layout is torch.strided else ()
        for part, olds, news in (("size", check.size, tuple(value.shape)), ("stride", check.stride, now_stride)):
            for dim, (old, new) in enumerate(zip(olds, news, strict=False)):
                if old not in ("None", str(new)):
                    mark = {"mark": _mark(value, dim)} if part == "size" else {}
                    met.append(changed(part, f".{part}()[{dim}]", old, new, index=str(dim), **mark))
    # With neither shape nor dtype changed it is another kind of tensor: a subclass, a sparse or a wrapped one.
    yield from met or [changed("dispatch keys", "", check.dispatch_keys, keys, index=index)]


def _mark(value: torch.Tensor, dimension: int) -> str | None:
    """What the program has said of a size, by its type and the attributes that `mark_dynamic` and `mark_static` set."""
    if type(value) is torch.nn.Parameter and ambient_state.parameter_sizes_are_constants():
        return "parameter"
    for mark, names in (
        ("dynamic", ("_dynamo_dynamic_indices", "_dynamo_weak_dynamic_indices")),
        ("static", ("_dynamo_static_indices",)),
    ):
        if any(dimension in getattr(value, name, ()) for name in names):
            return mark
    return None


def _global_state(leaf: Any, code: str, value: Any) -> Iterator[dict[str, Any]]:
    """The global settings that changed. torch names them in the verbose check of the guard."""
    names = "".join(leaf.check_verbose(value).verbose_code_parts).partition("GLOBAL_STATE changed:")[2].split()
    yield from ambient_state.global_state_changes(code, names)
    if not names:
        yield _facts("GLOBAL_STATE changed")


def _length_failures(root: Any, lookup: _GuardScope, f_locals: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Failed checks of a dict's length. Its manager makes them itself, and torch reports them in the verbose check."""
    for part in root.check_verbose(f_locals).verbose_code_parts:
        if match := _DICT_LENGTH.match(part):
            value = lookup.evaluate(match["source"])
            yield _facts(
                f"len({match['source']}) == {match['was']}", now=f"length {len(value)}", now_type=type(value).__name__
            )


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
            except (*_NOT_THERE, SyntaxError, ValueError):
                holds = True  # it cannot be checked again: torch's own reason is used
            if not holds:
                failure = _facts(code, kind="SHAPE_ENV", comment=comment)
                if failure.get("part") == "alias":  # that two are one object, and not what they are, is guarded
                    yield failure
                    continue
                now = lookup.evaluate(failure["source"]) if "source" in failure else None
                nows = [short_value(lookup.evaluate(term)) for term in failure.get("terms", ())]
                yield {**failure, "now": short_value(now), "now_type": type(now).__name__, "nows": nows}


def short_value(value: Any) -> str:
    """Return a value as a short text, without calling the user's code."""
    if type(value) in _PLAIN_TYPES:
        text = repr(value)
    elif isinstance(value, torch.Tensor):
        text = f"Tensor{tuple(value.shape)}"
    elif isinstance(value, enum.Enum) and isinstance(name := vars(value).get("_name_"), str):
        text = f"{type(value).__qualname__}.{name}"
    elif type(value) in _CONTAINERS and len(value) <= _MAX_ITEMS and all(type(item) in _PLAIN_TYPES for item in value):
        text = repr(value)
    elif type(value) in (*_CONTAINERS, dict):
        text = f"{type(value).__name__} of length {len(value)}"
    else:
        name = _name(value)
        text = f"{name} ({_what(value)})" if name else f"a {type(value).__qualname__}"
    return _cut(text)


def _what(value: Any) -> str:
    """The type, and of code, of which many have one name, the line."""
    return f"{Path(value.co_filename).name}:{value.co_firstlineno}" if type(value) is CodeType else type(value).__name__


def _name(value: Any) -> str | None:
    """The name of a function, a class or code; None of what else there is, whose attributes are the user's code."""
    kind = next((kind for kind in _NAMES if issubclass(type(value), kind)), None)
    name = getattr(value, _NAMES[kind]) if kind else None
    return name if isinstance(name, str) else None


def _cut(text: str) -> str:
    """A text of limited length. A string keeps its quotation marks: what is in them is what is redacted."""
    end = text[-1:] if text[:1] in ("'", '"') else ""
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1 - len(end)] + "…" + end
