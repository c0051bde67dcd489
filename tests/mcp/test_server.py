"""A session with `dynadiag mcp`, message by message, as a client has it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dynadiag.__main__ import COMMANDS
from dynadiag.mcp.tools import command_tools

pytest.importorskip("mcp")

PROGRAM = """\
import pathlib
import torch

pathlib.Path("ran").touch()

@torch.compile(backend="eager")
def step(x):
    print("seen")
    return x * 2

step(torch.ones(3))
"""
WAITS = """\
import signal
import sys
import torch

torch.compile(lambda x: x * 2, backend="eager")(torch.ones(3))
print("waiting", file=sys.stderr, flush=True)
signal.pause()
"""


class Client:
    """The client's side of the pipe. ``session`` is what both have said."""

    def __init__(self, folder: Path) -> None:
        self.session: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dynadiag", "mcp"],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        self.hello = self.ask("initialize", hello)["result"]
        self.tell("notifications/initialized", {})

    def tell(self, method: str, parameters: dict[str, Any], number: int | None = None) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": parameters}
        self.session.append(message if number is None else {**message, "id": number})
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(self.session[-1]) + "\n")
        self._process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        message: dict[str, Any] = json.loads(self._process.stdout.readline())
        self.session.append(message)
        return message

    def ask(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        number = len(self.session)
        self.tell(method, parameters, number)
        while (answer := self.hear()).get("id") != number:
            pass
        return answer

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("tools/call", {"name": tool, "arguments": arguments})["result"]
        return found

    def read(self, uri: str) -> dict[str, Any]:
        return self.ask("resources/read", {"uri": uri})

    def close(self) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        code = self._process.wait()
        self._process.stdout.close()
        return code


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "waits.py").write_text(WAITS)
    made = Client(tmp_path)
    yield made
    assert made.close() == 0


def text_of(result: dict[str, Any]) -> str:
    return "".join(part["text"] for part in result["content"])


def test_a_session(client: Client, tmp_path: Path) -> None:
    assert client.hello["serverInfo"]["name"] == "dynadiag"
    tools = {tool["name"]: tool for tool in client.ask("tools/list", {})["result"]["tools"]}
    assert set(tools) == {*COMMANDS, "sql"} - {"browse", "mcp", "schema"}
    assert tools["bisect"]["inputSchema"]["properties"]["accuracy"]["type"] == "boolean"
    assert tools["bisect"]["inputSchema"]["required"] == ["target"]

    refused = client.call("explain", target="train.py")
    assert refused["isError"]
    assert "run=true" in text_of(refused)
    assert not (tmp_path / "ran").exists()

    explained = client.call("explain", target="train.py", run=True)
    assert not explained.get("isError")
    assert (tmp_path / "ran").exists()
    result = explained["structuredContent"]
    assert (result["exit_code"], result["document"]["break_count"]) == (0, 1)
    assert result["document"]["findings"][0]["id"] == "GB0059"
    assert text_of(explained).startswith("seen\nNot one graph")

    uri = result["recording"]
    listed = client.ask("resources/list", {})["result"]["resources"]
    assert [(item["uri"], item["description"]) for item in listed] == [(uri, "train.py: broke once")]
    recording = uri.removeprefix("dynadiag://")
    (tmp_path / "ran").unlink()
    again = client.call("explain", target=recording)  # a recording is read without run=true
    assert again["structuredContent"]["document"]["break_count"] == 1
    rows = client.call("sql", recording=recording, query="SELECT function, line FROM compile ORDER BY line")
    assert rows["structuredContent"] == {
        "columns": ["function", "line"],
        "rows": [["step", 6], ["step", 8]],
        "more": False,
    }
    assert "only a SELECT" in text_of(client.call("sql", recording=recording, query="DELETE FROM compile"))
    assert "Not one graph" in client.read(f"{uri}?report")["result"]["contents"][0]["text"]
    assert "GraphModule" in client.read(f"{uri}?graph=1/0")["result"]["contents"][0]["text"]
    assert "no kernel" in client.read(f"{uri}?kernel=none")["error"]["message"]
    schema = json.loads(client.read("dynadiag:///schema/explain")["result"]["contents"][0]["text"])
    assert schema["title"] == "dynadiag explain --json"
    assert not (tmp_path / "ran").exists()


REFUSED: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("explain", {"target": "train.py", "runn": True}, "'runn' was unexpected"),
    ("explain", {}, "'target' is a required property"),
    ("bisect", {"target": "absent.py", "run": True}, "absent.py: no such program"),
    ("kernels", {"recording": "absent.dynadiag"}, "absent.dynadiag"),
    ("kernels", {"recording": "absent.dynadiag", "measure": True}, "run=true"),
    ("explain", {"target": "--all", "run": True}, "--all"),
    ("sql", {"recording": "train.py", "query": "SELECT 1"}, "a program, not a recording"),
    ("absent", {}, "no such tool"),
)


def test_a_program_and_its_arguments_are_one_property_each() -> None:
    tool = command_tools()["explain"]
    schema = tool.schema
    assert [action.option_strings for action in tool.places] == [[]]
    assert schema["required"] == ["target"]
    assert schema["properties"]["arguments"]["type"] == "array"
    assert schema["properties"]["module"]["type"] == "boolean"


def test_what_cannot_be_done_is_said_in_one_line(client: Client, tmp_path: Path) -> None:
    for tool, arguments, said in REFUSED:
        result = client.call(tool, **arguments)
        assert result["isError"]
        assert said in text_of(result)
        assert "\n" not in text_of(result).strip()
    assert not (tmp_path / "ran").exists()


def test_long_work_reports_progress_and_can_be_cancelled(client: Client, tmp_path: Path) -> None:
    arguments = {"target": "waits.py", "run": True, "output": "kept.dynadiag"}
    client.tell("tools/call", {"name": "record", "arguments": arguments, "_meta": {"progressToken": "t"}}, 1000)
    lines = []
    while "waiting" not in lines:
        heard = client.hear()
        assert heard["method"] == "notifications/progress"
        lines.append(heard["params"]["message"])
    assert any("compiling" in line for line in lines)
    client.tell("notifications/cancelled", {"requestId": 1000})
    client.ask("ping", {})
    found = client.call("sql", recording=str(tmp_path / "kept.dynadiag"), query="SELECT outcome FROM compile")
    assert found["structuredContent"]["rows"] == [["ok"]]
