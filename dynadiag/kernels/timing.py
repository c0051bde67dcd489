"""How long each call of a kernel takes, and how near that is to what the device can do: measured on request.

The generated modules are run again on random inputs (``dynadiag.trial.measure``): that runs code out of the recording.
A Triton kernel is run as the program's own run had it tuned, where the recorder saw that.
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
_SECONDS = 0.5  # that each module is run for


@dataclass(frozen=True, slots=True)
class Peaks:
    """The most that a device was seen to do: bytes moved a second, operations a second.

    ``products`` are of matrix products, by dtype as graphs print it ("bf16"); ``vector`` of all else, in float32.
    """

    moved: float
    products: Mapping[str, float]
    vector: float | None

    def flops(self, cost: Cost) -> float | None:
        """The operations a second that are the most for a kernel of this cost."""
        return self.products.get(cost.product) if cost.product else self.vector

    def balance(self, cost: Cost) -> float | None:
        """The operations that the device can do while a byte is moved, for a kernel of this cost."""
        flops = self.flops(cost)
        return None if flops is None else flops / self.moved


@dataclass(frozen=True, slots=True)
class Time:
    """One call: seconds (the median), and the names of what ran on the device for it."""

    seconds: float
    kernels: tuple[str, ...]

    def share(self, cost: Cost, peaks: Peaks) -> float | None:
        """What part of the device's peak a kernel of this cost reaches, in what bounds it; None where not known."""
        limit = bound(cost, peaks.balance(cost)) or "memory"
        done, most = (cost.moved, peaks.moved) if limit == "memory" else (cost.flops, peaks.flops(cost))
        return None if done is None or most is None or not self.seconds else done / self.seconds / most


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of a recording's calls, by the event of their module and their line in it."""

    device: str
    torch: str
    peaks: Peaks
    times: Mapping[tuple[int, int], Time]
    errors: Mapping[int, str]

    def of(self, call: KernelCall) -> Time | None:
        """The time of a call; None where its module could not be run, or the call was not reached."""
        return self.times.get((call.event, call.line))


@dataclass(frozen=True, slots=True)
class Scale:
    """What kernels are held against: times, and the balance of the device.

    ``given`` is a balance that goes before the measured one; that of the kernel's device is used where nothing was
    measured.
    """

    given: float | None = None
    timing: Timing | None = None

    def bound(self, call: KernelCall) -> str | None:
        """What limits a kernel: "memory" or "compute"; None where that is not known."""
        measured = self.timing.peaks.balance(call.cost) if self.timing else None
        return bound(call.cost, self.given or measured or BALANCE.get(call.device or ""))

    def time(self, call: KernelCall) -> Time | None:
        """How long a call takes, where that was measured."""
        return self.timing.of(call) if self.timing else None

    def share(self, call: KernelCall) -> float | None:
        """What part of the device's peak a call reaches, where that was measured."""
        time = self.time(call)
        return time.share(call.cost, self.timing.peaks) if time and self.timing else None


def kept_timing(recording: Recording) -> Timing | None:
    """What was measured before and kept in the recording."""
    return _timing(recording.made(_KEY))


def measure(recording: Recording, calls: Sequence[KernelCall]) -> Timing:
    """Run the modules of these calls here and now, and keep what was measured in the recording.

    Raises `DynadiagError` where none of them could be run.
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
    """What was written, which may come out of a stranger's file; None where it is not as it should be, or empty."""
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
    """A rate, which others are divided by. Raises `ValueError`."""
    if not float(value) > 0:
        raise ValueError(f"no rate: {value}")
    return float(value)


def _errors(made: Any) -> dict[int, str]:
    return {int(event): str(why) for event, why in made["errors"].items()}
