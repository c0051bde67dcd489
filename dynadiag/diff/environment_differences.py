"""What two runs were given: versions, device, environment variables, options of torch, and the program's source."""

from __future__ import annotations

import difflib
import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from dynadiag.diff.compile_matching import CompilePair, in_both
from dynadiag.diff.difference import ENVIRONMENT, Difference
from dynadiag.diff.guard_changes import thread_count
from dynadiag.explanation.formatting import brief
from dynadiag.explanation.source import event_data, first_event_data, package_files, recorded_variables
from dynadiag.explanation.source_search import call_span, option_span
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Event, Graph, Guard, ValuesCall
from dynadiag.recording.torch_text.comparable import is_unreadable, without_addresses

_METRICS = {
    "dynamo_config": "torch._dynamo.config",
    "functorch_config": "torch._functorch.config",
    "inductor_config": "torch._inductor.config",
}
# Options that change where files lie, what is logged and how many processes compile, not what is compiled.
_IDLE_OPTION = re.compile(
    r"^(TYPE_CHECKING|_save_config_ignore|_cache_config.*|.*compile_threads|worker_.*|quiesce_.*|trace\..*|verbose.*|log_.*"
    r"|.*_dir|.*_path|.*cutlass.*|debug_.*_dir.*|cprofile|report_.*|repro_.*|.*\.repro_.*|save_args)$"
)
_IDLE_VARIABLE = re.compile(
    r"^(.*_(DIR|HOME|PATH|FOLDER)|TORCH_LOGS.*|TORCH_TRACE|TORCH_DTRACE|TORCH_SHOW.*|TORCHINDUCTOR_(COMPILE_THREADS|WORKER.*))$"
)
_FACTS = (("torch", "torch"), ("triton", "Triton"), ("python", "Python"), ("device", "device"))
_CODEGEN = {"True": "on", "False": "off (--no-codegen)"}
_DYNAMIC = ("assume_static_by_default", "automatic_dynamic_shapes")  # which torch.compile(dynamic=) sets
_MAX_VALUE = 60  # characters of a value in a sentence
_MIN_SHARED = 0.5  # of the lines of two versions of a program
_NOBODY = (None, None)

_SET_FOR_VALUES = {  # by --values itself: the modules in these caches lack the lines that show their buffers
    ("torch._functorch.config", "enable_autograd_cache"),
    ("torch._inductor.config", "fx_graph_cache"),
    ("torch._inductor.config", "fx_graph_remote_cache"),
}

_Options = dict[tuple[str, str], Any]


@dataclass(frozen=True, slots=True)
class OptionChange:
    """An option of torch with its two values as text, and the line that sets it."""

    name: str
    was: str
    now: str
    line: int | None


def environment_differences(before: Recording, after: Recording, pairs: Sequence[CompilePair]) -> list[Difference]:
    """Return what the runs were given that differs, without the source."""
    facts = [changed_fact(label, getattr(before.run, name), getattr(after.run, name)) for name, label in _FACTS]
    codegen = [first_event_data(side, "dynadiag_run").get("codegen") for side in (before, after)]
    facts.append(changed_fact("code generation", *(_CODEGEN.get(str(each)) for each in codegen)))
    found = [fact for fact in facts if fact is not None]
    found += _variable_differences(_variables(before), _variables(after))
    threads = [thread_count(_guards(side)) for side in (before, after)]
    if (fact := changed_fact("threads", *threads)) is not None:
        found.append(fact)
    return [*found, *_option_differences(before, after, pairs)]


def _guards(recording: Recording) -> Iterator[Guard]:
    """The guards of all compiles. A large recording has millions: those of one compile are read when asked for."""
    for item in recording.compiles():
        yield from recording.guards(item.compile_id)


def changed_fact(label: str, old: object, new: object) -> Difference | None:
    """Return the difference of a fact that both runs know, None where it is the same."""
    if old is None or new is None or old == new:
        return None
    return Difference(ENVIRONMENT, _NOBODY, None, None, f"{label} was {_short(old)} and is {_short(new)}")


def _short(value: object) -> str:
    return brief(value if isinstance(value, str) else repr(value), _MAX_VALUE)


def _variables(recording: Recording) -> Mapping[str, str] | None:
    """The recorded environment variables that may change what is compiled."""
    values = recorded_variables(recording)
    return values and {name: value for name, value in values.items() if not _IDLE_VARIABLE.match(name)}


