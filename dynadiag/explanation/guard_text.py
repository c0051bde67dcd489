"""A guard in words: its source as the program writes it, and what changed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from dynadiag.explanation.changes import GuardChange
from dynadiag.explanation.formatting import brief, list_some
from dynadiag.explanation.guards import ParsedGuard
from dynadiag.explanation.process_state import backend_change, dispatch_change, key_changes, setting_words, state_words
from dynadiag.recording.records import Symbol

__all__ = [
    "ARGUMENTS",
    "argument_description",
    "describe_change",
    "described",
    "input_names",
    "is_global",
    "joined_sources",
    "own_attribute",
    "sizes_in",
    "source_text",
    "what_changed",
    "with_program_names",
]

ARGUMENTS = ("L['args']", "L['kwargs']")  # of a function that takes any, as wrappers do
_LOCAL = re.compile(r"L\['(?P<name>[^']+)'\]")
_VARIADIC = re.compile(r"L\['(args'\]\[(?P<index>\d+)|kwargs'\]\['(?P<key>\w+)')\](?P<rest>.*)", re.DOTALL)
_ORDINALS = {"0": "the first positional argument", "1": "the second positional argument"}
_NO_WORD = re.compile(r"[^0-9a-zA-Z]+")
_TERM = re.compile(r"[^\s()*+,-]+")
_SIZE = re.compile(r".*?\.size\[\d+\]")
_IMPORTED = re.compile(r"G\['__import_(?P<name>\w+)'\]")  # a module whose function is traced
_BUILTIN = re.compile(r"G\['__builtins_dict__\w*'\]\['(?P<name>\w+)'\]")
_READ_AS_TENSOR = re.compile(r"___from_numpy\((?P<of>[^()]*)\)")
_KEYS = re.compile(r"list\(dict\.keys\((?P<of>[^()]*)\)\)")
_OF_CLASS = re.compile(
    r"(?:dict\(type\((?P<of>[^()]*)\)(?:\.__mro__\[\d+\])?\.__dict__\)"
    r"|type\((?P<from>[^()]*)\)(?:\.__mro__\[\d+\])?\.__dict__)\['(?P<name>\w+)'\]"
)
_ITEM_OF_MODULE = re.compile(r"\._modules\['(?P<index>\d+)'\]")  # of a list of modules
_PART_OF_MODULE = re.compile(r"\._(?:modules|parameters|buffers)\['(?P<name>\w+)'\]")
_DUPLICATES = re.compile(r'"(?P<source>[^"]+)"')
_SAME = re.compile(r"(?P<one>\S+) is (?P<no>not )?(?P<other>\S+)")
_OWN_ATTRIBUTES = ".__dict__"  # of an object; without an entry there, the class's attribute is read
_MOST_TITLE = 60  # columns of a condition in a title
_INPUT = re.compile(r"\b[lg]_\w+", re.IGNORECASE)  # of a graph: torch makes it of the source
_GLOBAL = re.compile(r"G\['(?P<name>[^']+)'\]")


def source_text(source: str | None) -> str:
    """A source as the program writes it: ``L['x']`` is ``x``, a global is its name.

    >>> source_text("G['os'].environ._data[b'SCALE']")
    "os.environ['SCALE']"
    >>> source_text("G['__import_my_dot_hooks'].seen"), source_text("G['__import___main__'].seen")
    ('my.hooks.seen', 'seen')
    >>> source_text("G['__import_torch_dot_nn']"), source_text("G['__builtins_dict___1']['print']")
    ('torch.nn', 'print')
    >>> source_text("L['self']._modules['layers']._modules['0']._parameters['bias']")
    'self.layers[0].bias'
    """
    text = _IMPORTED.sub(lambda found: found["name"].replace("_dot_", "."), source or "a value")
    text = _BUILTIN.sub(r"\g<name>", text)
    text = _GLOBAL.sub(r"\g<name>", _LOCAL.sub(r"\g<name>", text.removeprefix("__main__.")))
    text = re.sub(r"environ\._data\[b('\w+')\]", r"environ[\1]", text)
    text = re.sub(r"___stack\d+", "<value from before the break>", text)
    text = _READ_AS_TENSOR.sub(r"\g<of>", text.removesuffix(".__code__"))
    text = _KEYS.sub(r"list(\g<of>)", _OF_CLASS.sub(_class_attribute, text))
    text = _ITEM_OF_MODULE.sub(r"[\g<index>]", text)
    return _PART_OF_MODULE.sub(r".\g<name>", text).removesuffix("._modules")


def _class_attribute(found: re.Match[str]) -> str:
    return f"type({found['of'] or found['from']}).{found['name']}"


def input_names(placeholders: Iterable[str], sources: Iterable[str]) -> list[str]:
    """The inputs of a graph as the program writes them. One without a source among these keeps Dynamo's name.

    Printed graphs have the names in lower case.

    >>> input_names(["l_self_parameters_w_", "s0"], ["L['self']._parameters['w']"])
    ['self.w', 's0']
    """
    names = {_NO_WORD.sub("_", source).lower(): source_text(source) for source in sources}
    return [names.get(name.lower(), name) for name in placeholders]


def with_program_names(text: str, sources: Iterable[str]) -> str:
    """A text with the inputs of a graph as the program writes them.

    >>> with_program_names("l_y_ + l_other_", ["L['y']"])
    'y + l_other_'
    """
    inputs = list(dict.fromkeys(_INPUT.findall(text)))
    names = dict(zip(inputs, input_names(inputs, sources), strict=True))
    return _INPUT.sub(lambda found: names[found[0]], text)


def root_name(source: str | None) -> str | None:
    """The local name that a source begins with: ``x`` of ``L['x'].size()[0]``; ``None`` where it begins elsewhere."""
    found = _LOCAL.match(source or "")
    return found and found["name"]


def is_global(source: str) -> bool:
    """Whether a source is a global of the program."""
    return _GLOBAL.match(source) is not None


def argument_description(source: str | None) -> str | None:
    """How a caller names an argument of a function that takes any (``*args, **kwargs``), as wrappers do."""
    match = _VARIADIC.match(source or "")
    if match is None:
        return None
    if match["key"] is not None:
        return f"the keyword argument `{match['key']}`" + (" (part of it)" if match["rest"] else "")
    which = _ORDINALS.get(match["index"], f"argument {match['index']} (from 0)")
    return f"{which} of the call" + (" (part of it)" if match["rest"] else "")


def sizes_in(expression: str) -> tuple[str, ...]:
    """The sizes (``L['x'].size()[0]``) that an expression is over, in time that grows with its length only."""
    terms = _TERM.findall(expression.replace(".size()[", ".size["))
    found = {match[0] for term in terms if (match := _SIZE.match(term))}
    return tuple(sorted(size.replace(".size[", ".size()[") for size in found))


def joined_sources(found: Sequence[ParsedGuard]) -> str:
    """The subjects, as the program writes them."""
    return list_some(list(dict.fromkeys(f"`{source_text(item.subject)}`" for item in found)), 3)


def own_attribute(item: ParsedGuard) -> str | None:
    """``L['m'].scale`` of a guard on whether the object has that attribute of its own, and not its class alone."""
    holder, key = (item.subject or "").removesuffix(_OWN_ATTRIBUTES), (item.index or "").strip("'\"")
    return f"{holder}.{key}" if item.kind == "membership" and key and holder != item.subject else None


def what_changed(change: GuardChange) -> str:
    """The subject of a change, for a title: ``x.size()[0] changed``."""
    subject = brief(source_text(change.source)) if change.source else ""
    if change.parsed.kind == "freed":
        return f"{subject or 'an object'} was freed"
    if change.parsed.kind == "race":
        return "a cached entry fits by now"
    if change.parsed.kind == "first_call":
        return f"{subject} was set by the first call"
    if change.source in ARGUMENTS:
        return "called with another number of arguments"
    if change.parsed.kind == "global_state":
        return f"{state_words(change.parsed.index or 'a global setting')} changed"
    if change.parsed.kind == "dispatch_keys":
        return f"{subject} {dispatch_change(change.parsed.was, change.parsed.now)}"
    if change.parsed.kind == "backend":
        return "compiled by another torch.compile"
    if told := _relation(change):
        return told
    if change.parsed.is_condition or change.guard in change.was:
        condition = source_text(change.guard)
        return f"{'a condition' if len(condition) > _MOST_TITLE else f'`{condition}`'} no longer holds"
    if change.parsed.kind == "keys":
        return f"the keys of {source_text(change.parsed.subject)} changed"
    return f"{subject} changed" if subject else "a guard failed"


def describe_change(change: GuardChange, compile_id: str, symbols: Sequence[Symbol]) -> str:
    """What changed from what to what, against which cached entries; and the symbol that torch made of it."""
    if change.parsed.kind == "freed":
        return f"{source_text(change.source)} of {list_some(change.against)} was freed"
    symbol = _symbol(change, compile_id, symbols)
    then = f", then a symbol, {symbol}" if symbol else ""
    return f"{described(change)}{then} (guard of {list_some(change.against)})"


def described(change: GuardChange) -> str:
    """By the values where those are known, by the guard's own text where not."""
    kind, source, now = change.parsed.kind, source_text(change.source), brief(change.now)
    if kind == "race":
        return "this entry did not fit when the call began, and fits now: it was made meanwhile, as by another thread"
    if kind == "backend":
        return f"the backend was {backend_change(change.parsed.was, change.parsed.now)}"
    if kind == "dispatch_keys":
        return f"{source} {dispatch_change(change.parsed.was, change.parsed.now)}{_keys(change.parsed)}"
    if kind == "global_state" and change.was and change.now is not None:
        name = change.parsed.index or ""
        was = list_some([setting_words(name, text) for text in change.was])
        return f"{state_words(name)} was {was}, now {setting_words(name, change.now)}"
    was = list_some([brief(text) for text in change.was])
    if told := _relation(change):
        return told
    if (change.parsed.is_condition and change.guard) or change.guard in change.was:
        held = f"`{source_text(change.guard)}` does not hold"
        return f"{held}: {source} is now {now}" if kind == "shape" and change.now else held
    if kind == "identity" and all(text.startswith("another object") for text in change.was):
        if change.now == "a code":  # the recorder's word for what the guard is on: the function's code
            return f"{source} is another function than before"
        return f"{source} is another object than before" + (f", now {now}" if change.now else "")
    if not change.was and change.now is None:
        return change.guard or "a guard of unknown text"
    if change.now is None:
        return f"{source} is no longer {was}"
    return f"{source} was {was}, now {now}" if change.was else f"{source} is now {now}"


