"""The remedies for failed compiles, each with what must be known of the failure for its text to hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dynadiag.explanation.findings import Advice
from dynadiag.explanation.remedy import Remedy, Slots, Trial, advise, slots_if, tried
from dynadiag.recording.torch_text.failures import FailureFacts

_OF_PROGRAM = ("UserError", "UncapturedHigherOrderOpError")  # Dynamo's, of the program: no compiler is at fault
_OF_MACHINE = ("driver", "compiler", "library", "header")  # what a machine may lack
_INTERNAL_ERRORS = ("AssertionError", "InternalTorchDynamoError")  # of Dynamo's own, which say nothing to a user


@dataclass(frozen=True, slots=True)
class FailureCase:
    """A failed compile: what torch says of it, the stage that failed, the type of the exception, the function and its
    line, and whether it is the rest behind a break.

    ``package`` is the library on whose line it failed, where a line of the program's leads there; empty elsewhere.
    ``number`` is the name of the number out of a tensor that the compiler asks about.
    """

    facts: FailureFacts
    stage: str
    error: str | None = None
    function: str = ""
    line: int | None = None
    is_rest: bool = False
    package: str = ""
    number: str = ""

    @property
    def is_of_rest(self) -> bool:
        """Whether Dynamo failed on what it made itself of the rest of a function."""
        return self.is_rest and self.stage == "Dynamo" and self.error in _INTERNAL_ERRORS

    @property
    def is_known(self) -> bool:
        """Whether a remedy for this very failure fits."""
        is_bound = self.facts.constraint is not None and self.facts.constraint.kind != "related"
        return is_bound or self.facts.lacks is not None or self.is_of_backend or self.asks_for_sign

    @property
    def asks_for_sign(self) -> bool:
        """Whether the compiler asks whether one number out of a tensor is below zero, and it has a name."""
        return bool(self.number) and [f"{symbol} < 0" for symbol in self.facts.symbols] == [self.facts.asked]

    @property
    def is_of_backend(self) -> bool:
        """Whether a backend that is none of torch's raised it."""
        return self.facts.backend is not None and self.stage == f"the backend `{self.facts.backend}`"


def _bound(kind: str, *, multiple: bool = False) -> Callable[[FailureCase], Slots]:
    def needs(case: FailureCase) -> Slots:
        bound = case.facts.constraint
        fits = bound is not None and bound.kind == kind and bound.is_multiple == multiple
        return slots_if(fits, held=bound.held) if bound else None

    return needs


def _lacks(what: str) -> Callable[[FailureCase], Slots]:
    return lambda case: slots_if(
        case.facts.lacks == what and case.facts.constraint is None, absent=case.facts.absent or ""
    )


