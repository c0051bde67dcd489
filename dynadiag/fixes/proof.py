"""The proof of a fix: every obligation in one list, each a function that says why a candidate fails it.

A candidate is proved if all of them are met. They compare two pairs of runs. The first pair is the unchanged and the
changed program under the recorder. The second is the unchanged program uncompiled and the changed one compiled,
compared call by call, with the program's inputs and with others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dynadiag.explanation.formatting import count
from dynadiag.fixes.candidate import Candidate
from dynadiag.fixes.fix_report import Evidence
from dynadiag.fixes.observation import CallDiffers
from dynadiag.fixes.printed_output import difference, has_same_lines, last_exception, last_line
from dynadiag.fixes.problems import FixProblem, RunSummary
from dynadiag.fixes.trials import ComparedRun, RecordedRun, ReferenceRun
from dynadiag.trial.outcome import Outcome

_SHRUNK = 0.9  # share of the operators that has to stay compiled, of the largest graph's and of all that run in graphs
_SLOWER = 1.5  # times the time of a warm call, beyond which a change is slower than noise explains
_NOISE = 300e-6  # seconds by which a warm call may always differ: in small calls guards take most of the time


@dataclass(frozen=True, slots=True)
class UnchangedProgram:
    """The unchanged program: as it is, and uncompiled with many inputs. ``printed`` and ``files`` have unstable parts
    masked.

    ``spread`` is by how much decimal numbers that are printed differ between runs of the unchanged program, compiled
    and not, relative to their size; ``None`` while that was not measured.
    ``exit_code`` is that of the run which the changed program has to be like. ``recompiles_last`` says that changes for
    recompiles come later: until then torch may give up at its limit of recompiles.
    """

    recorded: RecordedRun
    reference: ReferenceRun
    printed: str
    stable: bool
    exit_code: int | None
    recompiles_last: bool = False
    files: Mapping[str, str] = field(default_factory=dict)
    spread: float | None = None


@dataclass(frozen=True, slots=True)
class Proof:
    """The runs that a candidate is judged by. ``compared`` is ``None`` while only the recorded run was made.

    ``problems`` are the causes that the candidate has to remove. ``before`` is the program without it: the unchanged
    one, or the one with the changes that are proved already.
    """

    problems: tuple[FixProblem, ...]
    candidate: Candidate
    baseline: UnchangedProgram
    before: RunSummary
    recorded: RecordedRun
    compared: ComparedRun | None = None


Obligations = tuple[Callable[[Proof], str | None], ...]


def first_objection(proof: Proof, obligations: Obligations) -> str | None:
    """Why the candidate is rejected, by the first of these obligations that it fails; ``None`` if there is none."""
    return next((text for text in (check(proof) for check in obligations) if text is not None), None)


def evidence_of(proof: Proof) -> Evidence:
    """The figures of a candidate that is proved."""
    before, after = proof.baseline.recorded, proof.recorded
    rounded = {found.what for found in _differences(proof) if found.rounding}
    differentiated = (
        proof.compared is not None and proof.compared.compared is not None and proof.compared.compared.gradients
    )
    return Evidence(
        breaks=(before.summary.breaks, after.summary.breaks),
        recompiles=(before.summary.recompiles, after.summary.recompiles),
        graphs=(before.summary.graphs, after.summary.graphs),
        output="rounding" if difference(proof.baseline.printed, after.printed) is not None else "same",
        results="rounding" if "results" in rounded else "same",
        gradients=("rounding" if "gradients" in rounded else "same") if differentiated else None,
        mutations="rounding" if "mutations" in rounded else "same",
        seconds=(before.warm, after.warm),
        inputs=proof.compared.compared.inputs if proof.compared and proof.compared.compared else 0,
    )


# Obligations on the recorded run.


def _ends_alike(proof: Proof) -> str | None:
    return _ended(proof.recorded.outcome, proof.baseline.exit_code, proof.recorded.outcome.tail)


def _torch_traces_it(proof: Proof) -> str | None:
    """That torch does not raise of itself: with sizes captured that depend on data, a later operator may need them."""
    signature = proof.recorded.outcome.signature
    raised = signature is not None and signature.kind == "exception" and signature.type.startswith("torch.")
    return _ends_alike(proof) if raised else None


def _cause_is_gone(proof: Proof) -> str | None:
    wanted = Counter(problem.identity for problem in proof.problems)
    for problem in proof.problems:
        left, before = proof.recorded.summary.causes[problem.identity], proof.before.causes[problem.identity]
        if left and (problem.kind == "recompile" or left > before - wanted[problem.identity]):
            return f"the {problem.kind} is still there"
    return None


def _no_new_cause(proof: Proof) -> str | None:
    before, after = proof.before, proof.recorded.summary
    new = [
        cause for cause, count in after.causes.items() if count > before.causes[cause] and cause.startswith("break ")
    ]
    if new:
        return f"torch breaks the graph elsewhere instead, in the changed program at {after.places[new[0]]}"
    return None


def _fewer(proof: Proof) -> str | None:
    """Whether breaks or recompiles became fewer. Only causes that the program had before these changes count."""
    before, after = proof.before, proof.recorded.summary
    kinds = {problem.kind for problem in proof.problems if before.causes[problem.identity]}
    if "break" in kinds and after.breaks >= before.breaks:
        return f"as many graph breaks as before: {after.breaks}"
    if "recompile" in kinds and after.recompiles >= before.recompiles:
        return f"as many recompiles as before: {after.recompiles}"
    if after.breaks > before.breaks or after.recompiles > before.recompiles:
        return f"{count(after.recompiles, 'recompile')} instead of {before.recompiles}"
    return None


def _compiles_as_much(proof: Proof) -> str | None:
    before, after = proof.baseline.recorded.summary, proof.recorded.summary
    if after.largest + proof.candidate.moved_out < _SHRUNK * before.largest:
        return f"it compiles less: the largest graph has {after.largest} operators instead of {before.largest}"
    return None


def runs_as_much_compiled(proof: Proof) -> str | None:
    """The obligation that as much runs in graphs, each operator as often as it runs.

    Where a change leaves out a condition, one operator may be gone with each call of a graph that is gone: the one that
    the branch asked behind its break. What runs in front of the compiled part now is gone with each call.
    Where recompiles are left and have changes of their own, what torch compiled at all counts instead.
    """
    before, after = proof.baseline.recorded.compiled, proof.recorded.compiled
    if before is None or after is None:
        return None
    asked = max(0, before.calls - after.calls) if proof.candidate.leaves_out_condition else 0
    asked += proof.candidate.moved_out * after.calls
    if after.ran + asked >= _SHRUNK * before.ran:
        return None
    if proof.baseline.recompiles_last and proof.recorded.summary.recompiles and after.once >= _SHRUNK * before.once:
        return None
    return f"it compiles less: {after.ran} operators run in graphs instead of {before.ran}"


def prints_the_same(proof: Proof) -> str | None:
    """The obligation that the program prints the same in the same order."""
    return difference(proof.baseline.printed, proof.recorded.printed, proof.baseline.spread or 0.0)


def _writes_the_same_files(proof: Proof) -> str | None:
    before, after = proof.baseline.files, proof.recorded.files
    if names := sorted(before.keys() ^ after.keys()):
        return f"it {'writes' if names[0] in after else 'does not write'} {names[0]}"
    differing = ((name, difference(before[name], after[name], proof.baseline.spread or 0.0)) for name in before)
    return next((f"in {name} {text}" for name, text in differing if text is not None), None)


def _not_slower(proof: Proof) -> str | None:
    before, after = proof.baseline.recorded.warm, proof.recorded.warm
    if before is None or after is None or after <= _SLOWER * before + _NOISE:
        return None
    return f"a warm call takes {after * 1e3:.2f} ms instead of {before * 1e3:.2f} ms"


COUNTED = (_cause_is_gone, _no_new_cause, _fewer)
# Another change may remove a further cause, or the operator that torch fails on, or move what is printed as well.
MENDABLE = (_torch_traces_it, *COUNTED, prints_the_same)
RECORDED = (
    _ends_alike,
    *COUNTED,
    _compiles_as_much,
    runs_as_much_compiled,
    prints_the_same,
    _writes_the_same_files,
)
TIMED = (_not_slower,)  # measured again before it rejects anything


# Obligations on the compared run.


def _compared_run_ends_alike(proof: Proof) -> str | None:
    assert proof.compared is not None
    return _ended(proof.compared.outcome, proof.baseline.exit_code, proof.compared.errors)


def _calls_were_compared(proof: Proof) -> str | None:
    assert proof.compared is not None
    return None if proof.compared.compared is not None else "its compiled calls could not be compared"


def _sides_were_seen(proof: Proof) -> str | None:
    for condition in proof.candidate.conditions:
        taken = [side for side in (True, False) if (condition.key, side) in proof.baseline.reference.sides]
        if not set(condition.sides) <= set(taken):
            side = "neither side" if not taken else f"only the {'true' if taken[0] else 'false'} side"
            return f"{side} of the condition was seen, with {proof.baseline.reference.variants} inputs tried"
    return None


def _on(what: str) -> Callable[[Proof], str | None]:
    """The obligation that compiled calls do not differ in this respect."""

    def check(proof: Proof) -> str | None:
        found = next((each for each in _differences(proof) if each.what == what and not each.rounding), None)
        if found is None:
            return None
        return f"call {found.call + 1} with {_inputs(found.inputs)}: {found.text}"

    check.__name__ = f"_same_{what}"
    return check


def _streams_are_the_same(proof: Proof) -> str | None:
    """Standard output and standard error, each by itself, as uncompiled or as compiled."""
    assert proof.compared is not None
    reference = proof.baseline.reference
    if not proof.baseline.stable or reference.writes or _shows_other_inputs(proof.baseline):
        return None
    spread = proof.baseline.spread or 0.0
    runs = [run for run in (reference, reference.compiled) if run is not None]
    found = [_stream_difference(run, proof.compared, spread) for run in runs]
    return None if None in found else found[0]


def _stream_difference(before: ReferenceRun | ComparedRun, after: ComparedRun, spread: float) -> str | None:
    text = difference(before.printed, after.printed, spread)
    if text is None and (text := difference(before.errors, after.errors, spread)) is not None:
        text = f"on standard error {text}"
    return text


def _shows_other_inputs(unchanged: UnchangedProgram) -> bool:
    """Whether the program prints something that calls with other inputs left behind: a handler's list of messages."""
    reference = unchanged.reference
    return not has_same_lines(unchanged.printed, f"{reference.printed}{reference.errors}")


