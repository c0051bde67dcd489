"""Recordings as resources: the report, the tables by SQL, graphs and kernels. Nothing of a recording is run.

dynadiag:///PATH.dynadiag                  the document of `dynadiag explain`
dynadiag:///PATH.dynadiag?report           its text
dynadiag:///PATH.dynadiag?sql=SELECT...    rows
dynadiag:///PATH.dynadiag?graph=0/0        the graphs of one compile, stage by stage, as torch prints them
dynadiag:///PATH.dynadiag?kernel=NAME      the source of a generated kernel
dynadiag:///schema/COMMAND                 the JSON Schema of a command's document
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

import orjson

from dynadiag.commands.schema import schema_of
from dynadiag.commands.state import state_folder
from dynadiag.errors import DynadiagError
from dynadiag.kernels.read_modules import kernel_calls
from dynadiag.kernels.timing import Roofline, saved_times
from dynadiag.recording.journal import SUFFIX
from dynadiag.render.kernels import kernel_text
from dynadiag.tables import OpenRecording

MAX_ROWS = 1000  # of one query
_MAX_LISTED = 50
_MAX_CHARS = 200_000  # of one text
_SCHEME = "dynadiag"
TEMPLATES: Sequence[tuple[str, str, str]] = (  # what follows the path, a name, a description
    ("", "explanation", "the findings, breaks, recompiles, graphs and kernels of a recording, as JSON"),
    ("?report", "report", "the report of a recording, as text"),
    ("?sql={query}", "sql", f"the rows of one SELECT on the tables of a recording, up to {MAX_ROWS}"),
    ("?graph={compile_id}", "graphs", "the graphs of one compile, such as 0/0, at each stage"),
    ("?kernel={name}", "kernel", "the source of a generated kernel, with the lines that it computes"),
)


def uri_of(path: Path) -> str:
    """Return the URI of a recording."""
    return f"{_SCHEME}://{quote(str(path.absolute()))}"


def list_recordings() -> list[Path]:
    """Return the newest recordings of the state folder, the newest first."""
    files = [(file.stat().st_mtime, file) for file in state_folder().glob(f"*{SUFFIX}")]
    return [file for _, file in sorted(files, reverse=True)[:_MAX_LISTED]]


def read_resource(uri: str) -> tuple[str, str]:
    """Return the text of a resource and its MIME type. Raises `DynadiagError` if there is no such resource."""
    parts = urlsplit(uri)
    path = unquote(parts.path)
    if parts.scheme != _SCHEME or parts.netloc:
        raise DynadiagError(f"{uri[:200]}: the URI of a recording is {_SCHEME}:///PATH{SUFFIX}")
    if path.startswith("/schema/"):
        return orjson.dumps(schema_of(path.removeprefix("/schema/"))).decode(), "application/json"
    asked = parse_qs(parts.query, keep_blank_values=True)
    with OpenRecording.at(Path(path)) as recording:
        match list(asked):
            case []:
                return _cut(recording.report().to_json(), uri), "application/json"
            case ["report"]:
                return _cut(str(recording.report()), uri), "text/plain"
            case ["sql"]:
                return orjson.dumps(query(recording, asked["sql"][0])).decode(), "application/json"
            case ["graph"]:
                return _graphs(recording, asked["graph"][0]), "text/plain"
            case ["kernel"]:
                return _kernel(recording, asked["kernel"][0]), "text/plain"
    raise DynadiagError(f"{uri[:200]}: after ? stands one of report, sql=, graph=, kernel=")


def query(recording: OpenRecording, text: str) -> dict[str, object]:
    """Return the columns and rows of a query, and whether rows were left out."""
    rows = recording.sql(text, limit=MAX_ROWS + 1)
    columns = list(rows[0]._fields) if len(rows) else []
    shown = [[_json_value(value) for value in row] for row in rows[:MAX_ROWS]]
    return {"columns": columns, "rows": shown, "more": len(rows) > MAX_ROWS}


def _json_value(value: object) -> object:
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _graphs(recording: OpenRecording, compile_id: str) -> str:
    graphs = recording.graphs(compile_id)
    if not graphs:
        known = ", ".join(dict.fromkeys(graph.compile_id for graph in recording.graphs())) or "none"
        raise DynadiagError(f"{recording.path}: no graph of compile {compile_id[:40]}; there are graphs of {known}")
    texts = [f"# {graph.stage}: {graph.nodes} nodes\n{recording.payload(graph.event)}" for graph in graphs]
    return _cut("\n\n".join(texts), compile_id)


def _kernel(recording: OpenRecording, name: str) -> str:
    calls = kernel_calls(recording)
    chosen = [call for call in calls if call.name == name]
    if not chosen:
        known = ", ".join(dict.fromkeys(call.name for call in calls)) or "none"
        raise DynadiagError(f"{recording.path}: no kernel {name[:100]!r}; there are {known}")
    return _cut(kernel_text(chosen, Roofline(None, saved_times(recording))), name)


def _cut(text: str, what: str) -> str:
    if len(text) <= _MAX_CHARS:
        return text
    raise DynadiagError(f"{what[:200]}: {len(text)} characters, more than {_MAX_CHARS}: ask for a part by sql")