FAILURES: tuple[Remedy[FailureCase], ...] = (
    Remedy(
        "failed.rest",
        "torch failed on what it made of the rest of `{function}` behind the graph break at line {line}: end that "
        "break, and there is no such rest.",
        lambda case: slots_if(case.is_of_rest, function=case.function, line=str(case.line)),
        trials=tried("fails_in_a_transform"),
    ),
    Remedy(
        "failed.mark_dynamic",
        "Drop the mark, or use `torch._dynamo.maybe_mark_dynamic`, which lets it be {held}; for a size that may vary, "
        "take what fixes it (a number, a tensor of that size) out of the code at this line.",
        _bound("constant"),
        trials=tried("marks_a_fixed_size"),
    ),
    Remedy(
        "failed.range",
        "Mark the range that the code holds for, `{held}` (`mark_dynamic(tensor, dimension, min=..., max=...)`), or "
        "use `torch._dynamo.maybe_mark_dynamic`, which compiles again beyond it; for one code for all, take out the "
        "branch on the size.",
        _bound("range"),
        trials=tried("marks_a_wide_range"),
    ),
    Remedy(
        "failed.multiple",
        "`mark_dynamic` states a range of sizes, and the code holds only for multiples, `{held}`: use "
        "`torch._dynamo.maybe_mark_dynamic`, which compiles again for other sizes; for one code for all, take out the "
        "branch on the size, or pad before the call.",
        _bound("range", multiple=True),
        trials=tried("marks_multiples"),
    ),
    Remedy(
        "failed.no_triton_driver",
        'Triton has no driver here that could run the kernel: none for a CPU (`cpu_backend = "triton"`), and no GPU. '
        "`dynadiag explain --target h100` records what a GPU would get, and `dynadiag bisect --rungs triton` runs "
        "the kernels in Triton's interpreter.",
        _lacks("driver"),
    ),
    Remedy(
        "failed.no_compiler",
        "Install a C++ compiler, or name one that is there (the environment variable `CXX`). `dynadiag doctor` says "
        "what it finds.",
        _lacks("compiler"),
    ),
    Remedy(
        "failed.no_library",
        "Install the package that has the library `{absent}`, or add the folder that has it to the environment "
        "variable `LIBRARY_PATH`, where the compiler's linker looks.",
        _lacks("library"),
        trials=tried("links_a_library"),
    ),
    Remedy(
        "failed.no_header",
        "Install the package that has the header `{absent}` (`Python.h` is in the development files of Python), or add "
        "the folder that has it to the environment variable `CPATH`, where the compiler looks.",
        _lacks("header"),
        trials=tried("includes_a_header"),
    ),
    Remedy(
        "failed.no_autograd",
        "Register one with `torch.library.register_autograd`.",
        _lacks("autograd"),
        trials=tried("operator_without_autograd"),
    ),
    Remedy(
        "failed.coroutine",
        "Compile the plain function that it calls, and not the `async def` or generator: torch cannot go on in the "
        "middle of one.",
        _lacks("resume"),
        trials=(Trial("a_coroutine", ("2.13", "2.14", "2.15")),),
    ),
    Remedy(
        "failed.constant",
        "An integer that changes from call to call is a symbol of the code. Compute what this line makes of it (such "
        "as `step > 1`) before the compiled call and pass that: a bool is a constant, and each value is compiled once.",
        _lacks("constant"),
        trials=tried("a_mode_by_an_integer"),
    ),
    Remedy(
        "failed.backend",
        "The exception comes from {stage}: mend it there, or use another.",
        lambda case: slots_if(case.is_of_backend and case.facts.lacks is None, stage=case.stage),
        trials=tried("failing_backend"),
    ),
    Remedy(
        "failed.sign",
        "Say right after this line what holds for the number: `torch._check({name} >= 0)`. Inductor asks for it where "
        "the number is a bound of a slice that is written to.",
        lambda case: slots_if(case.asks_for_sign, name=case.number),
    ),
    Remedy(
        "failed.in_a_library",
        "torch fails on code of {package}: leave the call in this line out of the compiled function. Make it before or "
        "after the compiled call, or compile a smaller part.",
        lambda case: slots_if(
            case.package and case.package != "torch" and case.stage == "Dynamo" and not case.is_known,
            package=case.package,
        ),
    ),
    Remedy(
        "failed.bisect",
        "`dynadiag bisect` names the part of the compiler that is at fault.",
        lambda case: slots_if(not case.is_known and case.error not in _OF_PROGRAM),
        ends=False,
        usual=True,
    ),
    Remedy(
        "failed.minify",
        "`dynadiag minify` writes a small program with this failure, for a bug report.",
        lambda case: slots_if(not case.is_known),
        ends=False,
        usual=True,
    ),
)


def machine_advice(facts: FailureFacts) -> tuple[Advice, ...]:
    """Return what to do where torch says what the machine lacks; empty where it does not."""
    return failure_advice(FailureCase(facts, "Inductor")) if facts.lacks in _OF_MACHINE else ()


def failure_advice(case: FailureCase) -> tuple[Advice, ...]:
    """Return what to do about a failed compile: what fits it, else the commands that look further."""
    return advise(FAILURES, case, most=3)
