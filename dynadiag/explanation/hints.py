"""torch's hints on a graph break, held against what is known of the case.

A hint that was tried on such a case says so. One that cannot work here, or that makes programs fail, gives way to what
does work. All others are torch's own, and unchecked. What is said here of torch was tried on torch 2.13.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence

from dynadiag.explanation.advice_table import advice, advice_for_text, torch_advice
from dynadiag.explanation.blocks import is_condition
from dynadiag.explanation.findings import Advice
from dynadiag.explanation.known_breaks import assertion_advice, wrapper_advice
from dynadiag.explanation.registry import is_general, specific_hints
from dynadiag.explanation.remedies import family
from dynadiag.recording.code_origin import is_torch_file
from dynadiag.recording.records import Break, Span

__all__ = ["break_advice"]

_REORDER = "torch._dynamo.config.reorderable_logging_functions"
_IGNORE = "torch._dynamo.config.ignore_logging_functions"
_OWN_CALL = "Remove the `torch._dynamo.graph_break()` call"
_BACKWARD = "torch._dynamo.trace_autograd_ops"  # torch's hint leaves out `config`: it sets nothing
_PRINT = "Avoid calling builtin `print`"
_NAME = re.compile(r"`([\w.]+)")  # what advice names as code
_OPTION = re.compile(r"config\.\w+")
_CALL = re.compile(
    r"builtin (?:operator )?`(?P<name>[\w.]+?)\.?`"
    r"(?: with argument types \[(?P<types>.*?)\] \(has_kwargs (?P<kwargs>\w+)\))?"
)
_REORDERED = frozenset({"str", "Tensor", "int", "float", "bool", "NoneType"})  # can_reorder_logs, variables/misc.py
_PRINTED_AS_TEXT = frozenset({"Size", "tuple", "list", "type"})  # an f-string of such a value is a constant
_METHOD = re.compile(r"\b(?P<name>debug|info|warning|error|critical|exception|log)\b")
_CALLED_METHOD = re.compile(  # also a library's own, such as `warning_once`
    r"\.(?P<name>(?:\w+_)?(?:debug|info|warning|error|critical|exception|log)(?:_\w+)?)\("
)
_UNTRACED_C = re.compile(r"builtin|C/C\+\+")  # of a skipped function: it has no Python code to trace
_FOR_C_FUNCTIONS = ("skipped.custom_op", "skipped.constant")
_IN_MODULE = re.compile(r"builtin `(?:<unknown module>\.)?(\w+)\.")
_THIRD_PARTY = re.compile(r"If it is a third-party C/C\+\+")
# Modules and classes of C functions that act, or give another result at each call.
_CLOCKS_AND_CHANCE = ("time", "random", "_random", "datetime", "_datetime", "secrets", "uuid", "_uuid", "Random")
_ACTING = ("sys", "_thread", "_asyncio", "_socket", "_io", "signal", "_signal", "gc", "select", "_queue")
_NEVER_THE_SAME = (*_CLOCKS_AND_CHANCE, *_ACTING)
_NO_FAKE = re.compile(r"There was no fake impl registered for <?(CustomOpDef\()?(?P<name>[\w:.]+)")
_NUMPY = re.compile(r"<Wrapped function <original \w+>>")  # what traces NumPy by torch.Tensor, without a value
_INSIDE = re.compile(r"inside what this line calls: (?P<place>\S+:\d+), in ")  # the digest's words
_OPERATOR = re.compile(r"Operator `aten\.(?P<name>\w+)")
_BY_MASK = ("nonzero", "nonzero_numpy", "masked_select", "index", "argwhere", "where")
_AVOID = "Avoid calling "  # that the call is in the way is said already
_CHANCE = ("random", "_random", "Random", "secrets")
_ISSUE = re.compile(r"(if it is a Python builtin, )?(please )?(report|file|open) an issue\b[^.]*\.?", re.IGNORECASE)


def break_advice(item: Break, sources: Mapping[str, str] | None = None) -> tuple[Advice, ...]:
    """What to do about a break, each piece of advice with how far it was checked. ``sources`` has texts of files."""
    asserted = assertion_advice(item, sources or {}) if "branching" in item.gb_type else ()
    text = (sources or {}).get(item.span.file or "")
    known = wrapper_advice(item) or asserted or _fake_advice(item) or _chance_advice(item, text) or _inner_branch(item)
    if known:
        return known
    found = dict.fromkeys(each for hint in specific_hints(item.hints) for each in _checked(hint, item, text))
    useful = [each for each in found if not _ISSUE.fullmatch(each.text.strip())] or list(found)
    if _python_module(item) is not None:
        useful = [each for each in useful if not _THIRD_PARTY.match(each.text)]
    tried = _tried_remedies(item, useful)
    said = {name for each in tried for name in _NAME.findall(each.text)}
    return (*tried, *(each for each in useful if each not in tried and not (tried and _adds_nothing(each, said))))


def _fake_advice(item: Break) -> tuple[Advice, ...]:
    """What to do where tracing an operator of the user's fails because it has no fake kernel."""
    if found := _NO_FAKE.search(item.explanation):
        return (advice("failed.no_fake", name=found["name"]),)
    if _NUMPY.search(item.explanation):
        return (advice("numpy.torch", case=item.gb_id), advice("numpy.before", case=item.gb_id))
    return ()


