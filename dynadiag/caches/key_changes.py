"""The components in which two cache keys differ, with the two values as far as they differ; and why they do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any

from dynadiag.caches.source_changes import ProgramFiles
from dynadiag.explanation.formatting import brief_pair
from dynadiag.recording.cache_keys import component_group
from dynadiag.recording.records import Compile, Guard, KeyComponent, Node, Run, Span

# A process's place in its job, as the recorder names it, and the variable that tells it.
JOB_VARIABLES = {"rank": "RANK", "local_rank": "LOCAL_RANK", "world_size": "WORLD_SIZE"}


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a key changed: a sentence, the user's line if it is known, what to do, and the difference as evidence.

    ``options`` of torch are what to do, where that can be tried: see `BypassReason`.
    """

    text: str
    span: Span | None = None
    cure: str | None = None
    diff: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class RunSide:
    """One of two runs, as far as it explains a key: the compile, and what surrounded it.

    ``options`` are those of torch's configuration as the metrics of the compile have them, ``nodes`` Dynamo's graph,
    ``guards`` those of the compile.
    """

    run: Run
    compile: Compile
    sources: Mapping[str, str]
    environment: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    nodes: Sequence[Node] = ()
    guards: Sequence[Guard] = ()

    @property
    def files(self) -> ProgramFiles:
        """The program's source."""
        return ProgramFiles(self.run, self.compile, self.sources)


@dataclass(frozen=True, slots=True)
class KeyComparison:
    """Two sides and the components in which their keys differ."""

    changes: tuple[ChangedComponent, ...]
    before: RunSide
    after: RunSide

    def of(self, *groups: str) -> list[ChangedComponent]:
        """The components of these groups that changed."""
        return [change for change in self.changes if change.group in groups]


ABSENT = "not there"
_SHARED = "torch_version"  # in each whole key
_MAX_VALUE = 120  # characters of a value that is shown
_FIELD = re.compile(r"(\w+)=((?:torch\.Size)?\([^()]*(?:\([^()]*\)[^()]*)*\)|\[[^\]]*\]|device\([^)]*\)|[^,()]+)")
_SYMBOL = re.compile(r"\bs\d+\b|\bu\d+\b")
_TENSOR_FIELDS = ("shape", "stride", "dtype", "device", "layout", "requires_grad", "storage_offset")


@dataclass(frozen=True, slots=True)
class ChangedComponent:
    """A component of a key by torch's own name, and its two values. ``hashes`` tell apart what the values do not."""

    component: str
    was: str
    now: str
    before: str = ""  # the whole values
    after: str = ""

    @property
    def group(self) -> str:
        """The name without its index."""
        return component_group(self.component)


def changed_components(before: Sequence[KeyComponent], after: Sequence[KeyComponent]) -> tuple[ChangedComponent, ...]:
    """Return the components whose hashes differ, in torch's order. Empty unless both keys were recorded.

    Of a key that was recorded in part, as where the recording ends in the compile, only those in both are compared.
    """
    if not before or not after:
        return ()
    if _is_whole(before) != _is_whole(after):
        before, after = _of_groups(before, after), _of_groups(after, before)
    old, new = ({each.name: each for each in key} for key in (before, after))
    return tuple(
        _change(name, old.get(name), new.get(name))
        for name in dict.fromkeys((*new, *old))
        if name not in old or name not in new or old[name].hash != new[name].hash
    )


def _is_whole(key: Sequence[KeyComponent]) -> bool:
    """Whether a key has the components that AOTAutograd shares with the cache below it."""
    return any(each.name == _SHARED for each in key)


def _of_groups(key: Sequence[KeyComponent], other: Sequence[KeyComponent]) -> list[KeyComponent]:
    groups = {component_group(each.name) for each in other}
    return [each for each in key if component_group(each.name) in groups]


def _change(name: str, old: KeyComponent | None, new: KeyComponent | None) -> ChangedComponent:
    was, now = (ABSENT if each is None else each.value for each in (old, new))
    short = _different_part(name, was, now)
    return ChangedComponent(name, *short, was, now)


def _different_part(name: str, was: str, now: str) -> tuple[str, str]:
    """The two values, of long ones only the part that differs."""
    if component_group(name) == "example_inputs" and (fields := input_change(was, now)):
        return tuple(", ".join(f"{field} {pair[side]}" for field, pair in fields.items()) for side in (0, 1))  # type: ignore[return-value]
    if "\n" in was or "\n" in now:
        was, now = _first_different_lines(was, now)
    was, now = brief_pair(was, now, _MAX_VALUE)
    if was == now:  # the texts are alike, the hashes are not
        return f"{was} (another object)", f"{now} (another object)"
    return was, now


def _first_different_lines(was: str, now: str) -> tuple[str, str]:
    old, new = was.split("\n"), now.split("\n")
    for tag, i, j, k, m in SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes():
        if tag != "equal":
            return " ".join(old[i:j]).strip() or ABSENT, " ".join(new[k:m]).strip() or ABSENT
    return was, now


def input_change(was: str, now: str) -> dict[str, tuple[str, str]]:
    """Return the fields of two inputs' metadata that differ, such as ``shape``, each with both values."""
    old, new = (dict(_FIELD.findall(text)) for text in (was, now))
    fields = [*(field for field in _TENSOR_FIELDS if field in old or field in new), *(old.keys() | new.keys())]
    return {
        field: (_plain(old.get(field, ABSENT)), _plain(new.get(field, ABSENT)))
        for field in dict.fromkeys(fields)
        if old.get(field) != new.get(field) and old and new
    }


def _plain(value: str) -> str:
    """A value as PyTorch's users write it: ``(4, 8)`` for ``torch.Size([4, 8])``."""
    value = value.removeprefix("torch.Size(").removesuffix(")") if value.startswith("torch.Size(") else value
    value = re.sub(r"\[(\w+)\]", r"(\1,)", value).replace("[", "(").replace("]", ")")
    return value.removeprefix("device(type='").removesuffix("')") if value.startswith("device(type=") else value


def is_symbolic(value: str) -> bool:
    """Whether a component's value has symbolic sizes."""
    return _SYMBOL.search(value) is not None
