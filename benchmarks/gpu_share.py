"""How much of what is generated here, without a GPU, for an H200 is what an H200 really gets, kernel by kernel.

    python benchmarks/gpu_share.py [--keep FOLDER] [--write FILE]
    python benchmarks/gpu_share.py --collect FILE PROGRAM=RECORDING ...     # on what a GPU recorded

Each program is recorded here twice: generated for the target (`dynadiag.torch_private.gpu_target`), and with Inductor's
Triton code generator serving the CPU (`cpu_backend = "triton"`, what Triton's interpreter runs). Each Triton kernel
that the H200 got (`data/h200-kernels.json.zst`) is looked for among those of the same compile and graph:

- *identical*: the whole source as it stands in the generated module, decorator and metadata with it (sizes, signature,
  device, hints), but for the value of ``backend_hash``, which is of the installed compiler's files;
- *renamed*: the same but for the kernel's own name, whose number counts the kernels before it;
- *body*: the functions are the same but for the kernel's name, and the heuristics' decorator is not (what autotuning
  starts from);
- otherwise it differs, for the first of the reasons in `reason` that holds.

The versions of torch and Triton have to be those of the recordings.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import zstandard

import dynadiag
from dynadiag.kernels.read_modules import generated_modules
from dynadiag.recording.reader import Recording

HERE = Path(__file__).resolve().parent
DATA = HERE / "data" / "h200-kernels.json.zst"
PROGRAMS = {
    "functions, float32": [str(HERE / "functions.py"), "cpu", "float32"],
    "functions, bfloat16": [str(HERE / "functions.py"), "cpu", "bfloat16"],
    "transformer block, bfloat16": [str(HERE / "block.py"), "cpu"],
    "fused_ops": [str(HERE.parent / "samples" / "fused_ops.py")],
}
WAYS = {
    "the CPU served": """
import torch
from torch._inductor.runtime.triton_heuristics import CachingAutotuner
from dynadiag.torch_private.interpreter_patches import generate_triton_for_cpu

generate_triton_for_cpu()
CachingAutotuner.run = lambda self, *args, **kwargs: None  # generated, not run: there is nothing to run it on
CachingAutotuner.precompile = lambda self, *args, **kwargs: None
torch.testing.assert_close = lambda *args, **kwargs: None  # of results that nothing computed
""",
    "for the target": """
from dynadiag.torch_private.gpu_target import generate_for_gpu

generate_for_gpu("h200")
""",
}
ENVIRONMENT = {
    "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
    "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",  # what is switched off in a process is not in its workers
}
_RUN = """
import runpy
import sys

del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
_HASH = re.compile(r"('backend_hash': )'\w+'")
_DECORATOR = re.compile(r"(?ms)^@triton_heuristics\.\w+\(.*?^\)\n")
_NAME = re.compile(r"\btriton_(poi|red|per|tem|for)_fused_\w+")
_PARAMETERS = re.compile(r"(?m)^def triton_\w+\(([^)]*)\)")


@dataclass(frozen=True, slots=True)
class Graph:
    """One generated module: its Triton kernels by name, in order, and the libraries' functions that it calls."""

    compile_id: str
    stage: str | None
    kernels: dict[str, str]
    calls: tuple[str, ...]


def graphs(recording: Recording) -> list[Graph]:
    """Every generated module of a recording."""
    found = []
    for unit in generated_modules(recording):
        sources = {one.name: one.source for one in unit.parsed.definitions.values() if one.language == "triton"}
        calls = tuple(call.kernel for call in unit.parsed.calls if not call.is_generated)
        found.append(Graph(unit.compile_id, unit.parsed.stage, sources, calls))
    return found


def exact(source: str) -> str:
    """The source as it is compared: whole, without the hash of the compiler's files."""
    return _HASH.sub(r"\1''", source).strip()


def renamed(source: str) -> str:
    """The whole source without the kernel's name."""
    return _NAME.sub("triton_kernel", exact(source))


def body(source: str) -> str:
    """The functions of the source alone, without imports, the heuristics' decorator and the kernel's name."""
    functions = _DECORATOR.sub("", renamed(source))
    return functions[functions.find("@triton.jit") :]


SAME = ("identical", "renamed", "body")
EXTRA = "only here"  # not of the H200's: counted besides


def compare(real: list[Graph], made: list[Graph]) -> Counter[str]:
    """The H200's kernels, each counted as one of `SAME` or by the reason why it is not there; `EXTRA` besides."""
    known = {(graph.compile_id, graph.stage): graph for graph in made}
    found: Counter[str] = Counter()
    for graph in real:
        other = known.get((graph.compile_id, graph.stage), Graph(graph.compile_id, graph.stage, {}, ()))
        here = [{form(one) for one in other.kernels.values()} for form in (exact, renamed, body)]
        there = {body(source) for source in graph.kernels.values()}
        found[EXTRA] += sum(one not in there for one in here[-1])
        for name, source in graph.kernels.items():
            forms = zip(SAME, (exact, renamed, body), here, strict=True)
            same = next((word for word, form, known_here in forms if form(source) in known_here), None)
            found[same or reason(name, source, graph, other)] += 1
    return found


