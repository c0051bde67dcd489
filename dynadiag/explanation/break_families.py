"""Graph breaks in our own words, by the family that a type belongs to: what it means and what to do.

torch's registry gives no hint for about a fifth of its ids (101 of 517 in 2.13), and for many others only
that the break may be reported. The patterns follow the names of the types in the registries of 2.11 to 2.15.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

__all__ = ["FAMILIES", "Family", "family"]


@dataclass(frozen=True, slots=True)
class Family:
    """Types of break that mean the same to a user. ``pattern`` is searched in the type, in any case.

    ``remedies`` are the keys of those that usually end such breaks.
    """

    pattern: str
    meaning: str
    remedies: tuple[str, ...]


# The first family whose pattern is found in the type is used, so the narrow ones stand first.
FAMILIES = (
    Family(
        r"data-dependent assert",
        "An `assert` looks at the values of a tensor, which are unknown while tracing.",
        ("assert.shapes", "assert.async"),
    ),
    Family(
        r"data-dependent branching|guard_scalar branch",
        "The program takes one way or another by the values of a tensor (`if`, `while`, `and`, `assert`, "
        "`bool(...)`). A graph is traced once and has no values to decide by.",
        ("branch.where", "branch.cond"),
    ),
    Family(
        r"\.item\(|tolist|scalar_outputs|python constant|index\(Tensor\)|non-const(ant)? (key|argument|bool)",
        "A Python value is asked of a tensor, whose values are unknown while tracing.",
        ("item.tensor", "item.capture", "item.afterwards"),
    ),
    Family(
        r"data.dependent operator|dynamic shape operator|nonzero|unique",
        "An operator gives a result whose shape, or whose being, depends on the values of its input.",
        ("shape.capture", "shape.fixed"),
    ),
    Family(
        r"recompile limit|cache limit|RestartAnalysis",
        "torch has compiled this code so often that it gave up and runs it uncompiled.",
        ("limit.raise",),
    ),
    Family(
        r"logg(er|ing)|\bprint|warnings",
        "A message is printed or logged while the function runs, which no graph can do.",
        ("log.afterwards", "print.reorder", "log.ignore"),
    ),
    Family(
        r"graph_break\(\)|skip_frame|step_unsupported|comptime",
        "The program itself asks torch to stop here.",
        ("asked.remove",),
    ),
    Family(
        r"marked as skipped|SkipFunctionVariable|function call \(delayed\)|disable|force_skip|C function|builtin",
        "The call goes to code that Dynamo does not trace: a builtin, a C or C++ extension, a library that it "
        "leaves to Python, or a function that was disabled.",
        ("outside", "skipped.custom_op", "skipped.constant"),
    ),
    Family(
        r"context ?manager|ContextWrapping|contextlib|with block",
        "A `with` block uses a context manager that Dynamo cannot enter, leave or split a graph in.",
        ("context.outside", "context.inside"),
    ),
    Family(
        r"NestedTensor|nested_tensor",
        "Nested tensors of the strided layout are not supported.",
        ("nested.jagged",),
    ),
    Family(
        r"sparse",
        "Sparse tensors are supported in part only.",
        ("sparse.outside",),
    ),
    Family(
        r"random|torch\.Generator|uniform_|seed",
        "Random numbers are drawn in a way that a graph cannot repeat (a generator object, in-place draws).",
        ("random.draw",),
    ),
    Family(
        r"generator|\bSEND\b|CLEANUP_THROW|comprehension|iterator",
        "A generator, iterator or comprehension would have to be stopped and resumed in its middle.",
        ("iterate.list", "iterate.item"),
    ),
    Family(
        r"requires_grad|grad_fn|retain_grad|hook|autograd|backward|ImperativeEngine|accumulate_grad",
        "The code touches autograd's own state (hooks, `requires_grad`, `grad_fn`, a backward pass).",
        ("autograd.outside", "autograd.function"),
    ),
    Family(
        r"resize|set_\(|\.data\b|data_ptr|data pointer|storage|call_id|is_inference",
        "The code asks for a tensor's memory or identity, which do not exist while tracing.",
        ("memory.allocate", "outside"),
    ),
    Family(
        r"ndarray|numpy",
        "The NumPy operation has no counterpart that Dynamo can put in a graph.",
        ("numpy.torch", "numpy.before"),
    ),
    Family(
        r"triton",
        "The Triton kernel uses a feature that cannot be put in a graph.",
        ("triton.wrap",),
    ),
    Family(
        r"higher.order|HOP\b|torch\.cond\b|invoke_subgraph|wrap_with|executorch|functor|single Tensor return",
        "A function was handed to a higher-order operator (`cond`, `vmap`, `checkpoint`, ...) that must be "
        "traced as a graph of its own.",
        ("operator.pure",),
    ),
    Family(
        r"returned non-Tensor",
        "A function of torch's returns a number or an object here, which no graph can hold.",
        ("outside",),
    ),
    Family(
        r"non-PT2|fake ?tensor|op packet|missing_fake|meta kernel|running FX node|real value",
        "torch runs each operator on tensors without data while tracing, and this one could not be run so.",
        ("fake.register", "error"),
    ),
    Family(
        r"exception|\braise|StopIteration|undefined|not found|mismatch",
        "An exception is raised in the traced code, and not caught in it.",
        ("exception.before", "error"),
    ),
    Family(
        r"setattr|setitem|mutation|STORE_ATTR|delattr|getattr|getattribute|attribute|nn\.Module|OpaqueObject"
        r"|subscript|getitem|method",
        "The code reads, writes or calls part of an object in a way that Dynamo cannot follow.",
        ("object.plain", "outside"),
    ),
    Family(
        r"deepcopy|copy|import|\bid\(|weakref|metaclass|dataclass|pydantic|inspect|python_type|typing|unregistered",
        "Python looks at, copies or builds objects of its own here, which no graph can do.",
        ("outside", "disable"),
    ),
)
_MAX_TYPE = 500  # characters of a type that are looked at: a log may hold anything
_OTHER = Family("", "Dynamo cannot put this in a graph, so the code here runs in Python.", ("outside", "disable"))


@functools.lru_cache(maxsize=1024)
def family(gb_type: str) -> Family:
    """The family of a type; a last one for everything else."""
    name = gb_type[:_MAX_TYPE]
    return next((item for item in FAMILIES if re.search(item.pattern, name, re.IGNORECASE)), _OTHER)
