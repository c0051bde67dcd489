"""How fast the browser shows its first screen, what it holds in memory, and what a key press reads.

Recordings are made by repeating a real log, each copy with frame ids of its own, until the recording has the size that
was asked for. The time to the first screen is taken in a pseudo-terminal, in turn with an empty Textual app, so that
both meet the same machine.

    python benchmarks/browse.py --log LOG [--sizes 1,50] [--large] [--repeat 5]
"""

from __future__ import annotations

import _paths  # noqa: F401 - for what it does to sys.path

# isort: split

import argparse
import os
import pty
import re
import select
import statistics
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterable
from pathlib import Path

from dynadiag.recording.fold import fold

SIZES = (1, 50)
LARGE = 500
FRAME = re.compile(rb'"frame_id": ?(\d+)')
EMPTY = """
from textual.app import App
from textual.widgets import Static
class Empty(App):
    def compose(self):
        yield Static("ready for use")
Empty().run()
"""
# Drives every screen with the pilot, and counts the rows that each key press read and the time that the thread of the
# screen computed. That time does not grow with what else the machine does, as seconds do.
DRIVE = """
import asyncio, resource, sys, time
from pathlib import Path
from tui.app import Browser
from tui.session import Session

async def settle(pilot):
    quiet = 0
    while quiet < 5:
        await pilot.pause(0.005)
        quiet = 0 if pilot.app.busy else quiet + 1

async def main(path):
    with Session.open(path) as session:
        app = Browser(session)
        async with app.run_test(size=(160, 48)) as pilot:
            await settle(pilot)
            print("open", session.rows_read)
            for key in sys.argv[2].split():
                before, start = session.rows_read, time.thread_time()
                await pilot.press(key)
                await settle(pilot)
                print(key, session.rows_read - before, round(1000 * (time.thread_time() - start)))
    print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)

asyncio.run(main(Path(sys.argv[1])))
"""
KEYS = "2 j j l 3 j tab j right_square_bracket 4 j 5 j 6 j G 7 j G 8 9 tab j G k"
HEAD = ("recording", "empty s", "first s", "first/empty", "overview s", "peak MB", "rows", "95% ms", "slowest ms")
ROW = "{:<10} {:>9} {:>9} {:>11} {:>11} {:>11} {:>7} {:>7} {:>11}"


def repeated(log: bytes, copies: int, output: Path) -> None:
    """The log, over and over, as if the program had compiled other frames each time."""
    frames = 1 + max((int(found) for found in FRAME.findall(log)), default=0)
    with output.open("wb") as file:
        for copy in range(copies):
            shifted = FRAME.sub(lambda found, add=copy * frames: b'"frame_id": %d' % (int(found[1]) + add), log)
            file.write(shifted)


def recording_of(log: Path, megabytes: float, folder: Path) -> Path:
    """A recording of about this size."""
    data = log.read_bytes()
    once = folder / "once.dynadiag"
    if not once.exists():
        fold(log, once)
    copies = max(1, round(1 + (megabytes * 1e6 - once.stat().st_size) / _more_by_copy(data, once, folder)))
    made, many = folder / f"{megabytes:g}mb.dynadiag", folder / "many.log"
    repeated(data, copies, many)
    fold(many, made)
    many.unlink()
    return made


def _more_by_copy(data: bytes, once: Path, folder: Path) -> float:
    """Bytes of recording that each further copy makes."""
    few, log = folder / "few.dynadiag", folder / "few.log"
    repeated(data, 6, log)
    fold(log, few, force=True)
    size = few.stat().st_size
    few.unlink()
    log.unlink()
    return (size - once.stat().st_size) / 5


def first_screen(command: list[str], marks: Iterable[bytes]) -> list[float]:
    """Seconds until each of these texts was drawn."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (40, 120))
    start = time.perf_counter()
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
    seen, times = b"", []
    try:
        for mark in marks:
            while mark not in seen:
                if select.select([master], [], [], 60.0)[0]:
                    seen += os.read(master, 1 << 16)
                elif process.poll() is not None:
                    raise SystemExit(f"{command} ended early: {seen[-500:]!r}")
            times.append(time.perf_counter() - start)
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(slave)
    return times


def measure(path: Path, repeat: int) -> tuple[float, float, float]:
    """Median seconds: an empty app, the browser's first screen, its overview complete. In turn."""
    browse = [sys.executable, "-m", "dynadiag", "browse", str(path)]
    empty, first, full = [], [], []
    for _ in range(repeat):
        empty += first_screen([sys.executable, "-c", EMPTY], [b"ready for use"])
        one, two = first_screen(browse, [b"Overview", b"compiling"])
        first.append(one)
        full.append(two)
    return statistics.median(empty), statistics.median(first), statistics.median(full)


def drive(path: Path) -> tuple[int, list[tuple[str, int, float]]]:
    """Peak memory in MB, and for each key the rows that it read and the milliseconds that it computed."""
    ran = subprocess.run([sys.executable, "-c", DRIVE, str(path), KEYS], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SystemExit(ran.stderr)
    words = [line.split() for line in ran.stdout.splitlines()]
    presses = [(name, int(rows), float(seconds)) for name, rows, seconds in (w for w in words if len(w) == 3)]
    return int(words[-1][1]), presses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=Path, required=True, help="a real TORCH_TRACE log (`dynadiag export` makes one)")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="megabytes of recording")
    parser.add_argument("--large", action="store_true", help=f"{LARGE} MB too")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="keep the recordings here")
    args = parser.parse_args()
    sizes = [float(size) for size in args.sizes.split(",")] + ([LARGE] if args.large else [])
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or Path(scratch)
        print(ROW.format(*HEAD))
        for size in sizes:
            kept = folder / f"{size:g}mb.dynadiag"
            path = kept if kept.exists() else recording_of(args.log, size, folder)
            empty, first, full = measure(path, args.repeat)
            peak, presses = drive(path)
            rows, times = max(p[1] for p in presses), sorted(p[2] for p in presses)
            common, slowest = times[int(0.95 * (len(times) - 1))], times[-1]
            name = f"{path.stat().st_size / 1e6:.0f} MB"
            seconds = [f"{value:.2f}" for value in (empty, first, first / empty, full)]
            print(ROW.format(name, *seconds, peak, rows, f"{common:.0f}", f"{slowest:.0f}"), flush=True)
            print("    rows, ms a key:", " ".join(f"{key}:{count},{spent:.0f}" for key, count, spent in presses))


if __name__ == "__main__":
    main()