def _relation(change: GuardChange) -> str | None:
    """A guard on whether two tensors are one, or whether a container has an item, in words; None for others."""
    kind, text = change.parsed.kind, change.guard or ""
    if name := own_attribute(change.parsed):
        now, was = ("the object's own", "its class's")[:: 1 if text.startswith("not ") else -1]
        return f"{source_text(name)} was {was}, and is {now} now"
    if kind == "membership" and change.parsed.index:
        return f"whether {change.parsed.index} is in {source_text(change.parsed.subject)} changed"
    if kind != "alias":
        return None
    if text.startswith("Duplicate"):
        each = [source_text(found["source"]) for found in _DUPLICATES.finditer(text)]
        return f"{' and '.join(each)} were different tensors, and are one now" if each else None
    if (same := _SAME.fullmatch(text)) is None:
        return None
    was, now = ("two objects", "one") if same["no"] else ("one object", "two")
    return f"{source_text(same['one'])} and {source_text(same['other'])} were {was}, and are {now} now"


def _keys(reading: ParsedGuard) -> str:
    """The dispatch keys that changed."""
    added, removed = key_changes(reading.was, reading.now)
    signed = [f"+{key}" for key in sorted(added)] + [f"-{key}" for key in sorted(removed)]
    return f" (dispatch keys {' '.join(signed)})" if signed else ""


def _symbol(change: GuardChange, compile_id: str, symbols: Sequence[Symbol]) -> str | None:
    """The symbol that stands for a size from this compile on, if torch made it one."""
    if change.parsed.kind != "size":
        return None
    made = (symbol for symbol in symbols if symbol.compile_id == compile_id and symbol.event == "created")
    return next(
        (brief(symbol.name) for symbol in made if source_text(symbol.source) == source_text(change.source)), None
    )
