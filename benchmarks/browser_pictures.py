"""Draws screens of the browser over recordings, to be looked at: an SVG file, or the text, for each.

    python benchmarks/browser_pictures.py OUT RECORDING... [--keys 1,2,3] [--sizes 80x24,200x60] [--themes dark,light]
        [--text]

Each entry of --keys is what is pressed from the first screen on, separated by blanks: `3 tab v`. A recording may be a
folder of them. `browser_recordings.py` makes those on which the browser is judged.

    python benchmarks/browser_pictures.py docs/screens FOLDER --docs     # those of the pages, from its recordings

`dynadiag kernels --measure FOLDER/transformer.dynadiag` gives the kernels their times before.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import tempfile
from pathlib import Path

from tests.tui.conftest import browsing, settle
from tests.tui.test_diff_screen import compare, two_recordings
from tui.app import Browser
from tui.colors import THEMES
from tui.session import open_recordings

SCREENS = ("1", "2", "3", "4", "5", "6", "7", "8", "9", "0")
SIZES = ("80x24", "120x40", "200x60")
# The pictures of the pages: the recording, the keys and the size. That of two runs is of the tests' recordings.
DOCS = {
    "browse-overview": ("thirty_breaks.dynadiag", "", "120x36"),
    "browse-failed": ("fails_in_cpp.dynadiag", "2", "120x36"),
    "browse-kernels": ("transformer.dynadiag", "7", "120x36"),
    "browse-code": ("transformer.dynadiag", "3 tab", "140x36"),
    "browse-picture": ("transformer.dynadiag", "3 tab v", "120x40"),
    "browse-stages": ("gpu.dynadiag", "3 a y", "200x42"),
    "browse-search": ("transformer.dynadiag", "0 g e l u enter", "120x36"),
    "browse-ranks": ("ranks", "", "110x28"),
    "browse-values": ("values_wrong.dynadiag", "j enter V", "120x36"),
    "browse-trials": ("bisect.dynadiag", "8", "120x36"),
}


async def drawn(path: Path, keys: str, size: str, theme: str, *, text: bool) -> str:
    """The screen after these keys."""
    width, height = map(int, size.split("x"))
    opened = open_recordings([path])
    with opened.session as session, tempfile.TemporaryDirectory() as folder:
        app = Browser(session, opened.paths, opened.rank, folder=Path(folder))
        async with app.run_test(size=(width, height), notifications=True) as pilot:
            await settle(pilot)
            for key in ["t"] * THEMES.index(theme) + keys.split():
                await pilot.press(key)
                await settle(pilot)
            while not all(command.finished for command in app.commands._tasks):
                await settle(pilot)
            await pilot.pause(0.5)  # what a command said last is shown soon after
            app.clear_notifications()
            await settle(pilot)
            return app._drawn(svg=not text)


async def drawn_diff() -> str:
    """Two runs side by side."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with browsing(two_recordings(folder), (110, 22), folder=folder) as pilot:
            await compare(pilot, "before", "+ w = z.neg()")
            pilot.app.clear_notifications()
            await settle(pilot)
            return pilot.app.export_screenshot()


def draw_docs(out: Path, folder: Path) -> None:
    """Draw the pictures of the pages, with the settings of nobody."""
    with tempfile.TemporaryDirectory() as settings:
        os.environ["XDG_CONFIG_HOME"] = settings
        for name, (recording, keys, size) in DOCS.items():
            picture = asyncio.run(drawn(folder / recording, keys, size, "dark", text=False))
            (out / f"{name}.svg").write_text(picture)
            print(f"{name}.svg", flush=True)
        (out / "browse-diff.svg").write_text(asyncio.run(drawn_diff()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("recordings", nargs="+", type=Path)
    parser.add_argument("--keys", default=",".join(SCREENS))
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--themes", default="dark,light")
    parser.add_argument("--text", action="store_true")
    parser.add_argument("--docs", action="store_true", help="draw the pictures of the pages")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.docs:
        draw_docs(args.out, args.recordings[0])
        return
    suffix = "txt" if args.text else "svg"
    with tempfile.TemporaryDirectory() as settings:
        os.environ["XDG_CONFIG_HOME"] = settings  # the theme that a key chooses is remembered there
        for path in args.recordings:
            for keys in args.keys.split(","):
                for size in args.sizes.split(","):
                    for theme in args.themes.split(","):
                        Path(settings, "dynadiag", "browser.json").unlink(missing_ok=True)
                        name = re.sub(r"[^\w-]+", "_", f"{path.stem}-{keys}-{size}-{theme}")
                        picture = asyncio.run(drawn(path, keys, size, theme, text=args.text))
                        (args.out / f"{name}.{suffix}").write_text(picture)
                        print(f"{name}.{suffix}", flush=True)


if __name__ == "__main__":
    main()
