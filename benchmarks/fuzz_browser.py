"""Presses random keys in the browser over recordings, in a real terminal that is resized on the way.

Each recording, or folder of them, is copied, and the copies name a program that does not exist: no key can run it.
Where the browser ends with an error, the keys before it are printed.

    python benchmarks/fuzz_browser.py RECORDING... [--keys 10000] [--seed 0]
"""

from __future__ import annotations

import argparse
import re
import shutil
import sqlite3
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path

from tests.tui.test_fuzz_terminal import walk


def harmless_copy(recording: Path, folder: Path) -> Path:
    """Copy a recording, or a folder of them, and let each name a program that does not exist."""
    copy = folder / recording.name
    if recording.is_dir():
        shutil.copytree(recording, copy)
    else:
        shutil.copy(recording, copy)
    for path in copy.rglob("*.dynadiag") if copy.is_dir() else [copy]:
        if not (data := path.read_bytes()).startswith(b"SQLite"):  # a journal
            path.write_bytes(re.sub(rb'("cwd": ?)"[^"]*"', rb'\1"/nowhere"', data, count=1))
        with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(path)) as database, database:  # it may be damaged
            database.execute("UPDATE run SET cwd = '/nowhere'")
    return copy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", nargs="+", type=Path)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for recording in args.recordings:
        with tempfile.TemporaryDirectory() as folder:
            start = time.monotonic()
            started = walk(harmless_copy(recording, Path(folder)), args.seed, args.keys)
            took = time.monotonic() - start
            print(f"{recording.name}: {args.keys:,} keys, browser started {started} times, {took:.0f} s", flush=True)


if __name__ == "__main__":
    main()
