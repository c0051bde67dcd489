"""What a guard of torch's says, read from its text: a condition (``L['n'] == 3``), or the sentence of one that failed.

The recorder has the guard as an object, and takes from its text only what torch keeps nowhere else: what was. A foreign
log has one sentence for each cached entry, such as ``tensor 'x' size mismatch at index 0. expected 4, actual 5``. The
sentences are those of torch/csrc/dynamo/guards.cpp and torch/_dynamo/guards.py, as torch 2.11 to 2.15 print them unless
an entry says otherwise.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dynadiag.recording.records import GuardFailure
from dynadiag.recording.torch_text.sources import ARGUMENTS, base_of, sizes_in, without_part

# Guards on what calls differ in: values, sizes, dtypes, lengths.
CHANGING_KINDS = frozenset(
    {
        *("TENSOR_MATCH", "SHAPE_ENV", "EQUALS_MATCH", "CONSTANT_MATCH", "BOOL_MATCH", "TRUE_MATCH", "FALSE_MATCH"),
        *("NONE_MATCH", "SEQUENCE_LENGTH", "LIST_LENGTH", "LENGTH_CHECK", "DICT_LENGTH"),
    }
)
# Guards on marks of `mark_dynamic` and its like: five for each tensor, and only a program that sets marks changes them.
MARK_KIND = "DIMENSION_DYNAMIC_MARKING_GUARD"
_ENTRY = re.compile(r"^\[?!?\d[\d/]*\]?: ")  # "0/1: ", the cached entry that a reason belongs to
_REFUSED = re.compile(r"^\s*- (?P<against>\d+/\d+): (?P<reason>.*?)\s*$", re.MULTILINE)
_COMMENT = re.compile(r"\s+# ")  # before the user's line, which torch quotes
_STACK = "\nUser stack trace:"
_TENSOR = r"tensor '(?P<source>.*)' "
_CHANGE = r"expected (?P<was>.*?), actual (?P<now>.*?)(\. Guard failed on a (?P<mark>parameter).*)?"
# Tried in this order on the whole text of a guard. A name `was`, `now` or `index` is that field of the failure.
_TEXTS = tuple(
    (re.compile(pattern, re.DOTALL), part)
    for pattern, part in (
        (_TENSOR + r"size mismatch at index (?P<index>\d+)\. " + _CHANGE, "size"),
        (_TENSOR + r"stride mismatch at index (?P<index>\d+)\. " + _CHANGE, "stride"),
        (_TENSOR + r"rank mismatch\. " + _CHANGE, "rank"),
        (_TENSOR + r"dtype mismatch\. " + _CHANGE, "dtype"),
        (_TENSOR + r"dispatch key set mismatch\. " + _CHANGE, "dispatch keys"),
        (_TENSOR + r"requires_grad mismatch\. expected requires_grad=(?P<was>\w+).*", "requires_grad"),
        (
            _TENSOR + r"Tensor device index mismatch\. Expected device index to be (?P<was>.*?), .* (?P<now>\S+)",
            "device",
        ),
        (r"expected type of '(?P<source>.*)' to be a tensor type, .*found (?P<now>.*)", "type"),
        (r"GLOBAL_STATE changed:? ?(?P<index>.*?)\s*", "state"),
        (r"___check_torch_function_mode_stack.*(?P<index>)", "state"),
        (r".*(?P<index>utils_device\.CURRENT_DEVICE).*", "state"),
        (r".*(?P<index>top_saved_tensors_hooks).*", "state"),
        (r".*(?P<index>forward_ad\._current_level).*", "state"),
        (r".*(?P<index>compare_functorch_state).*", "state"),
        (r"BACKEND_MATCH failure.*?(Cached backend: (?P<was>.*?)\. New backend: (?P<now>.*?)\.(?=\s|$).*)?", "backend"),
        (r"Unexpected recompilation: runtime guards failed even though they passed .*", "race"),
        (r"Duplicate tensors? found.*", "alias"),
        (r"(Cache line invalidated because )?(?P<source>.+) got deallocated", "freed"),
        (r"check_tensor\((?P<source>.*?), (?P<was>\w+), .*", "type"),
        (r".*\.(size|stride)\(\)\[\d+\].*", "shape"),
        (r"(?P<source>\S+|[LG]\[.+) is (?P<was>(not )?(None|True|False|\.\.\.))", "value"),
        (r"\S+ is (not )?[A-Za-z_]\S*", "alias"),
        (r"(not )?check_(no_)?aliasing.*|.*STORAGE_OVERLAPPING.*", "alias"),
        (r"(?P<whole>list\(dict\.keys\((?P<source>.+)\)\)\[\d+\]) exists", "keys"),
        (r"(?P<source>.+) exists", "presence"),
        (r"(?P<absent>not )?(?:no_)?hasattr\((?P<source>.+), '?(?P<index>\w+)'?\)", "presence"),
        (r"___tuple_iterator_len\((?P<source>.+)\) == (?P<was>\d+)", "length"),
        (r"___check_obj_id\((?P<source>.+), (?P<id>\d+)\)(, type=(?P<type><.*?>)(?=\s|$).*)?", "identity"),
        (r"___check_(?:type_id|fake_script_type)\((?P<source>.+), \d+\)(, type=(?P<was><.*?>)(?=\s|$).*)?", "type"),
        (r"(not )?len\((?P<source>.+)\) [!=]= (?P<was>\d+)|not (?P<empty>[^\s(]+)", "length"),
        (r"(?P<whole>list\(dict\.keys\((?P<source>.+)\)\).*) == (?P<was>.*)", "keys"),
        (r"(?P<absent>not )?set\.__contains__\((?P<source>.+), (?P<index>.*)\)", "membership"),
        (r"(?P<absent>not )?___dict_contains\((?P<index>.+), (?P<source>.+)\.__dict__\)", "own attribute"),
        (r"(?P<absent>not )?___dict_contains\((?P<index>.+), (?P<source>.+)\)", "membership"),
        (r"(?P<source>.+?) == (?P<was>.+)", "value"),
        (r".*(?<=[\])\w]) (<|<=|>|>=|!=) (?=[\[(\w-]).*", "shape"),  # over numbers that torch had made symbols
    )
)
# Guards on modes and defaults: what their text has -> the name of the state.
_AMBIENT = {
    "": "torch function modes",
    "utils_device.CURRENT_DEVICE": "default device",
    "top_saved_tensors_hooks": "saved tensor hooks",
    "forward_ad._current_level": "forward AD level",
    "compare_functorch_state": "torch.func transforms",
}
_AUTOCAST = re.compile(r"autocast\((?P<device>\w+)\)_(?P<what>enabled|dtype)")
_CHECK = re.compile(
    r"check_tensor\(.*?, (?P<type>[\w.]+), DispatchKeySet\((?P<keys>[^)]*)\), (?P<dtype>torch\.\w+), "
    r"device=(?P<device>[^,]*), requires_grad=(?P<requires_grad>\w+), "
    r"size=(?P<size>\[.*?\]), stride=(?P<stride>\[.*?\])\).*",
    re.DOTALL,
)
_DUPLICATES = re.compile(r'"(?P<source>[^"]+)"')
_SAME = re.compile(r"(?P<first>\S+) is (?P<no>not )?(?P<second>\S+)")
_TERM = re.compile(r"[LG](?:\[[^\[\]]*\]|\.\w+(?:\(\))?)+")  # L['args'][0].k in an expression
_OPERATOR = re.compile(r"[*/%]| [+-] ")  # of arithmetic, in the source of a guard
_KEY = re.compile(r"""\[('[^'\n]*'|"[^"\n]*")\]""")  # of a dict: any text
_NOT_VALUES = ("___", "hasattr(", "check_tensor(", "not ", "len(")  # guards on types, objects and attributes
_BOOLS = {"0": "False", "1": "True"}
_OPPOSITE = {"True": "False", "False": "True"}
_CLASS = re.compile(r"<class '(?:[\w.<>]*\.)?(?P<name>\w+)'>")
_BACKEND = re.compile(r"compiler='(?P<name>[^']*)'")
_ADDRESS = re.compile(r"\s*\(id=.*|<function | at 0x\w+>?")  # so that a name is left
_GUARDED_CLASS = re.compile(r"type=<class '[\w.]*\.(?P<name>\w+)'>")
_MAX_LITERAL = 200


@dataclass(frozen=True, slots=True)
class TensorCheck:
    """What torch checks of a tensor, each as torch prints it. A size or a stride of None may be any."""

    type: str
    dispatch_keys: str
    dtype: str
    device: str
    requires_grad: str
    size: tuple[str, ...]
    stride: tuple[str, ...]


def tensor_check(expression: str) -> TensorCheck | None:
    """The check of a tensor; None where an expression is another one.

    >>> tensor_check("check_tensor(L['x'], Tensor, DispatchKeySet(CPU), torch.float32, device=None, "
    ...     "requires_grad=False, size=[None, 4], stride=[4, 1])").size
    ('None', '4')
    """
    match = _CHECK.fullmatch(expression)
    if match is None:
        return None
    sizes = (tuple(item.strip() for item in match[name].strip("[]").split(",") if item.strip()) for name in _SHAPE)
    return TensorCheck(match["type"], match["keys"], match["dtype"], match["device"], match["requires_grad"], *sizes)


_SHAPE = ("size", "stride")


def excludes_zero_and_one(failure: GuardFailure) -> bool:
    """Whether the lower end of a range of sizes is torch's own: it compiles sizes 0 and 1 apart."""
    return failure.index == "range" and failure.guard.startswith("2 <= ")


def is_plain_range(failure: GuardFailure) -> bool:
    """Whether a condition bounds one size or number itself, rather than what is computed of it."""
    bounded = rf"(?:-?\d+ [<>]=? )?{re.escape(failure.source or '')}(?: [<>]=? -?\d+)?"
    return failure.index in ("range", "above one") and re.fullmatch(bounded, failure.guard) is not None


def condition_of(guard: str) -> str:
    """A guard's own text: without the entry it belongs to, the comment that quotes the user's line, the stack.

    >>> condition_of("0/0: n == 3    # return x + n  # g.py:3 in f")
    'n == 3'
    """
    text = _ENTRY.sub("", guard).split(_STACK)[0]
    return _COMMENT.split(text, maxsplit=1)[0].strip() or guard.strip()


def guarded_value(expression: str) -> str | None:
    """The value that a guard compares its source with, None for a guard on a type, an object or a condition.

    >>> guarded_value("L['self'].rank == 0")
    '0'
    """
    left, equals, value = expression.partition(" == ")
    return value if equals and not left.startswith(_NOT_VALUES) else None


def guarded_class(expression: str) -> str | None:
    """Return the class in a module that a guard on a type names; None for what Python has itself.

    >>> guarded_class("___check_type_id(L['self'], 94), type=<class 'model.Net'>")
    'Net'
    """
    match = _GUARDED_CLASS.search(expression)
    return match["name"] if match else None


def is_class_of_torch(expression: str) -> bool:
    """Whether a guard on a type names a class of torch's."""
    return "type=<class 'torch." in expression


def literal_type(text: str | None) -> str | None:
    """The name of the type of a literal; None where the text is none.

    >>> [literal_type(text) for text in ("3", "2.5", "'a'", "None", "inf", "Color.RED")]
    ['int', 'float', 'str', 'NoneType', 'float', None]
    """
    if text in ("inf", "-inf", "nan"):
        return "float"
    try:
        return type(ast.literal_eval(text or "")).__name__ if len(text or "") <= _MAX_LITERAL else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def class_name(text: str | None) -> str | None:
    """The name of a class in Python's description of it: ``M`` of ``<class '__main__.build.<locals>.M'>``."""
    match = _CLASS.fullmatch(text or "")
    return match and match["name"]


def class_words(texts: Sequence[str]) -> tuple[str, ...]:
    """Classes as a person writes them, with the module only where two of them have one name; other texts as they are.

    >>> class_words(["<class 'torch.nn.modules.activation.ReLU'>", "<class 'a.M'>", "<class 'b.M'>", "None"])
    ('ReLU', 'a.M', 'b.M', 'None')
    """
    shared = Counter(class_name(text) for text in dict.fromkeys(texts))
    return tuple(
        text if name is None else name if shared[name] == 1 else text.removeprefix("<class '").removesuffix("'>")
        for text, name in ((text, class_name(text)) for text in texts)
    )


def read_failure(text: str, against: str, **known: Any) -> tuple[GuardFailure, ...]:
    """The failures that one of torch's sentences has; several only where several global states changed.

    ``known`` are fields that are known otherwise, such as the line.
    """
    read = read_condition(condition_of(text))
    failures = [read]
    if read.part == "state" and read.guard.startswith("GLOBAL_STATE"):
        failures = [_of_state(read, name) for name in (read.index or "").split()] or [read]
    return tuple(replace(each, against=against, **known) for each in failures)


def refused_call(message: str) -> tuple[GuardFailure, ...] | None:
    """What the cached entries failed by, where the stance "fail_on_recompile" refused a call; None for other errors."""
    if "torch.compile stance is 'fail_on_recompile'" not in message:
        return None
    reasons = _REFUSED.finditer(message)
    return tuple(each for found in reasons for each in read_failure(found["reason"], found["against"]))


def completed(failure: GuardFailure) -> GuardFailure:
    """A failure without a part, as recordings have it that were made before 0.2, with what its text and source say."""
    read = read_condition(condition_of(failure.guard))
    subject, part, index = without_part(failure.source)
    for suffix, name in _SUFFIXES.items():
        if part is None and (failure.source or "").endswith(suffix) and read.part in (name, "other", "type"):
            subject, part = (failure.source or "").removesuffix(suffix), name
    was = failure.was if failure.was != failure.guard else None
    if failure.now == "deallocated":
        part = "freed"
    elif (was or "").startswith(_KEYS):
        part, was = "dispatch keys", (was or "").removeprefix(_KEYS)
    known: dict[str, Any] = {
        "source": failure.source,
        "was": was,
        "now": failure.now and failure.now.removeprefix(_KEYS),
    }
    if (part or read.part) in ("value", "type", "identity"):
        known |= {"was_type": literal_type(was) or class_name(was)}
        known |= {"now_type": literal_type(failure.now) or class_name(failure.now)}
    if read.part == "state" and read.guard.startswith("GLOBAL_STATE") and " " not in (read.index or " "):
        read = _of_state(read, read.index or "")
    if part is None or read.part == "shape":
        read = replace(read, **{name: value for name, value in known.items() if value is not None})
    else:
        read = _made(read.guard, part, **known, subject=subject, index=index)
    return replace(read, against=failure.against, file=failure.file, line=failure.line, kind=failure.kind)


_KEYS = "dispatch keys "
_SUFFIXES = {".dtype": "dtype", ".device": "device", ".requires_grad": "requires_grad", ".__class__": "type"}


def _of_state(failure: GuardFailure, name: str) -> GuardFailure:
    """The failure of one global state. torch names autocast's with their device."""
    match = _AUTOCAST.fullmatch(name)
    index, terms = (f"autocast_{match['what']}", (match["device"],)) if match else (name, ())
    return replace(failure, guard=f"GLOBAL_STATE changed: {name}", source=name, index=index, terms=terms, base="mode")


def read_condition(text: str) -> GuardFailure:
    """What a condition is on and what it demands, as far as its text has it. The part is "other" of an unknown one."""
    for pattern, part in _TEXTS:
        if match := pattern.fullmatch(text):
            return _READ.get(part, _plain)(text, part, match.groupdict())
    return GuardFailure(text, None, None, None, "", None, None)


def _made(text: str, part: str, **fields: Any) -> GuardFailure:
    subject = fields.setdefault("subject", fields.get("source"))
    fields.setdefault("base", base_of(subject))
    return GuardFailure(
        text, **({"source": None, "was": None, "now": None} | fields), against="", file=None, line=None, part=part
    )


def _plain(text: str, part: str, found: dict[str, Any]) -> GuardFailure:
    """A part of a tensor, keys, what was freed: with the fields that the pattern names."""
    subject, was, now, index = (found.get(name) for name in ("source", "was", "now", "index"))
    if part == "requires_grad":
        was = _BOOLS.get(was or "", was)
        now = _OPPOSITE.get(was or "")
    if part == "freed":
        was, now = "alive", "deallocated"
    suffix = {
        "size": f".size()[{index}]",
        "stride": f".stride()[{index}]",
        "dtype": ".dtype",
        "rank": ".dim()",
        "requires_grad": ".requires_grad",
        "device": ".device",
    }.get(part, "")
    source = found.get("whole") or (subject and subject + suffix)
    mark = found.get("mark") if part == "size" else None
    return _made(text, part, source=source, subject=subject, was=was, now=now, index=index, mark=mark)


def _presence(text: str, part: str, found: dict[str, Any]) -> GuardFailure:
    source, index = found["source"], found.get("index")
    values = ("absent", "present") if found.get("absent") else ("present", "absent")
    return _made(text, part, source=f"{source}.{index}" if index else source, was=values[0], now=values[1])


def _membership(text: str, part: str, found: dict[str, Any]) -> GuardFailure:
    key, source = found["index"], found["source"]
    if part == "own attribute":
        key = key.strip("'\"")
        return _made(
            text,
            part,
            source=f"{source}.{key}",
            index=key,
            was=_owner(found["absent"]),
            now=_owner(not found["absent"]),
        )
    values = ("absent", "present") if found["absent"] else ("present", "absent")
    return _made(text, part, source=source, index=key, was=values[0], now=values[1])


def _owner(is_class: object) -> str:
    return "the class's" if is_class else "the object's own"


def _length(text: str, part: str, found: dict[str, Any]) -> GuardFailure:
    subject = found.get("source") or found.get("empty")
    return _made(text, part, source=subject, was=f"length {found.get('was') or 0}", index=_arguments(subject))


def was_empty(failure: GuardFailure) -> bool:
    """Whether a container was empty when the code was compiled."""
    return failure.was == "length 0"


def _arguments(subject: str | None) -> str | None:
    return "arguments" if subject in ARGUMENTS else None


def _value(text: str, part: str, found: dict[str, Any]) -> GuardFailure:
    was, now = found["was"], _OPPOSITE.get(found["was"])
    if _OPERATOR.search(_KEY.sub("", found["source"])) or _TERM.match(was):
        return _shape_of(text, "shape", found)
    if was == "not None":
        return _made(text, part, source=found["source"], was=was, now="None", now_type="NoneType")
    return _made(
        text, part, source=found["source"], was=was, was_type=literal_type(was), now=now, now_type=literal_type(now)
    )


def _type(text: str, part: str, found: dict[str, Any]) -> GuardFailure:
    was, now = found.get("was"), found.get("now")
    return _made(
        text, part, source=found["source"], was=was, now=now, was_type=class_name(was) or was, now_type=class_name(now)
    )


def _identity(text: str, part: str, found: dict[str, Any]) -> GuardFailure:
    return _made(text, part, source=found["source"], index=found["id"], was_type=class_name(found["type"]))


def _alias(text: str, part: str, _found: dict[str, Any]) -> GuardFailure:
    if match := _SAME.fullmatch(text):
        terms = match["first"], match["second"]
        was, now = ("two objects", "one") if match["no"] else ("one object", "two")
        return _made(text, part, source=terms[0], terms=terms, was=was, now=now)
    terms = tuple(_DUPLICATES.findall(text))
    return _made(text, part, source=terms[0] if terms else None, terms=terms, was="different tensors", now="one")


def _shape_of(text: str, part: str, _found: dict[str, Any]) -> GuardFailure:
    """An expression over symbolic sizes or numbers. One number that torch needed after all is a value."""
    terms = sizes_in(text) or tuple(dict.fromkeys(_TERM.findall(text)))
    index = (
        "above one"
        if re.fullmatch(r"2 <= \S+|\S+ >= 2", text)
        else "multiple"
        if re.fullmatch(r"\(?.* % \d+\)? == 0", text)
        else "number"
        if re.search(r"== \(?-?[\d.]+(e[-+]?\d+)?\)?$", text)
        else "together"
        if all(re.fullmatch(r"[^\s*]+ == [^\s*]+", part) for part in text.split(" and "))
        else "range"
    )
    return _made(text, part, source=terms[0] if terms else None, subject=_one_subject(terms), index=index, terms=terms)


def _one_subject(terms: tuple[str, ...]) -> str | None:
    subjects = {without_part(term)[0] for term in terms}
    return subjects.pop() if len(subjects) == 1 else None


def _state(text: str, part: str, found: dict[str, Any]) -> GuardFailure:
    index = found["index"]
    name = index if text.startswith("GLOBAL_STATE") else _AMBIENT[index]
    return _made(text, part, source=name or None, subject=None, base="mode", index=name or None)


def _backend(text: str, part: str, found: dict[str, Any]) -> GuardFailure:
    """torch 2.11 names neither backend."""
    return _made(text, part, was=_backend_name(found.get("was")), now=_backend_name(found.get("now")), base="mode")


def _backend_name(text: str | None) -> str | None:
    """The name in torch's description: ``_TorchCompileWrapper(compiler='eager', dynamic=None) (id=0x7f)``."""
    if text is None:
        return None
    if match := _BACKEND.search(text):
        return _ADDRESS.sub("", match["name"])
    return "inductor" if "InductorWrapper" in text else _ADDRESS.sub("", text).strip() or "another backend"


_READ = {
    "presence": _presence,
    "membership": _membership,
    "own attribute": _membership,
    "length": _length,
    "value": _value,
    "type": _type,
    "identity": _identity,
    "alias": _alias,
    "shape": _shape_of,
    "state": _state,
    "backend": _backend,
}
