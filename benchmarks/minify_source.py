"""Compare the reducer of source with general reducers: the same programs, the same predicate, the same budget, in turn.

    pip install 'dynadiag[bench]'                     # shrinkray and picire
    python benchmarks/minify_source.py program.py other_program.py ...
    python benchmarks/minify_source.py --budget 2 program.py ...    # the others have twice the CPU time of ours

The predicate is the one of `minify`: it passes uncompiled and fails in the same way, tried in forks that have torch
loaded. Another reducer asks it over a socket, by a script, one candidate at a time. Its result is the smallest program
that it asked about and that fails. Its budget is the CPU time that ours took to its own end, trials included: a busy
machine does not change that. A tool that has not ended by itself then is stopped, so its calls alone say little. So
the calls are also compared at one size: those after which ours was as small as the other's result. Exits with 1 if ours
leaves more tokens than another.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from source_predicate import failing_program

from dynadiag.minify.source_trials import SourceTrials
from minifier.source import count_tokens, reduce_source

_CLIENT = """#!{python} -IS
import socket, sys
text = open(sys.argv[1], "rb").read() if len(sys.argv) > 1 else sys.stdin.buffer.read()
with socket.socket(socket.AF_UNIX) as channel:
    channel.connect({address!r})
    channel.sendall(text)
    channel.shutdown(socket.SHUT_WR)
    sys.exit(channel.recv(1) != b"1")
