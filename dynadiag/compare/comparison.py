"""Runs a comparison: each variant is set up once, then all variants are measured in turn, in several rounds.

Measuring in turn spreads a machine's drift (clock speed, other users) over all variants. Every second round runs in
reverse order, so that no variant always follows the same other one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from dynadiag.compare.recorded import MEASURED, Measured
from dynadiag.compare.variant import Variant
from dynadiag.compare.variant_process import VariantFailedError, VariantProcess
from dynadiag.compare.variant_result import (
    Gpu,
    Peak,
    RelativeSpeed,
    VariantResult,
    read_summary,
    relative_speed,
)
from dynadiag.explanation.runtime_cost import WARM
from dynadiag.trial.program import Program
from dynadiag.trial.sandbox import Sandboxes, cache_variables, trial_environment
from dynadiag.trial.signature import Signature
from dynadiag.trial.supervise import Limits

OnTrial = Callable[[int, str, str, float], None]
_NOT_RUN = Signature("interrupted", "interrupted", "not measured: the comparison was interrupted")


@dataclass(frozen=True, slots=True)
class ComparisonOptions:
    """Options of a comparison.

    ``seconds`` is the measuring time of one variant in one round. ``limits`` holds for the first calls together, and
    for each round. ``fresh`` gives each variant empty compiler caches in its own folder. ``inputs`` names a function
    in the target's file that returns a list of other arguments; each variant is called once with each.
    """

    rounds: int = 5
    seconds: float = 0.2
    limits: Limits = field(default_factory=lambda: Limits.default(600.0))
    fresh: bool = False
    inputs: str | None = None


@dataclass(frozen=True, slots=True)
class VariantComparison:
    """The results in the order of the variants. ``interrupted``: not all rounds ran."""

    results: tuple[VariantResult, ...]
    interrupted: bool

    @property
    def torch(self) -> str | None:
        """The version of torch. None if no variant made its first calls."""
        return next((result.torch for result in self.results if result.torch), None)

    @property
    def device(self) -> str | None:
        """The device that the calls ran on, if a variant made its first calls."""
        return next((result.device for result in self.results if result.device), None)

    @property
    def threads(self) -> int | None:
        """The number of torch's threads, if a variant made its first calls."""
        return next((result.threads for result in self.results if result.threads), None)

    def against_eager(self, result: VariantResult) -> RelativeSpeed | None:
        """The speed relative to the uncompiled call with the same autocast dtype. None for that one itself."""
        baselines = (each for each in self.results if each.variant.is_eager and each.variant.amp == result.variant.amp)
        eager = next(baselines, None)
        return None if eager is None or eager is result else relative_speed(result, eager)


def compare(
    program: Program, chosen: Sequence[Variant], folder: Path, options: ComparisonOptions, on_trial: OnTrial
) -> VariantComparison:
    """Measure the variants of a target. Their recordings go to ``folder``.

    Calls ``on_trial(number, label, status, seconds)`` after each step. On Ctrl-C it returns what was measured so far; a
    variant that made its first calls and has no round yet is measured once.

    Raises `TargetError` if the target provides no call.
    """
    with MeasurementSession(program, folder, options, on_trial) as session:
        try:
            for variant in chosen:
                session.start(variant)
            session.first()
            for number in range(options.rounds):
                session.round(number)
            session.count()
            session.profile()
            session.inputs()
            session.warm()
            session.keep()
        except KeyboardInterrupt:
            session.interrupted = True
            with suppress(KeyboardInterrupt):  # a second Ctrl-C: stop at once, keep what there is
                session.finish()
    results = (_with_summary(session.results.get(variant, VariantResult(variant, _NOT_RUN))) for variant in chosen)
    return VariantComparison(tuple(_mark_unmeasured(result) for result in results), session.interrupted)


def _with_summary(result: VariantResult) -> VariantResult:
    """The result with the summary of its recording. Without one if the process ended before it recorded anything."""
    if result.recording is None or not result.recording.exists():
        return replace(result, recording=None)
    return replace(result, compiled=read_summary(result.recording, result.variant.step))


def _mark_unmeasured(result: VariantResult) -> VariantResult:
    """Mark a variant that has no round as not measured."""
    return replace(result, failure=_NOT_RUN) if result.failure is None and not result.rounds else result


