"""No output is an input, and nothing but a plain file is replaced: tried with every option of every command.

The options are found from the parsers, so that a new one is in the table by itself.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import resource
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import dynadiag.commands
from dynadiag.__main__ import COMMANDS, command_parser, main
from dynadiag.commands.outputs import DOCUMENT, INPUT_OPTIONS, PAGE, SARIF, OutputOption
from tests.commands.build import journal, recording

pytestmark = pytest.mark.timeout(120)

# What a command needs beside the option that is tried. {} is the folder with the inputs.
LINES: dict[str, list[str]] = {
    "explain": ["{}/run.dynadiag"],
    "record": ["{}/prog.py"],
    "bisect": ["{}/prog.py"],
    "minify": ["{}/prog.py"],
    "triage": ["{}/prog.py"],
    "fix": ["{}/prog.py"],
    "compare": ["{}/prog.py:make"],
    "caches": ["{}/run.dynadiag"],
    "values": ["{}/run.dynadiag"],
    "check": ["--baseline", "{}/none.json", "--update", "{}/run.dynadiag"],
    "diff": ["{}/run.dynadiag", "{}/other.dynadiag"],
    "kernels": ["{}/run.dynadiag"],
    "graph": ["{}/run.dynadiag"],
    "import": ["{}/run.log"],
    "export": ["{}/run.dynadiag"],
    "pack": ["{}/job"],
    "report": ["{}/run.dynadiag"],
    "doctor": [],
    "prune": [],
}
# The input that is also named as output.
INPUT = {"diff": "other.dynadiag", "import": "run.log", "pack": "job/host-rank0.dynadiag"}
RUNS_A_SEARCH = ("bisect", "minify", "triage", "fix", "compare")  # they take long once the outputs are accepted


def options() -> Iterator[tuple[str, OutputOption]]:
    for command in COMMANDS:
        for action in command_parser(command)._actions:
            if isinstance(action, OutputOption):
                yield command, action


TABLE = [pytest.param(command, action, id=f"{command} {action.option_strings[-1]}") for command, action in options()]
FILES = [each for each in TABLE if not each.values[1].folder]  # type: ignore[union-attr]  # an OutputOption


@pytest.fixture(scope="module")
def made_inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "job").mkdir()
    for name in ("run", "other", "job/host-rank0", "job/host-rank1"):
        recording(folder / f"{name}.dynadiag")
    journal(folder / "run.log")
    (folder / "prog.py").write_text("def make(): return abs, (-1,)\nprint('ran')\n")
    return folder


@pytest.fixture(autouse=True)
def inputs(made_inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(made_inputs, tmp_path / "in")


def contents(folder: Path) -> dict[str, str]:
    """The hash of each file, the target of each link, the kind of all else."""
    found = {}
    for path in sorted(folder.rglob("*")):
        kind = stat.S_IFMT(path.lstat().st_mode)
        if path.is_symlink():
            found[str(path)] = str(path.readlink())
        else:
            found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else str(kind)
    return found


def call(command: str, option: str, output: Path | str, folder: Path, *, force: bool) -> int | None:
    """Run a command with an option that names an output. None if the command has no ``--force`` to try it with."""
    if force and "--force" not in command_parser(command).format_help():
        return None
    words = [word.format(folder) for word in LINES[command]]
    if option == "--output" and command in ("explain", "caches", "values"):
        words = [f"{folder}/run.log"]  # of a recording they make no other
    if option == "--baseline":
        words = words[3:] if command == "check" else words
        words.insert(0, "--update")
    return main([command, option, str(output), *["--force"] * force, *words])


def refused(code: int | None, capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    if code is None:
        return ""
    assert code == 2, err
    assert err.startswith("dynadiag: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert "ran" not in out.split()
    return err


@pytest.mark.parametrize("words", [["check", "in/prog.py"], ["fix", "in/prog.py:make"], ["explain", "in/run.log"]])
def test_the_cure_for_a_state_folder_that_cannot_be_made_holds_for_each_command(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`check` has no `-o`, and `fix -o` names the patch."""
    (tmp_path / "state").touch()
    said = refused(main(words), capsys)
    assert "set XDG_STATE_HOME to a folder that can be written" in said
    assert "-o" not in said.split()


