"""Compare the reducer of source with general reducers: the same programs, the same predicate, the same budget, in turn.

    pip install 'dynadiag[bench]'                     # shrinkray and picire
    python benchmarks/minify_source.py --seconds 300 program.py other_program.py ...
    python benchmarks/minify_source.py --calls 5 program.py ...    # the others ask at most five times as often as ours

The predicate is the one of `minify`: it passes uncompiled and fails in the same way, tried in forks that have torch
loaded. Another reducer asks it over a socket, by a script, one candidate at a time. Its result is the smallest program
that it asked about and that fails; a tool that is still running after `--seconds`, or after `--calls`, is stopped.
Exits with 1 if ours leaves more tokens than another.
"""

from __future__ import annotations

import _paths  # noqa: F401 - for what it does to sys.path

# isort: split

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

    def __call__(self, text: str) -> bool:
        if text in self.known:  # a question asked again costs no trial, whoever asks
            return self.known[text]
        self.calls += 1
        failed = self.known[text] = self.fails(text)
        if failed:
            self.best = min(self.best, count_tokens(text))
        return failed


@dataclass(frozen=True)
class Score:
    tokens: int
    calls: int
    seconds: float
    cpu: float
    done: bool


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", type=Path)
    parser.add_argument("--seconds", type=float, default=300.0, help="for each tool and program")
    parser.add_argument("--calls", type=float, default=math.inf, help="of another tool, for one of ours")
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
                if tool == OURS:
                    score = ours(trials, options.seconds)
                else:
                    most = options.calls * scores[OURS][-1].calls
                    score = theirs(tool, trials, options.seconds, most)
                scores.setdefault(tool, []).append(score)
                end = "done" if score.done else "stopped"
                print(
                    f"    {tool:10} {score.tokens:5} tokens {score.calls:5} calls {score.seconds:6.0f} s, "
                    f"{score.cpu:6.0f} s of CPU, {end}",
                    flush=True,
                )
    for tool in options.tools:
        pairs = list(zip(scores[OURS], scores[tool], strict=True))
        tokens = statistics.median(our.tokens / their.tokens for our, their in pairs)
        calls = statistics.median(our.calls / max(1, their.calls) for our, their in pairs)
        cpu = statistics.median(our.cpu / their.cpu for our, their in pairs)
        print(
            f"against {tool}, median of {len(pairs)}: {tokens:.2f} of its tokens, {calls:.2f} of its calls, "
            f"{cpu:.2f} of its CPU time"
        )
    more = any(o.tokens > t.tokens for tool in options.tools for o, t in zip(scores[OURS], scores[tool], strict=True))
    return 1 if more else 0


def ours(trials: SourceTrials, seconds: float) -> Score:
    """The reduction by `reduce_source`."""
    count = Count(trials.fails, best=count_tokens(trials.whole_text))
    began, cpu, until = time.monotonic(), cpu_seconds(trials), time.monotonic() + seconds
    reduced = reduce_source(trials.whole_text, count, observe=trials.observe, stop=lambda: time.monotonic() > until)
    count.best = count_tokens(reduced.text)
    return Score(count.best, count.calls, time.monotonic() - began, cpu_seconds(trials) - cpu, reduced.minimal)


def theirs(tool: str, trials: SourceTrials, seconds: float, most: float) -> Score:
    """The reduction by another program, which asks this process at most ``most`` times."""
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
        done = answer(server, process, count, began + seconds, most)
        taken = time.monotonic() - began
        if not count.calls:
            raise SystemExit(f"{tool} asked nothing: {(folder / 'errors').read_text()[-500:]}")
        return Score(count.best, count.calls, taken, cpu_seconds(trials) - cpu, done)


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


def answer(server: socket.socket, process: subprocess.Popen[bytes], count: Count, until: float, most: float) -> bool:
    """Answer the tool's questions until it ends, or its time or its calls are over. Returns whether it has ended by
    itself.
    """
    while process.poll() is None and time.monotonic() < until and count.calls < most:
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


def cpu_seconds(trials: SourceTrials) -> float:
    """CPU time so far: of this process, of the tools that have ended, and of the trials."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    server = trials.runner._zygote
    assert server is not None
    fields = Path(f"/proc/{server.leader}/stat").read_text().rpartition(")")[2].split()
    trial = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # utime, stime, cutime, cstime
    return time.process_time() + children.ru_utime + children.ru_stime + trial


if __name__ == "__main__":
    sys.exit(main())
