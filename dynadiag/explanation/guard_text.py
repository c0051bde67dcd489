"""A guard in words: its source as the program writes it, and what changed."""

from __future__ import annotations

from collections.abc import Sequence

from dynadiag.explanation.changes import GuardChange
from dynadiag.explanation.formatting import brief, list_some
from dynadiag.explanation.process_state import backend_change, dispatch_change, key_changes, setting_words, state_words
from dynadiag.recording.records import GuardFailure, Symbol
from dynadiag.recording.torch_text.guards import class_words
from dynadiag.recording.torch_text.sources import ARGUMENTS, source_text

_MOST_TITLE = 60  # columns of a condition in a title


def what_changed(change: GuardChange) -> str:
    """The subject of a change, for a title: ``x.size()[0] changed``."""
    fact, sort = change.fact, change.sort
    subject = brief(source_text(fact.source)) if fact.source else ""
    if sort == "freed":
        return f"{subject or 'an object'} was freed"
    if sort == "race":
        return "a cached entry fits by now"
    if sort == "first call":
        return f"{subject} was set by the first call"
    if fact.source in ARGUMENTS and sort == "length":
        return "called with another number of arguments"
    if sort == "state":
        return f"{state_words(fact.index, *fact.terms)} changed"
    if sort == "dispatch keys":
        return f"{subject} {dispatch_change(fact)}"
    if sort == "backend":
        return "compiled by another torch.compile"
    if told := _relation(fact):
        return told
    if fact.is_condition:
        condition = source_text(fact.guard)
        return f"{'a condition' if len(condition) > _MOST_TITLE else f'`{condition}`'} no longer holds"
    if sort == "keys":
        return f"the keys of {source_text(fact.subject)} changed"
    return f"{subject} changed" if subject else "a guard failed"


def describe_change(change: GuardChange, compile_id: str, symbols: Sequence[Symbol]) -> str:
    """What changed from what to what, against which cached entries; and the symbol that torch made of it."""
    if change.sort == "freed":
        return f"{source_text(change.fact.source)} of {list_some(change.against)} was freed"
    symbol = _symbol(change.fact, compile_id, symbols)
    then = f", then a symbol, {symbol}" if symbol else ""
    return f"{described(change)}{then} (guard of {list_some(change.against)})"


def described(change: GuardChange) -> str:
    """By the values where those are known, by the guard's own text where not."""
    fact, sort = change.fact, change.sort
    *old, new = class_words((*change.was, fact.now or ""))
    source, now = source_text(fact.source), brief(new)
    if sort == "race":
        return "this entry did not fit when the call began, and fits now: it was made meanwhile, as by another thread"
    if sort == "backend":
        return f"the backend was {backend_change(fact)}"
    if sort == "dispatch keys":
        return f"{source} {dispatch_change(fact)}{_keys(fact)}"
    if sort == "state" and change.was and fact.now is not None:
        was = list_some([setting_words(fact.index, text) for text in change.was])
        return f"{state_words(fact.index, *fact.terms)} was {was}, now {setting_words(fact.index, fact.now)}"
    was = list_some([brief(text) for text in old])
    if sort == "none" and fact.now_type == "NoneType" and fact.was_type and len(old) > 1:
        was = f"a {fact.was_type}"
    if told := _relation(fact):
        return told
    if fact.is_condition:
        held = f"`{source_text(fact.guard)}` does not hold"
        if sort != "shape" or not fact.now:
            return held
        return f"{held}: {source} was {was}, now {now}" if change.was else f"{held}: {source} is now {now}"
    if fact.part == "type" and fact.now in change.was:
        return f"{source} is of another class of the same name, {fact.now_type}, defined anew"
    if fact.part == "identity":
        kind = "function" if fact.now_type == "code" else "object"  # torch guards on the function's code
        if change.was and fact.now not in (None, *change.was):
            return f"{source} is another {kind} than before: it was {was}, now {now}"
        return f"{source} is another {kind} than before" + (f", now {now}" if fact.now and kind == "object" else "")
    if not change.was and fact.now is None:
        return fact.guard or "a guard of unknown text"
    if fact.now is None:
        return f"{source} is no longer {was}"
    return f"{source} was {was}, now {now}" if change.was else f"{source} is now {now}"


def _relation(fact: GuardFailure) -> str | None:
    """A guard on whether two tensors are one, or whether a container has an item, in words; None for others."""
    if fact.part == "own attribute":
        return f"{source_text(fact.source)} was {fact.was}, and is {fact.now} now"
    if fact.part == "membership" and fact.index:
        return f"whether {fact.index} is in {source_text(fact.subject)} changed"
    if fact.part != "alias" or len(fact.terms) < 2:
        return None
    names = " and ".join(map(source_text, fact.terms))
    return f"{names} were {fact.was}, and are {fact.now} now"


def _keys(fact: GuardFailure) -> str:
    """The dispatch keys that changed."""
    added, removed = key_changes(fact)
    signed = [f"+{key}" for key in sorted(added)] + [f"-{key}" for key in sorted(removed)]
    return f" (dispatch keys {' '.join(signed)})" if signed else ""


def _symbol(fact: GuardFailure, compile_id: str, symbols: Sequence[Symbol]) -> str | None:
    """The symbol of a size, if this compile made the size a symbol and did not fix it to a number later."""
    if fact.part != "size":
        return None
    own = [symbol for symbol in symbols if symbol.compile_id == compile_id]
    numbers = {symbol.name for symbol in own if symbol.event == "specialized"}
    made = (symbol for symbol in own if symbol.event == "created" and symbol.name not in numbers)
    return next((brief(symbol.name) for symbol in made if source_text(symbol.source) == source_text(fact.source)), None)