"""
_SLICE = 0.5  # seconds that the server waits before it looks at the clock
OURS = "dynadiag"


@dataclass
class Count:
    """Calls of the predicate, and the tokens of the smallest program that fails."""

    fails: Callable[[str], bool]
    calls: int = 0
    best: int = 0
    known: dict[str, bool] = field(default_factory=dict)
    steps: list[tuple[int, int]] = field(default_factory=list)  # the calls after which it was as small

    def __call__(self, text: str) -> bool:
        if text in self.known:  # a question asked again costs no trial, whoever asks
            return self.known[text]
        self.calls += 1
        failed = self.known[text] = self.fails(text)
        if failed and count_tokens(text) < self.best:
            self.best = count_tokens(text)
            self.steps.append((self.calls, self.best))
        return failed


@dataclass(frozen=True)
class Score:
    tokens: int
    calls: int
    seconds: float
    cpu: float
    done: bool
    steps: tuple[tuple[int, int], ...]

    def calls_to(self, tokens: int) -> int:
        """The number of calls until the program was that small. All calls, if it never was."""
        return next((calls for calls, best in self.steps if best <= tokens), self.calls)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", type=Path)
    parser.add_argument("--budget", type=float, default=1.0, help="CPU time of another tool, as a multiple of ours")
    parser.add_argument("--trial", type=float, default=60.0, help="seconds of one trial")
    parser.add_argument("--tools", nargs="*", default=["shrinkray", "picire"], choices=["shrinkray", "picire"])
    options = parser.parse_args()
    scores: dict[str, list[Score]] = {}
    for path in options.programs:
        with failing_program(path, options.trial) as trials:
            print(f"{path.name}: {count_tokens(trials.whole_text)} tokens", flush=True)
            for tool in (OURS, *options.tools):
                # Small programs have shortened these, and each tool begins with the whole one.
                trials.runner.limits, trials.fastest = trials.search.runner.limits, math.inf
                score = ours(trials) if tool == OURS else theirs(tool, trials, options.budget * scores[OURS][-1].cpu)
                scores.setdefault(tool, []).append(score)
                end = "done" if score.done else "stopped"
                as_small = f", ours as small after {scores[OURS][-1].calls_to(score.tokens)}" if tool != OURS else ""
                print(
                    f"    {tool:10} {score.tokens:5} tokens {score.calls:5} calls {score.seconds:6.0f} s, "
                    f"{score.cpu:6.0f} s of CPU, {end}{as_small}",
                    flush=True,
                )
    for tool in options.tools:
        pairs = list(zip(scores[OURS], scores[tool], strict=True))
        tokens = statistics.median(our.tokens / their.tokens for our, their in pairs)
        calls = statistics.median(our.calls / max(1, their.calls) for our, their in pairs)
        same = statistics.median(our.calls_to(their.tokens) / max(1, their.calls) for our, their in pairs)
        cpu = statistics.median(our.cpu / their.cpu for our, their in pairs)
        print(
            f"against {tool}, median of {len(pairs)}: {tokens:.2f} of its tokens, {calls:.2f} of its calls, "
            f"{cpu:.2f} of its CPU time; as small as its result after {same:.3f} of its calls"
        )
    more = any(o.tokens > t.tokens for tool in options.tools for o, t in zip(scores[OURS], scores[tool], strict=True))
    return 1 if more else 0


def ours(trials: SourceTrials) -> Score:
    """The reduction by `reduce_source`, to its end."""
    count = Count(trials.fails, best=count_tokens(trials.whole_text))
    began, cpu = time.monotonic(), cpu_seconds(trials)
    reduced = reduce_source(trials.whole_text, count, observe=trials.observe)
    taken, spent = time.monotonic() - began, cpu_seconds(trials) - cpu
    return Score(count_tokens(reduced.text), count.calls, taken, spent, reduced.minimal, tuple(count.steps))


def theirs(tool: str, trials: SourceTrials, budget: float) -> Score:
    """The reduction by another program, which asks this process. ``budget`` is in seconds of CPU time."""
    count = Count(trials.fails, best=count_tokens(trials.whole_text))
    with tempfile.TemporaryDirectory() as place, socket.socket(socket.AF_UNIX) as server:
        folder = Path(place)
        server.bind(str(folder / "predicate"))
        server.listen()
        server.settimeout(_SLICE)
        script, program = folder / "ask", folder / "program.py"
        script.write_text(_CLIENT.format(python=sys.executable, address=str(folder / "predicate")))
        script.chmod(0o700)
        program.write_text(trials.whole_text)
        began, cpu = time.monotonic(), cpu_seconds(trials)
        process = subprocess.Popen(
            command(tool, script, program),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(folder / "errors").open("wb"),
            start_new_session=True,
        )
        done = answer(server, process, count, lambda: cpu_seconds(trials, process) - cpu > budget)
        taken = time.monotonic() - began
        if not count.calls:
            raise SystemExit(f"{tool} asked nothing: {(folder / 'errors').read_text()[-500:]}")
        return Score(count.best, count.calls, taken, cpu_seconds(trials) - cpu, done, tuple(count.steps))


def command(tool: str, script: Path, program: Path) -> list[str]:
    """How the tool is run, with one test at a time."""
    executable = shutil.which(tool, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if executable is None:
        raise SystemExit(f"{tool} is neither beside this Python nor on PATH")
    if tool == "picire":
        return [executable, "-i", str(program), "--test", str(script), "--cache", "content", "-o", f"{program}.out"]
    told = subprocess.run([executable, "--help"], capture_output=True, text=True).stdout
    plain = ["--ui", "basic"] if re.search(r"--ui\b", told) else []
    return [executable, *plain, "--parallelism", "1", "--timeout", "0", str(script), str(program)]


def answer(server: socket.socket, process: subprocess.Popen[bytes], count: Count, is_over: Callable[[], bool]) -> bool:
    """Answer the tool's questions until it ends, or its budget is over. Returns whether it has ended by itself."""
    while process.poll() is None and not is_over():
        try:
            channel, _ = server.accept()
        except TimeoutError:
            continue
        with channel:
            channel.settimeout(None)
            data = b"".join(iter(lambda channel=channel: channel.recv(1 << 16), b""))
            try:
                text = data.decode()
                compile(text, "candidate", "exec")
                failed = count(text)
            except (UnicodeDecodeError, SyntaxError, ValueError):  # no trial: it is no Python
                count.calls += 1
                failed = False
            channel.sendall(b"1" if failed else b"0")
    ended = process.poll() is not None
    if not ended:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return ended


def cpu_seconds(trials: SourceTrials, tool: subprocess.Popen[bytes] | None = None) -> float:
    """CPU time so far: of this process, of the tools that have ended, of one that runs, and of the trials."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    server = trials.runner._zygote
    assert server is not None
    running = [server.leader, *([tool.pid] if tool is not None else [])]
    return time.process_time() + children.ru_utime + children.ru_stime + sum(map(_cpu_of_process, running))


def _cpu_of_process(pid: int) -> float:
    """CPU time of a process and of its children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # utime, stime, cutime, cstime


if __name__ == "__main__":
    sys.exit(main())
