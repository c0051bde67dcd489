"""A recording in the form that the recorder writes, made by hand: without torch and with arbitrary content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dynadiag.recording.journal import Journal
from dynadiag.recording.opening import fold_in_place

CONTEXT = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
BREAK = """Graph break in user code at {file}:3
Graph Break Reason: {text}
  Explanation: {text}
  Hint: {text}

  Developer debug context: {text}

 For more details about this graph break, please visit: https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0025.html
User code traceback:
  File "{file}", line 3, in {text}
    {text}
"""
MODULE = """
{name} = async_compile.cpp_pybinding([], '''
// {text}
''')
class Runner:
    def call(self, args):
        {name}(a)
        extern_kernels.mm(a, b)
"""


def _values(text: str, file: str, wrong: bool) -> str:
    """The values of a call: one node, and what compiled code stored for it."""
    value = {"shape": [text], "dtype": text, "stride": [text], "min": 0.0, "max": 1.0, "nan": int(wrong), "hash": text}
    value |= {"samples": [text]}
    stored = {**value, "kernel": text, "off": 0.5 * wrong, "wrong": wrong}
    node = {"node": text, "op": text, "inputs": [text], "stack": 0, "cause": text, "stored": stored, **value}
    stack = f'  File "{file}", line 3, in {text}\n    {text}\n'
    return json.dumps({"nodes": [node], "stacks": [stack], "notes": [text]})


def journal(
    path: Path,
    text: str = "f",
    file: str = "/somewhere/program.py",
    target: str = "torch.relu",
    wrong: bool = False,
) -> Path:
    """A journal in which ``text`` stands wherever a name or a sentence can; ``wrong``: also in findings on values."""
    made = Journal.create(path)
    made.append({"dynadiag_run": {"target": text, "argv": [text], "pid": 1 << 22, "host": text, "torch": text}})
    made.append({"str": [file, 0]})
    frame = {"file": file, "line": 2, "function": text}
    made.append({"dynadiag_frame": frame, **CONTEXT})
    made.append({"dynamo_start": {"stack": [{"filename": 0, "line": 2, "name": text}]}, **CONTEXT})
    made.append({"dynadiag_source": {"file": file}, **CONTEXT}, f"import torch\n{text}\n{text}\n")
    made.append({"dynadiag_break": {**frame, "line": 3, "column": 0, "end_line": 3, "end_column": 4}, **CONTEXT})
    made.append(
        {"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}, **CONTEXT},
        BREAK.format(file=file, text=text),
    )
    made.append({"dynadiag_graph": {"stage": "dynamo"}, **CONTEXT}, _graph(text, target))
    made.append({"dynamo_output_graph": {"sizes": {}}, **CONTEXT}, "class GraphModule:\n    pass\n")
    made.append({"artifact": {"name": "recompile_reasons"}, **CONTEXT}, json.dumps([f"0/0: {text} == 3"]))
    made.append({"dynamo_cpp_guards_str": {}, **CONTEXT}, f"+- GuardManager: source={text}, accessed_by=x\n| +- {text}")
    values = {"dynadiag_values": {"graph": "forward", "seconds": 1.0, "note": text}, **CONTEXT}
    made.append(values, _values(text, file, wrong))
    made.append({"inductor_output_code": {"filename": text}, **CONTEXT}, MODULE.format(name="cpp_fused_0", text=text))
    for kind, time in (("B", 1e6), ("E", 3e6)):
        made.append({"chromium_event": {}, **CONTEXT}, json.dumps({"name": text, "ph": kind, "ts": time}))
    made.append({"compilation_metrics": {"co_filename": file, "co_name": text, "fail_reason": text}, **CONTEXT})
    made.append({text: {"name": text}, "unknown": text}, text)
    made.append({"dynadiag_exit": {"code": 0, "notes": [text]}})
    made.close()
    return path


def _graph(text: str, target: str) -> str:
    nodes: list[dict[str, Any]] = [
        {"name": "x", "op": "placeholder", "target": text, "value": {"shape": [text], "dtype": text, "device": text}},
        {"name": text, "op": "call_function", "target": target, "args": [{"%": "x"}], "stack": 0},
        {"name": "output", "op": "output", "target": "output", "args": [{"%": text}]},
    ]
    return json.dumps({"nodes": nodes, "stacks": [f'File "{text}", line 1, in f'], "symbols": {}, "subgraphs": {}})


def recording(
    path: Path,
    text: str = "f",
    file: str = "/somewhere/program.py",
    target: str = "torch.relu",
    wrong: bool = False,
) -> Path:
    """The same as a recording."""
    fold_in_place(journal(path, text, file, target, wrong))
    return path
