"""Graph breaks in our own words, by the family that a type belongs to: what it means and what to do.

torch's registry gives no hint for about a fifth of its ids (101 of 517 in 2.13), and for many others only
that the break may be reported. The patterns follow the names of the types in the registries of 2.11 to 2.15.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["FAMILIES", "Family", "family", "remedies"]

_OUTSIDE = "Move this out of the compiled function, before or after its call, and pass the result in."
_DISABLE = (
    "Code that need not be compiled can stand in a function under `@torch.compiler.disable`: "
    "the break stays, but at a place of your choice."
)
_ERROR = "The uncompiled program may fail here too: run it with TORCH_COMPILE_DISABLE=1 and compare."


@dataclass(frozen=True, slots=True)
class Family:
    """Types of break that mean the same to a user. ``pattern`` is searched in the type, in any case."""

    pattern: str
    meaning: str
    remedies: tuple[str, ...]


# The first family whose pattern is found in the type is used, so the narrow ones stand first.
FAMILIES = (
    Family(
        r"data-dependent assert",
        "An `assert` looks at the values of a tensor, which are unknown while tracing.",
        (
            "Drop the assertion, or make it on shapes or Python values.",
            "To keep it, use `torch._assert_async(condition, message)`, which stays in the graph.",
        ),
    ),
    Family(
        r"data-dependent branching|guard_scalar branch",
        "The program takes one way or another by the values of a tensor (`if`, `while`, `and`, `assert`, "
        "`bool(...)`). A graph is traced once and has no values to decide by.",
        (
            "Where both sides are cheap and free of side effects, compute both and choose: "
            "`torch.where(condition, a, b)`.",
            "Where only one side may run: `torch.cond(condition, true_fn, false_fn, operands)`.",
            "Where the condition can come from shapes or Python values, take it from them: "
            "it is then decided while tracing, and guarded.",
        ),
    ),
    Family(
        r"\.item\(|tolist|scalar_outputs|python constant|index\(Tensor\)|non-const(ant)? (key|argument|bool)",
        "A Python value is asked of a tensor, whose values are unknown while tracing.",
        (
            "Keep the value a tensor: most arithmetic, comparison and indexing takes a 0-dimensional one.",
            "If a Python number is needed, set `torch._dynamo.config.capture_scalar_outputs = True`: "
            "it becomes a symbol of the graph.",
            "If it is only for logging, collect tensors and convert them after the compiled call.",
        ),
    ),
    Family(
        r"data.dependent operator|dynamic shape operator|nonzero|unique",
        "An operator gives a result whose shape, or whose being, depends on the values of its input.",
        (
            "For shapes that depend on values (`nonzero`, `unique`, boolean masks) set "
            "`torch._dynamo.config.capture_dynamic_output_shape_ops = True`.",
            "Or keep the shape fixed: multiply by the mask, or choose with `torch.where`.",
        ),
    ),
    Family(
        r"recompile limit|cache limit|RestartAnalysis",
        "torch has compiled this code so often that it gave up and runs it uncompiled.",
        (
            "End what makes the recompiles (each is listed in the report).",
            "If they are wanted, raise `torch._dynamo.config.recompile_limit`.",
        ),
    ),
    Family(
        r"logg(er|ing)|\bprint|warnings",
        "A message is printed or logged while the function runs, which no graph can do.",
        (
            "Log after the compiled call, from values that it returns.",
            "`print` and `warnings.warn` can come after the graph instead: add them to "
            "`torch._dynamo.config.reorderable_logging_functions`.",
            "Methods of loggers can be left out while compiling: add them to "
            "`torch._dynamo.config.ignore_logging_functions`.",
        ),
    ),
    Family(
        r"graph_break\(\)|skip_frame|step_unsupported|comptime",
        "The program itself asks torch to stop here.",
        ("Remove the call that asks for it.",),
    ),
    Family(
        r"marked as skipped|SkipFunctionVariable|function call \(delayed\)|disable|force_skip|C function|builtin",
        "The call goes to code that Dynamo does not trace: a builtin, a C or C++ extension, a library that it "
        "leaves to Python, or a function that was disabled.",
        (
            _OUTSIDE,
            "A C, C++ or CUDA function on tensors can be made an operator with `torch.library.custom_op` "
            "(and `register_fake`): it then stays in the graph.",
            "A function with the same result whenever it is called can be marked with "
            "`torch.compiler.assume_constant_result`.",
        ),
    ),
    Family(
        r"context ?manager|ContextWrapping|contextlib|with block",
        "A `with` block uses a context manager that Dynamo cannot enter, leave or split a graph in.",
        (
            "Enter the context outside the compiled function, around its call.",
            "Or compile the function that is called inside the `with` block, not the one that holds it.",
        ),
    ),
    Family(
        r"NestedTensor|nested_tensor",
        "Nested tensors of the strided layout are not supported.",
        ("Use the jagged layout: `torch.nested.nested_tensor(..., layout=torch.jagged)`.",),
    ),
    Family(
        r"sparse",
        "Sparse tensors are supported in part only.",
        ("Make and convert sparse tensors outside the compiled function; work on dense ones inside.",),
    ),
    Family(
        r"random|torch\.Generator|uniform_|seed",
        "Random numbers are drawn in a way that a graph cannot repeat (a generator object, in-place draws).",
        ("Draw with `torch.rand` and its like, without a generator; or draw outside and pass the result in.",),
    ),
    Family(
        r"generator|\bSEND\b|CLEANUP_THROW|comprehension|iterator",
        "A generator, iterator or comprehension would have to be stopped and resumed in its middle.",
        (
            "Build a list in a plain loop instead.",
            "Or compile the function that is called for each item, not the one that holds the loop.",
        ),
    ),
    Family(
        r"requires_grad|grad_fn|retain_grad|hook|autograd|backward|ImperativeEngine|accumulate_grad",
        "The code touches autograd's own state (hooks, `requires_grad`, `grad_fn`, a backward pass).",
        (
            "Do the autograd bookkeeping outside the compiled function.",
            "For a backward of your own, write a `torch.autograd.Function` with static methods, "
            "or `torch.library.custom_op` with `register_autograd`.",
        ),
    ),
    Family(
        r"resize|set_\(|\.data\b|data_ptr|data pointer|storage|call_id|is_inference",
        "The code asks for a tensor's memory or identity, which do not exist while tracing.",
        ("Allocate a new tensor instead of resizing in place.", _OUTSIDE),
    ),
    Family(
        r"ndarray|numpy",
        "The NumPy operation has no counterpart that Dynamo can put in a graph.",
        ("Use the torch function of the same meaning.", "Or convert (`torch.from_numpy`) before the call."),
    ),
    Family(
        r"triton",
        "The Triton kernel uses a feature that cannot be put in a graph.",
        ("Wrap the launch with `torch.library.triton_op` and `wrap_triton`.",),
    ),
    Family(
        r"higher.order|HOP\b|torch\.cond\b|invoke_subgraph|wrap_with|executorch|functor|single Tensor return",
        "A function was handed to a higher-order operator (`cond`, `vmap`, `checkpoint`, ...) that must be "
        "traced as a graph of its own.",
        (
            "Make that function pure: tensors in, tensors out, no mutation of what surrounds it, "
            "and no graph break inside.",
        ),
    ),
    Family(
        r"returned non-Tensor|non-PT2|fake ?tensor|op packet|missing_fake|meta kernel|running FX node|real value",
        "torch runs each operator on tensors without data while tracing, and this one could not be run so.",
        (
            "For an operator of your own, give it `torch.library.register_fake` with the right shape and dtype.",
            _ERROR,
        ),
    ),
    Family(
        r"exception|\braise|StopIteration|undefined|not found|mismatch",
        "An exception is raised in the traced code, and not caught in it.",
        ("Check the condition before the compiled call.", _ERROR),
    ),
    Family(
        r"setattr|setitem|mutation|STORE_ATTR|delattr|getattr|getattribute|attribute|nn\.Module|OpaqueObject"
        r"|subscript|getitem|method",
        "The code reads, writes or calls part of an object in a way that Dynamo cannot follow.",
        (
            "Use plain attributes and methods of plain objects or modules: no computed names, "
            "no custom attribute hooks.",
            _OUTSIDE,
        ),
    ),
    Family(
        r"deepcopy|copy|import|\bid\(|weakref|metaclass|dataclass|pydantic|inspect|python_type|typing|unregistered",
        "Python looks at, copies or builds objects of its own here, which no graph can do.",
        (_OUTSIDE, _DISABLE),
    ),
)
_OTHER = Family("", "Dynamo cannot put this in a graph, so the code here runs in Python.", (_OUTSIDE, _DISABLE))


def family(gb_type: str) -> Family:
    """The family of a type; a last one for everything else."""
    return next((item for item in FAMILIES if re.search(item.pattern, gb_type, re.IGNORECASE)), _OTHER)


def remedies(gb_type: str) -> tuple[str, ...]:
    """What usually ends a break of this type; never empty."""
    return family(gb_type).remedies
