"""`dynadiag kernels` from outside: the listing, one kernel, its stages, two recordings, and bad input."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from dynadiag.__main__ import main
from dynadiag.kernels.read_modules import kernel_calls
from dynadiag.recording.fold import fold
from dynadiag.recording.journal import Journal
from dynadiag.recording.opening import open_recording
from dynadiag.render.trace_events import trace_events
from tests.interpreters import DYNADIAG
from tests.kernels.recorded import environment, recorded

pytestmark = pytest.mark.usefixtures("forked_interpreters")

_MODULE = """# AOT ID: ['0_inference']
from torch._inductor.async_compile import AsyncCompile

odd_kernel_0 = async_compile.odd('odd_kernel_0', '''
some text of its own
''')

cpp_fused_relu_1 = async_compile.cpp_pybinding(['const float*', 'float*'], r'''
#error this does not compile
extern "C" void kernel(const float* in_ptr0, float* out_ptr0) {}
''')

triton_poi_fused_2 = async_compile.triton('triton_poi_fused_2', '''
raise SystemExit("\x1b[31mnot a kernel")
''', device_str='cuda')

class Runner:
    def call(self, args):
        arg0_1, = args
        buf0 = empty_strided_cpu((4, 4), (4, 1), torch.float32)
        odd_kernel_0(arg0_1, buf0)
        cpp_fused_relu_1(arg0_1, buf0)
        triton_poi_fused_2.run(arg0_1, buf0, 16, stream=stream0)
        return (buf0, )
