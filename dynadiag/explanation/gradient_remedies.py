"""The remedies for graph breaks at gradients: a backward, `torch.autograd.grad`, `torch.func`, a hook, a grad mode."""

from __future__ import annotations

import ast

from dynadiag.explanation.break_case import BreakCase, is_kind, theirs, when
from dynadiag.explanation.identity import nodes_of
from dynadiag.explanation.remedy import Remedy, Slots, Trial, slots_if
from dynadiag.recording.records import COMPILED_AUTOGRAD

# The numbers of torch's registry.
_BACKWARD, _GRADIENT, _TRANSFORM, _SOURCELESS = "GB0123", "GB9186", "GB0149", "GB0116"
_GRAD_MODES = ("torch.no_grad", "torch.enable_grad", "torch.inference_mode")


def _grad_mode_of_method(case: BreakCase) -> Slots:
    """The grad mode that decorates the method which is called at the break, and the method."""
    name = (case.called or "").rpartition(".")[2]
    methods = [each for each in nodes_of(case.source, ast.FunctionDef) if each.name == name]
    modes = [ast.unparse(mode).removesuffix("()") for each in methods for mode in each.decorator_list]
    fits = case.is_theirs and case.item.gb_id == _SOURCELESS and len(modes) == 1 and modes[0] in _GRAD_MODES
    return slots_if(fits, method=name, mode="".join(modes))


def _compiles_autograd(case: BreakCase) -> bool:
    """Whether compiled autograd was on: the ids of what it compiles of a backward begin with its mark."""
    return any(each.compile_id.startswith(COMPILED_AUTOGRAD) for each in case.run.compiles)


GRADIENTS = (
    Remedy(
        "backward.expected",
        "With `torch._dynamo.config.compiled_autograd = True` this break is expected: the backward is compiled as "
        "graphs of its own. Leave it as it is.",
        when(is_kind(_BACKWARD), _compiles_autograd),
        ends=False,
    ),
    Remedy(
        "backward.trace",
        "Call `backward()` after the compiled call, on the loss that it returns. Or set "
        "`torch._dynamo.config.trace_autograd_ops = True`, with `{loss} = {loss}.detach()` right after this line where "
        "the loss is used again: it is then part of the graph.",
        when(
            theirs,
            is_kind(_BACKWARD),
            lambda case: not _compiles_autograd(case),
            loss=lambda case: (case.called or "loss.backward").removesuffix(".backward"),
        ),
        trials=(Trial("goes_backward"), Trial("goes_backward_in_the_graph")),
    ),
    Remedy(
        "transform.whole",
        "Compile what calls the transform, `torch.compile(torch.vmap(fn))`, instead of what it is given: inside a "
        "transform of `torch.func` that Python runs, torch compiles nothing.",
        when(is_kind(_TRANSFORM), lambda case: case.broken_before is None),
        trials=(Trial("is_given_to_a_transform"),),
    ),
    Remedy(
        "transform.break",
        "End the graph break at line {line} of `{function}`: it leaves the transform of `torch.func` to Python, and "
        "inside one that Python runs torch compiles nothing.",
        when(
            is_kind(_TRANSFORM),
            lambda case: case.broken_before is not None,
            line=lambda case: str(case.broken_before and case.broken_before.span.line),
            function=lambda case: (case.broken_before and case.broken_before.function) or "",
        ),
        trials=(Trial("breaks_in_a_transform"),),
    ),
    Remedy(
        "hook.between",
        "A hook in compiled code may do no more than compute the gradient that it returns. Compile what comes before "
        "the tensor and what comes after it each by itself, and register the hook between the two calls.",
        when(theirs, lambda case: case.in_hook),
        trials=(Trial("keeps_a_norm_in_a_hook"),),
    ),
    Remedy(
        "grad.trace",
        "Set `torch._dynamo.config.trace_autograd_ops = True`: the gradient is then part of the graph. (Where it is "
        "taken in Python, with `create_graph=True`, the backward of what was compiled before it raises `does not "
        "currently support double backward`.)",
        when(is_kind(_GRADIENT)),
        trials=(Trial("differentiates_inside"),),
    ),
    Remedy(
        "grad_mode.inside",
        "`{method}` is a method that `{mode}` decorates, of an object that the function makes, and torch does not "
        "trace the decorator there. Write `with {mode}():` in the method instead.",
        _grad_mode_of_method,
        trials=(Trial("calls_a_decorated_method", ("2.11", "2.13", "2.14"), case=_SOURCELESS),),
    ),
)