RAN = (_compared_run_ends_alike, _calls_were_compared, _sides_were_seen)
ALIKE = (  # uncompiled, or compiled
    _on("error"),
    _on("results"),
    _on("mutations"),
    _on("gradients"),
    _on("random"),
    _on("printed"),
    _streams_are_the_same,
)
COMPARISONS = (*RAN, *ALIKE)


def _has_no_break(proof: Proof) -> str | None:
    left = proof.recorded.summary
    return f"a graph breaks at {min(left.places.values(), default='?')}" if left.breaks else None


# What a smaller region is held to, beside the comparisons: it has no break, and less may be compiled.
REGION = (_ends_alike, _has_no_break, prints_the_same, _writes_the_same_files)


def _ended(outcome: Outcome, code: int | None, shown: str) -> str | None:
    if outcome.invalid is None and outcome.exit_code == code:
        return None
    if outcome.signature is not None and outcome.signature.kind == "exception":
        place = last_line(outcome.tail)
        return f"the program raises {outcome.signature.text}{f' ({place})' if place else ''}"
    if outcome.signature is not None and outcome.signature.kind == "hang":
        return f"the program does not end: it was stopped after {outcome.seconds:.0f} s"
    raised = last_exception(shown)
    return f"the program ends with {outcome.exit_code} instead of {code}{f', after {raised}' if raised else ''}"


def _differences(proof: Proof) -> tuple[CallDiffers, ...]:
    return proof.compared.differences if proof.compared is not None else ()


def _inputs(name: str) -> str:
    return name if name.startswith("the ") else f"other inputs ({name})"