def _chance_advice(item: Break, text: str | None) -> tuple[Advice, ...]:
    """What to do where a random number of Python's decides which way the program takes: to pass it in would make each
    way a recompile."""
    if _python_module(item) not in _CHANCE or not is_condition(text, item.span):
        return ()
    return (advice("chance.branch"),)


def _inner_branch(item: Break) -> tuple[Advice, ...]:
    """What to do where a branch is in what the line calls, in code of somebody else's."""
    found = _INSIDE.search(item.explanation) if "branching" in item.gb_type else None
    return (advice("branch.inside", place=found["place"]),) if found else ()


def _adds_nothing(given: Advice, said: set[str]) -> bool:
    """Whether an unchecked hint fits any break, says that the call is in the way, or names what was tried."""
    empty = is_general(given.text) or given.text.startswith(_AVOID) or said & set(_NAME.findall(given.text))
    return given.checked == "unchecked" and bool(empty)


def _tried_remedies(item: Break, given: Sequence[Advice]) -> list[Advice]:
    """What was tried on such a break, where nothing that is given was chosen for this one."""
    if any(each.source == "dynadiag" and each.checked != "unchecked" for each in given):
        return [each for each in given if each.source == "dynadiag" and each.checked == "tried"]
    if is_torch_file(item.span.file):  # nothing that a user can change
        return []
    unfit = _unfit_remedies(item)
    usual = (advice(key, case=item.gb_id) for key in family(item.gb_type).advice if key not in unfit)
    options = {option for each in given if each.checked == "tried" for option in _OPTION.findall(each.text)}
    return [each for each in usual if each.checked == "tried" and not options & set(_OPTION.findall(each.text))]


def _unfit_remedies(item: Break) -> tuple[str, ...]:
    """What the function rules out: one that Dynamo skipped is traced, has no tensors, or never the same result; the
    shape of what an operator gives does not come from a mask."""
    operator = _OPERATOR.search(item.explanation)
    if operator is not None and operator["name"] not in _BY_MASK:
        return ("shape.fixed",)
    if "skipped" in item.gb_type and not _UNTRACED_C.search(item.explanation):
        return _FOR_C_FUNCTIONS
    module = _python_module(item)
    if module is None:
        return ()
    return _FOR_C_FUNCTIONS if module in _NEVER_THE_SAME else ("skipped.custom_op",)


def _python_module(item: Break) -> str | None:
    """The module of Python's own library, or the class in it, that a function in C which Dynamo skipped belongs to."""
    found = _IN_MODULE.search(item.explanation)
    known = found is not None and (found[1] in sys.stdlib_module_names or found[1] in _NEVER_THE_SAME)
    return found[1] if found is not None and known else None


def _checked(hint: str, item: Break, text: str | None) -> Iterator[Advice]:
    """The advice that a hint comes to in this case. ``text`` is the file's, where it was kept."""
    own = advice_for_text(hint, item.gb_id)
    if _REORDER in hint:
        yield from _reordered(item, text)
    elif _IGNORE in hint and own is None:
        yield _ignored(item, text)
    elif "compiled_autograd = True" in hint:
        yield advice("hook.forward_alone")
    elif _BACKWARD in hint:
        yield advice("backward.trace")
    elif not (
        (hint.startswith(_OWN_CALL) and is_torch_file(item.span.file)) or hint.startswith(_PRINT)
    ):  # what there is to say of `print` is said above
        yield own or torch_advice(hint, item.gb_id)


def _reordered(item: Break, text: str | None) -> Iterator[Advice]:
    """Advice on a logging function that torch can call after the graph. Nothing for a call that it cannot move.

    Where something else calls `print` (`y.register_hook(print)`), torch moves the call out of a graph of its own, and
    raises.
    """
    call = _CALL.search(item.reason)
    if call is None:
        return
    if call["name"].endswith("warnings.warn"):
        yield advice("warn.reorder")
    elif call["name"] == "print" and call["types"] is not None and _is_written_call(item.span, text):
        yield _print_advice(set(re.findall(r"\w+", call["types"])), keywords=call["kwargs"] == "True")


def _is_written_call(span: Span, text: str | None) -> bool:
    """Whether the source that breaks is a call of `print` itself, as far as the source is known."""
    lines = (text or "").split("\n")
    if span.line is None or span.column is None or span.line > len(lines):
        return True
    return lines[span.line - 1].startswith(("print", "builtins.print"), span.column)


def _print_advice(types: set[str], *, keywords: bool) -> Advice:
    """torch moves a `print` of texts, numbers and tensors, with ``sep`` and ``end``, but not with ``file``."""
    limit = " (Not with `file=`.)" if keywords else ""
    if types <= _REORDERED:
        return advice("print.reorder", limit=limit)
    if types <= _REORDERED | _PRINTED_AS_TEXT:
        return advice("print.as_text", limit=limit)
    return advice("print.afterwards")


def _ignored(item: Break, text: str | None) -> Advice:
    """The method by torch's words, else by the call in the source."""
    line = ((text or "").split("\n")[item.span.line - 1 :] or [""])[0] if item.span.line else ""
    method = _METHOD.search(item.explanation) or _CALLED_METHOD.search(line, item.span.column or 0)
    named = f"logging.Logger.{method['name']}" if method else "logging.Logger.warning"
    return advice("log.ignore", method=named, like="" if method else ", for the method that is called here")
