"""Measures how long each call of a generated module takes, on random inputs, in a process of its own.

``python -m dynadiag.trial.module_timing JOB RESULT``: JOB is a `TimingJob` and RESULT becomes a `KernelTimes`, both as
JSON, or ``{"error": SENTENCE}``.

A module runs on its own random inputs under torch's profiler, with a mark around each of its calls. On a GPU the time
of a call is that of the kernels it launches, as CUPTI measures it, without the launch itself.
"""

from __future__ import annotations

import ast
import importlib.util
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch.utils import benchmark

from dynadiag.grouping import grouped
from dynadiag.kernels.cpp_wrapper import is_cpp_wrapper
from dynadiag.kernels.timing import CallTime, KernelTimes, TimedModule, TimingJob
from dynadiag.torch_private.operator_profile import profiler_mark
from dynadiag.torch_private.triton_autotuner import pin_configurations
from dynadiag.trial import device_peaks

_WARM_UP = 3
_MIN_RUNS, _MAX_RUNS = 10, 200  # runs: enough for a median, and not too many for the profiler
_MARK = "dynadiag call "
_CPP_MARK = "torch::aot_inductor::RAIIAtenRecordFunctionHandle dynadiag_mark"  # a destructor ends it
_FLUSH_BYTES = 256 << 20  # bytes written before each run to flush the cache: five times the L2 of an H200


def main(job: Path, result: Path) -> None:
    """Measure the modules of a job. The error of a module that fails is written to ``errors``."""
    wanted = msgspec.json.decode(job.read_bytes(), type=TimingJob)
    times: dict[int, dict[int, CallTime]] = {}
    errors: dict[int, str] = {}
    for module in wanted.modules:
        try:
            times[module.event] = measure_module(module, wanted.seconds, result.parent / f"module_{module.event}.py")
        except Exception as error:  # noqa: BLE001 - the module is arbitrary Python, so it may raise anything
            errors[module.event] = f"{type(error).__name__}: {error}"[:500]
    made: KernelTimes | dict[str, str] = {"error": "; ".join(errors.values()) or "no kernel was called"}
    if any(times.values()):
        on_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
        device = torch.cuda.get_device_name() if on_gpu else "cpu"
        peaks = device_peaks.measure_peaks("cuda" if on_gpu else "cpu")
        made = KernelTimes(device, str(torch.__version__), peaks, times, errors)
    result.write_bytes(msgspec.json.encode(made))


def measure_module(timed: TimedModule, seconds: float, file: Path) -> dict[int, CallTime]:
    """Seconds (the median) and device kernels of the call in each line. Raises what the module raises."""
    module = _load_module(add_marks(timed.source, timed.lines), file)
    pin_configurations(module, timed.configurations)
    arguments = module.get_args()

    def run() -> None:
        module.call(list(arguments))

    on_gpu = any(isinstance(one, torch.Tensor) and one.is_cuda for one in arguments)
    for _ in range(_WARM_UP):
        run()
    timer = benchmark.Timer("run()", globals={"run": run}, num_threads=torch.get_num_threads())
    once = timer.timeit(1).mean
    count = min(_MAX_RUNS, max(_MIN_RUNS, int(seconds / once)))
    return _times(_profile(run, count, flush=_cache_flusher() if on_gpu else None), count, on_gpu=on_gpu)


def add_marks(source: str, lines: Sequence[int]) -> str:
    """The module's source with a mark around the statement of each of these lines."""
    return _mark_cpp_wrapper(source, set(lines)) if is_cpp_wrapper(source) else _mark_python_module(source, lines)


def _mark_cpp_wrapper(source: str, lines: set[int]) -> str:
    """A C++ wrapper, which has one statement per line. A mark ends with the block that is put around its statement."""
    return "".join(
        f'{{ {_CPP_MARK}("{_MARK}{number}", nullptr); {text} }}\n' if number in lines else f"{text}\n"
        for number, text in enumerate(source.splitlines(), 1)
    )


def _mark_python_module(source: str, lines: Sequence[int]) -> str:
    """A Python module, with ``dynadiag_begin(LINE)`` and ``dynadiag_end()`` around each statement."""
    places = dict(_statements(source, set(lines)))
    made = []
    for number, text in enumerate(source.splitlines(), 1):
        indent = text[: len(text) - len(text.lstrip())]
        made += [f"{indent}dynadiag_begin({line})" for line, (first, _, _) in places.items() if first == number]
        made.append(text)
        made += [f"{indent_of}dynadiag_end()" for _, last, indent_of in places.values() if last == number]
    return "\n".join(made) + "\n"


def _statements(source: str, lines: set[int]) -> Iterator[tuple[int, tuple[int, int, str]]]:
    """For each line: the first and last line of its simple statement, and the indentation."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr | ast.Assign):
            last = node.end_lineno or node.lineno
            for line in lines.intersection(range(node.lineno, last + 1)):
                yield line, (node.lineno, last, " " * node.col_offset)


def _load_module(source: str, file: Path) -> Any:
    file.write_text(source)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    open_marks: list[Any] = []

    def begin(line: int) -> None:
        open_marks.append(profiler_mark(f"{_MARK}{line}"))
        open_marks[-1].__enter__()

    def end() -> None:
        open_marks.pop().__exit__(None, None, None)

    module.__dict__.update(dynadiag_begin=begin, dynadiag_end=end)
    spec.loader.exec_module(module)
    return module


def _cache_flusher() -> Callable[[], Any]:
    return torch.empty(_FLUSH_BYTES, dtype=torch.int8, device="cuda").zero_


def _profile(run: Callable[[], None], count: int, flush: Callable[[], Any] | None) -> list[Any]:
    activities = [torch.profiler.ProfilerActivity.CPU]
    if flush is not None:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(count):
            if flush is not None:
                flush()
            run()
        if flush is not None:
            torch.cuda.synchronize()
    return list(profile.events())


def _times(events: Sequence[Any], count: int, *, on_gpu: bool) -> dict[int, CallTime]:
    marks = (event for event in events if event.name.startswith(_MARK))
    found = {}
    for line, runs in grouped((int(event.name.removeprefix(_MARK)), event) for event in marks).items():
        middle = statistics.median(event.device_time_total if on_gpu else event.cpu_time_total for event in runs)
        found[line] = CallTime(middle * 1e-6 * len(runs) / count, tuple(dict.fromkeys(_kernels(runs[0]))))
    return found


def _kernels(event: Any) -> Iterator[str]:
    for kernel in event.kernels:
        yield kernel.name
    for child in event.cpu_children:
        yield from _kernels(child)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), Path(sys.argv[2]).absolute())