def reason(name: str, source: str, real: Graph, made: Graph) -> str:
    """Why a kernel of the H200 has no like here: the first that holds, told from the two modules alone."""
    if not made.kernels:
        return "the graph has no Triton kernel here"
    if real.calls != made.calls:
        return "another library function is called in the graph"
    if "prepare_softmax_online" in name and not any("prepare_softmax_online" in other for other in made.kernels):
        return "online softmax only there"
    if len(real.kernels) != len(made.kernels):
        return "another number of kernels: split or fused otherwise"
    if parameters(source) not in {parameters(other) for other in made.kernels.values()}:
        return "other inputs and outputs"
    return "other statements"


def parameters(source: str) -> str:
    """What the kernel is given."""
    found = _PARAMETERS.search(source)
    return found.group(1) if found else ""


def recorded(program: str, way: str, folder: Path) -> list[Graph]:
    """The program's modules as they are generated here in that way."""
    runner = folder / f"{way.replace(' ', '_')}.py"
    runner.write_text(WAYS[way] + _RUN)
    recording = folder / f"{program}, {way}.dynadiag".replace(" ", "_")
    if not recording.exists():
        command = [sys.executable, "-m", "dynadiag", "explain", "-o", str(recording), str(runner), *PROGRAMS[program]]
        done = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, check=False)
        if done.returncode:
            recording.unlink(missing_ok=True)
            sys.exit(f"{program}, {way}: {done.stderr[-2000:]}")
    with dynadiag.open(recording) as opened:
        return graphs(opened)


def collect(target: Path, named: Iterable[str]) -> None:
    """Write what recordings made on a GPU have of kernels: names, sources, and the calls beside them."""
    programs = {}
    versions: dict[str, str | None] = {}
    for one in named:
        program, _, path = one.partition("=")
        if program not in PROGRAMS:
            sys.exit(f"{program}: not one of {', '.join(PROGRAMS)}")
        with dynadiag.open(path) as recording:
            programs[program] = [asdict(graph) for graph in graphs(recording)]
            versions = {"torch": recording.run.torch}
    text = json.dumps({**versions, "programs": programs}, separators=(",", ":"), sort_keys=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(zstandard.compress(text.encode(), 19))


def real() -> tuple[str, dict[str, list[Graph]]]:
    """What the H200 got: the version of torch there, and each program's modules."""
    kept = json.loads(zstandard.decompress(DATA.read_bytes()))
    found = {
        name: [Graph(one["compile_id"], one["stage"], one["kernels"], tuple(one["calls"])) for one in listed]
        for name, listed in kept["programs"].items()
    }
    return kept["torch"], found


def table(counted: dict[tuple[str, str], Counter[str]]) -> str:
    """As Markdown: a row for each program and way, and the reasons for the rest."""
    lines = ["| program | generated | kernels | identical | renamed | the same body | differ | only here |"]
    lines += ["|---|---|---:|---:|---:|---:|---:|---:|"]
    for way in WAYS:
        rows = {program: found for (program, other), found in counted.items() if other == way}
        rows["all"] = sum(rows.values(), Counter())
        lines += [_row(program, way, found) for program, found in rows.items()]
    for way in WAYS:
        rest = sum((found for (_, other), found in counted.items() if other == way), Counter())
        why = {text: number for text, number in rest.most_common() if text not in (*SAME, EXTRA)}
        if why:
            lines += ["", f"Why the rest differs, {way}:", ""]
            lines += [f"- {text}: {number}" for text, number in why.items()]
    return "\n".join(lines)


def _row(program: str, way: str, found: Counter[str]) -> str:
    total = found.total() - found[EXTRA]
    parts = [*(found[word] for word in SAME), total - sum(found[word] for word in SAME)]
    shares = " | ".join(f"{part} ({part / total:.0%})" if part else "0" for part in parts)
    return f"| {program} | {way} | {total} | {shares} | {found[EXTRA]} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="a folder for the recordings; those that are there are not made anew")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the table there too")
    parser.add_argument(
        "--collect", type=Path, metavar="FILE", help="write the kernels of recordings made on a GPU there"
    )
    parser.add_argument("recordings", nargs="*", metavar="PROGRAM=RECORDING")
    given = parser.parse_args()
    if given.collect:
        collect(given.collect, given.recordings)
        return
    version, kernels = real()
    here = metadata.version("torch")
    if here.partition("+")[0] != version.partition("+")[0]:
        sys.exit(f"the H200's kernels are of torch {version}, and this is {here}: no comparison")
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        counted = {
            (program, way): compare(listed, recorded(program, way, folder))
            for way in WAYS
            for program, listed in kernels.items()
        }
    text = table(counted)
    print(f"torch {here}, Triton {metadata.version('triton')}\n\n{text}")
    if given.write:
        given.write.write_text(text + "\n")


if __name__ == "__main__":
    main()
