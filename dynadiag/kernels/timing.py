"""Measure how long each kernel call takes, and how near that is to the device's peak.

The generated modules run again on random inputs (``dynadiag.trial.module_timing``): that executes code from the
recording. A Triton kernel runs in the configuration that the recorded run tuned, if the recorder saw it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from dynadiag.kernels.cost import MACHINE_BALANCE, RooflineCost, roofline_bound
from dynadiag.kernels.generated_module import KernelCall
from dynadiag.kernels.isolated_job import run_isolated
from dynadiag.kernels.triton_artifacts import TritonArtifacts
from dynadiag.recording.reader import Recording
from dynadiag.recording.store import save_derived

_DERIVED_KEY = "times"
_SECONDS_PER_MODULE = 0.5  # how long each module runs


@dataclass(frozen=True, slots=True)
class DevicePeaks:
    """Measured peaks of a device: bytes moved per second, operations per second. All are positive.

    `product_flops` are for matrix products, by dtype as graphs print it ("bf16"). `vector_flops` is for all else, in
    float32.
    """

    bytes_per_second: float
    product_flops: Mapping[str, float]
    vector_flops: float | None

    def __post_init__(self) -> None:
        rates = (self.bytes_per_second, *self.product_flops.values(), self.vector_flops)
        if not all(rate is None or rate > 0 for rate in rates):
            raise ValueError("a rate must be positive: times are divided by it")

    def flops_for(self, cost: RooflineCost) -> float | None:
        """Return the peak operations per second for a kernel of this cost."""
        return self.product_flops.get(cost.product_dtype) if cost.product_dtype else self.vector_flops

    def balance_for(self, cost: RooflineCost) -> float | None:
        """Return the operations that the device can do while it moves one byte, for a kernel of this cost."""
        flops = self.flops_for(cost)
        return None if flops is None else flops / self.bytes_per_second


@dataclass(frozen=True, slots=True)
class CallTime:
    """The time of one call: median seconds, and the names of the device kernels that ran for it."""

    seconds: float
    device_kernels: tuple[str, ...]

    def peak_share(self, cost: RooflineCost, peaks: DevicePeaks) -> float | None:
        """Return the share of the peak that limits the kernel, 0 to 1, or None when it is unknown."""
        limit = roofline_bound(cost, peaks.balance_for(cost)) or "memory"
        done, most = (
            (cost.bytes_moved, peaks.bytes_per_second) if limit == "memory" else (cost.flops, peaks.flops_for(cost))
        )
        return None if done is None or most is None or not self.seconds else done / self.seconds / most


@dataclass(frozen=True, slots=True)
class KernelTimes:
    """The times of a recording's calls, by the event of the module and the line of the call.

    `errors` says why a module could not run.
    """

    device: str
    torch: str
    peaks: DevicePeaks
    times: Mapping[int, Mapping[int, CallTime]]
    errors: Mapping[int, str] = field(default_factory=dict)

    def time_of(self, call: KernelCall) -> CallTime | None:
        return self.times.get(call.event, {}).get(call.line)


@dataclass(frozen=True, slots=True)
class TimedModule:
    """A generated module to time. `lines` are those of its calls, 1-based.

    `configurations` are the launch configurations of Triton kernels, by kernel name (see `pin_configurations`).
    """

    event: int
    source: str
    lines: Sequence[int]
    configurations: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TimingJob:
    """The modules to time, and the seconds to spend on each."""

    modules: Sequence[TimedModule]
    seconds: float


@dataclass(frozen=True, slots=True)
class Roofline:
    """The roofline that kernels are compared with: measured times, and the machine balance of the device.

    `balance_for` takes precedence over the measured one. Without both, the balance known for the kernel's device is
    used.
    """

    balance: float | None = None
    times: KernelTimes | None = None

    def bound_of(self, call: KernelCall) -> str | None:
        """Return what limits a kernel: "memory" or "compute", or None when that is unknown."""
        measured = self.times.peaks.balance_for(call.cost) if self.times else None
        return roofline_bound(call.cost, self.balance or measured or MACHINE_BALANCE.get(call.device or ""))

    def time_of(self, call: KernelCall) -> CallTime | None:
        return self.times.time_of(call) if self.times else None

    def peak_share(self, call: KernelCall) -> float | None:
        """Return the share of the device's peak that a call reaches, if it was measured."""
        time = self.time_of(call)
        return time.peak_share(call.cost, self.times.peaks) if time and self.times else None


def saved_times(recording: Recording) -> KernelTimes | None:
    """Return the times that an earlier measurement saved in the recording."""
    try:
        return msgspec.convert(recording.derived(_DERIVED_KEY), KernelTimes, str_keys=True)
    except msgspec.ValidationError:  # nothing is saved, or a stranger wrote it
        return None


def measure_times(recording: Recording, calls: Sequence[KernelCall]) -> KernelTimes:
    """Run the modules of these calls now, and save the times in the recording.

    Raises `DynadiagError` if none of them could run.
    """
    job = TimingJob(_job_modules(recording, calls), _SECONDS_PER_MODULE)
    made = run_isolated("dynadiag.trial.module_timing", job, KernelTimes, "nothing could be measured")
    save_derived(recording.path, _DERIVED_KEY, msgspec.to_builtins(made, str_keys=True))
    return made


def _job_modules(recording: Recording, calls: Iterable[KernelCall]) -> list[TimedModule]:
    lines: dict[int, list[int]] = {}
    configurations: dict[int, dict[str, Mapping[str, str]]] = {}
    builds = TritonArtifacts(recording)
    for call in calls:
        lines.setdefault(call.event, []).append(call.line)
        chosen = configurations.setdefault(call.event, {})
        if (built := builds.find(call.event, call.name)) is not None:
            chosen[call.name] = built.configuration
    return [TimedModule(event, recording.payload(event), at, configurations[event]) for event, at in lines.items()]