class MeasurementSession:
    """The processes of the variants that have not failed, and the results so far."""

    def __init__(self, program: Program, folder: Path, options: ComparisonOptions, on_trial: OnTrial) -> None:
        self.results: dict[Variant, VariantResult] = {}
        self._program, self._folder, self._options, self._on_trial = program, folder, options, on_trial
        self._running: dict[Variant, VariantProcess] = {}
        self._sandboxes = Sandboxes(own_headers=options.fresh)
        self._reports = 0
        self.interrupted = False

    def __enter__(self) -> MeasurementSession:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for process in self._running.values():
            process.kill("the comparison is over") if self.interrupted or kind else process.end()
        self._sandboxes.remove()

    def start(self, variant: Variant) -> None:
        """Start the variant's process and load the function. A wrong name is found before anything is compiled."""
        recording = self._folder / f"{len(self.results):02}-{_file_name(variant)}.dynadiag"
        self.results[variant] = VariantResult(variant, recording=recording)
        program = replace(self._program, name=variant.name)
        limits, variables = self._options.limits, self._environment(variant)
        self._running[variant] = VariantProcess(program, variant, recording, limits, variables)
        self._request(variant, "load")

    def first(self) -> None:
        """Make the first calls, one variant after the other."""
        for variant in list(self._running):
            reply = self._request(variant, "first")
            if reply is not None:
                first = tuple(reply["seconds"])
                self.results[variant] = replace(
                    self.results[variant],
                    first=first,
                    first_peak=Peak(**reply["memory"]),
                    torch=reply["torch"],
                    threads=reply["threads"],
                    device=reply["device"],
                )
                self._report(f"{variant.name}: {variant.label}", "first call", first[0])

    def round(self, number: int) -> None:
        """Measure each variant once. Odd rounds run in reverse order."""
        began = time.monotonic()
        order = list(self._running)
        for variant in order if number % 2 == 0 else reversed(order):
            self._measure(variant)
        self._report(f"round {number + 1} of {self._options.rounds}", "measured", time.monotonic() - began)

    def _measure(self, variant: Variant) -> None:
        reply = self._request(variant, "round", seconds=self._options.seconds)
        if reply is not None:
            result = self.results[variant]
            rounds = (*result.rounds, tuple(reply["times"]))
            yardstick = (*result.yardstick, reply["yardstick"])
            self.results[variant] = replace(result, rounds=rounds, yardstick=yardstick)

    def finish(self) -> None:
        """Measure one round of each variant that made its first calls and has no round yet."""
        ready = [
            variant for variant in self._running if self.results[variant].first and not self.results[variant].rounds
        ]
        for variant in ready:
            self._measure(variant)

    def inputs(self) -> None:
        """Call each variant with other arguments. It comes last: torch may use other code afterwards."""
        for variant in list(self._running) if self._options.inputs else ():
            reply = self._request(variant, "inputs", name=self._options.inputs)
            if reply is not None:
                self.results[variant] = replace(self.results[variant], inputs=tuple(reply["seconds"]))

    def count(self) -> None:
        """Count the memory of one call, and what it runs on a GPU."""
        for variant in list(self._running):
            reply = self._request(variant, "count")
            if reply is not None:
                gpu = Gpu(**reply["gpu"]) if "gpu" in reply else None
                self.results[variant] = replace(self.results[variant], warm_peak=Peak(**reply["memory"]), gpu=gpu)

    def profile(self) -> None:
        for variant in [variant for variant in self._running if not variant.is_eager]:
            self._request(variant, "profile", seconds=self._options.seconds)

    def warm(self) -> None:
        """Add to each recording which compiled code its warm calls run."""
        for variant in [variant for variant in self._running if not variant.is_eager]:
            reply = self._request(variant, "warm")
            if reply is not None:
                self._running[variant].add_event(WARM, reply["warm"])

    def keep(self) -> None:
        """Add to each recording what was measured, for a later comparison of two recordings."""
        for variant, process in self._running.items():
            process.add_event(MEASURED, asdict(_measured(self.results[variant])))

    def _request(self, variant: Variant, kind: str, **arguments: Any) -> dict[str, Any] | None:
        """Send a request to a variant. Returns the reply, or None if the variant failed: its result has the failure."""
        began = time.monotonic()
        try:
            return self._running[variant].request(kind, **arguments)
        except VariantFailedError as failed:
            del self._running[variant]
            self.results[variant] = replace(self.results[variant], failure=failed.signature)
            self._report(
                f"{variant.name}: {variant.label}", f"failed: {failed.signature.type}", time.monotonic() - began
            )
            return None
        except KeyboardInterrupt:  # `request` killed the process
            del self._running[variant]
            raise

    def _report(self, label: str, status: str, seconds: float) -> None:
        self._reports += 1
        self._on_trial(self._reports, label, status, seconds)

    def _environment(self, variant: Variant) -> Mapping[str, str]:
        """The environment of a trial. For eager it also disables Dynamo, so that nested torch.compile is off too."""
        scratch = self._sandboxes.make_scratch()
        environment = trial_environment(scratch, {})
        if variant.is_eager:
            environment["TORCHDYNAMO_DISABLE"] = "1"
        if self._options.fresh:
            environment |= cache_variables(Path(scratch))
        return environment


def _measured(result: VariantResult) -> Measured:
    """The figures of a variant that its recording keeps."""
    of, warm = result.variant, result.warm
    peak = result.warm_peak.host if result.warm_peak.device is None else result.warm_peak.device
    return Measured(
        seconds=None if warm is None else warm.median,
        interval=None if warm is None else result.range,
        peak=peak,
        launches=None if result.gpu is None else result.gpu.launches,
        yardstick=(min(result.yardstick), max(result.yardstick)) if result.yardstick else None,
        given={"variant": of.label, "step": of.step, "threads": str(result.threads)},
    )


def _file_name(variant: Variant) -> str:
    return f"{variant.name}-{variant.label}".replace(", ", "-").replace(" ", "-").replace("/", "_")
