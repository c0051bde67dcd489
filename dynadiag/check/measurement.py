"""Measures one run: its findings, place by place, and its figures. Plain data that can go between processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

from dynadiag.explanation.explanation import Explanation
from dynadiag.explanation.findings import Finding
from dynadiag.explanation.rules import Rule
from dynadiag.explanation.source import event_data
from dynadiag.explanation.warm_up import no_warm_up
from dynadiag.kernels.generated_module import KernelCall
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import FULL, Compile


@dataclass(frozen=True, slots=True)
class CheckProblem:
    """A finding or a figure that `check` judges: new, over its budget, or known to the baseline."""

    rule: str
    gb_id: str | None
    identity: str
    severity: str
    file: str | None
    line: int | None
    column: int | None
    end_line: int | None
    end_column: int | None
    function: str | None
    text: str
    cause: str | None
    advice: tuple[str, ...]
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Problem(CheckProblem):
    """A finding at one of its places, or a budget that is exceeded. ``shown`` is its paragraph in a report."""

    shown: str


@dataclass(frozen=True, slots=True)
class Fallback:
    """A call that Inductor left to ATen, with the reason and the user's line."""

    name: str
    reason: str
    file: str | None
    line: int | None


@dataclass(frozen=True, slots=True)
class Measurement:
    """One run. Patterns of budgets match its ``names``. Figures that were not recorded are ``None``.

    ``memory`` is in bytes: the peak of the GPU where one was used, else of the process. ``launches`` counts the calls
    in the generated code.
    """

    target: str
    names: tuple[str, ...]
    torch: str | None
    exit_code: int | None
    breaks: int
    recompiles: int
    graphs: int
    compile_seconds: float | None
    memory: int | None
    launches: int | None
    occurrences: tuple[Problem, ...]
    fallbacks: tuple[Fallback, ...]
    recording: str | None = None
    late: tuple[tuple[str, Compile], ...] = ()  # compiles after the end of the warm-up, each with what was compiled
    is_full: bool = False  # the size limit was reached
    cold: str | None = None  # why the warm-up that was asked for is not recorded

    @property
    def failed(self) -> bool:
        """Whether the program failed, or its recording reached its size limit: findings after that are not known."""
        return self.exit_code not in (0, None) or self.is_full


def measure(
    explanation: Explanation,
    calls: Sequence[KernelCall],
    target: str,
    *,
    names: Sequence[str] = (),
    memory: int | None = None,
    recording: str | None = None,
    after: int | None = None,
    show: Callable[[Finding], str] = lambda item: item.title,
) -> Measurement:
    """Return the measurement of a run. ``show`` makes the paragraph of a finding, ``after`` is that of `--after`."""
    warm_up = explanation.warm_up
    late = [each for each in explanation.compiles if warm_up is not None and each.compile_id in warm_up.late]
    spent = [each.seconds.total for each in explanation.compiles if each.seconds.total is not None]
    return Measurement(
        target=target,
        names=tuple(dict.fromkeys((target, *names))),
        torch=explanation.run.torch,
        exit_code=explanation.run.exit_code,
        breaks=explanation.break_count,
        recompiles=explanation.recompile_count,
        graphs=explanation.graph_count,
        compile_seconds=sum(spent) if spent or not explanation.compiles else None,
        memory=memory,
        launches=len(calls) if calls or not explanation.kernels else None,
        occurrences=tuple(each for item in explanation.findings for each in _occurrences(item, target, show)),
        fallbacks=tuple(_fallbacks(calls)),
        recording=recording,
        late=tuple((warm_up.named(each), each) for each in late if warm_up is not None),
        is_full=FULL in explanation.run.notes,
        cold=no_warm_up(after, warm_up),
    )


def peak_memory(recording: Recording) -> int | None:
    """Return the peak memory of a recorded program in bytes. None if it was not recorded."""
    found: int | None = None
    for _, end in event_data(recording, "dynadiag_end"):
        peak = end.get("peak_memory")
        if isinstance(peak, int):
            found = max(found or 0, peak)
    return found


def _occurrences(item: Finding, target: str, show: Callable[[Finding], str]) -> Iterator[Problem]:
    """A finding at each of its places, unless it follows from another one, costs nothing, or is the program's end."""
    if item.caused_by is not None or item.severity == "note" or item.rule == Rule.FAILED_PROGRAM:
        return
    shown = show(item)
    identities = item.place_identities or (item.identity,)
    for span, identity in zip(item.places or (item.span,), identities, strict=False):
        yield Problem(
            Rule.FAILED_COMPILE if item.is_failed_compile else item.rule,
            item.id,
            identity,
            item.severity,
            **asdict(span),
            function=item.function,
            text=item.title,
            cause=item.cause,
            advice=tuple(each.text for each in item.advice),
            targets=(target,),
            shown=shown,
        )


def _fallbacks(calls: Sequence[KernelCall]) -> Iterator[Fallback]:
    for call in calls:
        if call.fallback is not None:
            place = next(iter(call.source_lines), None)
            yield Fallback(call.name, call.fallback, place.file if place else None, place.line if place else None)