@pytest.mark.parametrize("force", [False, True], ids=["", "--force"])
@pytest.mark.parametrize("via", ["itself", "link", "hard link", "other name"])
@pytest.mark.parametrize(("command", "action"), FILES)
def test_an_input(
    command: str, action: OutputOption, via: str, force: bool, inputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = inputs / INPUT.get(command, Path(LINES[command][-1]).name.partition(":")[0] if LINES[command] else "")
    if not LINES[command]:
        pytest.skip("it has no input")
    if action.dest == "output" and command in ("explain", "caches", "values"):
        target = inputs / "run.log"
    output = target
    if via == "link":
        (output := inputs / "link").symlink_to(target)
    elif via == "hard link":
        (output := inputs / "link").hardlink_to(target)
    elif via == "other name":
        output = inputs / "job" / ".." / target.relative_to(inputs)
    before = contents(inputs)
    refused(call(command, action.option_strings[-1], output, inputs, force=force), capsys)
    assert contents(inputs) == before


@pytest.mark.parametrize("force", [False, True], ids=["", "--force"])
@pytest.mark.parametrize("kind", ["device", "pipe"])
@pytest.mark.parametrize(("command", "action"), TABLE)
def test_what_is_no_plain_file(
    command: str,
    action: OutputOption,
    kind: str,
    force: bool,
    inputs: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if action.kind is DOCUMENT and (kind == "pipe" or command in RUNS_A_SEARCH):
        pytest.skip("it is written to, as by a shell: test_json_to_a_device")
    special = tmp_path / "special"
    if kind == "pipe":
        os.mkfifo(special)
    elif os.geteuid() == 0:
        os.mknod(special, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    else:
        special = Path(os.devnull)
    mode = special.stat().st_mode
    code = call(command, action.option_strings[-1], special, inputs, force=force)
    if action.kind is DOCUMENT:
        assert code in (0, 1, None)
    else:
        assert "--force" not in refused(code, capsys)
    assert special.stat().st_mode == mode


@pytest.mark.parametrize("force", [False, True], ids=["", "--force"])
@pytest.mark.parametrize(("command", "action"), FILES)
def test_a_folder(
    command: str, action: OutputOption, force: bool, inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder").mkdir()
    if command == "record":
        pytest.skip("it takes a folder")
    refused(call(command, action.option_strings[-1], tmp_path / "folder", inputs, force=force), capsys)
    assert not list((tmp_path / "folder").iterdir())


@pytest.mark.parametrize("force", [False, True], ids=["", "--force"])
@pytest.mark.parametrize(("command", "action"), TABLE)
def test_a_file_of_another_kind(
    command: str, action: OutputOption, force: bool, inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only ``--force`` replaces it, and for ``--json`` not even that."""
    output = tmp_path / "mine"
    output.write_text("mine")
    output.chmod(0o640)
    replaced = force and not action.folder and (action.kind is None or action.kind.forcible)
    if replaced and (command in RUNS_A_SEARCH or action.dest == "baseline"):
        pytest.skip("it takes long, or reads what it replaces")
    code = call(command, action.option_strings[-1], output, inputs, force=force)
    if not replaced:
        refused(code, capsys)
        assert output.read_text() == "mine"
    elif code is not None:
        assert code in (0, 1)
        assert output.read_bytes() != b"mine"
        assert stat.S_IMODE(output.stat().st_mode) == 0o640


@pytest.mark.parametrize("force", [False, True], ids=["", "--force"])
@pytest.mark.parametrize(("command", "action"), TABLE)
def test_no_permission(
    command: str, action: OutputOption, force: bool, inputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not even root may make a file there."""
    before = contents(inputs)
    refused(call(command, action.option_strings[-1], "/proc/out", inputs, force=force), capsys)
    assert contents(inputs) == before


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process can grow, which is how a full disk fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("force", [False, True], ids=["", "--force"])
@pytest.mark.parametrize(
    ("command", "action"), [each for each in FILES if each.values[0] not in (*RUNS_A_SEARCH, "record")]
)
def test_a_full_disk(
    command: str, action: OutputOption, force: bool, inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The old file stays as it is, and nothing is left beside it."""
    output = tmp_path / "out"
    if force and action.kind is None:
        output.write_text("mine")
    before = contents(inputs), sorted(tmp_path.iterdir())
    with full_disk():
        code = call(command, action.option_strings[-1], output, inputs, force=force)
    if code is not None:
        assert code == 2, capsys.readouterr().err
        assert (contents(inputs), sorted({*tmp_path.iterdir()} - {tmp_path / "state"})) == before
        assert not output.exists() or output.read_text() == "mine"


def test_every_option_with_a_path_is_an_input_or_an_output() -> None:
    """A new option that is neither would not be held to the rules."""
    for command in COMMANDS:
        for action in command_parser(command)._actions:
            is_path = action.type is Path or str(action.metavar).startswith(("FILE", "FOLDER"))
            if action.option_strings and is_path and not isinstance(action, OutputOption):
                assert set(action.option_strings) & INPUT_OPTIONS, (command, action.option_strings)


def test_commands_write_through_one_module() -> None:
    """No other module of the package opens a file for writing, but in a temporary folder of its own."""
    own_folders = {
        "ray_sweep.py": {"open"},  # the task of Ray, in a temporary folder on its machine
        "triage.py": {"open", "write_text"},  # the program, in a temporary folder; `os.open` reads there
    }
    writers = {"write_text", "write_bytes", "open", "atomic_write", "rename", "replace_file", "copyfile", "touch"}
    for path in Path(dynadiag.commands.__path__[0]).glob("*.py"):
        if path.name in ("outputs.py",):
            continue
        used = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                reads = name == "open" and any(isinstance(a, ast.Constant) and a.value == "rb" for a in node.args)
                if name in writers and not reads:
                    used.add(name)
        allowed = own_folders.get(path.name, {"open"} if path.name == "report.py" else set())
        assert used <= allowed, path.name


def test_two_outputs_have_two_files(inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (
        ["check", "--json", "out", "--sarif", "out", "in/run.dynadiag"],
        ["check", "--sarif", "out", "--html", "./in/../out", "in/run.dynadiag"],
        ["explain", "--json", "out", "-o", "out", "in/run.log"],
        ["export", "-o", "out", "--perfetto", "out", "in/run.dynadiag"],
        ["minify", "--issue", "out", "-o", "out", "in/prog.py"],
        ["fix", "--recording", "out", "-o", "out", "in/prog.py"],
    )
    for line in lines:
        assert "names the same file" in refused(main(line), capsys)
        assert not (tmp_path / "out").exists()


def test_derived_names_are_held_to_the_rules(inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An import of several logs, a triage in the folder of its program, a recording of a packed job."""
    logs = tmp_path / "logs"
    logs.mkdir()
    for rank in (0, 1):
        journal(logs / f"a_rank_{rank}.log")
    (logs / "x-rank0.log").hardlink_to(logs / "a_rank_0.log")
    (logs / "x-rank0.log").rename(tmp_path / "x-rank0.log")
    before = contents(logs)
    assert "is an input" in refused(main(["import", "--force", "-o", "x.log", "logs"]), capsys)
    assert contents(logs) == before
    (tmp_path / "case").mkdir()
    (tmp_path / "case" / "repro.py").write_text("raise SystemExit(1)")
    assert "is not what a triage wrote" in refused(main(["triage", "--force", "-o", "case", "case/repro.py"]), capsys)
    assert [path.name for path in (tmp_path / "case").iterdir()] == ["repro.py"]
    assert main(["pack", "-o", "job.dynadiag", "in/job"]) == 0
    packed = "job.dynadiag/host-rank0.dynadiag"
    before = contents(tmp_path)
    capsys.readouterr()
    refused(main(["export", "--force", "-o", "job.dynadiag", packed]), capsys)
    assert contents(tmp_path) == before


def test_an_earlier_result_is_replaced(inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the same option wrote before, and an empty file, which has nothing to lose."""
    for option, kind, name in (("--json", DOCUMENT, "j"), ("--sarif", SARIF, "s"), ("--html", PAGE, "h")):
        (tmp_path / name).touch()
        for _ in range(2):
            assert main(["check", option, name, "in/run.dynadiag"]) in (0, 1), capsys.readouterr().err
        assert kind.is_ours((tmp_path / name).read_bytes())
    (tmp_path / "j").write_text('{"schema": 1, "dynadiag": "0.1.0", "old": 1}')
    assert main(["explain", "--json", "j", "in/run.dynadiag"]) == 0
    assert "old" not in json.loads((tmp_path / "j").read_text())
    for other in ("[]", '{"schema": 1}', "{", '{"dynadiag": "x"}'):
        (tmp_path / "j").write_text(other)
        refused(main(["explain", "--json", "j", "in/run.dynadiag"]), capsys) if capsys.readouterr() else None
        assert (tmp_path / "j").read_text() == other


def test_a_link_stays_and_its_file_is_written(inputs: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    assert main(["graph", "-o", "link", "in/run.dynadiag"]) == 0
    assert (tmp_path / "link").readlink() == Path("file")
    assert (tmp_path / "file").stat().st_size > 0


def test_a_loop_of_links(inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "program.py").write_text("print(1)\n")
    for words in (["graph", "-o", "loop", "in/run.dynadiag"], ["bisect", "--resume", "loop", "program.py"]):
        assert main(words) == 2
        assert capsys.readouterr().err.startswith("dynadiag: ")
    assert (tmp_path / "loop").is_symlink()


def test_the_configuration_is_an_input(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dynadiag.toml").write_text("max-breaks = 3\n")
    for option in ("--sarif", "--html"):
        refused(main(["check", "--force", option, "dynadiag.toml", "in/run.dynadiag"]), capsys)
    assert (tmp_path / "dynadiag.toml").read_text() == "max-breaks = 3\n"


Rewrite = Callable[[str], list[str]]
MODULES: dict[str, Rewrite] = {
    "-m": lambda name: ["explain", "--force", "-o", f"{name}.py", "-m", name],
    "check -m": lambda name: ["check", "--force", "--html", f"{name}.py", "-m", name],
}


@pytest.mark.parametrize("form", MODULES)
def test_a_module_is_an_input(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "module_of_mine.py").write_text("print(1)\n")
    refused(main(MODULES[form]("module_of_mine")), capsys)
    assert (tmp_path / "module_of_mine.py").read_text() == "print(1)\n"


def test_the_document_of_a_comparison_is_an_input_where_its_folder_is_one(
    inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "compared"
    folder.mkdir()
    document = folder / "compare.json"
    document.write_text('{"schema": 1, "dynadiag": "0"}')
    before = document.read_bytes()
    shutil.copy(inputs / "run.dynadiag", folder)
    assert main(["explain", "--json", str(document), str(folder)]) == 2
    assert "is an input" in capsys.readouterr().err
    assert document.read_bytes() == before


def test_parsers_are_all_there() -> None:
    assert {command for command, _ in options()} <= LINES.keys()
    assert all(isinstance(command_parser(command), argparse.ArgumentParser) for command in COMMANDS)
