"""torch's hints on a graph break, held against what is known of the case.

A hint that was tried on such a case says so. One that cannot work here, or that makes programs fail, gives way to what
does work. All others are torch's own, and unchecked. What is said here of torch was tried on torch 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dynadiag.explanation.data_parallel import wrapper_advice
from dynadiag.explanation.findings import Advice
from dynadiag.explanation.registry import specific_hints
from dynadiag.explanation.remedies import remedies
from dynadiag.recording.records import Break

__all__ = ["break_advice"]

_REORDER = "torch._dynamo.config.reorderable_logging_functions"
_IGNORE = "torch._dynamo.config.ignore_logging_functions"
# The options that end the break which names them.
_TRIED = ("config.capture_scalar_outputs = True", "config.capture_dynamic_output_shape_ops = True")
_CALL = re.compile(
    r"builtin (?:operator )?`(?P<name>[\w.]+?)\.?`"
    r"(?: with argument types \[(?P<types>.*?)\] \(has_kwargs (?P<kwargs>\w+)\))?"
)
_REORDERED = frozenset({"str", "Tensor", "int", "float", "bool", "NoneType"})  # can_reorder_logs, variables/misc.py
_PRINTED_AS_TEXT = frozenset({"Size", "tuple", "list", "type"})  # an f-string of such a value is a constant
_METHOD = re.compile(r"\b(?P<name>debug|info|warning|error|critical|exception|log)\b")
_ISSUE = re.compile(r"(please )?(report|file) an issue\b[^.]*\.?", re.IGNORECASE)
_AFTERWARDS = "the call then comes after the graph and breaks nothing."
_COMPILED_AUTOGRAD = Advice(
    "Register the hook on the module that is compiled, or compile the hooked module's forward alone (`module.forward "
    "= torch.compile(module.forward)`): its hooks then run around the compiled code. (With "
    "`torch._dynamo.config.compiled_autograd = True`, which torch advises, a `backward()` outside the compiled "
    "function raises `BackwardState requires CompiledAutograd`.)",
    "tried",
)


def break_advice(item: Break) -> tuple[Advice, ...]:
    """What to do about a break, each piece of advice with how far it was checked."""
    if wrapped := wrapper_advice(item):
        return wrapped
    found = dict.fromkeys(advice for hint in specific_hints(item.hints) for advice in _checked(hint, item))
    useful = tuple(advice for advice in found if not _ISSUE.fullmatch(advice.text.strip()))
    return useful or tuple(found)


def _checked(hint: str, item: Break) -> Iterator[Advice]:
    """The advice that a hint comes to in this case."""
    own = hint in remedies(item.gb_type)
    if _REORDER in hint:
        yield from _reordered(item)
    elif _IGNORE in hint and not own:
        yield _ignored(item)
    elif "compiled_autograd = True" in hint:
        yield _COMPILED_AUTOGRAD
    elif not hint.startswith("Avoid calling builtin `print`"):  # what there is to say of `print` is said above
        checked = "tried" if any(option in hint for option in _TRIED) else "unchecked"
        yield Advice(hint, checked, "dynadiag" if own else "torch")


def _reordered(item: Break) -> Iterator[Advice]:
    """Advice on a logging function that torch can call after the graph. Nothing for a call that it cannot move."""
    call = _CALL.search(item.reason)
    if call is None:
        return
    if call["name"].endswith("warnings.warn"):
        yield Advice(f"`{_REORDER}.add(warnings.warn)`: {_AFTERWARDS}", "tried")
    elif call["name"] == "print" and call["types"] is not None:
        yield _print_advice(set(re.findall(r"\w+", call["types"])), keywords=call["kwargs"] == "True")


def _print_advice(types: set[str], *, keywords: bool) -> Advice:
    """torch moves a `print` of texts, numbers and tensors, with ``sep`` and ``end``, but not with ``file``."""
    limit = " (Not with `file=`.)" if keywords else ""
    if types <= _REORDERED:
        checked = "tried" if types <= {"str", "Tensor"} and not keywords else "consistent"
        return Advice(f"`{_REORDER}.add(print)`: {_AFTERWARDS}{limit}", checked)
    if types <= _REORDERED | _PRINTED_AS_TEXT:
        return Advice(
            f'Print a text, such as `print(f"{{x.shape}}")`, and `{_REORDER}.add(print)`: {_AFTERWARDS} torch moves '
            f"only texts, numbers and tensors.{limit}",
            "tried" if types == {"Size"} and not keywords else "consistent",
        )
    return Advice("Print after the compiled call, from what it returns.", "consistent")


def _ignored(item: Break) -> Advice:
    method = _METHOD.search(item.explanation)
    named = f"logging.Logger.{method['name']}" if method else "logging.Logger.warning"
    like = "" if method else ", for the method that is called here"
    return Advice(f"`{_IGNORE}.add({named})`{like}: compiled code then leaves the call out.", "tried")
