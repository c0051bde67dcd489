"""What is known of a recompile when it is advised on: the guards that one change failed, and what is around them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from dynadiag.explanation.batches import Made, made_at
from dynadiag.explanation.changes import GuardChange, causes, changes, own_failures
from dynadiag.explanation.formatting import list_some
from dynadiag.explanation.rebinding import (
    added_item,
    counted_inside,
    decided_by,
    key_place,
    keyword_at_times,
    number_sizes,
    number_use,
    picks_by_name,
    set_inside,
    takes_out_again,
)
from dynadiag.explanation.remedy import Slots, Subject, slots_if
from dynadiag.recording.code_origin import is_torch_file, short_place
from dynadiag.recording.records import Frame, GuardFailure, Recompile, Span
from dynadiag.recording.torch_text.sources import argument_description, holder_of, is_on_stack, local_name, source_text

_WRAPPED = ("fn", "partial", "self")  # what torch's own wrapper has the callable as
_FROM_BEFORE = ("size", "shape", "value", "length")  # parts of what a function may have computed before a break


class Symbols(NamedTuple):
    """The sizes and numbers that compiles of a function made symbols, each as compile id and source.

    ``needed`` are those that torch needed the number of after all, with the line that needs it where that is known,
    ``settled`` the sources of those that only one compile needed the number of, and later ones do not.
    """

    made: frozenset[tuple[str, str | None]] = frozenset()
    needed: Mapping[tuple[str, str | None], tuple[Frame, ...]] = {}
    settled: Collection[str | None] = ()


@dataclass(frozen=True, slots=True)
class RecompileCase:
    """One cause of a recompile: what changed together, the most telling first.

    - ``computed``: the names of what the function had computed before a graph break, which no caller can change.
    - ``goes_on``: it changed in other recompiles of the function too.
    - ``became_symbol``: this compile made it a symbol, and needed no number of it.
    - ``became_number``, ``was_number``: torch had made it a symbol, and needed its number after all, in this compile or
      in that of the entry that failed, and in no other.
    - ``needed_at``: the line that needed that number.
    - ``added``: the key that the compiled code itself adds to the container (None of a list), and where; None where it
      ``takes_out`` items as well, since then nothing is known of their number.
    - ``key_of``: the dict that the value is a key of, and where; ``use``: what an integer is for (`number_use`), the
      branch that it ``decides``, and where it ``sizes`` a slice or a tensor; ``picks_by_name``: it may be the index at
      the guard's line.
    - ``counted``: where the compiled code itself adds to a number that is a global, or in one.
    - ``set_inside``: where the compiled function itself sets it; ``keyword``: the argument that only some calls pass.
    - ``apart``: the function, its caller and the place of the break but for which it would be part of the caller's
      graph.
    - ``made``: where the tensors whose sizes changed are made; ``unmarkable``: no size of them can be marked, since
      compiled code calls the function (torch refuses to trace a mark), or a library, which makes or copies them.
    - ``is_joined``: the function uses it with another tensor whose size changes as well, and is a number at first: one
      that it had computed before a break, or that no call before had.
    - ``of_torch``: it is an attribute of an object of torch's own, such as an `nn.Dropout`.
    """

    changes: tuple[GuardChange, ...]
    recompile: Recompile
    computed: Collection[str] = ()
    goes_on: bool = False
    became_symbol: bool = False
    became_number: bool = False
    was_number: bool = False
    needed_at: Span | None = None
    added: tuple[str | None, Span] | None = None
    takes_out: bool = False
    key_of: tuple[str, Span] | None = None
    use: tuple[str, Span] | None = None
    picks_by_name: bool = False
    decides: Span | None = None
    sizes: Span | None = None
    counted: Span | None = None
    set_inside: Span | None = None
    keyword: str | None = None
    apart: tuple[str, str, str] | None = None
    is_joined: bool = False
    of_torch: bool = False
    made: Made | None = None
    unmarkable: bool = False

    @property
    def fact(self) -> GuardFailure:
        """The failure that the cause is told by."""
        return self.changes[0].fact

    @property
    def is_computed(self) -> bool:
        """Whether the function had computed what changed before a graph break."""
        return is_from_before_break(self.fact, self.computed)

    @property
    def sort(self) -> str:
        """The sort of that failure; "computed size" and "left over" of what was computed before a break."""
        if not self.is_computed:
            return self.changes[0].sort
        return "computed size" if self.changes[0].sort in ("size", "shape") else "left over"

    @property
    def alike(self) -> tuple[GuardFailure, ...]:
        """All failures of the sort of the first."""
        return tuple(change.fact for change in self.changes if change.sort == self.changes[0].sort)

    @property
    def name(self) -> str:
        """What changed, as the program writes it; what a wrapper's ``*args`` have, also as its caller calls it."""
        return _named(self.fact.subject)

    @property
    def names(self) -> Subject:
        """The first few things that changed."""
        names = list(dict.fromkeys(_named(fact.subject) for fact in self.alike))
        return Subject(list_some(names, 3), many=len(names) > 1)

    @property
    def is_other_callable(self) -> bool:
        """Whether the guard is on what torch's own wrapper (``wrap_inline``, external_utils.py) was put around."""
        of_wrapper = is_torch_file(self.fact.file) and (self.fact.file or "").endswith("external_utils.py")
        return of_wrapper and self.fact.part in ("type", "identity") and local_name(self.fact.subject) in _WRAPPED

    @property
    def is_constant(self) -> bool:
        """Whether it remains a constant of the code, since the code needs its number, or since it had other values
        before and was one all the same."""
        same = (change for change in self.changes if change.fact.source == self.fact.source and not self.is_joined)
        several = self.goes_on or len({value for change in same for value in change.was} - {"None"}) > 1
        return self.became_number or (several and not (self.became_symbol and self.fact.dynamic == "always"))


