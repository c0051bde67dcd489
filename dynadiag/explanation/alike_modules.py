"""Modules that are alike and that one compile traced one after the other, as the layers of a transformer.

Compiled apart, all run the code of the first: the compile is as long as that of one layer. PyTorch calls it regional
compilation (https://docs.pytorch.org/tutorials/recipes/regional_compilation.html).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from dynadiag.recording.records import Guard
from dynadiag.recording.torch_text.guards import guarded_class
from dynadiag.recording.torch_text.sources import module_items

_FEWEST = 8  # modules: of fewer, compiling them apart spares little


@dataclass(frozen=True, slots=True)
class AlikeModules:
    """Modules of one class in one list. ``source`` is where a compile found the list."""

    compile_id: str
    source: str
    kind: str
    number: int


def alike_modules(guards: Iterable[Guard], compile_ids: Iterable[str]) -> tuple[AlikeModules, ...]:
    """The longest row of alike modules of each of these compiles.

    Modules are alike if their guards are: one that reads a number of its own, such as its position, is compiled again
    for each value.
    """
    slow = frozenset(compile_ids)
    held: dict[tuple[str, str], dict[str, set[tuple[str, str, str]]]] = defaultdict(lambda: defaultdict(set))
    kinds: dict[tuple[str, str], str] = {}
    for guard in guards if slow else ():
        if guard.compile_id not in slow:
            continue
        for owner, item in module_items(guard.source):
            own, rest = (text.replace(item, "") for text in (guard.expression, guard.source))
            held[guard.compile_id, owner][item].add((guard.kind, rest, own))
            if guard.source == item and (kind := guarded_class(guard.expression)):
                kinds[guard.compile_id, owner] = kind
    found: dict[str, AlikeModules] = {}
    for (compile_id, owner), items in held.items():
        number = Counter(map(frozenset, items.values())).most_common(1)[0][1]
        known = found.get(compile_id)
        if number >= _FEWEST and (known is None or (number, -len(owner)) > (known.number, -len(known.source))):
            found[compile_id] = AlikeModules(compile_id, owner, kinds.get((compile_id, owner), "modules"), number)
    return tuple(found.values())