def _variable_differences(old: Mapping[str, str] | None, new: Mapping[str, str] | None) -> Iterator[Difference]:
    for name in sorted({*old, *new} if old is not None and new is not None else ()):
        values = [f"is {_short(side[name])}" if name in side else "is not set" for side in (old or {}, new or {})]
        if values[0] != values[1]:
            text = f"the environment variable {name} {values[0].replace('is', 'was', 1)} and {values[1]}"
            yield Difference(ENVIRONMENT, _NOBODY, None, None, text)


def _option_differences(before: Recording, after: Recording, pairs: Sequence[CompilePair]) -> list[Difference]:
    """The options of torch that differ between a compile and its partner, each told once."""
    sides = _Settings(before), _Settings(after)
    defaults_differ = before.run.torch != after.run.torch
    ours = set() if _has_values(before) == _has_values(after) else _SET_FOR_VALUES
    found: dict[str, Difference] = {}
    for first, second in in_both(pairs):
        ids = first.compile_id, second.compile_id
        for name, (old, new) in _changed_options(sides, ids, defaults_differ=defaults_differ):
            if name in ours:
                continue
            text = f"{'.'.join(name)} was {_short(old)} and is {_short(new)}"
            place = _line_setting(after, name[1])
            found.setdefault(text, Difference(ENVIRONMENT, ids, *place, text))
    return list(found.values())


def _has_values(recording: Recording) -> bool:
    return bool(recording.records(ValuesCall))


def changed_options(before: Recording, after: Recording, ids: tuple[str, str]) -> list[OptionChange]:
    """Return torch's options that differ between two compiles, with the line of the second program that sets each."""
    sides = _Settings(before), _Settings(after)
    return [
        OptionChange(".".join(name), _short(old), _short(new), _line_setting(after, name[1])[1])
        for name, (old, new) in _changed_options(sides, ids, defaults_differ=False)
    ]


def _changed_options(
    sides: tuple[_Settings, _Settings], ids: tuple[str, str], *, defaults_differ: bool
) -> Iterator[tuple[tuple[str, str], tuple[Any, Any]]]:
    old, new = (side.options(id_) for side, id_ in zip(sides, ids, strict=True))
    known = {*sides[0].changed(ids[0]), *sides[1].changed(ids[1])} if defaults_differ else {*old, *new}
    for name in sorted(known & old.keys() & new.keys()):
        if _comparable(old[name]) != _comparable(new[name]) and not _IDLE_OPTION.match(name[1]):
            yield name, (old[name], new[name])


def _comparable(value: Any) -> Any:
    """A value without addresses, folders and the line of a function."""
    return re.sub(r":\d+\)$", ")", without_addresses(value)) if isinstance(value, str) else value


class _Settings:
    """torch's options at each compile: all of them as torch logs them, and those that differ from their defaults.

    The recorder adds the latter with each graph of Dynamo's. Only they have what ``torch.compile`` was given.
    """

    def __init__(self, recording: Recording) -> None:
        self._logged: dict[str, _Options] = {}
        self._changed: dict[str, _Options] = {}
        parsed: dict[str, _Options] = {}
        ids = _CompileIds(recording.graphs_at("dynamo"))
        for event, metrics in event_data(recording, "compilation_metrics"):
            texts = {key: metrics.get(key) for key in _METRICS}
            key = repr(texts)
            if key not in parsed:
                parsed[key] = _logged_options(texts)
            self._logged[ids.before(event)] = parsed[key]
        for event, modules in event_data(recording, "dynadiag_options"):
            found = self._changed.setdefault(ids.after(event), {})
            for module, values in modules.items():
                found.update({(module, name): value for name, value in values.items() if isinstance(values, dict)})

    def changed(self, compile_id: str) -> _Options:
        """Return the options that differ from their defaults."""
        return self._changed.get(compile_id, {})

    def options(self, compile_id: str) -> _Options:
        return {**self._logged.get(compile_id, {}), **self.changed(compile_id)}


class _CompileIds:
    """The compiles that events belong to, by Dynamo's graphs: after a reset torch uses its ids again."""

    def __init__(self, graphs: Sequence[Graph]) -> None:
        self._graphs = graphs
        self._events = [graph.event for graph in graphs]

    def before(self, event: Event) -> str:
        """Return the id of the compile whose graph came before an event."""
        return self._first(event, range(bisect_left(self._events, event.index) - 1, -1, -1))

    def after(self, event: Event) -> str:
        """Return the id of the compile whose graph comes after an event."""
        return self._first(event, range(bisect_left(self._events, event.index), len(self._graphs)))

    def _first(self, event: Event, places: Iterable[int]) -> str:
        ids = (self._graphs[place].compile_id for place in places)
        return next((id_ for id_ in ids if id_.partition("#")[0] == event.compile_id), event.compile_id)


