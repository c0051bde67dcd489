"""A value that is fixed into the graph and changed, while the source of what is compiled is the same."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dynadiag.caches.key_changes import JOB_VARIABLES, Cause, ChangedComponent, KeyComparison
from dynadiag.explanation.formatting import brief, count
from dynadiag.explanation.source_search import definition_span
from dynadiag.recording.records import Guard, Node, Span
from dynadiag.recording.torch_text.guards import guarded_value
from dynadiag.recording.torch_text.sources import is_global, source_text

_CURE = "Pass the value as an argument, or keep it out of the graph."
_SAME_CODE = "Start both runs with the same code and the same choice of it."
_VALUE = re.compile(r"'[^']*'|\"[^\"]*\"|\b(?:True|False|None)\b|[-+]?\d[\d.e+-]*")
_SET = "a set of strings has another order in each process, unless PYTHONHASHSEED is set."
_WORD, _NUMBER = re.compile(r"[\w./:-]+"), re.compile(r"(?<=[A-Za-z_])\d+")  # a number that ends or parts a name
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")


def graph_values(compared: KeyComparison) -> Iterator[Cause]:
    """The value that changed: one that Dynamo guards on, else what differs in the text of the graph."""
    change = compared.of("gm")[0]
    found = _guarded(list(_changed_values(compared)), compared.after.sources) or _printed(change)
    accident = own_of_process(change, compared)
    yield replace(
        found,
        text=found.text + (f"; {accident}" if accident else ""),
        span=found.span or _first_new_node(change, compared.after.nodes),
        cure=found.cure or _CURE,
    )


def _printed(change: ChangedComponent) -> Cause:
    if change.before == change.after:
        return Cause("the graph is the same text, an object in it is another one (a tensor constant, or a module)")
    if len({_VALUE.sub("", text) for text in (change.was, change.now)}) > 1:
        return Cause("the graph computes something else", cure=_SAME_CODE)
    return Cause(f"a value that is fixed into the graph changed: {change.was} → {change.now}")


def _changed_values(compared: KeyComparison) -> Iterator[tuple[Guard, str, str]]:
    """The values that Dynamo guards on and that differ: it compiles them into the graph."""
    values = [
        {
            guard.source: (guard, value)
            for guard in side.guards
            if (value := guarded_value(guard.expression)) is not None
        }
        for side in (compared.before, compared.after)
    ]
    for source, (guard, now) in values[1].items():
        was = values[0].get(source, (guard, now))[1]
        if was != now:
            yield guard, was, now


def _guarded(values: Sequence[tuple[Guard, str, str]], sources: Mapping[str, str]) -> Cause | None:
    """What the values are called, where they are set or else read, and the cure for those in another order."""
    if not values:
        return None
    guard, was, now = values[0]
    name = source_text(guard.source)
    text = f"{name} went from {brief(was)} to {brief(now)}, and the graph has its value"
    variable = name.partition("[")[0]
    span = definition_span(sources, variable) if is_global(guard.source) and variable.isidentifier() else None
    span = span or (Span(guard.file, guard.line) if guard.line else None)
    same = [each for each in values if source_text(each[0].source).partition("[")[0] == variable]
    if len(same) > 1 and sorted(each[1] for each in same) == sorted(each[2] for each in same):
        return Cause(f"the order of {variable} changed: {text}", span, f"Sort {variable}: {_SET}")
    return Cause(text + (f" (and {count(len(values) - 1, 'other value')})" if len(values) > 1 else ""), span)


def own_of_process(change: ChangedComponent, compared: KeyComparison) -> str | None:
    """What of the process's own is in a part of the key: an address, its folder, its rank or another variable."""
    if _ADDRESS.search(change.now) and _ADDRESS.search(change.was):
        return "an address of this process is in it"
    words = [Counter(_WORD.findall(text)) + Counter(_NUMBER.findall(text)) for text in (change.was, change.now)]
    stale, fresh = words[0] - words[1], words[1] - words[0]
    cwd = compared.after.run.cwd
    if cwd and cwd != compared.before.run.cwd and any(word.startswith(cwd) for word in fresh):
        return "the folder that the program runs in is in it"
    old, new = compared.before.environment, compared.after.environment
    for name in (*JOB_VARIABLES.values(), *sorted(new)):
        now = new.get(name, "")
        if now in fresh and old.get(name) != now and (name not in old or old[name] in stale):
            return f"{name} of this process ({now}) is in it"
    for argument in compared.after.run.argv[1:]:
        if argument in fresh and argument not in compared.before.run.argv:
            return f"an argument of the program ({argument}) is in it"
    if re.search(rf"(?<!\d){compared.after.run.pid}(?!\d)", change.now):
        return "the process id is in it"
    if any("group" in word for word in fresh) or "_c10d_functional" in change.now:
        return (
            "a process group's name is in it: give the group a name of its own (group_desc) or make groups in one order"
        )
    return None


def _first_new_node(change: ChangedComponent, nodes: Sequence[Node]) -> Span | None:
    """The user's line of the first node that only the second run's graph has."""
    spans = {node.name: node.span for node in nodes if node.span.file}
    old = set(change.before.splitlines())
    for line in change.after.splitlines():
        name = re.match(r" +(\w+)(?::[^=]*)? = ", line)
        if name is not None and line not in old and name[1] in spans:
            return spans[name[1]]
    return None
