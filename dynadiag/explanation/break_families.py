"""Graph breaks in our own words, by the family that a type belongs to: what it means and what to do.

torch's registry gives no hint for about a fifth of its ids (101 of 517 in 2.13), and for many others only
that the break may be reported.
"""

from __future__ import annotations

from dataclasses import dataclass

from dynadiag.recording.torch_text.break_types import family_name


@dataclass(frozen=True, slots=True)
class Family:
    """Types of break that mean the same to a user. ``remedies`` are the keys of those that usually end such breaks."""

    meaning: str
    remedies: tuple[str, ...]


FAMILIES = {
    "assertion": Family(
        "An `assert` looks at the values of a tensor, which are unknown while tracing.",
        ("assert.shapes", "assert.async"),
    ),
    "branch": Family(
        "The program takes one way or another by the values of a tensor (`if`, `while`, `and`, `assert`, "
        "`bool(...)`). A graph is traced once and has no values to decide by.",
        ("branch.where", "branch.cond"),
    ),
    "number": Family(
        "A Python value is asked of a tensor, whose values are unknown while tracing.",
        ("item.tensor", "item.capture", "item.kept", "item.afterwards"),
    ),
    "shape": Family(
        "An operator gives a result whose shape, or whose being, depends on the values of its input.",
        ("shape.capture", "shape.fixed"),
    ),
    "limit": Family(
        "torch has compiled this code so often that it gave up and runs it uncompiled.",
        ("limit.raise",),
    ),
    "message": Family(
        "A message is printed or logged while the function runs, which no graph can do.",
        ("log.afterwards", "print.reorder", "log.ignore"),
    ),
    "asked": Family(
        "The program itself asks torch to stop here.",
        ("asked.remove",),
    ),
    "not traced": Family(
        "The call goes to code that Dynamo does not trace: a builtin, a C or C++ extension, a library that it "
        "leaves to Python, or a function that was disabled.",
        ("outside", "skipped.custom_op", "skipped.constant"),
    ),
    "context manager": Family(
        "A `with` block uses a context manager that Dynamo cannot enter, leave or split a graph in.",
        ("context.outside", "context.inside"),
    ),
    "nested tensor": Family(
        "Nested tensors of the strided layout are not supported.",
        ("nested.jagged",),
    ),
    "sparse": Family(
        "Sparse tensors are supported in part only.",
        ("sparse.outside",),
    ),
    "random": Family(
        "Random numbers are drawn in a way that a graph cannot repeat (a generator object, in-place draws).",
        ("random.draw",),
    ),
    "generator": Family(
        "A generator, iterator or comprehension would have to be stopped and resumed in its middle.",
        ("iterate.list", "iterate.item"),
    ),
    "autograd": Family(
        "The code touches autograd's own state (hooks, `requires_grad`, `grad_fn`, a backward pass).",
        ("autograd.outside", "autograd.function"),
    ),
    "memory": Family(
        "The code asks for a tensor's memory or identity, which do not exist while tracing.",
        ("memory.allocate", "outside"),
    ),
    "numpy": Family(
        "The NumPy operation has no counterpart that Dynamo can put in a graph.",
        ("numpy.torch", "outside"),
    ),
    "triton": Family(
        "The Triton kernel uses a feature that cannot be put in a graph.",
        ("triton.wrap",),
    ),
    "higher-order operator": Family(
        "A function was handed to a higher-order operator (`cond`, `vmap`, `checkpoint`, ...) that must be "
        "traced as a graph of its own.",
        ("operator.pure",),
    ),
    "no tensor": Family(
        "A function of torch's returns a number or an object here, which no graph can hold.",
        ("outside",),
    ),
    "fake tensor": Family(
        "torch runs each operator on tensors without data while tracing, and this one could not be run so.",
        ("fake.register", "error"),
    ),
    "exception": Family(
        "An exception is raised in the traced code, and not caught in it.",
        ("exception.before", "error"),
    ),
    "object": Family(
        "The code reads, writes or calls part of an object in a way that Dynamo cannot follow.",
        ("object.plain", "outside"),
    ),
    "python object": Family(
        "Python looks at, copies or builds objects of its own here, which no graph can do.",
        ("outside", "disable"),
    ),
}
_OTHER = Family("Dynamo cannot put this in a graph, so the code here runs in Python.", ("outside", "disable"))


def family(gb_type: str) -> Family:
    """The family of a type; a last one for everything else."""
    return FAMILIES.get(family_name(gb_type) or "", _OTHER)