"""


def _kernels(*arguments: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    command = [str(DYNADIAG), "kernels", *map(str, arguments)]
    return subprocess.run(command, env=environment(**more), capture_output=True, text=True, timeout=300)


def _diff(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(DYNADIAG), "diff", *map(str, arguments)]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=300)


def _refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """One line on stderr with these words, exit code 2, nothing on stdout."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    for word in words:
        assert word in done.stderr


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording from elsewhere, with a kernel of a backend that nobody knows."""
    folder = tmp_path_factory.mktemp("strange")
    with_code = {"inductor_output_code": {"file_path": "/gone/module.py"}, "frame_id": 0, "frame_compile_id": 0}
    journal = Journal.create(folder / "log")
    journal.append({"dynamo_start": {"stack": []}, "frame_id": 0, "frame_compile_id": 0})
    journal.append(with_code, _MODULE)
    journal.close()
    fold(folder / "log", folder / "strange.dynadiag")
    return folder / "strange.dynadiag"


def test_the_listing_begins_with_the_most_bytes() -> None:
    done = _kernels(recorded("cpp"), "--json", "-")
    rows = json.loads(done.stdout)["kernels"]
    moved = [row["bytes_read"] + row["bytes_written"] for row in rows]
    assert moved == sorted(moved, reverse=True)
    assert {row["language"] for row in rows} == {"cpp", "extern"}
    assert {row["graph"] for row in rows} == {"forward", "backward", "inference"}
    assert all(row["lines"] for row in rows)
    assert all(row["bound"] in ("memory", "compute") for row in rows)


def test_the_bytes_of_a_pointwise_kernel_are_those_of_its_buffers() -> None:
    rows = json.loads(_kernels(recorded("cpp"), "--json", "-").stdout)["kernels"]
    row = next(row for row in rows if row["graph"] == "forward" and row["ops"] == ["sin", "mul", "relu", "le"])
    matrix = 64 * 64 * 4
    assert row["bytes_read"] == matrix
    assert row["bytes_written"] == matrix + matrix // 4  # the result, and where it is not above 0, in bytes of bool
    assert row["flops"] == 4 * 64 * 64


def test_a_kernel_is_printed_with_what_it_was_made_of() -> None:
    rows = json.loads(_kernels(recorded("cpp"), "--json", "-").stdout)["kernels"]
    name = next(row["name"] for row in rows if row["language"] == "cpp")
    done = _kernels(recorded("cpp"), name)
    assert done.returncode == 0
    head = [line for line in done.stdout.splitlines() if line.startswith("// ")]
    assert name in head[0]
    assert "program.py:" in done.stdout
    assert 'extern "C"' in done.stdout


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_list_fits_the_terminal_and_keeps_every_name(columns: int) -> None:
    whole, fitted = (_kernels(recorded("cpp"), COLUMNS=width).stdout for width in ("", str(columns)))
    assert max(map(len, whole.splitlines())) > 120, "a file gets the whole table"
    assert max(map(len, fitted.splitlines())) <= columns
    rows = json.loads(_kernels(recorded("cpp"), "--json", "-").stdout)["kernels"]
    indented = columns - 4 - len(" #2")
    assert all(row["name"] in fitted for row in rows if len(row["name"]) <= indented)
    assert all(any(f":{place['line']}" in fitted for place in row["lines"]) for row in rows)


def test_a_call_is_printed_by_its_name_in_the_list() -> None:
    rows = json.loads(_kernels(recorded("cpp"), "--json", "-").stdout)["kernels"]
    second = next(row for row in rows if row["call"] == 2)
    by_number = _kernels(recorded("cpp"), f"{second['name']} #2", "--json", "-")
    found = json.loads(by_number.stdout)["kernels"]
    assert {(row["name"], row["call"]) for row in found} == {(second["name"], 2)}
    exact = f"{second['compile_id']} {second['graph']} {second['name']} #2"
    (row,) = json.loads(_kernels(recorded("cpp"), exact, "--json", "-").stdout)["kernels"]
    assert (row["compile_id"], row["graph"], row["call"]) == (second["compile_id"], second["graph"], 2)
    _refused(_kernels(recorded("cpp"), f"{second['name']} #99"), "no kernel", "#99")


def test_every_call_of_a_library_kernel_is_printed() -> None:
    rows = json.loads(_kernels(recorded("cpp"), "--json", "-").stdout)["kernels"]
    calls = [row for row in rows if row["name"] == "mm"]
    assert len(calls) > 1
    done = _kernels(recorded("cpp"), "mm")
    assert done.stdout.count("# mm: compile ") == len(calls)
    assert done.stderr == ""


def test_kernels_of_one_name_that_are_not_printed_are_told() -> None:
    rows = json.loads(_kernels(recorded("cpp"), "--json", "-").stdout)["kernels"]
    compiles: dict[str, set[str]] = {}
    for row in rows:
        compiles.setdefault(row["name"], set()).add(row["compile_id"])
    name = next(name for name, found in compiles.items() if len(found) > 1)
    done = _kernels(recorded("cpp"), name, "--module")
    assert f"'{name}' is the name of several kernels: this is '" in done.stderr
    assert "; the others are '" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert _kernels(recorded("cpp"), done.stderr.split("'")[3], "--module").stdout == done.stdout


@pytest.mark.parametrize(
    ("options", "names", "words"),
    [
        ("--module", "", ("--module", "NAME")),
        ("--stage asm", "", ("--stage", "NAME")),
        ("--target sm_90", "mm", ("--target", "--stage")),
        ("--stage asm --module", "mm", ("--stage", "--module")),
        ("--balance -3", "", ("--balance", "-3", "more than 0")),
        ("--balance nan", "", ("--balance", "nan")),
    ],
)
def test_an_option_without_effect_is_refused(strange: Path, options: str, names: str, words: tuple[str, ...]) -> None:
    _refused(_kernels(*options.split(), strange, *names.split()), *words)


def test_two_recordings_are_compared_kernel_by_kernel() -> None:
    done = _diff("--json", "-", recorded("cpp"), recorded("cpp", changed=True))
    changes = [one for one in json.loads(done.stdout)["differences"] if one["stage"] == "kernel"]
    assert len(changes) >= 10
    assert any("cos()" in line for change in changes for line in change["details"] if line.startswith("+"))


def test_a_recording_is_the_same_as_itself() -> None:
    done = _diff(recorded("cpp"), recorded("cpp"))
    assert (done.returncode, done.stdout) == (0, "")


def test_every_stage_of_a_triton_kernel_without_a_gpu() -> None:
    rows = json.loads(_kernels(recorded("triton"), "--json", "-").stdout)["kernels"]
    name = next(row["name"] for row in rows if row["language"] == "triton" and "sum" in row["ops"])
    done = _kernels(recorded("triton"), name, "--stage", "sass", "--target", "sm_90", "--trust", "--json", "-")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert list(document["stages"]) == ["ttir", "ttgir", "llir", "ptx", "sass"]
    source = document["kernels"][0]["source"].splitlines()
    for stage in document["stages"].values():
        shown = stage["text"].splitlines()
        assert stage["lines"], "a stage has a line table"
        assert all(1 <= line <= len(shown) and 1 <= at <= len(source) for line, at in stage["lines"])
    load = next(number for number, line in enumerate(source, 1) if "tl.load" in line)
    sass = document["stages"]["sass"]
    assert any("LDG" in sass["text"].splitlines()[line - 1] for line, at in sass["lines"] if at == load)
    assert document["facts"]["registers"] > 0
    kept = _kernels(recorded("triton"), name, "--stage", "ptx", "--target", "sm_90", TORCHINDUCTOR_CACHE_DIR="/nowhere")
    assert kept.returncode == 0, "what was made once is kept, and needs no trust"


@pytest.mark.slow
def test_the_machine_code_of_a_cpp_kernel_has_source_lines() -> None:
    rows = json.loads(_kernels(recorded("cpp"), "--json", "-").stdout)["kernels"]
    name = next(row["name"] for row in rows if row["language"] == "cpp" and "sin" in row["ops"])
    done = _kernels(recorded("cpp"), name, "--stage", "asm", "--trust", "--json", "-")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    source = document["kernels"][0]["source"].splitlines()
    lines = {source[at - 1].strip() for _, at in document["stages"]["asm"]["lines"]}
    assert any("tmp" in line and "=" in line for line in lines)


@pytest.mark.parametrize(("language", "stage"), [("cpp", "asm"), ("triton", "ptx")])
def test_nothing_of_a_recording_is_compiled_without_trust(language: str, stage: str, tmp_path: Path) -> None:
    rows = json.loads(_kernels(recorded(language), "--json", "-").stdout)["kernels"]
    name = next(row["name"] for row in rows if row["language"] == language)
    elsewhere = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    _refused(_kernels(recorded(language), name, "--stage", stage, **elsewhere), name, "--trust")


def test_a_file_beside_the_recording_earns_no_trust(strange: Path) -> None:
    Path(strange.parent, "module.py").write_text(_MODULE)
    _refused(_kernels(strange, "cpp_fused_relu_1", "--stage", "asm"), "--trust")


def test_a_kernel_of_an_unknown_backend(strange: Path) -> None:
    listed = _kernels(strange)
    assert listed.returncode == 0
    assert "odd_kernel_0" in listed.stdout
    assert "no mapping" in listed.stdout
    assert "some text of its own" in _kernels(strange, "odd_kernel_0").stdout
    _refused(_kernels(strange, "odd_kernel_0", "--stage", "asm"), "odd_kernel_0", "backend", "'odd'")


def test_an_unsupported_target(strange: Path) -> None:
    done = _kernels(strange, "triton_poi_fused_2", "--stage", "ptx", "--target", "avr", "--trust")
    _refused(done, "'avr'", "h100", "sm_80")


def test_a_target_for_a_cpp_kernel(strange: Path) -> None:
    done = _kernels(strange, "cpp_fused_relu_1", "--stage", "asm", "--target", "sm_90", "--trust")
    _refused(done, "C++", "'sm_90'")


def test_a_missing_disassembler(strange: Path, tmp_path: Path) -> None:
    done = _kernels(strange, "cpp_fused_relu_1", "--stage", "asm", "--trust", PATH=str(tmp_path))
    _refused(done, "disassembler", "binutils")


def test_a_stage_that_there_is_not(strange: Path) -> None:
    _refused(_kernels(strange, "cpp_fused_relu_1", "--stage", "ptx", "--trust"), "'ptx'", "asm")


def test_a_source_that_ends_its_process(strange: Path) -> None:
    done = _kernels(strange, "triton_poi_fused_2", "--stage", "ptx", "--trust")
    _refused(done, "triton_poi_fused_2", "sm_90")
    assert "\x1b" not in done.stderr


def test_a_kernel_that_there_is_not(strange: Path) -> None:
    _refused(_kernels(strange, "nothing"), "'nothing'", str(strange))


def test_a_stage_without_a_kernel(strange: Path) -> None:
    _refused(_kernels(strange, "--stage", "asm"), "--stage", "NAME")


# `dynadiag export --perfetto`


def test_a_trace_for_perfetto_has_nested_phases_and_an_arrow_to_each_kernel(tmp_path: Path) -> None:
    with open_recording(recorded("cpp")) as recording:
        events = json.loads(trace_events(recording))["traceEvents"]
        compiled, calls = {each.compile_id for each in recording.compiles()}, kernel_calls(recording)
    threads = {one["args"]["name"]: one["tid"] for one in events if one["name"] == "thread_name"}
    slices = [one for one in events if one["ph"] == "X"]
    assert all(one["ts"] >= 0 and one["dur"] >= 0 for one in slices)
    phases = [one for one in slices if one["tid"] == threads["torch.compile"]]
    assert {one["args"]["compile_id"] for one in phases} >= compiled
    for one in phases:  # a section lies inside another one or beside it
        for other in phases:
            start, end = max(one["ts"], other["ts"]), min(one["ts"] + one["dur"], other["ts"] + other["dur"])
            assert end - start <= 1 or min(one["dur"], other["dur"]) <= end - start + 1
    made = [one for one in slices if one["tid"] == threads["kernels"]]
    assert [one["name"] for one in made] == [call.name for call in calls]
    assert made[0]["ts"] > 0  # when its code was written
    starts, ends = ({one["id"]: one for one in events if one["ph"] == kind} for kind in "sf")
    assert starts.keys() == ends.keys()
    for kernel in made:
        lines = {line for line in kernel["args"]["lines"].split(", ") if line}
        held = [id_ for id_, one in ends.items() if kernel["ts"] <= one["ts"] < kernel["ts"] + kernel["dur"]]
        sources = [one for one in slices if one["tid"] == threads["source lines"]]
        named = {
            one["name"] for one in sources for id_ in held if one["ts"] <= starts[id_]["ts"] < one["ts"] + one["dur"]
        }
        assert named == lines
    assert any(kernel["args"]["lines"] for kernel in made)


def test_export_to_perfetto_overwrites_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.json"
    assert main(["export", "--perfetto", str(trace), str(recorded("cpp"))]) == 0
    assert json.loads(trace.read_bytes())["traceEvents"]
    assert main(["export", "--perfetto", str(trace), str(recorded("cpp"))]) == 2
    assert main(["export", str(recorded("cpp"))]) == 2
    assert "--perfetto FILE" in capsys.readouterr().err
