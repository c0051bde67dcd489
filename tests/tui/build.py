"""Recordings made by hand: a journal of the events that a program would have left, folded. No torch is run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dynadiag.recording.fold import fold
from dynadiag.recording.journal import Journal

FILE = "/home/user/project/prog.py"
SOURCE = """import torch


@torch.compile
def f(x):
    y = x.sin()
    z = torch.relu(y)
    print(z.shape)
    return z + 1


for size in (4, 5):
    f(torch.randn(size))
"""
DYNAMO = f"""class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[4][1]cpu"):
        l_x_ = L_x_

        # File: {FILE}:6 in f, code: y = x.sin()
        y: "f32[4][1]cpu" = l_x_.sin();  l_x_ = None

        # File: {FILE}:7 in f, code: z = torch.relu(y)
        z: "f32[4][1]cpu" = torch.relu(y);  y = None
        return (z,)
"""
POST_GRAD = f"""class <lambda>(torch.nn.Module):
    def forward(self, arg0_1: "f32[4][1]cpu"):
        # File: {FILE}:6 in f, code: y = x.sin()
        sin: "f32[4][1]cpu" = torch.ops.aten.sin.default(arg0_1);  arg0_1 = None

        # File: {FILE}:7 in f, code: z = torch.relu(y)
        relu: "f32[4][1]cpu" = torch.ops.aten.relu.default(sin);  sin = None
        return (relu,)
"""
MODULE = """# AOT ID: ['0_inference']
import torch
async_compile = AsyncCompile()


# kernel path: /tmp/k.py
# Topologically Sorted Source Nodes: [y], Original ATen: [aten.sin]
# Source node to ATen node mapping:
#   y => sin
triton_poi_fused_sin_0 = async_compile.triton('triton_poi_fused_sin_0', '''
import triton

@triton.jit
def triton_poi_fused_sin_0(in_ptr0, out_ptr0):
    tmp0 = tl.load(in_ptr0)
''', device_str='cuda')


cpp_fused_relu_1 = async_compile.cpp_pybinding(['const float*'], r'''
extern "C"  void  kernel(const float* in_ptr0)
{
    auto tmp0 = in_ptr0[0];
}
''')


class Runner:
    def call(self, args):
        arg0_1, = args
        cpp_fused_relu_1(arg0_1)
        # Topologically Sorted Source Nodes: [z], Original ATen: [aten.relu]
        extern_kernels.addmm(arg0_1)
        return (buf7, )
"""
GUARDS = """
TREE_GUARD_MANAGER:
+- RootGuardManager
| +- GuardManager: source=L['x'], accessed_by=FrameLocalsGuardAccessor(key='x')
| | +- TENSOR_MATCH: check_tensor(L['x'], Tensor, torch.float32, size=[4], stride=[1])  # y = x.sin()  # prog.py:6 in f
"""
BREAK = f"""Graph break in user code at {FILE}:8
Graph Break Reason: Failed to trace builtin operator
  Explanation: Dynamo does not know how to trace builtin operator `print`
  Hint: Avoid calling builtin `print`.

  Developer debug context: builtin print

 For more details about this graph break, please visit: https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0059.html
