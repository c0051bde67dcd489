"""dynadiag from Python: record a block, explain a call, open what was recorded."""

from __future__ import annotations

import io
import json
import pkgutil
import runpy
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch

import dynadiag
from dynadiag.explanation.findings import Finding
from dynadiag.explanation.rules import Rule
from dynadiag.fixes.fix_report import FixDocument, FixReport
from dynadiag.recording.opening import is_journal
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Span
from dynadiag.tables import _columns, _flat


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def broken(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    torch._dynamo.graph_break()
    return y * x.shape[0]


def whole(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def compiled(fn=broken, **options):  # type: ignore[no-untyped-def]
    return torch.compile(fn, backend="eager", **options)


def test_what_is_compiled_in_the_block_is_recorded(tmp_path: Path) -> None:
    before = compiled(whole)
    before(torch.ones(2))
    with dynadiag.record(tmp_path / "run.dynadiag") as path:
        compiled()(torch.ones(3))
    before(torch.ones(3))
    with dynadiag.open(path) as recording:
        assert isinstance(recording, Recording)
        (found,) = recording.breaks()
        assert found.span.line == broken.__code__.co_firstlineno + 2
        assert found.span.file == __file__
        assert {item.function for item in recording.compiles()} == {"broken"}
        assert (recording.run.exit_code, recording.run.complete, recording.run.torch) == (0, True, torch.__version__)
        assert recording.source(__file__) == Path(__file__).read_text()


def test_an_exception_in_the_block_goes_on_and_the_recording_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "run.dynadiag"

    def block() -> None:
        with dynadiag.record(path):
            compiled()(torch.ones(3))
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        block()
    with dynadiag.open(path) as recording:
        assert recording.run.exit_code == 1
        assert len(recording.breaks()) == 1


def test_threads_are_recorded_too(tmp_path: Path) -> None:
    with dynadiag.record(tmp_path / "run.dynadiag") as path:
        thread = threading.Thread(target=lambda: compiled()(torch.ones(3)))
        thread.start()
        thread.join()
    with dynadiag.open(path) as recording:
        assert len(recording.breaks()) == 1


def test_code_without_a_file_is_recorded(tmp_path: Path) -> None:
    scope = {"torch": torch}
    exec("def cell(x):\n    torch._dynamo.graph_break()\n    return x + 1\n", scope)
    with dynadiag.record(tmp_path / "run.dynadiag") as path:
        compiled(scope["cell"])(torch.ones(3))
    with dynadiag.open(path) as recording:
        places = {(found.span.file, found.span.line, found.span.column) for found in recording.breaks()}
        assert places == {("<string>", 2, None)}  # torch 2.11 breaks there twice


def test_a_second_recording_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    with dynadiag.record(tmp_path / "run.dynadiag") as path:
        with pytest.raises(dynadiag.DynadiagError, match="already"), dynadiag.record(tmp_path / "other.dynadiag"):
            pass
        with pytest.raises(dynadiag.DynadiagError, match="outside of record"):
            dynadiag.explain(broken, torch.ones(2))
        compiled()(torch.ones(3))
    assert not (tmp_path / "other.dynadiag").exists()
    with dynadiag.open(path) as recording:
        assert len(recording.breaks()) == 1
    with dynadiag.record(tmp_path / "next.dynadiag"):
        pass


def test_an_existing_file_is_refused_without_force(tmp_path: Path) -> None:
    path = tmp_path / "run.dynadiag"
    path.write_text("mine")
    with pytest.raises(dynadiag.DynadiagError, match="force"), dynadiag.record(path):
        pass
    assert path.read_text() == "mine"
    with dynadiag.record(path, force=True):
        compiled()(torch.ones(3))
    with dynadiag.open(path) as recording:
        assert recording.breaks()


def test_a_missing_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(dynadiag.DynadiagError, match="none"), dynadiag.record(tmp_path / "none" / "run.dynadiag"):
        pass


def test_a_working_directory_that_is_gone_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(dynadiag.DynadiagError, match="working directory is gone"), dynadiag.record("run.dynadiag"):
        pass
    with pytest.raises(dynadiag.DynadiagError, match="working directory is gone"):
        dynadiag.open("run.dynadiag")


def test_without_source_no_line_of_it_is_recorded(tmp_path: Path) -> None:
    with dynadiag.record(tmp_path / "run.dynadiag", source=False) as path:
        compiled()(torch.ones(3))
    with dynadiag.open(path) as recording:
        assert recording.source(__file__) is None
        assert b"x.shape[0]" not in b"".join(recording.raw())


def test_a_call_is_explained() -> None:
    report = dynadiag.explain(broken, torch.ones(3))
    assert (report.break_count, report.graph_count, report.run.exit_code) == (1, 2, 0)
    assert report.run.target == "broken"
    assert "torch._dynamo.graph_break()" in str(report)
    document = json.loads(report.to_json())
    assert document["break_count"] == 1
    assert document["torch"] == torch.__version__


def test_a_call_of_a_module_and_of_what_is_compiled_already() -> None:
    module = torch.nn.Linear(3, 3)
    assert dynadiag.explain(torch.compile(module, backend="eager"), torch.ones(2, 3)).graph_count == 1
    fn = compiled(whole)
    assert dynadiag.explain(fn, torch.ones(2)).graph_count == 1
    again = dynadiag.explain(fn, torch.ones(2))
    assert again.graph_count == 0
    assert any("compiled before" in note for note in again.notes)


def test_a_call_that_raises_is_explained() -> None:
    def bad(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        raise ValueError("no good")

    report = dynadiag.explain(compiled(bad), torch.ones(2))
    assert report.run.exit_code == 1
    assert any("ValueError: no good" in note for note in report.notes)
    assert report.break_count >= 1


def test_the_result_and_the_state_of_torch_are_not_touched(tmp_path: Path) -> None:
    config = {**torch._dynamo.config.get_config_copy()}
    state = torch.random.get_rng_state()
    with dynadiag.record(tmp_path / "run.dynadiag"):
        found = compiled()(torch.arange(3.0))
    assert torch.equal(found, broken(torch.arange(3.0)))
    assert {**torch._dynamo.config.get_config_copy()} == config
    assert torch.equal(torch.random.get_rng_state(), state)


def test_opening_loads_no_torch() -> None:
    check = "import dynadiag, sys; dynadiag.open; dynadiag.record; assert not {'torch', 'tui'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)


def test_the_public_names_are_these() -> None:
    names = {"DynadiagError", "UnreadableInput", "__version__", "bisect", "explain", "fix", "open", "record"}
    names |= {"values", "warm", "watch"}
    assert set(dynadiag.__all__) == names == set(dir(dynadiag))
    assert all(getattr(dynadiag, name) is not None for name in names)


def test_no_package_has_the_name_of_a_public_function() -> None:
    """`import dynadiag.NAME` would put the package where the function is looked up."""
    packages = {module.name for module in pkgutil.iter_modules(dynadiag.__path__)}
    assert not packages & set(dynadiag.__all__)


def test_an_opened_recording_has_a_report_and_tables(tmp_path: Path) -> None:
    with dynadiag.record(tmp_path / "run.dynadiag") as path:
        step = compiled()
        step(torch.ones(3))
        step(torch.ones(4))
    with dynadiag.open(path) as recording:
        report = recording.report()
        assert f"next: dynadiag browse {path}" in str(report)
        assert "<strong>" in report._repr_html_()
        assert "<p>4 graphs, 1 graph break, 2 recompiles, 4 compiles, 0 kernels</p>" in report._repr_html_()
        assert [item.rule for item in recording.findings] == [item.rule for item in report.findings]
        assert recording.breaks() == tuple(recording.breaks)
        assert recording.breaks[0].span.line == broken.__code__.co_firstlineno + 2
        assert {item.compile_id for item in recording.recompiles} == {"0/1", "1/1"}
        assert [item.compile_id for item in recording.recompiles("0/1")] == ["0/1"]
        assert [recording.breaks("9/9"), recording.kernels("0/0")] == [(), ()]
        assert all("1/1" in item.compile_ids for item in recording.findings("1/1"))
        assert "x.size()[0] was 3, now 4" in repr(recording.recompiles)
        assert len(recording.kernels) == 0
        assert repr(recording.kernels) == "no rows"
        assert "test_api.py" in repr(recording.breaks)


def test_a_table_becomes_a_data_frame(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    with dynadiag.record(tmp_path / "run.dynadiag") as path:
        compiled()(torch.ones(3))
    with dynadiag.open(path) as recording:
        frame = recording.breaks.to_pandas()
        assert (frame["file"][0], frame["line"][0]) == (__file__, recording.breaks[0].span.line)
        assert list(recording.findings.to_pandas()["rule"]) == ["break"]
        assert list(recording.sql("SELECT 1 AS one, 2 AS two").to_pandas().columns) == ["one", "two"]
        assert list(recording.sql("SELECT 1 AS one WHERE 0").to_pandas().columns) == ["one"]
        empty = recording.recompiles.to_pandas()  # a script that selects columns works on a run without any
        assert (len(empty), list(empty["compile_id"])) == (0, [])


def test_the_columns_of_a_row_do_not_depend_on_its_values() -> None:
    place, entry = Span("library.py", 3), Span("mine.py", 7)
    finding = Finding(Rule.BREAK, None, "identity", "warning", place, "f", "title", entry=entry)
    for item, line in ((finding, 7), (replace(finding, entry=None), None)):
        row = _flat(item)
        assert (row["file"], row["line"], row.get("entry_line")) == ("library.py", 3, line)
        assert set(row) <= set(_columns(Finding))


def test_a_recording_that_is_closed_has_a_repr(tmp_path: Path) -> None:
    with dynadiag.record(tmp_path / "run.dynadiag") as path:
        pass
    with dynadiag.open(path) as recording:
        pass
    assert repr(recording) == f"<recording {path}: closed while it was read>"


def test_a_journal_that_is_gone_is_not_named_as_what_was_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with dynadiag.record(tmp_path / "run.dynadiag") as path:
        path.unlink()
    assert f"{path} is not a whole recording; {path} is gone: " in capsys.readouterr().err


def test_a_report_without_a_recording_names_no_command_that_cannot_be_run() -> None:
    assert "next:" not in str(dynadiag.explain(lambda: None))


def test_nothing_to_fix_is_said_so() -> None:
    document = FixDocument(
        torch=None, target="f", folder="", fixes=(), patch=None, evidence=None, trials=1, seconds=1.0
    )
    assert str(FixReport(document, "")) == "there is nothing to fix: no graph break and no recompile\n"


def test_a_table_shows_foreign_text_as_text(tmp_path: Path) -> None:
    with dynadiag.record(tmp_path / "run.dynadiag") as path:
        pass
    with dynadiag.open(path) as recording:
        table = recording.sql("SELECT '<script>' || char(27) || '[31m' AS text, NULL AS none")
        assert "<script>" not in table._repr_html_()
        assert "\x1b" not in repr(table) + table._repr_html_()


def test_sql_reads_and_does_nothing_else(tmp_path: Path) -> None:
    with dynadiag.record(tmp_path / "run.dynadiag") as path:
        compiled()(torch.ones(3))
    before = path.read_bytes()
    with dynadiag.open(path) as recording:
        (row,) = recording.sql("SELECT function, line FROM compile WHERE compile_id = ?", "0/0")
        assert (row.function, row.line) == ("broken", broken.__code__.co_firstlineno)
        for query in ("DELETE FROM compile", f"ATTACH '{tmp_path / 'other'}' AS other", "PRAGMA query_only = OFF"):
            with pytest.raises(dynadiag.DynadiagError, match="only a SELECT"):
                recording.sql(query)
        with pytest.raises(dynadiag.DynadiagError, match="of type NoneType"):
            recording.sql(None)  # type: ignore[arg-type]
        with pytest.raises(dynadiag.DynadiagError, match="no such column"):
            recording.sql("SELECT absent FROM compile")
        assert recording.compiles()  # it goes on as before
    assert path.read_bytes() == before
    assert not (tmp_path / "other").exists()


def test_a_query_without_end_is_ended(tmp_path: Path) -> None:
    from dynadiag.recording.sql import run_query

    with dynadiag.record(tmp_path / "run.dynadiag") as path:
        pass
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    with dynadiag.open(path) as recording, pytest.raises(dynadiag.DynadiagError, match="took more than"):
        run_query(recording._database, endless, seconds=0.05)


def test_an_exception_of_the_block_is_what_ended_the_run(tmp_path: Path) -> None:
    path = tmp_path / "run.dynadiag"
    with pytest.raises(KeyError), dynadiag.record(path):
        raise KeyError("mine")
    with dynadiag.open(path) as recording:
        assert "The program raised KeyError" in str(recording.report())


def lines_of(watched: io.StringIO) -> list[tuple[str, str]]:
    """The word and the rest of each line, without the time."""
    words = [line[9:].split(maxsplit=1) for line in watched.getvalue().splitlines()]
    return [(word if word != "graph" else "graph break", rest.removeprefix("break").strip()) for word, rest in words]


def test_watch_writes_a_line_as_each_compile_begins_breaks_recompiles_and_gives_up() -> None:
    @torch.compile(backend="eager", fullgraph=True)
    def refused(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x

    watched, step = io.StringIO(), compiled()
    with dynadiag.watch(watched):
        step(torch.ones(3))
        begun = len(lines_of(watched))
        step(torch.ones(4))
        with pytest.raises(torch._dynamo.exc.Unsupported):
            refused(torch.ones(3))
    compiled(whole)(torch.ones(5))
    lines = lines_of(watched)
    line = broken.__code__.co_firstlineno
    assert lines[0] == ("compiling", f"0/0   broken at test_api.py:{line}")
    assert lines[1][0] == "graph break"
    assert f"broken at test_api.py:{line + 2}" in lines[1][1]
    assert lines[begun] == ("recompiling", f"0/1   broken at test_api.py:{line}: x.size()[0] was 3, now 4")
    assert lines[-1][0] == "failed"
    assert "whole" not in watched.getvalue()


def test_watch_tells_what_changed_since_the_newest_code() -> None:
    class Layer:
        name = ""

    def step(x: torch.Tensor, layer: Layer) -> torch.Tensor:
        return x + 1 if layer.name == "last" else x * 2

    watched, fast, layer = io.StringIO(), compiled(step), Layer()
    with dynadiag.watch(watched):
        for layer.name in "abcd":
            fast(torch.ones(3), layer)
    told = [rest.partition(": ")[2] for word, rest in lines_of(watched) if word == "recompiling"]
    assert told == [f"layer.name was '{was}', now '{now}'" for was, now in ("ab", "bc", "cd")]


def test_watch_tells_a_break_that_dynamo_meets_again_once() -> None:
    def loop(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = x + 1
            torch._dynamo.graph_break()
        return x

    watched = io.StringIO()
    with dynadiag.watch(watched):
        compiled(loop)(torch.ones(3))
    words = [word for word, _ in lines_of(watched)]
    assert words[:3] == ["compiling", "graph break", "gave"]


def test_watch_names_a_value_from_before_a_break_as_reports_do() -> None:
    @torch.compile(backend="eager")
    def step(x: torch.Tensor) -> torch.Tensor:
        number = x.sum().item()
        return x + len(str(number)) if number else x

    watched = io.StringIO()
    with dynadiag.watch(watched):
        step(torch.ones(3))
        step(torch.ones(3) * 2)
    changed = [text for word, text in lines_of(watched) if word == "recompiling"]
    assert ["<value from before the break> was 3.0, now 6.0" in text for text in changed] == [True]


def test_a_trial_of_fix_does_not_fix_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each trial imports the script. Without `if __name__ == "__main__":` it would begin a search of its own."""
    monkeypatch.setenv("DYNADIAG_TRIAL", "1")
    with pytest.raises(dynadiag.DynadiagError, match='below `if __name__ == "__main__":`'):
        dynadiag.fix(whole, torch.ones(3))


def test_what_torch_compile_returned_is_not_fixed_and_the_way_out_is_said() -> None:
    model, in_place = torch.compile(torch.nn.Linear(1, 1)), torch.nn.Linear(1, 1)
    in_place.compile()
    with pytest.raises(dynadiag.DynadiagError, match=r"^fix\(Linear\): .*`._orig_mod` of it is the module"):
        dynadiag.fix(model, torch.ones(1))
    with pytest.raises(dynadiag.DynadiagError, match=r"^fix\(Linear\): .*`.compile\(\)` was not called"):
        dynadiag.fix(in_place, torch.ones(1))
    with pytest.raises(dynadiag.DynadiagError, match=r"fast = torch.compile\(whole\)"):
        dynadiag.fix(torch.compile(whole, backend="eager"), torch.ones(3))


def test_watch_goes_with_record(tmp_path: Path) -> None:
    watched = io.StringIO()
    with dynadiag.record(tmp_path / "run.dynadiag") as path, dynadiag.watch(watched):
        compiled()(torch.ones(3))
    with dynadiag.open(path) as recording:
        assert len(recording.breaks) == 1
    assert [word for word, _ in lines_of(watched)].count("graph break") == 1


def test_a_watcher_that_cannot_write_stops_and_the_program_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    closed = io.StringIO()
    closed.close()
    with dynadiag.watch(closed):
        assert compiled(whole)(torch.ones(2)).tolist() == [2, 2]
    assert capsys.readouterr().err.count("not shown any further") == 1


def adds(x: torch.Tensor, y: int) -> torch.Tensor:
    return x + y


class MuteError(Exception):
    """An exception whose text cannot be made."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_a_call_that_raises_is_said_to_raise() -> None:
    """It is not said to have ended the program."""

    def bad(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("no good")

    def mute(x: torch.Tensor) -> torch.Tensor:
        raise MuteError

    report = dynadiag.explain(compiled(bad), torch.ones(2))
    assert "sys.exit" not in str(report)
    assert "raised ValueError" in str(report)
    assert any(f"{Path(__file__).name}" in str(item.span.file) for item in report.findings)
    report = dynadiag.explain(compiled(mute), torch.ones(2))
    assert "the call raised MuteError: <its __str__ raised RuntimeError>" in report.notes


UNTYPED: Any = dynadiag  # as a caller without a type checker sees it


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: UNTYPED.bisect(adds, (torch.ones(2),)), "bisect: adds.*missing a required argument: 'y'"),
        (lambda: UNTYPED.bisect(adds, torch.ones(2)), "bisect: args is of type Tensor; give a tuple"),
        (lambda: UNTYPED.bisect(adds, (torch.ones(2),), {"z": 1}), "bisect: adds.*"),
        (lambda: UNTYPED.bisect(adds, (1, 2), [1]), "bisect: kwargs is of type list"),
        (lambda: UNTYPED.bisect(adds, (1, 2), repeat=0), "bisect: repeat is 0"),
        (lambda: UNTYPED.bisect(adds, (1, 2), repeat=1.5), "bisect: repeat is 1.5"),
        (lambda: UNTYPED.bisect(adds, (1, 2), timeout=-1), "bisect: timeout is -1"),
        (lambda: UNTYPED.bisect(adds, (1, 2), timeout=float("nan")), "bisect: timeout is nan"),
        (lambda: UNTYPED.bisect(torch.nn.Linear(2, 2), ()), "bisect: Linear.*missing a required argument"),
        (lambda: UNTYPED.bisect(None), "bisect: fn is None"),
        (lambda: UNTYPED.fix(adds, 1), "fix: adds.*missing a required argument: 'y'"),
        (lambda: UNTYPED.fix(3), "fix: fn is of type int"),
        (lambda: UNTYPED.explain("adds"), "explain: fn is of type str"),
        (lambda: UNTYPED.open("."), "open: . is a folder"),
        (lambda: UNTYPED.open(None), "open: path is None"),
        (lambda: UNTYPED.open("\0"), "null"),
        (lambda: UNTYPED.record(".").__enter__(), "is a folder"),
        (lambda: UNTYPED.record(3).__enter__(), "record: path is of type int"),
        (lambda: UNTYPED.record("/dev/null", force=True).__enter__(), "not a plain file"),
    ],
)
def test_wrong_arguments_are_named(call: Callable[[], object], said: str) -> None:
    with pytest.raises(dynadiag.DynadiagError, match=said):
        call()


def test_what_is_replaced_stays_until_the_block_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "run.dynadiag"
    path.write_text("mine")
    with dynadiag.record(path, force=True):
        assert path.read_text() == "mine"
    with dynadiag.open(path) as recording:
        assert recording.run.complete
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_to_is_refused_before_the_block() -> None:
    with pytest.raises(dynadiag.DynadiagError, match="watch: file is of type str"), dynadiag.watch("x.log"):  # type: ignore[arg-type]
        pytest.fail("the block ran")


def test_a_block_that_the_end_of_the_interpreter_ends_is_a_whole_recording(tmp_path: Path) -> None:
    program = """
        import atexit, dynadiag, torch
        block = dynadiag.record("run.dynadiag")
        block.__enter__()
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        atexit.register(block.__exit__, None, None, None)
    """
    told = subprocess.run(
        [sys.executable, "-c", dedent(program)], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert told.stderr == ""
    assert not is_journal(tmp_path / "run.dynadiag")
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        assert recording.report().graph_count == 1


def test_a_recording_that_is_being_made_is_named_as_it_was_opened(tmp_path: Path) -> None:
    with dynadiag.record(tmp_path / "run.dynadiag") as path:
        compiled()(torch.ones(3))
        with dynadiag.open(path) as recording:
            assert str(recording.report()).endswith(f"next: dynadiag browse {path}\n")
            assert repr(recording).startswith(f"<recording {path},")


def test_a_recording_that_another_program_has_locked_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, timeout=0))
    with dynadiag.record(tmp_path / "run.dynadiag") as path:
        pass
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(dynadiag.UnreadableInput, match="another program has locked it"):
            dynadiag.open(path)


def test_an_argument_is_named_as_python_has_it() -> None:
    with pytest.raises(dynadiag.DynadiagError, match=r"^values: calls a: "):
        dynadiag.values(whole, torch.ones(1), calls="a")


def test_a_file_that_is_no_python_is_where_the_program_ended(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text("x = (\n")
    with pytest.raises(SyntaxError), dynadiag.record(tmp_path / "run.dynadiag") as path:
        runpy.run_path(str(tmp_path / "wrong.py"))
    with dynadiag.open(path) as recording:
        assert str(recording.report()).startswith("The program raised SyntaxError at wrong.py:1: ")


def test_an_interrupted_block_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), dynadiag.record(tmp_path / "run.dynadiag") as path:
        raise KeyboardInterrupt
    with dynadiag.open(path) as recording:
        assert str(recording.report()).startswith("The program was interrupted (KeyboardInterrupt).")


@pytest.mark.parametrize("name", ["x" * 300, "a\0b"])
def test_a_name_that_no_file_can_have_is_an_error_of_ours(tmp_path: Path, name: str) -> None:
    with pytest.raises(dynadiag.DynadiagError, match="name another"), dynadiag.record(tmp_path / name):
        pytest.fail("the block ran")


@pytest.mark.parametrize("exists", [False, True])
def test_a_link_stays_one(tmp_path: Path, exists: bool) -> None:
    link, real = tmp_path / "link.dynadiag", tmp_path / "real.dynadiag"
    link.symlink_to(real)
    if exists:
        real.write_text("old")
    with dynadiag.record(link, force=exists):
        pass
    assert link.is_symlink()
    with dynadiag.open(real):
        pass
