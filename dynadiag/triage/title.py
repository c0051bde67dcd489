"""The title of an issue: which function of torch does what, when, and where.

A function is named only where a graph of at most three operations is left, all of which are named, or where bisecting
has proved which one is at fault; a condition only where the repro passes without it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from dynadiag.bisection.document import FailureDocument
from dynadiag.explanation.formatting import first_line
from dynadiag.minify.minify_result import ComparedDocument, MinifyDocument, NeighbourDocument
from dynadiag.minify.repro_header import strip_directories, without_tolerance
from dynadiag.render.markdown import inline_code
from dynadiag.triage.case import (
    TriagedCase,
    ending,
    error_itself,
    error_of,
    error_of_repro,
    failure_of,
    failure_of_call,
    has_proved_repro,
    operator_name,
    parts_of_torch,
    rung_of,
    whole_words,
    without_comments,
)
from dynadiag.triage.changes_of_torch import changes_of_torch, own_functions
from dynadiag.trial.outcome import NOT_RAISED

_MAX_MESSAGE = 120  # characters
_MAX_OPERATIONS = 3
_MAX_CONDITIONS = 2
_MAX_CULPRITS = 2  # of more, the first says little
_FUNCTION = "f"  # how a repro of a graph names it
# What makes a tensor of no other: an input of the operations that are named.
_MAKING = frozenset(("ones", "zeros", "full", "empty", "tensor", "device", "scalar_tensor"))
_TENSORS = {
    "size": "an empty tensor",
    "layout": "a tensor that is not contiguous",
    "gradient": "a tensor that requires a gradient",
}
_QUALITIES = ("dtype", "value", *_TENSORS)  # kinds of conditions on tensors
_OPERATORS = {"MatMult": "matmul", "Mult": "mul", "FloorDiv": "floor_divide", "Mod": "remainder"}  # as torch names them
_KINDS = (*_QUALITIES, "setting", "argument")  # what says most comes first
_VALUES = {"nan": "NaN", "inf": "infinity", "-inf": "negative infinity"}
_OF_ONE_OPERATOR = ("lowering", "decomposition", "functionalization")  # kinds of culprits; a fusion has several
_GIVES, _LEADS_TO = "gives ", "leads to "
_FORMS = (".dtype", ".shape")  # the ends of places that are no elements


def title(case: TriagedCase) -> str:
    """The title, as a heading."""
    failure = failure_of(case)
    if failure is None:
        passes = case.bisect is not None and case.bisect.verdict == "passes"
        return f"# torch.compile{': no failure' if passes else ''}"
    made, rung = case.minify, rung_of(case)
    if made is not None and failure is failure_of_call(case) and (operations := _operations_at_fault(case, made)):
        device = "CUDA" if "cuda" in without_comments(case.repro) else "CPU"
        does = _does(case, made, failure)
        if operations[-1] != operations_of(case.repro)[-1]:  # the result is that of another one
            does = _LEADS_TO + does.removeprefix(_GIVES) if does.startswith(_GIVES) else does
        functions = " after ".join(inline_code(name) if "." in name else name for name in reversed(operations))
        return f"# {functions}{_conditions(made)} {does} under torch.compile ({rung}, {device})"
    at = f" with backend {inline_code(rung)}" if rung else ""
    if made is not None and has_proved_repro(case):
        conditions = _conditions(made)
        at += f",{conditions}" if conditions else ""
        if made.level == "source" and made.compared is not None and (values := _values(made.compared)):
            return f"# torch.compile{at}: {inline_code(_in_short(made.compared.what))} {values}"
    type_, message = _error(case, failure)
    said = type_ if case.redacted or not message else f"{type_}: {_in_short(message)}"
    said = "it does not end" if failure.kind == "hang" else said
    culprits = dict.fromkeys(f"{each.kind} {inline_code(each.name)}" for each in parts_of_torch(case))
    named = f", at fault: {' and '.join(culprits)}" if 0 < len(culprits) <= _MAX_CULPRITS else ""
    return f"# torch.compile{at}: {inline_code(whole_words(said, _MAX_MESSAGE))}{named}"


def _error(case: TriagedCase, failure: FailureDocument) -> tuple[str, str]:
    """The type and the message of the error at the rung that a title names."""
    of_repro = error_of_repro(case)
    return error_itself(of_repro) if of_repro is not None else error_of(failure, case)


def _in_short(message: str) -> str:
    return whole_words(strip_directories(without_tolerance(first_line(message))), _MAX_MESSAGE)


def _operations_at_fault(case: TriagedCase, made: MinifyDocument) -> list[str]:
    """The operations of the failing graph, by their functions of torch; empty where another one may be at fault, or
    what the program registers or replaces in torch, or a pass or a backend of its own.
    """
    operators = any(part.kind == "operator" for part in parts_of_torch(case))
    own = operators or changes_of_torch(case.repro) or own_passes(case) or rung_of(case) == "custom"
    if not has_proved_repro(case) or made.level != "graph" or own:
        return []
    operations = operations_of(case.repro)
    if len(operations) <= _MAX_OPERATIONS:
        return operations
    at_fault = {operator_name(part.name) for part in parts_of_torch(case) if part.kind in _OF_ONE_OPERATOR}
    named = [name for name in operations if name.rpartition(".")[2].rstrip("_") in at_fault]
    return named if len(named) == len(at_fault) == 1 else []


def own_passes(case: TriagedCase) -> list[str]:
    """The passes at fault that the program defines."""
    own = own_functions(case.repro if has_proved_repro(case) else case.program)
    named = (part.name for part in parts_of_torch(case) if part.kind == "pass")
    return list(dict.fromkeys(name for name in named if name.rpartition(".")[2] in own))


def operations_of(repro: str) -> list[str]:
    """The operations of the graph in a repro, in the order in which they run."""
    functions = (node for node in ast.walk(ast.parse(repro)) if isinstance(node, ast.FunctionDef))
    return [name for node in functions if node.name == _FUNCTION for name in _operations(node)]


def _operations(function: ast.AST) -> Iterator[str]:
    """The operations of a graph as it is written, in the order in which they run."""
    for node in ast.iter_child_nodes(function):
        yield from _operations(node)
    match function:
        case ast.Call(func=ast.Attribute() as called):
            name = ast.unparse(called)
            if name.startswith("torch.ops."):
                name = ".".join(name.split(".")[2:4])  # without the overload
            elif not name.startswith("torch."):
                name = f"Tensor.{called.attr}"
            if name.rpartition(".")[2] not in _MAKING:
                yield name
        case ast.BinOp(op=op) | ast.AugAssign(op=op):
            name = type(op).__name__
            yield _OPERATORS.get(name, name.lower())
        case ast.Compare(ops=[op, *_]):
            yield type(op).__name__.lower()
        case ast.UnaryOp(operand=operand) if not isinstance(operand, ast.Constant):
            yield "negation"
        case ast.Subscript(slice=index) if not isinstance(index, ast.Constant):  # else one of several results
            yield "indexing"


def _conditions(made: MinifyDocument) -> str:
    """Options without which the repro passes, in words."""
    needed = [each for kind in _KINDS for each in made.neighbours if each.kind == kind and each.status == "pass"]
    told = needed[:_MAX_CONDITIONS]
    of = dict.fromkeys(_quality(each) for each in told if each.kind in _QUALITIES)
    given = [
        inline_code(each.was.removeprefix("with ").removeprefix("@")) for each in told if each.kind not in _QUALITIES
    ]
    return f"{' of ' * bool(of)}{' and '.join(of)}{' with ' * bool(given)}{' and '.join(given)}"


def _quality(option: NeighbourDocument) -> str:
    """What the tensors are."""
    if option.kind in _TENSORS:
        return _TENSORS[option.kind]
    return _VALUES.get(option.was) or inline_code(option.was.removeprefix("torch."))


def _does(case: TriagedCase, made: MinifyDocument, failure: FailureDocument) -> str:
    """What happens, in a verb: with one value where all that differ are alike, else with the message."""
    type_, message = _error(case, failure)
    raised, found, said = message.partition(NOT_RAISED)
    if found:
        kind = raised.rpartition(" ")[2]
        return f"does not raise {inline_code(_in_short(f'{kind}: {said}'))}"
    if type_ == "wrong result" and made.compared is not None:
        values = _values(made.compared, "the gradient " * message.startswith("gradient"))
    else:
        values = ""
    if message.startswith("gradient of "):  # of an input of the program
        values = values or f"{_GIVES}a wrong gradient"
    return values or ending(replace(failure, where=None), type_, _in_short(message))


def _values(compared: ComparedDocument, of: str = "") -> str:
    """Both values in a verb, with ``of`` what they are: a gradient; empty if other places have others."""
    pairs = {(row.uncompiled, row.compiled) for row in compared.rows}
    if len(pairs) != 1:
        return ""
    right, wrong = pairs.pop()
    if of and wrong == "None":
        return f"{_GIVES}no gradient"
    of = next((f"{form[1:]} " for form in _FORMS if compared.rows[0].where.endswith(form)), of)
    return f"{_GIVES}{of}{inline_code(wrong)} instead of {inline_code(right)}"
