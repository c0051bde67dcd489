"""How fast the browser shows its first screen, what it holds in memory, and what a key press reads.

Recordings are made by repeating a real log, each copy with frame ids of its own, until the recording has the size that
was asked for. The time to the first screen is taken in a pseudo-terminal, in turn with an empty Textual app, so that
both meet the same machine; beside the seconds stands the time that the process computed, which other processes hardly
change. Modules of both are compiled to bytecode before, as an installed package has them.

Keys are held against a bare Textual app in the same harness, also in turn: its first key mounts a table of 40 rows with
a text beside it, its others move the cursor and set that text.

    python benchmarks/browse.py --log LOG [--sizes 1,50] [--large] [--repeat 5]
"""

from __future__ import annotations

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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
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
# Sends keys, and counts the rows that each read and the time that the thread of the screen computed. That time does not
# grow with what else the machine does, as seconds do. (Textual's pilot would send each widget a message with each key.)
# The first key is pressed once the browser has filled its other screens: that takes seconds, and nobody waits for it.
# Nor does anybody wait for Kernels, which reads the code of all compiles while its next keys are pressed; what it reads
# is counted with no key.
HARNESS = """
import asyncio, resource, sys, time
from pathlib import Path

async def settle(app):
    quiet = 0
    while quiet < 5:
        await asyncio.sleep(0.01)
        quiet = 0 if waits(app) else quiet + 1

async def drive(app, rows):
    async with app.run_test(size=(160, 48)):
        await settle(app)
        print("open", rows())
        start = time.perf_counter()
        while not getattr(app, "filled", True):
            await asyncio.sleep(0.01)
        print("filled", time.perf_counter() - start)
        for key in sys.argv[2].split():
            before, start = rows(), time.thread_time()
            app.simulate_key(key)
            await settle(app)
            spent = round(1000 * (time.thread_time() - start))
            print(key, 0 if getattr(app, "busy", False) else rows() - before, spent)
    print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""
DRIVE = f"""{HARNESS}
from tests.tui.conftest import counting
from tui.app import Browser
from tui.session import Session

def waits(app):
    return app.busy and {{group for each in app._views.values() for group in each._pending}} != {{"costs"}}

with Session.open(Path(sys.argv[1])) as session:
    counter = counting(session)
    asyncio.run(drive(Browser(session, ahead=True), lambda: counter.rows_read))
"""
BARE = f"""{HARNESS}
from textual.app import App
from textual.containers import Horizontal
from textual.widgets import DataTable, Static

class Bare(App):
    BINDINGS = [("2", "open")]
    def compose(self):
        yield Static("1 Overview  2 Table")
        yield Horizontal(id="views")
    async def action_open(self):
        for old in self.query(DataTable):
            old.parent.display = False
        table, text = DataTable(cursor_type="row"), Static("")
        table.add_columns("compile", "pass", "calls", "bytes", "where", "name")
        for row in range(40):
            table.add_row("0/0", "forward", str(row), f"{{1000 * row:,}}", f"train.py:{{row}}", f"kernel_of_{{row}}")
        await self.query_one("#views").mount(Horizontal(table, text))
        table.focus()
    def on_data_table_row_highlighted(self, event):
        lines = (f"line {{n}} of row {{event.cursor_row}}" for n in range(40))
        event.data_table.parent.query_one(Static).update("\\n".join(lines))

def waits(app):
    return False

asyncio.run(drive(Bare(), lambda: 0))
"""
KEYS = "2 j j l 3 j tab j right_square_bracket 4 j 5 j 6 j G 7 j G 8 9 tab j G k"
OPENING = "23456789"  # keys that open a screen
BARE_KEYS = "2 down down 2 down down 2 down down"
HEAD = ("recording", "empty s", "first s", "ratio", "CPU ratio", "complete s", "peak MB", "rows")
ROW = "{:<10} {:>9} {:>9} {:>7} {:>11} {:>11} {:>9} {:>7}"


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


def first_screen(command: list[str], marks: Iterable[bytes]) -> list[tuple[float, float]]:
    """Seconds until each of these texts was drawn, and of those that the process computed."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (40, 120))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, env=environment
    )
    seen, times = b"", []
    try:
        for mark in marks:
            while mark not in seen:
                if select.select([master], [], [], 60.0)[0]:
                    seen += os.read(master, 1 << 16)
                elif process.poll() is not None:
                    raise SystemExit(f"{command} ended early: {seen[-500:]!r}")
            times.append((time.perf_counter() - start, computed(process.pid)))
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(slave)
    return times


