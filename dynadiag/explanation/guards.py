"""What a failed guard says, read from its text or from the fields that the recorder filled.

A recompile's reasons come in two forms. The recorder asks each guard again and fills ``source``, ``was`` and
``now``. torch's own trace has one sentence for each cached entry (``tensor 'x' size mismatch at index 0. expected
4, actual 5``; ``s.k == 1   # the user's line``), all that a foreign log holds. The sentences are those of
``torch/csrc/dynamo/guards.cpp`` and ``torch/_dynamo/guards.py`` as torch 2.13 prints them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from dynadiag.recording.records import GuardFailure

__all__ = ["ParsedGuard", "complete", "guard_expression", "guarded_value", "parse_guard"]

_ENTRY = re.compile(r"^\[?!?\d[\d/]*\]?: ")  # "0/1: ", the cached entry that a reason belongs to

# Ends of the `source` that the recorder gives a part of a tensor, and the kind that a change of it is.
_PARTS = (
    (re.compile(r"\.size\(\)\[(?P<index>\d+)\]$"), "size"),
    (re.compile(r"\.stride\(\)\[(?P<index>\d+)\]$"), "stride"),
    (re.compile(r"\.dtype$"), "dtype"),
    (re.compile(r"\.device$"), "device"),
    (re.compile(r"\.requires_grad$"), "requires_grad"),
    (re.compile(r"\.dim\(\)$"), "rank"),
    (re.compile(r"\.__class__$"), "type"),
    (re.compile(r" \(dispatch keys\)$"), "dispatch_keys"),
)

_TENSOR = r"tensor '(?P<source>.*)' "
_CHANGE = r"expected (?P<was>.*?), actual (?P<now>.*?)(\. Guard failed on a parameter.*)?"
_HAS_ATTRIBUTE = re.compile(r"(?P<absent>not )?(?:no_)?hasattr\((?P<source>.+), '?(?P<index>\w+)'?\)")
_ITERATOR = re.compile(r"___tuple_iterator_len\((?P<source>.+)\) == (?P<was>\d+)")
# Tried in this order on the plain text of a guard.
_TEXTS = tuple(
    (re.compile(pattern, re.DOTALL), kind)
    for pattern, kind in (
        (_TENSOR + r"size mismatch at index (?P<index>\d+)\. " + _CHANGE, "size"),
        (_TENSOR + r"stride mismatch at index (?P<index>\d+)\. " + _CHANGE, "stride"),
        (_TENSOR + r"rank mismatch\. " + _CHANGE, "rank"),
        (_TENSOR + r"dtype mismatch\. " + _CHANGE, "dtype"),
        (_TENSOR + r"dispatch key set mismatch\. " + _CHANGE, "dispatch_keys"),
        (_TENSOR + r"requires_grad mismatch\. expected requires_grad=(?P<was>\w+).*", "requires_grad"),
        (
            _TENSOR + r"Tensor device index mismatch\. Expected device index to be (?P<was>.*?), .* (?P<now>\S+)",
            "device",
        ),
        (r"expected type of '(?P<source>.*)' to be a tensor type, .*found (?P<now>.*)", "type"),
        (r"GLOBAL_STATE changed:? ?(?P<index>.*?)\s*", "global_state"),
        (r"BACKEND_MATCH failure.*?(Cached backend: (?P<was>.*?)\. New backend: (?P<now>.*?)\..*)?", "backend"),
        (r"Unexpected recompilation: runtime guards failed even though they passed .*", "race"),
        (r"Duplicate tensors? found.*", "alias"),
        (r"(?P<source>\S+) is (?P<was>(not )?(None|True|False))", "value"),
        (r"(?P<source>\S+) is (not )?[A-Za-z_]\S*", "alias"),
        (r"check_tensor\((?P<source>.*?), .*", "type"),
        (r"(not )?check_(no_)?aliasing.*|.*STORAGE_OVERLAPPING.*", "alias"),
        (r"(Cache line invalidated because )?(?P<source>.+) got deallocated", "freed"),
        (r"(?P<source>.+) exists", "presence"),
        (_HAS_ATTRIBUTE.pattern, "presence"),
        (_ITERATOR.pattern, "length"),
        (r"___check_obj_id\((?P<source>.+), \d+\)(, type=(?P<index>.*))?", "identity"),
        (r"___check_type_id\((?P<source>.+), \d+\)(, type=(?P<was>.*))?", "type"),
        (r"(not )?len\((?P<source>.+)\) [!=]= (?P<was>\d+)|not (?P<index>\S+)", "length"),
        (r"list\(dict\.keys\((?P<source>.+)\)\).* == (?P<was>.*)", "keys"),
        (r"(not )?set\.__contains__\((?P<source>.+), (?P<index>.*)\)", "membership"),
        (r"(not )?___dict_contains\((?P<index>.+), (?P<source>.+)\)", "membership"),
        (r"(?P<source>.+?) == (?P<was>.+)", "value"),
    )
)
# A guard on symbolic sizes is an expression over them, whatever source the recorder picked out of it. (For one on
# symbolic numbers the recorder gives the expression itself as the old value.)
_SHAPE = re.compile(r".*\.(size|stride)\(\)\[\d+\].*", re.DOTALL)
_LEFT_OVER = re.compile(r"___stack\d+")  # what a function split by a break had computed, handed to the rest of it
# Guards on modes and defaults: their text -> what they are on. They have no source.
_AMBIENT = (
    (re.compile(r"___check_torch_function_mode_stack"), "torch function modes"),
    (re.compile(r"utils_device\.CURRENT_DEVICE"), "default device"),
    (re.compile(r".*top_saved_tensors_hooks"), "saved tensor hooks"),
    (re.compile(r".*forward_ad\._current_level"), "forward AD level"),
    (re.compile(r".*compare_functorch_state"), "torch.func transforms"),
)
_ALIAS = re.compile(r"\S+ is (not )?[A-Za-z_]\S*")
_INITIALIZED = re.compile(r"\.(is_|_is_|_)?initiali[sz]ed$")  # what a lazy module or a cache sets in its first call
_FREED = "deallocated"  # what the recorder says of an object that is gone, and with it the code made for it
# A number that torch had made a symbol, and then needed to know after all.
_NUMBER = re.compile(r"(?P<source>[^\s()+*/%-]+) == (?P<was>-?[\d.]+(e[+-]?\d+)?|inf|nan)")
_NOT_VALUES = ("___", "hasattr(", "check_tensor(", "not ", "len(")  # guards on types, objects and attributes
_NONE = ("None", "not None", "<class 'NoneType'>")
_BOOLS = {"0": "False", "1": "True"}


@dataclass(frozen=True, slots=True)
class ParsedGuard:
    """A failed guard understood. ``kind`` is "other" where it was not.

    ``subject`` is the source without the part that changed (``L['x']`` of ``L['x'].size()[0]``). ``index`` is the
    dimension for a size or stride, the whole expression for a guard on shapes, the name of the setting for a global
    state, the key for a membership.
    """

    kind: str
    subject: str | None
    index: str | None
    was: str | None
    now: str | None
    goes_on: bool = False  # whether it changed in other recompiles of the function too

    @property
    def is_condition(self) -> bool:
        """Whether the guard is an expression over several values rather than one value that was kept."""
        return self.kind in ("shape", "alias", "membership")


def guard_expression(guard: str) -> str:
    """A guard's own text: without the entry it belongs to, the comment that quotes the user's line, the stack."""
    text = _ENTRY.sub("", guard).split("\nUser stack trace:")[0]
    return re.split(r"\s+# ", text, maxsplit=1)[0].strip() or guard.strip()


def guarded_value(expression: str) -> str | None:
    """The value that a guard compares its source with, None for a guard on a type, an object or a condition.

    >>> guarded_value("L['self'].rank == 0")
    '0'
    """
    left, equals, value = expression.partition(" == ")
    return value if equals and not left.startswith(_NOT_VALUES) else None


def parse_guard(failure: GuardFailure) -> ParsedGuard:
    """What failed, by the recorder's fields where it filled them, otherwise by torch's sentence."""
    text = guard_expression(failure.guard)
    if failure.now == _FREED:
        return ParsedGuard("freed", failure.source, None, failure.was, failure.now)
    if state := next((name for pattern, name in _AMBIENT if pattern.match(text)), None):
        return ParsedGuard("global_state", None, state, failure.was, failure.now)
    if _SHAPE.fullmatch(text):
        return ParsedGuard("shape", failure.source, text, failure.was, failure.now)
    if failure.was and failure.was.startswith("dispatch keys"):
        return ParsedGuard("dispatch_keys", failure.source, None, failure.was, failure.now)
    reading = _from_source(failure) or _from_sentence(text, failure)
    if reading.kind in ("value", "shape") and _LEFT_OVER.search(text):
        return replace(reading, kind="left_over")
    if reading.kind == "value" and reading.now == "True" and _INITIALIZED.search(reading.subject or ""):
        return replace(reading, kind="first_call")
    return replace(reading, kind="none") if reading.kind in ("value", "type") and _is_about_none(reading) else reading


def _is_about_none(reading: ParsedGuard) -> bool:
    """Whether something was None in one of the calls, and not in the other."""
    return (reading.was in _NONE) != (reading.now in _NONE)


def complete(failure: GuardFailure) -> GuardFailure:
    """The failure with its plain guard, and the fields that only torch's sentence held."""
    text, reading = guard_expression(failure.guard), parse_guard(failure)
    if found := _HAS_ATTRIBUTE.fullmatch(text):
        was, now = ("absent", "present") if found["absent"] else ("present", "absent")
        return replace(failure, guard=text, source=reading.subject, was=was, now=now)
    if found := _ITERATOR.fullmatch(text):
        return replace(failure, guard=text, was=f"length {found['was']}", now="another length")
    return replace(
        failure,
        guard=text,
        source=failure.source or _source(reading),
        was=failure.was if failure.was is not None and failure.was != failure.guard else reading.was,
        now=failure.now if failure.now is not None else reading.now,
    )


