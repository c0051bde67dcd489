"""Any command line: options in any order and number, files of any kind. No traceback, and no input is changed.

Programs and searches are not run: what would run them is replaced. All else is the command's own.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, NoReturn

import pytest

from dynadiag.__main__ import COMMANDS, command_parser, main
from dynadiag.capture import launch
from dynadiag.commands import bisect, bisect_releases, compare, fix, minify, run, triage_run
from dynadiag.commands.outputs import DOCUMENT, Kind, OutputOption
from dynadiag.errors import DynadiagError
from dynadiag.recording.journal import Journal
from tests.commands.build import journal, recording

# They install releases of torch, need a cluster, or compile and run what a recording holds.
LEFT_OUT = (
    "--torch",
    "--python",
    "--yes",
    "--index",
    "--prune",
    "--on",
    "--measure",
    "--stage",
    "--trust",
    "--assembly",
)
READ = ("--baseline", "--fixes", "--overlay", "--resume")
NUMBERS = ("0", "1", "3", "-1", "1e9", "nan", "x", "")
JUNK = (
    "",
    "-",
    "--",
    "none",
    "none/out",
    "a\nb",
    "\x1b[31m",
    "x" * 300,
    "GB0025",
    "GB99999",
    "0/0",
    "mod",
    "prog.py:f",
)


def lay_out(folder: Path) -> list[str]:
    """Files of every kind. Returns their names."""
    recording(folder / "run.dynadiag")
    recording(folder / "other.dynadiag", "g")
    journal(folder / "run.log")
    elsewhere = Journal.create(folder / "elsewhere.dynadiag")
    elsewhere.append({"dynadiag_run": {"target": "a.py", "host": "another", "pid": 1}})
    elsewhere.close()
    (folder / "job").mkdir()
    for rank in (0, 1):
        recording(folder / "job" / f"host-rank{rank}.dynadiag")
    (folder / "logs").mkdir()
    journal(folder / "logs" / "a_rank_0.log")
    (folder / "prog.py").write_text("def make(): return abs, (-1,)\n")
    (folder / "mod.py").write_text("print(1)\n")
    (folder / "text").write_text("mine\n")
    (folder / "empty").touch()
    (folder / "other.json").write_text('{"a": 1}')
    (folder / "ours.json").write_text('{"schema": 1, "dynadiag": "0.1.0"}')
    (folder / "dynadiag.toml").write_text("max-breaks = 1\n")
    (folder / "link").symlink_to("run.dynadiag")
    (folder / "dangling").symlink_to("nothing")
    (folder / "hard.py").hardlink_to(folder / "prog.py")
    os.mkfifo(folder / "pipe")
    return [*(str(path.relative_to(folder)) for path in folder.rglob("*")), ".", "/dev/null", "job/", "./run.dynadiag"]


def contents(folder: Path) -> dict[str, str]:
    """The hash of each plain file by its name, the kind of all else."""
    found = {}
    for path in folder.rglob("*"):
        mode = path.lstat().st_mode
        text = hashlib.blake2b(path.read_bytes()).hexdigest() if stat.S_ISREG(mode) else str(stat.S_IFMT(mode))
        found[str(path.relative_to(folder))] = text
    return found


class Lines:
    """Makes command lines."""

    def __init__(self, seed: int, names: Sequence[str]) -> None:
        self.random, self.names = Random(seed), names
        self.actions = {
            command: [
                action
                for action in command_parser(command)._actions
                if action.option_strings and not set(action.option_strings) & {*LEFT_OUT, "--help"}
            ]
            for command in COMMANDS
        }

    def word(self) -> str:
        return self.random.choice(self.names if self.random.random() < 0.8 else JUNK)

    def value(self, action: argparse.Action) -> str:
        if action.choices and self.random.random() < 0.9:
            return str(self.random.choice(list(action.choices)))
        return self.word() if self.random.random() < 0.7 else self.random.choice(NUMBERS)

    def option(self, action: argparse.Action) -> Iterator[str]:
        name = self.random.choice(action.option_strings)
        if action.nargs == 0:
            yield name
        elif self.random.random() < 0.2 and name.startswith("--"):
            yield f"{name}={self.value(action)}"
        else:
            yield from (name, self.value(action))

    def line(self) -> list[str]:
        command = self.random.choice(list(COMMANDS))
        actions = self.actions[command]
        outputs = [action for action in actions if isinstance(action, OutputOption)]
        chosen = self.random.choices(actions, k=self.random.randrange(4)) if actions else []
        chosen += self.random.choices(outputs, k=self.random.randrange(3)) if outputs else []
        parts = [list(self.option(action)) for action in chosen]
        parts += [["--force"]] * self.random.randrange(2)
        self.random.shuffle(parts)
        targets = [self.word() for _ in range(self.random.choice((0, 1, 1, 1, 2, 3)))]
        words = [word for part in parts for word in part]
        return [command, *words, *targets] if self.random.random() < 0.8 else [command, *targets, *words]


def outputs_of(line: Sequence[str]) -> dict[str, set[Kind | None]]:
    """The words of a command line that name outputs and nothing else, each with the kinds of its options."""
    actions = [each for each in command_parser(line[0])._actions if isinstance(each, OutputOption)]
    kinds = {name: action for action in actions for name in action.option_strings}
    named: dict[str, set[Kind | None]] = {}
    others, place = [], 1
    while place < len(line):
        name, equals, value = line[place].partition("=")
        if name in kinds and not equals and place + 1 < len(line):
            place, value = place + 1, line[place + 1]
        if name in kinds:
            named.setdefault(value, set()).add(kinds[name].kind)
        else:
            others.append(line[place])
        place += 1
    return {word: kinds for word, kinds in named.items() if word not in others}


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise DynadiagError("not run")

    monkeypatch.setattr(launch, "_run", lambda *_, **__: launch.ProcessEnd(3, 0.1, False))
    for module, name in (
        (bisect, "find_culprits_of"),
        (bisect, "_one_trial"),
        (bisect_releases, "run"),
        (minify, "reduce_to_repro"),
        (fix, "_find"),
        (compare, "compare"),
        (run, "launch_plain"),
        (triage_run.TriageRun, "run"),
    ):
        monkeypatch.setattr(module, name, refuse)
    with Path(os.devnull).open(encoding="utf-8") as silent:  # pytest's own stdin raises where `mcp` reads from it
        monkeypatch.setattr("sys.stdin", silent)
        yield


def fuzz(folder: Path, seed: int, count: int, capsys: pytest.CaptureFixture[str]) -> None:
    names = lay_out(folder)
    lines, before = Lines(seed, names), contents(folder)
    for number in range(count):
        line = lines.line()
        if any("pipe" in word for word in line) and any(word.startswith(READ) for word in line):
            continue  # a file that is read may be a pipe, which waits for its writer
        if any(word.removeprefix("--json=") == "pipe" for word in line):
            reader = os.open(folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)  # without one, --json waits, as a shell does
        else:
            reader = None
        try:
            code = main(line)
        except SystemExit as ended:  # --help, --version
            code = int(ended.code or 0)
        if reader is not None:
            os.close(reader)
        out, err = capsys.readouterr()
        shown = (number, line, code, err)
        assert "Traceback" not in out + err, shown
        assert code in (0, 1, 2, 3, 4, 5, 6), shown
        assert code != 2 or err.startswith("dynadiag: ") or "\ndynadiag: " in err, shown
        after = contents(folder)
        named = {os.path.normpath(word): kinds for word, kinds in outputs_of(line).items()}
        allowed_by_link = {"link": {"run.dynadiag"}, "dangling": {"nothing"}}  # a link stays, its file is written
        changed = {name for name, text in before.items() if after.get(name) != text}
        allowed = {word for word, kinds in named.items() if "--force" in line and kinds != {DOCUMENT}}
        allowed |= {word for word, kinds in named.items() if word == "ours.json" and DOCUMENT in kinds}
        allowed |= {word for word, kinds in named.items() if word == "empty" and kinds != {None}}
        for link, targets in allowed_by_link.items():
            allowed |= targets if link in allowed else set()
        allowed |= {"hard.py", "prog.py"} & allowed and {"hard.py", "prog.py"}
        assert changed <= allowed | {"nothing"}, shown
        if after != before:
            restore(folder)
            before = contents(folder)


def restore(folder: Path) -> None:
    """Remove everything, and lay it out anew."""
    import shutil

    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    lay_out(folder)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def test_some_command_lines(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fuzz(place, 0, 150, capsys)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_many_command_lines(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fuzz(place, int(os.environ.get("FUZZ_SEED", "1")), int(os.environ.get("FUZZ_CALLS", "5000")), capsys)
