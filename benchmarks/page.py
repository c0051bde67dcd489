"""The page of `report` in a browser: its size and first paint against tlparse's output of the same log, and axe-core.

    python benchmarks/page.py RECORDING [--megabytes 5,200] [--tlparse PATH] [--axe PATH] [--repeat 5]

RECORDING is a real one; recordings of other sizes are made by repeating its log. Both pages are loaded in turn in
Chromium (`apt-get install chromium chromium-driver`), the first paint is the browser's own figure. "stages" is the time
from the click that opens the stages of the first compile until its texts stand side by side.

tlparse is a program of its own (`pip install tlparse`). axe-core is not part of this repository: it is 640 kB that
only this command needs. `npm pack axe-core` has it, and --axe names its `axe.min.js`. With it each section is opened
in light and dark, and the command fails where axe-core finds something serious or critical.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from browse import recording_of

from dynadiag.commands.report import write_report
from dynadiag.recording.opening import open_recording
from tests.webdriver import CHROMIUM, DRIVER, Browser

PAINT = """
const painted = () => performance.getEntriesByType("paint").find((each) => each.name === "first-contentful-paint");
while (!painted()) await new Promise((next) => setTimeout(next, 20));
return painted().startTime;
"""
STAGES = """
const stages = document.querySelector("details[data-stages]");
if (!stages) return null;
for (let each = stages; each; each = each.parentElement) if (each.tagName === "DETAILS") each.open = true;
const start = performance.now();
await openStages(stages);
return performance.now() - start;
"""
# Every kind of section is opened once: two thousand compiles have one markup.
OPEN = """
for (const article of document.querySelectorAll("article")) {
  const compile = article.querySelector("details.compile");
  for (const each of article.querySelectorAll("details")) if (!each.closest(".compile")) each.open = true;
  for (const each of compile ? [compile, ...compile.querySelectorAll("details")] : []) each.open = true;
  for (const each of article.querySelectorAll("details.compile[open] details.stages")) await openStages(each);
  for (const each of article.querySelectorAll("details[data-flame]")) await openFlame(each);
}
"""
AXE = """axe.run(document, {resultTypes: ["violations"]}).then((found) => JSON.stringify(found.violations.map(
  (each) => [each.impact, each.id, each.nodes.length, each.nodes[0].html.slice(0, 120)])))"""
HEAD = (
    "recording",
    "MB",
    "page MB",
    "written s",
    "CPU s",
    "paint ms",
    "stages ms",
    "tlparse MB",
    "paint ms",
    "paint ratio",
)
ROW = "{:<14} {:>7} {:>8} {:>10} {:>7} {:>9} {:>10} {:>11} {:>9} {:>12}"


def first_paints(browser: Browser, pages: list[Path], repeat: int) -> list[float]:
    """The median of each page's first paint in milliseconds, loaded in turn."""
    found: list[list[float]] = [[] for _ in pages]
    for _ in range(repeat):
        for page, times in zip(pages, found, strict=True):
            browser.load(page.as_uri())
            times.append(browser.run(PAINT))
    return [statistics.median(times) for times in found]


def tlparse_output(tlparse: str, recording: Path, folder: Path) -> Path:
    """The folder that tlparse makes of the recording's log."""
    log, output = folder / "log", folder / f"{recording.stem}-tlparse"
    with open_recording(recording) as opened, log.open("wb") as file:
        file.writelines(opened.raw())
    subprocess.run(
        [tlparse, str(log), "-o", str(output), "--no-browser", "--overwrite"], check=True, capture_output=True
    )
    return output


def cpu_seconds() -> float:
    """What this process and those that it waited for computed: it does not grow with what else the machine does."""
    return sum(os.times()[:4])


def measure(recording: Path, tlparse: str | None, repeat: int, folder: Path) -> None:
    """Print the row of a recording."""
    page = folder / f"{recording.stem}.html"
    start, before = time.perf_counter(), cpu_seconds()
    write_report([recording], page)
    written, spent = time.perf_counter() - start, cpu_seconds() - before
    pages, other = [page], None
    if tlparse is not None:
        other = tlparse_output(tlparse, recording, folder)
        pages.append(other / "index.html")
    with Browser() as browser:
        paints = first_paints(browser, pages, repeat)
        browser.load(page.as_uri())
        stages = browser.run(STAGES)
    size = sum(file.stat().st_size for file in other.rglob("*") if file.is_file()) / 1e6 if other else 0.0
    told = [f"{size:.1f}", f"{paints[1]:.0f}", f"{paints[0] / paints[1]:.2f}"] if other else ["-", "-", "-"]
    megabytes = (f"{file.stat().st_size / 1e6:.1f}" for file in (recording, page))
    shown = "-" if stages is None else f"{stages:.0f}"
    seconds = (f"{each:.1f}" for each in (written, spent))
    print(ROW.format(recording.stem[:14], *megabytes, *seconds, f"{paints[0]:.0f}", shown, *told), flush=True)


def audit(pages: list[Path], axe: Path) -> int:
    """Print what axe-core finds, and return how much of it is serious or critical."""
    serious = 0
    for page in pages:
        for dark in (False, True):
            with Browser(dark=dark) as browser:
                browser.load(page.as_uri())
                browser.run(OPEN)
                browser.evaluate(axe.read_text())
                found = json.loads(browser.evaluate(AXE))
                logged = browser.log()
            print(f"{page.stem}, {'dark' if dark else 'light'}: {len(found)} kinds of findings, {len(logged)} messages")
            for impact, name, count, example in found:
                print(f"  {impact}: {name}, {count} times, first {example}")
                serious += impact in ("serious", "critical")
    return serious


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path, nargs="+", metavar="RECORDING")
    parser.add_argument("--megabytes", default="", help="also recordings of these sizes, made of the first one")
    parser.add_argument("--tlparse", help="the program tlparse")
    parser.add_argument("--axe", type=Path, help="axe-core's axe.min.js")
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    if not (CHROMIUM and DRIVER):
        raise SystemExit("no Chromium and driver here: apt-get install chromium chromium-driver")
    with tempfile.TemporaryDirectory(prefix="dynadiag-page-") as name:
        folder = Path(name)
        if args.axe is not None:
            both = folder / "all.html"
            write_report(args.recordings, both, compare=len(args.recordings) > 1)
            return int(audit([both], args.axe) > 0)
        log = folder / "first.log"
        with open_recording(args.recordings[0]) as opened, log.open("wb") as file:
            file.writelines(opened.raw())
        sizes = [float(each) for each in args.megabytes.split(",") if each]
        print(ROW.format(*HEAD))
        for recording in [*args.recordings, *(recording_of(log, size, folder) for size in sizes)]:
            measure(recording, args.tlparse, args.repeat, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