def computed(pid: int) -> float:
    """Seconds that a process has computed so far."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


@dataclass
class Start:
    """Median seconds to the first screen: of an empty app and of the browser, and what each computed meanwhile."""

    empty: float
    first: float
    empty_cpu: float
    first_cpu: float
    complete: float


def measure(path: Path, repeat: int) -> Start:
    """Start an empty app and the browser in turn, once more than counted: that compiles the modules."""
    browse = [sys.executable, "-m", "dynadiag", "browse", str(path)]
    rounds = []
    for _ in range(repeat + 1):
        ((empty, empty_cpu),) = first_screen([sys.executable, "-c", EMPTY], [b"ready for use"])
        (first, first_cpu), (complete, _) = first_screen(browse, [b"Overview", b"compiling"])
        rounds.append((empty, first, empty_cpu, first_cpu, complete))
    return Start(*(statistics.median(values) for values in zip(*rounds[1:], strict=True)))


def drive(program: str, path: Path, keys: str) -> tuple[int, float, list[tuple[str, int, float]]]:
    """Peak memory in MB, seconds until all screens were filled, and what each key cost: rows read, ms computed."""
    ran = subprocess.run([sys.executable, "-c", program, str(path), keys], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SystemExit(ran.stderr)
    words = [line.split() for line in ran.stdout.splitlines()]
    presses = [(name, int(rows), float(seconds)) for name, rows, seconds in (w for w in words if len(w) == 3)]
    filled = next(float(word[1]) for word in words if word[0] == "filled")
    return int(words[-1][1]), filled, presses


@dataclass
class Presses:
    """What keys cost: the milliseconds of each in every round, of the browser and of the bare app."""

    peak: int
    filled: float  # seconds from the complete first screen until the other screens were filled
    rows: int
    browser: list[list[tuple[str, float]]]
    bare: list[list[tuple[str, float]]]


def press(path: Path, repeat: int) -> Presses:
    """Drive the browser and the bare app in turn."""
    browser, bare, peak, filled, rows = [], [], 0, 0.0, 0
    for _ in range(repeat):
        peak, filled, presses = drive(DRIVE, path, KEYS)
        rows = max(read for _, read, _ in presses)
        browser.append([(key, spent) for key, _, spent in presses])
        bare.append([(key, spent) for key, _, spent in drive(BARE, path, BARE_KEYS)[2]])
    return Presses(peak, filled, rows, browser, bare)


def told(presses: Presses) -> Iterator[str]:
    """Lines on the keys: the median of each, and those that open a screen and the others beside the bare app's."""
    medians = [(one[0][0], statistics.median(spent for _, spent in one)) for one in zip(*presses.browser, strict=True)]
    yield f"    all screens filled {presses.filled:.1f} s after the first one was complete"
    yield "    ms a key: " + " ".join(f"{key}:{spent:.0f}" for key, spent in medians)
    for what, opens in (("opens a screen", True), ("on a screen", False)):
        ours = [spent for one in presses.browser for key, spent in one if (key in OPENING) == opens]
        theirs = [spent for one in presses.bare for key, spent in one if (key in OPENING) == opens]
        ratio = statistics.median(ours) / statistics.median(theirs)
        yield f"    {what}: {_spread(ours)}; the bare app {_spread(theirs)}; {ratio:.2f} times by the median"
    yield f"    all keys: {_spread([spent for one in presses.browser for _, spent in one])}"


def _spread(values: list[float]) -> str:
    return f"median {statistics.median(values):.0f} ms, 95% {sorted(values)[int(0.95 * (len(values) - 1))]:.0f} ms"


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
            start, presses = measure(path, args.repeat), press(path, args.repeat)
            seconds = (start.empty, start.first, start.first / start.empty, start.first_cpu / start.empty_cpu)
            shown = [f"{value:.2f}" for value in (*seconds, start.complete)]
            name = f"{path.stat().st_size / 1e6:.0f} MB"
            print(ROW.format(name, *shown, presses.peak, presses.rows), *told(presses), sep="\n", flush=True)


if __name__ == "__main__":
    main()
