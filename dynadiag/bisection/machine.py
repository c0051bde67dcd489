"""Finds out whether the machine is at fault, and not the program: then any compiled code fails in the same way.

A missing C++ compiler, header, Python package or driver makes each graph fail, and passes with nothing left to compile.
A search would name the operators of the program.
"""

from __future__ import annotations

from dataclasses import dataclass

from dynadiag.bisection.ladder import rung_plan
from dynadiag.bisection.trial_search import TrialSearch
from dynadiag.explanation.failure_remedies import machine_advice
from dynadiag.recording.torch_text.failures import read_failure
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import Plan
from dynadiag.trial.program import Program
from dynadiag.trial.runner import Runner

_PROGRAM = "import torch; torch.compile(lambda x: x + 1)(torch.ones(8, device={device!r}))"
_LABEL = "a compiled x + 1 alone"
_FAILS_TOO = "a compiled `x + 1` alone fails in the same way"
# Of Python, of `subprocess` and of torch, raised where something is missing or a program does not run.
_ERRORS = (
    "CalledProcessError",
    "FileNotFoundError",
    "GPUTooOldForTriton",
    "ImportError",
    "InvalidCxxCompiler",
    "ModuleNotFoundError",
    "NotADirectoryError",
    "OSError",
    "PermissionError",
    "TritonMissing",
)


@dataclass(frozen=True, slots=True)
class MachineFault:
    """A fault of the machine: a ``program`` of one line that shows it, and what was tried and what to do as notes."""

    program: str
    notes: tuple[str, ...]


def machine_fault(search: TrialSearch, base: Plan, outcome: Outcome) -> MachineFault | None:
    """The fault of the machine that makes the program fail as in ``outcome``, or None. Only an error that may be of the
    machine costs a trial.
    """
    failure = outcome.signature
    if failure is None or failure.rung not in ("inductor", "triton") or failure.kind != "exception":
        return None
    facts, error = read_failure(failure.message), (failure.cause or failure.type).rpartition(".")[2]
    if not (error in _ERRORS or machine_advice(facts) or (error == "CppCompileError" and facts.quoted is None)):
        return None
    program = _PROGRAM.format(device="cuda" if outcome.facts.cuda else "cpu")
    alone = _run_alone(search, rung_plan(base, failure.rung, ()), program)
    if alone.signature is None or not alone.signature.same_across_releases(failure):
        return None
    return MachineFault(program, (_FAILS_TOO, *(advice.text for advice in machine_advice(facts))))


def _run_alone(search: TrialSearch, plan: Plan, program: str) -> Outcome:
    """Run another program once, with empty caches."""
    file = search.runner.scratch / "compiled_alone.py"
    file.write_text(program)
    with Runner(Program(str(file)), limits=search.runner.limits, fresh_caches=True) as runner:
        return search.run_other(runner, plan, _LABEL)
