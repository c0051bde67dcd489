"""A graph break with all that is known of it: what the predicates of remedies read, and the titles go by.

torch reports an assertion as data-dependent branching (GB0170). It traces one on a tensor if its message is a text. It
leaves to Python one that fails while tracing, and one whose message is an object. DDP and FSDP2 break the graph of a
module that they wrap by themselves.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dynadiag.explanation.blocks import (
    asked_attribute,
    call_at,
    called_beside,
    called_in_condition,
    custom_function,
    drawn_at,
    has_company,
    is_condition,
    is_iterated,
    is_loop_condition,
    looped_result,
    made_before,
    only_raises,
    raises_into_except,
    registers_hook,
    returns_no_tensor,
    subscript_at,
    unsplittable_block,
    writes_through,
)
from dynadiag.explanation.branches import (
    called_name,
    does_more,
    is_filter,
    kept_side,
    may_resize,
    only_shows,
    tensor_condition,
    tests_at,
    written_in_place,
)
from dynadiag.explanation.break_families import Family, family
from dynadiag.explanation.identity import nodes_of
from dynadiag.explanation.owner import Owner, entry_frame, owner_of
from dynadiag.explanation.run_records import DDP, RunRecords
from dynadiag.explanation.unknown_values import (
    TO_A_NUMBER,
    NumberCondition,
    branch_decision,
    taken_number,
    takes_from_arguments,
    uses_of_number,
)
from dynadiag.known_fixes import KnownFix, known_fixes
from dynadiag.recording.code_origin import module_at
from dynadiag.recording.records import EXPORT, Break, BreakFacts, Frame, SkippedFrame, Span
from dynadiag.recording.torch_text.breaks import is_in_loop, saw_no_tensor

_NEUTRAL = {"mul_": "1.0", "div_": "1.0", "add_": "0.0", "sub_": "0.0"}  # operators in place: what changes nothing
CHECKPOINT = "tag_activation_checkpoint"  # torch's higher-order operator for torch.utils.checkpoint
_ITEMS = ("GB0109", "GB0124")  # tolist() and item() in torch's registry
_INDEX = "GB0218"  # operator.index() on a tensor, in 2.11
_LEFT_TO_PYTHON = ("/torch/optim/", "/torch/amp/", "/torch/_compile.py")  # the last has what torch itself disabled
_WRAPPER_FILES = {"DDP": "/torch/nn/parallel/distributed.py", "FSDP2": "/fsdp/_fully_shard/"}
_WRAPPER_CLASSES = {"DDP": DDP}
# Modules and classes of C functions that act, or give another result at each call.
_CLOCKS_AND_CHANCE = ("time", "random", "_random", "datetime", "_datetime", "secrets", "uuid", "_uuid", "Random")
_ACTING = (
    "sys",
    "_warnings",
    "_thread",
    "_asyncio",
    "_socket",
    "_io",
    "signal",
    "_signal",
    "gc",
    "select",
    "_queue",
    "_heapq",
    "list",
    "dict",
    "set",
    "deque",
)
_NEVER_THE_SAME = (*_CLOCKS_AND_CHANCE, *_ACTING)
_NUMPYS_RANDOM = ("np.random.", "numpy.random.")
_RANDOM = (*_NUMPYS_RANDOM, "random.", "torch.rand", "torch.bernoulli")
_CHANCE = ("random", "_random", "Random", "secrets")


Condition = Callable[["BreakCase"], bool]
Needs = Callable[["BreakCase"], Mapping[str, str] | None]


@dataclass(frozen=True, slots=True)
class BreakCase:
    """One cause of breaks. ``left`` are the functions that go on uncompiled after it, ``whole`` those that ran so."""

    item: Break
    run: RunRecords
    left: Sequence[SkippedFrame] = ()
    whole: Sequence[str] = ()

    @property
    def facts(self) -> BreakFacts:
        """What torch's message says."""
        return self.item.facts

    @property
    def family(self) -> Family:
        """The types of break that mean the same to a user."""
        return family(self.item.gb_type)

    @property
    def source(self) -> str | None:
        """The text of the file that breaks."""
        return self.run.sources.get(self.item.span.file or "")

    @property
    def owner(self) -> Owner:
        """Whose the line is."""
        return owner_of(self.item.span.file, self.run.packages)

    @property
    def known(self) -> KnownFix | None:
        """The change of a library's function that was proved to end this break."""
        inside = self.run.packages.inside(self.item.span.file)
        if not inside or self.source is None or self.item.span.line is None:
            return None
        return next(known_fixes(module_at(inside), self.source, self.item.span.line, self.item.gb_id), None)

    @property
    def compiled_way(self) -> tuple[Frame, ...]:
        """The frames on the way to the break of functions that torch compiled or split, the outermost first."""
        known = {(each.file, each.function.rpartition(".")[2]) for each in self.run.compiles}
        return tuple(frame for frame in self.item.user_stack if (frame.file, frame.function) in known)

    @property
    def entry(self) -> Frame | None:
        """The program's line in compiled code that leads to a library's; None where all that was compiled is theirs."""
        return entry_frame(self.compiled_way, self.run.packages)

    @property
    def is_theirs(self) -> bool:
        """Whether the user can change what breaks."""
        return self.owner.is_user and self.facts.inside.file is None

    @property
    def decision(self) -> NumberCondition | None:
        """The condition on a number that the break is at, or that the number which it takes is for."""
        return branch_decision(self.item, self.run)

    @property
    def uses(self) -> frozenset[str]:
        """What a number that is taken from a tensor here is for; empty where that is not known."""
        return uses_of_number(self.source, self.item.span)

    @property
    def taken(self) -> str | None:
        """What takes a number out of a tensor here (``int(i.max())``)."""
        return taken_number(self.source, self.item.span)

    @property
    def takes_from_arguments(self) -> bool:
        """Whether the number can be computed before the call: from the compiled function's arguments alone."""
        return not self.is_inlined and takes_from_arguments(self.source, self.item.span)

    @property
    def is_inlined(self) -> bool:
        """Whether a compiled function called the function that breaks, and goes on with its result."""
        return any(frame != self.item.user_stack[-1] for frame in (self.way, *self.compiled_way) if frame is not None)

    @property
    def custom_function(self) -> str | None:
        """The `torch.autograd.Function` whose method led to the break."""
        frames = (Span(frame.file, frame.line) for frame in self.item.user_stack[::-1])
        named = (custom_function(self.run.sources.get(span.file or ""), span) for span in frames)
        return next((name for name in named if name is not None), None)

    @property
    def tried_attribute(self) -> str | None:
        """What the function asks for in a ``try`` that catches AttributeError."""
        return asked_attribute(self.source, self.item.span)

    @property
    def picked_from(self) -> str | None:
        """The list, such as one of modules, that a number asked of a tensor picks an item of here."""
        is_index = self.is_item or self.item.gb_id == _INDEX
        is_list = is_index and self.facts.operator != TO_A_NUMBER and self.taken is None
        return self.container if is_list else None

    @property
    def indices_as_numbers(self) -> tuple[str, str] | None:
        """The indices of a tensor, of no dimensions, that are read as numbers here, as they remain tensors, and what
        that makes of the subscript.
        """
        node = subscript_at(self.source, self.item.span)
        if node is None or self.facts.operator != TO_A_NUMBER or self.taken is not None:
            return None
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        read = [each for each in parts if not isinstance(each, (ast.Slice, ast.Constant))]
        kept = ", ".join(f"`{ast.unparse(each)}.reshape(1)`" for each in read)
        if len(parts) > 1:
            return kept, ", and the result has a dimension of 1 there"
        same = f", and `{ast.unparse(node.value)}[{kept.strip('`')}][0]` is the same"
        return kept, same if isinstance(node.ctx, ast.Load) else ""

    @property
    def container(self) -> str | None:
        """What the subscript that it is at picks an item of, as the program writes it."""
        node = subscript_at(self.source, self.item.span)
        return None if node is None else ast.unparse(node.value)

    @property
    def looped(self) -> str | None:
        """The name of the result that a loop of the function goes through."""
        return looped_result(self.source, self.item.span)

    @property
    def in_hook(self) -> bool:
        """Whether it is in a function that a line on the way registers as the hook of a tensor."""
        way = self.item.user_stack[:-1]
        return any(registers_hook(self.run.sources.get(frame.file), frame.line) for frame in way)

    @property
    def broken_before(self) -> Break | None:
        """The first graph break of another compile that has this function in its stack."""
        here = {(frame.file, frame.function) for frame in self.item.user_stack[-1:]}
        others = (each for each in self.run.breaks if each.compile_id != self.item.compile_id)
        return next((each for each in others if here & {(f.file, f.function) for f in each.user_stack}), None)

    @property
    def is_branch(self) -> bool:
        """Whether the values of a tensor decide which way the program takes."""
        return "branching" in self.item.gb_type

    @property
    def is_item(self) -> bool:
        """Whether a Python number, or a list of them, is asked of a tensor."""
        return self.item.gb_id in _ITEMS or ".item()" in self.item.gb_type or self.facts.operator == TO_A_NUMBER

    @property
    def is_skip(self) -> bool:
        """Whether Dynamo skips the function that is called."""
        return "skipped" in self.item.gb_type

    @property
    def is_assertion(self) -> bool:
        """Whether the break is at the condition of an ``assert``, or in it."""
        return self.is_branch and _is_assertion(self.source, self.item.span)

    @property
    def is_exported(self) -> bool:
        """Whether it is of an export, which is one graph."""
        return self.item.compile_id.startswith(EXPORT)

    @property
    def may_resize(self) -> bool:
        """Whether the sides of the branch that it is at may have two sizes."""
        return may_resize(self.source, self.item.span)

    @property
    def tensor_condition(self) -> str:
        """The condition that it is at, as one expression of tensors; ``condition`` where that is not known."""
        return tensor_condition(self.source, self.item.span) or "condition"

    @property
    def kept(self) -> str:
        """What a side of the branch that it is at has without computing it."""
        return kept_side(self.source, self.item.span)

    @property
    def written_in_place(self) -> ast.Call | None:
        """What writes to a tensor in a side of the branch that it is at."""
        return written_in_place(self.source, self.item.span) if self.is_branch else None

    @property
    def neutral_write(self) -> tuple[str, str, str] | None:
        """Of a branch that only writes in place: the call, what it writes, and what would change nothing."""
        call, tests = self.written_in_place, tests_at(self.source, self.item.span)
        neutral = _NEUTRAL.get(called_name(call).removeprefix("_foreach_")) if call is not None else None
        if call is not None and called_name(call) == "copy_" and isinstance(call.func, ast.Attribute):
            neutral = ast.unparse(call.func.value)
        if call is None or neutral is None or not call.args or not isinstance(tests[0], ast.If) or tests[0].orelse:
            return None
        is_last = all(isinstance(each, ast.Assign) for each in tests[0].body[:-1])  # and these are for what it writes
        return (ast.unparse(call), ast.unparse(call.args[-1]), neutral) if is_last else None

    @property
    def only_shows(self) -> bool:
        """Whether the branch that it is at does nothing but show or keep something."""
        return self.is_branch and only_shows(self.source, self.item.span)

    @property
    def only_raises(self) -> bool:
        """Whether one side of the branch does nothing but raise."""
        return self.is_branch and only_raises(self.source, self.item.span)

    @property
    def is_filter(self) -> bool:
        """Whether it is in the condition of a comprehension's ``if``."""
        return self.is_branch and is_filter(self.source, self.item.span)

    @property
    def does_more(self) -> bool:
        """Whether a side of the branch does more than compute, show or keep values."""
        return self.is_branch and not self.only_shows and does_more(self.source, self.item.span)

    @property
    def returns_no_tensor(self) -> bool:
        """Whether one side of the branch does nothing but return None or a constant."""
        return self.is_branch and returns_no_tensor(self.source, self.item.span)

    @property
    def raises_into_except(self) -> bool:
        """Whether one side of the branch only raises, and the function catches the exception and then only returns."""
        return self.is_branch and raises_into_except(self.source, self.item.span)

    @property
    def masked_write(self) -> str | None:
        """The first write of a branch ``if mask.any():`` that does nothing but write through the mask."""
        return writes_through(self.source, self.item.span) if self.is_branch else None

    @property
    def way(self) -> Frame | None:
        """The frame of the compiled function on the way to the break."""
        file, function = self.run.function_of(self.item.compile_id) or (None, "")
        name = function.rpartition(".")[2]
        return next((each for each in self.item.user_stack if (each.file, each.function) == (file, name)), None)

    @property
    def parts(self) -> tuple[str, ...]:
        """What the compiled function, the program's if there is one, calls on ``self`` beside the call that breaks."""
        calls = [each for each in (self.entry, *self.compiled_way) if each is not None]
        return called_beside(self.run.sources.get(calls[0].file), calls[0].line) if calls else ()

    @property
    def fails_always(self) -> bool:
        """Whether it is an assertion that fails whatever the tensors hold."""
        return self.facts.condition is not None

    @property
    def has_company(self) -> bool:
        """Whether the function has more to compile than the statement that breaks; True where its source is unknown."""
        return has_company(self.source, self.item.span)

    @property
    def is_condition(self) -> bool:
        """Whether the place is in what an ``if`` or ``while`` goes by."""
        return is_condition(self.source, self.item.span)

    @property
    def is_loop_condition(self) -> bool:
        """Whether the place decides how often a loop runs: a ``while``, or an ``if`` that breaks out of a loop."""
        return is_loop_condition(self.source, self.item.span)

    @property
    def is_iterated(self) -> bool:
        """Whether the place is in what a ``for`` loop goes over."""
        return is_iterated(self.source, self.item.span)

    @property
    def called(self) -> str | None:
        """What is called at the place, as the program writes it: ``self.opt.step``."""
        call = call_at(self.source, self.item.span)
        return None if call is None else ast.unparse(call.func)

    @property
    def is_written_call(self) -> bool:
        """Whether the source that breaks is a call of the subject itself, as far as the source is known."""
        span, lines = self.item.span, (self.source or "").split("\n")
        if span.line is None or span.column is None or span.line > len(lines):
            return True
        subject = self.facts.subject or ""
        return lines[span.line - 1].startswith((subject, f"builtins.{subject}"), span.column)

    @property
    def can_move_out(self) -> bool:
        """Whether the user's call can be moved out: there is something to compile around it."""
        return self.owner.is_user and self.has_company and not self.within_checkpoint

    @property
    def reads_attribute(self) -> tuple[str, Frame] | None:
        """The class whose ``__getattr__`` breaks, and where an attribute of its object is read."""
        class_, _, name = self.item.function.rpartition(".")
        reads = name in ("__getattr__", "__getattribute__") and len(self.item.user_stack) > 1
        outer = (each for each in reversed(self.item.user_stack) if each.function != name)
        frame = next(outer, None) if reads else None
        return None if frame is None else (class_, frame)

    @property
    def takes(self) -> str:
        """What the call that breaks takes and the function has made, so that it cannot stand before the function."""
        return made_before(self.source, self.item.span)

    @property
    def is_plain_print(self) -> bool:
        """A call of `print` that torch can move behind the graph. In a checkpoint the output would be lost."""
        facts = self.facts
        is_moved = facts.within is None and self.custom_function is None
        return facts.subject == "print" and facts.has_types and self.is_written_call and is_moved

    @property
    def warns(self) -> bool:
        """Whether it is a call of `warnings.warn`, and not in a checkpoint."""
        return (self.facts.subject or "").endswith("warnings.warn") and self.facts.within is None

    @property
    def is_numpy(self) -> bool:
        """Whether it is about an operator of NumPy's."""
        return (self.facts.operator or "").startswith("numpy.")

    @property
    def rest_is_unseen(self) -> bool:
        """Whether what follows was left to Python because Dynamo saw no tensor in it, although something follows."""
        return any(saw_no_tensor(frame.reason) for frame in self.left) and not self.fails_always

    @property
    def python_module(self) -> str | None:
        """The module of Python's own library, or the class in it, that a function in C belongs to."""
        module = (self.facts.subject or "").partition(".")
        known = module[0] in sys.stdlib_module_names or module[0] in _NEVER_THE_SAME or hasattr(builtins, module[0])
        return module[0] if self.facts.is_native and module[1] and known else None

    @property
    def is_chance(self) -> bool:
        """Whether a random number is drawn: of Python's, of NumPy's, or out of a random tensor of torch's."""
        called = called_in_condition(self.source, self.item.span)
        return self.python_module in _CHANCE or any(name.startswith(_RANDOM) for name in called)

    @property
    def is_drawn_by_numpy(self) -> bool:
        """Whether the call that breaks draws a number of NumPy's: torch draws a tensor, and Python needs its value."""
        call = call_at(self.source, self.item.span)
        return call is not None and ast.unparse(call.func).startswith(_NUMPYS_RANDOM)

    @property
    def drawn(self) -> tuple[str, int] | None:
        """The name of a random number of Python's or NumPy's that is needed at the place, and where it is drawn."""
        is_needed = self.is_item and self.taken is None and not self.is_condition
        return drawn_at(self.source, self.item.span, ("random.", *_NUMPYS_RANDOM)) if is_needed else None

    @property
    def copied(self) -> str | None:
        """What the call that breaks makes a deep copy of."""
        call = call_at(self.source, self.item.span)
        if call is None or called_name(call) != "deepcopy" or len(call.args) != 1:
            return None
        text = ast.unparse(call.args[0])
        return text if isinstance(call.args[0], (ast.Name, ast.Attribute, ast.Subscript, ast.Call)) else f"({text})"

    @property
    def has_keywords(self) -> bool:
        """Whether the call that breaks has keyword arguments, which torch drops where it moves the call."""
        call = call_at(self.source, self.item.span)
        return self.facts.has_keywords or (call is not None and bool(call.keywords))

    @property
    def never_the_same(self) -> bool:
        """Whether the function acts, or gives another result at each call."""
        return self.python_module in _NEVER_THE_SAME

    @property
    def wrapper(self) -> str | None:
        """``DDP`` or ``FSDP2`` if the break is in code with which they wrap the user's module, else None."""
        return wrapper_of(self.item)

    @property
    def within_checkpoint(self) -> bool:
        """Whether it lies in what activation checkpointing was given."""
        return self.facts.within == CHECKPOINT

    @property
    def is_torchs_own(self) -> bool:
        """Whether torch itself breaks the graph in its own code, as around ``Optimizer.step``, or leaves a function of
        its optimizers' or of autocast's to Python, as ``GradScaler.step``."""
        inner = self.facts.inside.file or self.item.span.file
        asked = self.item.gb_id == "GB0025" and owner_of(inner, self.run.packages).name == "torch"
        skipped = self.is_skip and any(mark in (self.facts.subject_file or "") for mark in _LEFT_TO_PYTHON)
        return (asked or skipped) and self.wrapper is None

    @property
    def met_again_inside(self) -> str | None:
        """The compiled function that called what breaks, if that is compiled by itself and breaks there again.

        So it is where torch cannot go on inside a function that it inlined (``nested_graph_breaks``, from 2.13 on).
        """
        if (
            self.facts.within
            or self.block
            or self.facts.exception
            or (self.run.run.torch or "").startswith(("2.11", "2.12"))
            or any(  # a comprehension is a loop
                frame.function.startswith("<") and frame.function != "<module>" for frame in self.item.user_stack[1:]
            )
        ):
            return None
        outer = self.run.function_of(self.item.compile_id)
        if outer is None or outer == (self.item.span.file, self.item.function):
            return None
        again = (each for each in self.run.breaks if each.span == self.item.span)
        inner = any(self.run.function_of(each.compile_id) == (each.span.file, each.function) for each in again)
        return outer[1] if inner else None

    @property
    def block(self) -> str | None:
        """The block of statements in the function that torch compiled because of which all of it is left to Python."""
        compiled = next((each for each in self.run.compiles if each.compile_id == self.item.compile_id), None)
        span = self.item.span
        if compiled is not None and compiled.function != self.item.function:
            name = compiled.function.rpartition(".")[2]
            calls = [each for each in self.item.user_stack if (each.file, each.function) == (compiled.file, name)]
            span = Span(calls[0].file, calls[0].line) if calls else span
        found = unsplittable_block(self.run.sources.get(span.file or ""), span)
        return found or ("a loop" if is_in_loop(self.facts.then) else None)


