"""Tasks in the browser: the keys of each, the seconds from the start of its process, and whether the answer is there.

    python benchmarks/browser_tasks.py FOLDER      # that of `browser_recordings.py`

A text that is typed counts as one key. A key is pressed as soon as what the last one led to is drawn, so the seconds
are those of the program and not of a person. Exit code 1 if an answer is not there, or takes more than five keys.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

MOST_KEYS = 5  # of a task
DRIVE = """
import asyncio, sys, time
from pathlib import Path
started, path, folder, answer, *keys = sys.argv[1:]
from tests.tui.conftest import screen, settle
from tui.app import Browser
from tui.session import open_recordings

async def main():
    opened = open_recordings([Path(path)])
    with opened.session as session:
        app = Browser(session, opened.paths, opened.rank, folder=Path(folder))
        async with app.run_test(size=(120, 40), notifications=True) as pilot:
            await settle(pilot)
            for key in keys:
                for one in key.removeprefix("text:") if key.startswith("text:") else [key]:
                    await pilot.press(one)
                await settle(pilot)
            limit = time.monotonic() + 60
            while answer not in screen(pilot) and time.monotonic() < limit:
                await pilot.pause(0.02)
            found = answer in screen(pilot)
            print(f"{time.time() - float(started):.2f}", "yes" if found else "NO")
            if not found:
                print(screen(pilot), file=sys.stderr)

asyncio.run(main())
"""


@dataclass(frozen=True, slots=True)
class Task:
    """What a person wants to know, the recording that has it, the keys, and a text of the answer."""

    question: str
    recording: str
    keys: str  # separated by blanks; a text that is typed begins with "text:"
    answer: str


TASKS = (
    Task("the break of thirty that costs most, and its fix", "thirty_breaks.dynadiag", "", "help: Where both sides"),
    Task("the same in the source", "thirty_breaks.dynadiag", "enter enter", "⚠ GB0170"),
    Task("why a C++ compile failed", "fails_in_cpp.dynadiag", "", "not_a_function"),
    Task("the code generated from a line", "transformer.dynadiag", "3 enter enter enter", "float tmp_acc0 = 0"),
    Task("its machine code", "transformer.dynadiag", "3 a y", "asm of "),
    Task("a node with its neighbours, drawn", "transformer.dynadiag", "3 tab v", "┌"),
    Task(
        "which value changed at the 7th recompile",
        "twelve_recompiles.dynadiag",
        "5 / text:0/7 enter",
        "0/7: x.size()[0] was 7, now 9",
    ),
    Task("the guards that failed, first", "twelve_recompiles.dynadiag", "6", "mode ↻"),
    Task("the kernel that moves most", "transformer.dynadiag", "", "Kernels, those that move most"),
    Task("what is at fault in a wrong result", "bisect.dynadiag", "", "lowering relu"),
    Task("the value at which a wrong kernel diverges", "bisect.dynadiag", "", "first stored value that diverges"),
    Task("what the id of a break means", "thirty_breaks.dynadiag", "question_mark", "GB0170  "),
    Task("every place that holds a text", "transformer.dynadiag", "0 text:gelu enter", "all searched"),
    Task(
        "what differs from another run",
        "thirty_breaks.dynadiag",
        "C f text:twelve enter enter",
        "◆",
    ),
    Task("which of eight ranks differs, and where", "ranks", "", "1 time on rank 5, not on ranks 0-4, 6-7"),
    Task("whether compiling pays, in which mode", "compare", "", "against eager"),
    Task("assembly of a line in the second of three compiles", "two_layers.dynadiag", "5 enter a y", "asm of cpp_"),
    Task("the same in the third", "two_layers.dynadiag", "5 enter J a y", "compile 1/2 · run_two_layers.py:17"),
    Task("the same in the first", "two_layers.dynadiag", "5 enter K a y", "compile 1/0 · run_two_layers.py:17"),
    Task("which layer's product moves most", "two_layers.dynadiag", "7 f text:addmm enter", "h.0.mlp.c_fc"),
    Task("the module of a node", "two_layers.dynadiag", "3 tab k", "of     lm_head"),
    Task("where that node is in the library", "two_layers.dynadiag", "3 tab k", "─ modeling_gpt2.py"),
    Task("why two kernels were not one", "transformer.dynadiag", "7 f text:cpp_fused_add enter", "not fused with"),
    Task("what a line that calls a model became", "two_layers.dynadiag", "3 k", "nodes made by this call"),
    Task("the slowest compile, and its slowest part", "two_layers.dynadiag", "j enter", "step"),
    Task("all recompiles on one time line", "two_layers.dynadiag", "2 v f text:recompile enter", "recompile  scale"),
    Task("a burst of keys", "two_layers.dynadiag", "7 text:faddmm enter", "addmm #3"),
    Task("the first NaN, and what made it", "values_nan.dynadiag", "", "log of -"),
    Task("which layer overflows in fp16", "values_half.dynadiag", "enter", "mul overflows float16"),
    Task("when two runs part", "values_nan.dynadiag", "C f text:rate enter enter", "in forward, call 1"),
    Task("what a kernel gets wrong", "values_wrong.dynadiag", "j enter V", "0.125"),
    Task("which rank's input differs", "values_ranks", "C enter", "mask (placeholder) comes"),
    Task("every use of an operator, by line", "two_layers.dynadiag", "0 text:addmm enter", "pytorch_utils.py:119"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder.resolve()
    failed = False
    for task in TASKS:
        keys = task.keys.split()
        path = folder / task.recording
        command = [sys.executable, "-c", DRIVE, str(time.time()), str(path), str(folder), task.answer, *keys]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds, found = (ran.stdout.split() or ["-", "NO"])[:2]
        failed = failed or found != "yes" or len(keys) > MOST_KEYS
        print(f"{task.question:<50} {task.keys.replace('text:', ''):<32} {len(keys)} keys {seconds:>6} s  {found}")
        sys.stdout.write(ran.stderr if found != "yes" else "")
    sys.exit(failed)


if __name__ == "__main__":
    main()