def _logged_options(texts: Mapping[str, Any]) -> _Options:
    found: _Options = {}
    for key, text in texts.items():
        try:
            values = json.loads(text) if isinstance(text, str) else {}
        except ValueError:
            continue
        found.update(
            {(_METRICS[key], name): _recorded(value) for name, value in values.items() if not is_unreadable(value)}
        )
    return found


def _recorded(value: Any) -> Any:
    """A value of torch's log as the recorder writes it: lists and dicts as text."""
    return json.dumps(value) if isinstance(value, (list, dict)) else value


def _line_setting(recording: Recording, option: str) -> tuple[str | None, int | None]:
    """The line of the recorded source that sets an option, by itself or by an argument of torch.compile."""
    sources = recording.sources()
    argument = "dynamic" if option in _DYNAMIC else "mode"
    span = option_span(sources, {option, option.rpartition(".")[2]})
    span = span or call_span(sources, ("compile",), keyword=argument)
    return (span.file, span.line) if span is not None else (None, None)


def source_differences(before: Recording, after: Recording, pairs: Sequence[CompilePair]) -> list[Difference]:
    """Return the changed source files, each with a diff."""
    old, new = before.sources(), after.sources()
    files = matching_files(before, after, pairs)
    return [
        found
        for now, was in files.items()
        if now in new and was in old and (found := _source_difference(was, old[was], now, new[now]))
    ]


def _own_files(recording: Recording) -> list[str]:
    """The recorded files without those of libraries, which have versions."""
    inside = package_files(recording).inside
    return [file for file in recording.source_files() if inside(file) is None]


def matching_files(before: Recording, after: Recording, pairs: Sequence[CompilePair]) -> dict[str, str]:
    """Return the files of the second run, each with the one that it was in the first.

    They are those of compiles that both runs have, the programs', and others that have one path or the only such name.
    """
    found = [(second.file, first.file) for first, second in in_both(pairs)]
    found.append((_main_file(after), _main_file(before)))
    files: dict[str, str] = {}
    for now, was in found:
        if now is not None and was is not None:
            files.setdefault(now, was)
    old, new = map(_own_files, (before, after))
    for now in new:
        named = [[each for each in side if Path(each).name == Path(now).name] for side in (old, new)]
        was = now if now in old else named[0][0] if len(named[0]) == len(named[1]) == 1 else None
        if was is not None:
            files.setdefault(now, was)
    return files


def _main_file(recording: Recording) -> str | None:
    """The file that was run as the program, if its target names one."""
    path = Path(recording.run.cwd or "/", recording.run.target)
    return str(path) if path.suffix == ".py" else None


def are_versions(before: Recording, after: Recording) -> bool:
    """Whether the two programs' files are versions of one: they share most of their lines."""
    old, new = (_written_lines(side) for side in (before, after))
    return bool(old and new) and SequenceMatcher(None, old, new, autojunk=False).ratio() > _MIN_SHARED


def _written_lines(recording: Recording) -> list[str]:
    """The lines of the program's file that are not blank; none where the source was not kept."""
    file = _main_file(recording)
    source = recording.source(file) if file is not None else None
    return [line for line in (source or "").splitlines() if line.strip()]


def _source_difference(was: str, old: str, now: str, new: str) -> Difference | None:
    lines = old.splitlines(), new.splitlines()
    blocks = SequenceMatcher(None, *lines, autojunk=False).get_opcodes()
    changed = [block for block in blocks if block[0] != "equal"]
    if not changed:
        return None
    diff = difflib.unified_diff(*lines, was, now, lineterm="", n=1)
    first, count = changed[0][3], sum(max(block[2] - block[1], block[4] - block[3]) for block in changed)
    text = f"the source differs in {count} line{'s' if count > 1 else ''}"
    return Difference(ENVIRONMENT, _NOBODY, now, min(first + 1, max(len(lines[1]), 1)), text, details=tuple(diff))


def matching_line(old: str, new: str, line: int) -> int | None:
    """Return the line of the second source that stands in the place of a line of the first, if it was not deleted."""
    lines = old.splitlines(), new.splitlines()
    for kind, start, end, first, last in SequenceMatcher(None, *lines, autojunk=False).get_opcodes():
        if start < line <= end and kind != "delete":
            return min(first + line - start, last)
    return None