def _keyword(fact: GuardFailure, item: Recompile, sources: Mapping[str, str]) -> str | None:
    """The keyword argument that only some calls pass, if the failure is about one."""
    own = (each for each in item.reasons if (each.subject or "").startswith(fact.subject or "?"))
    return next(filter(None, (keyword_at_times(each, item, sources) for each in own)), None)


def _named(subject: str | None) -> str:
    described = argument_description(subject)
    return f"`{source_text(subject)}`{f' ({described})' if described else ''}"


Needs = Callable[[RecompileCase], Slots]


def of_sort(*sorts: str) -> Needs:
    """Return the predicate that a case is of one of these sorts."""
    return lambda case: slots_if(case.sort in sorts, name=case.name, names=case.names)


def is_special_size(fact: GuardFailure) -> bool:
    """Whether it is a size that is, or was, one of those that torch compiles apart from all others."""
    return fact.part == "size" and not {fact.was, fact.now}.isdisjoint(("0", "1"))


def place_text(place: Span) -> str:
    """Return a place as a sentence names it: ``net.py:12``."""
    return short_place(place.file, place.line)


def own_changes(item: Recompile, computed: Collection[str]) -> tuple[GuardChange, ...]:
    """What changed at a recompile, without what only follows; the values from before a graph break stand last.

    ``computed`` has the names of these.
    """
    own = changes(own_failures(item.reasons))
    return tuple(sorted(own, key=lambda change: is_from_before_break(change.fact, computed)))


def changing_source(failure: GuardFailure) -> str | None:
    """What a function's recompiles have in common where it goes on changing."""
    return failure.source if failure.part == "size" else failure.subject


def is_from_before_break(failure: GuardFailure, computed: Collection[str]) -> bool:
    """Whether a guard is on a size or a value that the function had computed before it was split at a break.

    ``computed`` has the names that it gave to such values. What had none is on the stack, under a name of torch's.
    """
    roots = {local_name(source) or "" for source in failure.terms or (failure.subject,)}
    if all(root.startswith("___stack") for root in roots) or (failure.part == "shape" and is_on_stack(failure.guard)):
        return True
    return failure.part in _FROM_BEFORE and roots <= {*computed}


def cases_of(
    item: Recompile,
    computed: Collection[str] = (),
    changing: Collection[str | None] = (),
    symbols: Symbols | None = None,
    sources: Mapping[str, str] = {},
    torch_objects: Collection[tuple[str, str]] = (),
    caller: Frame | None = None,
    unmarkable: bool = False,
) -> tuple[RecompileCase, ...]:
    """The causes of a recompile, the most telling first. What another callable has else follows from it.

    ``torch_objects`` are the sources of objects of torch's own. ``caller`` is the frame of the program that called the
    function, ``unmarkable`` whether nothing that is passed there can be marked.
    """
    made_symbols, numbers, settled = symbols or Symbols()
    own = own_changes(item, computed)
    given = (each.fact for each in own if not is_from_before_break(each.fact, computed))
    sizes = {fact.subject for fact in given if fact.part == "size" and fact.base == "argument"}
    made = made_at([each for each in sizes if each], item, caller, sources)
    cases = tuple(
        RecompileCase(
            together,
            item,
            computed=computed,
            goes_on=not once and changing_source(together[0].fact) in changing,
            became_symbol=(item.compile_id, together[0].fact.source) in made_symbols - numbers.keys(),
            became_number=not once and (item.compile_id, together[0].fact.source) in numbers,
            was_number=[each for each, of in numbers if of == together[0].fact.source] == [together[0].fact.against],
            needed_at=next(
                (
                    Span(frame.file, frame.line)
                    for compile_id in (item.compile_id, together[0].fact.against)
                    for frame in numbers.get((compile_id, together[0].fact.source), ())
                ),
                None,
            ),
            added=None if takes_out else added,
            takes_out=takes_out,
            key_of=key_place(together[0].fact, sources),
            use=number_use(together[0].fact, sources),
            picks_by_name=picks_by_name(together[0].fact, sources),
            decides=decided_by(together[0].fact, sources),
            sizes=number_sizes(together[0].fact, sources),
            counted=counted_inside(together[0].fact, sources),
            set_inside=None if together[0].sort == "first call" else set_inside(together[0].fact, item, sources),
            keyword=_keyword(together[0].fact, item, sources),
            of_torch=(together[0].fact.against, holder_of(together[0].fact.subject) or "") in torch_objects,
            is_joined=once,
            made=made,
            unmarkable=unmarkable,
        )
        for together in causes(own)
        for once in (together[0].fact.source in settled and together[0].fact.dynamic != "always",)
        for added in (added_item(together[0].fact, item, sources),)
        for takes_out in (takes_out_again(added, sources),)
    )
    return tuple(case for case in cases if case.is_other_callable)[:1] or cases
