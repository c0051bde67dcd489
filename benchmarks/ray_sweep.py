"""Commands here and on Ray, with 2 and 4 workers: do they answer the same, and what does a trial cost more?

    .venv/bin/pip install '.[ray]'
    .venv/bin/python benchmarks/ray_sweep.py [--workers 2 4] [--kill 4] -- check|bisect|minify [PROGRAM...]

The programs of `check` are ten of `samples/`, those of `bisect` and `minify` ten small ones of which eight fail only
compiled, at several rungs, unless some are named. Each way runs in a process of its own, with compiler caches of its
own. Compared are the problems of `check`, the verdict, rung and culprits of `bisect`, the exit code and the repro of
`minify`. With --kill N one of N workers is killed (SIGKILL) in each program, while it runs a task. Exit code 1 if a way
answers otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_SAMPLES = Path(__file__).resolve().parents[1] / "samples"
_TASKS = ("ray::_run_trial", "ray::_record")  # what Ray calls a process that runs a task of ours
_POLL = 0.05  # seconds between looks at the processes
_INTO_A_TASK = 2.0  # seconds that a task has run before its worker is killed: in the middle of a trial

_COMPARED = """
actual, expected = torch.compile(f)(*map(torch.clone, inputs)), f(*map(torch.clone, inputs))
torch.testing.assert_close(actual, expected)
"""
_FAULTY_RELU = """
import torch
import torch._inductor.config
torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = "{}"
f, inputs = lambda x: x.sin().relu().cos(), (torch.linspace(-1, 1, 8),)
"""
PROGRAMS = {
    "passes": "import torch\ntorch.compile(torch.sin)(torch.ones(4))\n",
    "fails_uncompiled": "import torch\ntorch.compile(lambda x: x @ x)(torch.ones(3, 4))\n",
    "unsupported": "import torch\ntorch.compile(lambda x: [x + 1, print(x)][0], fullgraph=True)(torch.ones(4))\n",
    "symbolic_pop": """
import torch
f = torch.compile(lambda x: [x, x + 1, x + 2].pop(x.shape[0] - 3) * 2, dynamic=True)
f(torch.ones(4, 3))
""",
    "overlapping_views": """
import torch
def f(x, view):
    x.add_(100)
    return view.view(-1)
base = torch.arange(24.0).reshape(4, 6)
copy = base.clone()
expected = f(copy, copy[1:])
torch.testing.assert_close(torch.compile(f)(base, base[1:]), expected)
""",
    "accepts_too_much": """
import torch
f = torch.compile(lambda x, index, source: torch.index_add(x, 0, index, source))
try:
    result = f(torch.zeros(3, 2), torch.tensor([0, 2]), torch.tensor([3.0, 4.0]))
except (RuntimeError, IndexError):
    result = None
assert result is None
""",
    "own_backend": """
import torch
def backend(module, inputs):
    if any(node.target is torch.relu for node in module.graph.nodes):
        raise NotImplementedError("no relu here")
    return module
torch.compile(lambda x: torch.relu(x.sin()) + 1, backend=backend)(torch.ones(4))
""",
    "kernel_does_not_compile": _FAULTY_RELU.format("compile_error") + "torch.compile(f)(*inputs)\n",
    "kernel_is_wrong": _FAULTY_RELU.format("accuracy") + _COMPARED,
    "wrong_pass": """
import torch
import torch._inductor.config
def swap(graph):
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.sub.Tensor):
        node.args = node.args[::-1]
torch._inductor.config.post_grad_custom_post_pass = swap
f, inputs = lambda x, y: (x - y).exp(), (torch.ones(8), torch.zeros(8))
"""
    + _COMPARED,
}


def main() -> int:
    """Run each way, print a row for it, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("check", "bisect", "minify"))
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--kill", type=int, nargs="+", default=[], help="kill a worker where there are so many")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    parser.add_argument("--way", type=int, help=argparse.SUPPRESS)  # the process of one way: workers, 0 without Ray
    args = parser.parse_args()
    if args.way is not None:
        return _run_way(args)
    with tempfile.TemporaryDirectory(prefix="dynadiag-ray-") as folder:
        programs = args.programs or _own_programs(args.command, Path(folder))
        return _compare(args, [str(Path(each).absolute()) for each in programs])


def _own_programs(command: str, folder: Path) -> list[str]:
    if command == "check":
        return [str(path) for path in sorted(_SAMPLES.glob("*.py"))[:10]]
    for name, text in PROGRAMS.items():
        (folder / f"{name}.py").write_text(text)
    return [str(folder / f"{name}.py") for name in PROGRAMS]


