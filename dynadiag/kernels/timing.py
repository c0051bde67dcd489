"""Measure how long each kernel call takes, and how near that is to the device's peak.

The generated modules run again on random inputs (``dynadiag.trial.measure``): that executes code from the recording. A
Triton kernel runs in the configuration that the recorded run tuned, if the recorder saw it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dynadiag.errors import DynadiagError
from dynadiag.kernels.built import Builds
from dynadiag.kernels.cost import BALANCE, Cost, bound
from dynadiag.kernels.jobs import run_job
from dynadiag.kernels.unit import KernelCall
from dynadiag.recording.made import keep
from dynadiag.recording.reader import Recording

__all__ = ["Peaks", "Scale", "Time", "Timing", "kept_timing", "measure"]

_KEY = "times"
_SECONDS = 0.5  # how long each module runs


@dataclass(frozen=True, slots=True)
class Peaks:
    """Measured peaks of a device: bytes moved per second, operations per second.

    `product_flops` are for matrix products, by dtype as graphs print it ("bf16"). `vector_flops` is for all else, in
    float32.
    """

    moved: float
    products: Mapping[str, float]
    vector: float | None

    def flops(self, cost: Cost) -> float | None:
        """Return the peak operations per second for a kernel of this cost."""
        return self.products.get(cost.product) if cost.product else self.vector

    def balance(self, cost: Cost) -> float | None:
        """Return the operations that the device can do while it moves one byte, for a kernel of this cost."""
        flops = self.flops(cost)
        return None if flops is None else flops / self.moved


@dataclass(frozen=True, slots=True)
class Time:
    """The time of one call: median seconds, and the names of the device kernels that ran for it."""

    seconds: float
    kernels: tuple[str, ...]

    def share(self, cost: Cost, peaks: Peaks) -> float | None:
        """Return the share of the peak that limits the kernel, 0 to 1, or None when it is unknown."""
        limit = bound(cost, peaks.balance(cost)) or "memory"
        done, most = (cost.moved, peaks.moved) if limit == "memory" else (cost.flops, peaks.flops(cost))
        return None if done is None or most is None or not self.seconds else done / self.seconds / most


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of a recording's calls, by the event of the module and the line of the call."""

    device: str
    torch: str
    peaks: Peaks
    times: Mapping[tuple[int, int], Time]
    errors: Mapping[int, str]

    def of(self, call: KernelCall) -> Time | None:
        """Return the time of a call, or None if its module could not run or the call was not reached."""
        return self.times.get((call.event, call.line))


@dataclass(frozen=True, slots=True)
class Scale:
    """The roofline that kernels are compared with: measured times, and the machine balance of the device.

    `balance` takes precedence over the measured one. Without both, the balance known for the kernel's device is used.
    """

    given: float | None = None
    timing: Timing | None = None

    def bound(self, call: KernelCall) -> str | None:
        """Return what limits a kernel: "memory" or "compute", or None when that is unknown."""
        measured = self.timing.peaks.balance(call.cost) if self.timing else None
        return bound(call.cost, self.given or measured or BALANCE.get(call.device or ""))

    def time(self, call: KernelCall) -> Time | None:
        """Return the measured time of a call, if any."""
        return self.timing.of(call) if self.timing else None

    def share(self, call: KernelCall) -> float | None:
        """Return the share of the device's peak that a call reaches, if it was measured."""
        time = self.time(call)
        return time.share(call.cost, self.timing.peaks) if time and self.timing else None


def kept_timing(recording: Recording) -> Timing | None:
    """Return the times that an earlier measurement saved in the recording."""
    return _timing(recording.made(_KEY))


def measure(recording: Recording, calls: Sequence[KernelCall]) -> Timing:
    """Run the modules of these calls now, and save the times in the recording.

    Raises `DynadiagError` if none of them could run.
    """
    made = run_job("dynadiag.trial.measure", {"modules": _modules(recording, calls), "seconds": _SECONDS}, "measuring")
    found = _timing(made)
    if found is None:
        raise DynadiagError(f"nothing could be measured: {'; '.join(_errors(made).values()) or 'no kernel was called'}")
    keep(recording.path, _KEY, made)
    return found


def _modules(recording: Recording, calls: Iterable[KernelCall]) -> list[dict[str, Any]]:
    lines: dict[int, list[int]] = {}
    configurations: dict[int, dict[str, Mapping[str, str]]] = {}
    builds = Builds(recording)
    for call in calls:
        lines.setdefault(call.event, []).append(call.line)
        chosen = configurations.setdefault(call.event, {})
        if (built := builds.of(call.event, call.name)) is not None:
            chosen[call.name] = built.configuration
    return [
        {"event": event, "source": recording.payload(event), "lines": at, "configurations": configurations[event]}
        for event, at in lines.items()
    ]


def _timing(made: Any) -> Timing | None:
    """Parse saved times, which a stranger may have written. None if they are invalid or empty."""
    try:
        times = {
            (int(event), int(line)): Time(float(one["seconds"]), tuple(map(str, one["kernels"])))
            for event, lines in made["times"].items()
            for line, one in lines.items()
        }
        peaks = made["peaks"]
        vector = peaks["vector"]
        products = {str(dtype): _positive(most) for dtype, most in peaks["products"].items()}
        best = Peaks(_positive(peaks["moved"]), products, None if vector is None else _positive(vector))
        return Timing(str(made["device"]), str(made["torch"]), best, times, _errors(made)) if times else None
    except (TypeError, KeyError, ValueError, AttributeError):
        return None


def _positive(value: Any) -> float:
    """Parse a rate, which is used as a divisor. Raises `ValueError` unless it is positive."""
    if not float(value) > 0:
        raise ValueError(f"no rate: {value}")
    return float(value)


def _errors(made: Any) -> dict[int, str]:
    return {int(event): str(why) for event, why in made["errors"].items()}