def is_kind(*gb_ids: str) -> Condition:
    """Return the condition that a break has one of these numbers of torch's registry."""
    return lambda case: case.item.gb_id in gb_ids


def when(*conditions: Condition, **slots: Callable[[BreakCase], str]) -> Needs:
    """Return the predicate that all of these conditions make, and the slots that it fills."""

    def needs(case: BreakCase) -> Mapping[str, str] | None:
        if not all(condition(case) for condition in conditions):
            return None
        return {name: slot(case) for name, slot in slots.items()}

    return needs


def theirs(case: BreakCase) -> bool:
    """Whether what breaks is the user's own code."""
    return case.is_theirs


def wrapper_of(item: Break) -> str | None:
    """Return ``DDP`` or ``FSDP2`` if a break is in code with which they wrap the user's module, else None."""
    facts = item.facts
    files = (item.span.file, facts.subject_file, facts.inside.file)
    for name, mark in _WRAPPER_FILES.items():
        if any(mark in (file or "") for file in files):
            return name
    named = (item.function, facts.subject or "")
    return next((name for name, mark in _WRAPPER_CLASSES.items() if any(mark in text for text in named)), None)


def _is_assertion(source: str | None, span: Span) -> bool:
    asserts = nodes_of(source, ast.Assert) if span.line else []
    return any(node.lineno <= (span.line or 0) <= (node.test.end_lineno or node.lineno) for node in asserts)