def _compare(args: argparse.Namespace, programs: Sequence[str]) -> int:
    here = _way(args, 0, programs)
    seconds, trials = _total(here)
    print(f"here       {seconds:6.1f} s, {trials} trials of {len(programs)} programs", flush=True)
    other = False
    for workers in args.workers:
        found = _way(args, workers, programs)
        took, count = _total(found)
        unlike = [name for name in here if found[name]["answer"] != here[name]["answer"]]
        for name in unlike:
            print(f"    {name}: here {here[name]['answer']}\n    on Ray: {found[name]['answer']}")
        answers = f"other answers of {', '.join(unlike)}" if unlike else "the same answers"
        more = took / max(count, 1) - seconds / max(trials, 1)
        killed = f", {sum(each['killed'] for each in found.values())} workers killed" if workers in args.kill else ""
        print(f"{workers} workers  {took:6.1f} s, {count} trials, {more:+.1f} s a trial: {answers}{killed}", flush=True)
        other |= bool(unlike)
    return int(other)


def _total(found: dict[str, dict[str, Any]]) -> tuple[float, int]:
    return sum(each["seconds"] for each in found.values()), sum(each["trials"] for each in found.values())


def _way(args: argparse.Namespace, workers: int, programs: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What each program of a way came to, from a process of its own."""
    with tempfile.TemporaryDirectory(prefix="dynadiag-ray-") as folder:
        command = [
            sys.executable,
            __file__,
            "--way",
            str(workers),
            "--kill",
            *map(str, [0, *args.kill]),
            "--",
            args.command,
            *programs,
        ]
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": f"{folder}/cache", "XDG_STATE_HOME": f"{folder}/state"}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        result = Path(folder, "way.json")
        if not result.exists():
            raise SystemExit(done.stderr)
        found: dict[str, dict[str, Any]] = json.loads(result.read_text())
        return found


def _run_way(args: argparse.Namespace) -> int:
    """Run the programs of one way in this process. All at once where the command takes several."""
    if args.way:
        import ray  # an extra, which the way without Ray does not need

        ray.init(num_cpus=args.way, log_to_driver=False, include_dashboard=False, _system_config={"worker_niceness": 0})
    groups = [args.programs] if args.command == "check" else [[each] for each in args.programs]
    found = {", ".join(Path(each).stem for each in group): _run(args, group) for group in groups}
    Path("way.json").write_text(json.dumps(found))
    return 0


def _run(args: argparse.Namespace, programs: Sequence[str]) -> dict[str, Any]:
    from dynadiag.__main__ import main as dynadiag  # only the process of a way needs it

    repro, document = Path("repro.py"), Path("document.json")
    words = [args.command, *["--on", "ray"] * bool(args.way), "--json", str(document)]
    words += ["-o", str(repro), "--force"] if args.command == "minify" else []
    repro.unlink(missing_ok=True)
    began = time.perf_counter()
    with _worker_killed(bool(args.way) and args.way in args.kill) as killed:
        code = dynadiag([*words, *programs])
    seconds, told = time.perf_counter() - began, json.loads(document.read_text())
    answers = {
        "check": lambda: told["problems"],
        "bisect": lambda: [told["verdict"], told["rung"], [(c["class"], c["name"]) for c in told["culprits"]]],
        "minify": lambda: [code, told["rung"], repro.read_text() if repro.exists() else ""],
    }
    answer, trials = answers[args.command](), told.get("trials", len(programs))
    return {"answer": answer, "seconds": seconds, "trials": trials, "killed": len(killed)}


@contextlib.contextmanager
def _worker_killed(kill: bool) -> Iterator[list[int]]:
    """Kill the first worker of Ray that runs a task of ours for some time. Yields the list of those killed."""
    killed: list[int] = []
    ended = threading.Event()

    def watch() -> None:
        seen: dict[int, float] = {}
        while not ended.wait(_POLL) and not killed:
            running = set(_workers_with_a_task())
            seen = {pid: seen.get(pid, time.monotonic()) for pid in running}
            for pid, since in seen.items():
                if time.monotonic() - since > _INTO_A_TASK and not killed:
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)

    watcher = threading.Thread(target=watch)
    if kill:
        watcher.start()
    try:
        yield killed
    finally:
        ended.set()
        if kill:
            watcher.join()


def _workers_with_a_task() -> Iterator[int]:
    """The workers of this process's own Ray: another's are in other sessions of processes."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):  # no process, or it has ended
            if (entry / "cmdline").read_bytes().decode(errors="replace").startswith(_TASKS) and _is_below_us(entry):
                yield int(entry.name)


def _is_below_us(entry: Path) -> bool:
    pid = int(entry.name)
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False


if __name__ == "__main__":
    sys.exit(main())