"""

Events = list[tuple[dict[str, Any], str | None]]


def at(compile_id: str) -> dict[str, int]:
    """The context that torch gives to an event of this compile."""
    frame, compile_ = compile_id.split("/")
    return {"frame_id": int(frame), "frame_compile_id": int(compile_), "attempt": 0}


def run_events(target: str = "prog.py") -> Events:
    """How the recorder begins."""
    header = {
        "target": target,
        "argv": [target],
        "cwd": "/home/user/project",
        "torch": "2.13.0",
        "python": "3.11.7",
        "pid": 1,
        "host": "elsewhere",
        "started": 1.0e9,
        "device": "cpu",
    }
    return [({"dynadiag_run": header}, None)]


def failed_trace_events(compile_id: str) -> Events:
    """A compile that failed in Dynamo at line 7, with what was traced until then."""
    frame, start, *_, metrics = compile_events(compile_id)
    text = "\n".join(DYNAMO.split("\n")[:9])  # without what it returns
    lines = {"sin": ("l_x_", 6), "relu": ("y", 7)}
    nodes = [
        {"name": name, "op": "call_method", "target": call, "args": [{"%": lines[call][0]}], "stack": number}
        for number, (name, call) in enumerate((("y", "sin"), ("z", "relu")))
    ]
    stacks = [f'  File "{FILE}", line {line}, in f\n' for _, line in lines.values()]
    graph = json.dumps({"nodes": nodes, "stacks": stacks, "modules": [], "symbols": {}, "subgraphs": {}})
    failure = {"fail_type": "torch._dynamo.exc.TorchRuntimeError", "fail_reason": "no such shape"}
    metrics[0]["compilation_metrics"].update(**failure, has_guarded_code=False)
    traced = [
        ({f"dynadiag_{kind}": {}, **at(compile_id)}, each) for kind, each in (("graph", graph), ("failed_trace", text))
    ]
    return [frame, start, *traced, metrics]


def end_events(code: int = 0) -> Events:
    """How it ends."""
    return [({"dynadiag_end": {"seconds": 2.5, "notes": []}}, None), ({"dynadiag_exit": {"code": code}}, None)]


def compile_events(compile_id: str, *, seconds: float = 1.0, graph: str = DYNAMO, module: str = MODULE) -> Events:
    """One compile of `f`, with graphs, guards and generated code."""
    here = at(compile_id)
    stack = [
        {"line": 13, "name": "<module>", "filename": FILE},
        {"line": 5, "name": "f", "filename": FILE},
    ]
    metrics = {
        "entire_frame_compile_time_s": seconds,
        "backend_compile_time_s": seconds * 0.9,
        "inductor_compile_time_s": seconds * 0.7,
        "code_gen_time_s": seconds * 0.5,
        "has_guarded_code": True,
        "co_filename": FILE,
        "co_firstlineno": 4,
        "co_name": "f",
    }
    return [
        ({"dynadiag_frame": {"file": FILE, "line": 5, "function": "f"}, **here}, None),
        ({"dynamo_start": {"stack": stack}, **here}, None),
        ({"dynamo_output_graph": {"sizes": {}}, **here}, graph),
        ({"artifact": {"name": "inductor_post_grad_graph", "encoding": "string"}, **here}, POST_GRAD),
        ({"inductor_output_code": {"filename": "/tmp/k.py"}, **here}, module),
        ({"dynamo_cpp_guards_str": {}, **here}, GUARDS),
        ({"compilation_metrics": metrics, **here}, None),
    ]


def break_events(compile_id: str) -> Events:
    """A graph break at the print."""
    data = {
        "file": FILE,
        "line": 8,
        "column": 4,
        "end_line": 8,
        "end_column": 18,
        "function": "f",
        "gb_type": "Failed to trace builtin operator",
        "stack": [{"filename": FILE, "line": 8, "name": "f"}],
    }
    return [
        ({"dynadiag_break": data, **at(compile_id)}, None),
        ({"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}, **at(compile_id)}, BREAK),
    ]


def recompile_events(compile_id: str, was: str, now: str) -> Events:
    """Why a frame is compiled again."""
    reason = {
        "guard": f"tensor 'x' size mismatch at index 0. expected {was}, actual {now}",
        "source": "L['x'].size()[0]",
        "was": was,
        "now": now,
        "against": "0/0",
        "file": FILE,
        "line": 6,
    }
    data = {"file": FILE, "line": 5, "function": "f", "failures": [reason]}
    artifact = {"artifact": {"name": "recompile_reasons", "encoding": "json"}, **at(compile_id)}
    return [({"dynadiag_recompile": data, **at(compile_id)}, None), (artifact, "[]")]


def trial_events(number: int, status: str) -> Events:
    """One trial of a search."""
    candidate = f'{{"rung": "inductor", "number": {number}}}'
    data = {
        "pid": 100 + number,
        "candidate": candidate,
        "outcome": f'{{"status": "{status}", "label": "inductor"}}',
        "seconds": 0.5,
    }
    return [({"dynadiag_trial": data}, None)]


def search_events(
    code: int | None, document: Mapping[str, Any] | None = None, options: Sequence[str] = (), target: str = "prog.py"
) -> Events:
    """A search, as `dynadiag bisect` records it; one that was stopped has no `document`."""
    events = run_events(target)
    events += [({"dynadiag_search": {"command": "bisect", "options": list(options)}}, None)]
    events += [*trial_events(0, "fail"), *trial_events(1, "pass")]
    events += [({"dynadiag_verdict": {}}, json.dumps(document)), *source_events()] if document is not None else []
    return [*events, ({"dynadiag_exit": {"code": code}}, None)]


def source_events(text: str = SOURCE) -> Events:
    return [({"dynadiag_source": {"file": FILE}}, text)]


def program() -> Events:
    """A program with a break, a recompile, graphs and kernels."""
    return [
        *run_events(),
        *source_events(),
        *break_events("0/0"),
        *compile_events("0/0", seconds=3.0),
        *recompile_events("0/1", "4", "5"),
        *compile_events("0/1"),
        *end_events(),
    ]


def value_events(compile_id: str, call: int, sin: Sequence[float | str], relu: Sequence[float | str]) -> Events:
    """The values of a call of `f`: of `sin` and of `relu`, which compiled code gets wrong where no number is NaN."""
    stored = {**_value("relu", relu), "kernel": "cpp_fused_relu_1", "off": 0.25, "wrong": "nan" not in relu}
    y = {**_value("y", sin), "op": "sin", "inputs": ["l_x_"], "off_float64": 1e-8, "float64": _value("y", sin)}
    z = {**_value("z", relu), "op": "torch.relu", "inputs": ["y"], "stored": stored}
    nodes = [{**_value("l_x_", [1.0, 2.0]), "op": "placeholder"}, y, z]
    data = {"graph": "inference", "call": call, "seconds": 0.1, "seed": "0"}
    return [({"dynadiag_values": data, **at(compile_id)}, json.dumps({"nodes": nodes, "stacks": [], "notes": []}))]


def _value(name: str, samples: Sequence[float | str]) -> dict[str, Any]:
    finite = [each for each in samples if isinstance(each, float)]
    form = {"node": name, "shape": [len(samples)], "dtype": "float32", "stride": [1], "hash": str(samples)}
    counts = {"nan": len(samples) - len(finite), "inf": 0, "zero": 0}
    return {**form, **counts, "min": min(finite), "max": max(finite), "mean": 0.5, "norm": 1.0, "samples": [*samples]}


def program_with_values() -> Events:
    """A program of one compile, with the values of two calls: the second has a NaN."""
    values = [*value_events("0/0", 0, [0.25, 0.75], [0.25, 0.5]), *value_events("0/0", 1, [0.5, 3.0], [0.5, "nan"])]
    return [*run_events(), *source_events(), *compile_events("0/0"), *values, *end_events()]


def journal(path: Path, events: Iterable[tuple[Mapping[str, Any], str | None]]) -> Path:
    """Write a journal; its process runs elsewhere, so whoever opens it folds it."""
    made = Journal.create(path)
    for metadata, payload in events:
        made.append(metadata, payload)
    made.close()
    return path


def recording(folder: Path, events: Iterable[tuple[Mapping[str, Any], str | None]], name: str = "run") -> Path:
    """Write a recording."""
    log = journal(folder / f"{name}.log", events)
    path = folder / f"{name}.dynadiag"
    fold(log, path)
    log.unlink()
    return path