def _from_source(failure: GuardFailure) -> ParsedGuard | None:
    """By what the recorder says changed: a part of a tensor, or an expression over symbolic numbers."""
    for pattern, kind in _PARTS:
        if failure.source and (match := pattern.search(failure.source)):
            index = match.groupdict().get("index")
            return ParsedGuard(kind, failure.source[: match.start()], index, failure.was, failure.now)
    if failure.was is not None and failure.was == failure.guard and not _ALIAS.fullmatch(failure.guard):
        if number := _NUMBER.fullmatch(failure.guard):
            return ParsedGuard("value", number["source"], None, number["was"], failure.now)
        return ParsedGuard("shape", failure.source, failure.guard, failure.was, failure.now)
    return None


def _from_sentence(text: str, failure: GuardFailure) -> ParsedGuard:
    for pattern, kind in _TEXTS:
        if match := pattern.fullmatch(text):
            return _from_text(kind, match, failure)
    return ParsedGuard("other", failure.source, None, failure.was, failure.now)


def _from_text(kind: str, match: re.Match[str], failure: GuardFailure) -> ParsedGuard:
    found = match.groupdict()
    if kind == "presence" and found.get("index"):
        return ParsedGuard(kind, f"{found['source']}.{found['index']}", None, failure.was, failure.now)
    was = found.get("was")
    if kind == "requires_grad" and was in _BOOLS:
        was = _BOOLS[was]
    now = found.get("now") or _opposite(kind, was)
    exact = kind in ("keys", "length", "membership")  # the recorder names an expression over the container there
    return ParsedGuard(
        kind,
        (found.get("source") if exact else None) or failure.source or found.get("source"),
        found.get("index"),
        failure.was if failure.was is not None else was,
        failure.now if failure.now is not None else now,
    )


def _opposite(kind: str, was: str | None) -> str | None:
    """What a value must be now, where it can only be one."""
    if kind == "freed":
        return _FREED
    return {"True": "False", "False": "True"}.get(was or "") if kind == "requires_grad" else None


def _source(reading: ParsedGuard) -> str | None:
    """The exact place in the program's data, in torch's notation."""
    if reading.subject is None:
        return reading.index if reading.kind == "global_state" else None
    if reading.kind in ("size", "stride") and reading.index is not None:
        return f"{reading.subject}.{reading.kind}()[{reading.index}]"
    if reading.kind == "length":
        return f"len({reading.subject})"
    suffix = {"dtype": ".dtype", "rank": ".dim()", "requires_grad": ".requires_grad", "device": ".device"}
    return reading.subject + suffix.get(reading.kind, "")
