"""A session with `dynadiag mcp`, message by message, as a client has it."""

from __future__ import annotations

import getpass
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import dynadiag
from dynadiag.__main__ import COMMANDS
from dynadiag.errors import DynadiagError
from dynadiag.mcp.tools import command_tools
from dynadiag.tables import OpenRecording

pytest.importorskip("mcp")
import anyio
import mcp_types as types
from anyio.abc import ByteReceiveStream
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from dynadiag.mcp import server

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
STARTS = """\
import os
import signal
import subprocess
import sys
import torch

if "deaf" in sys.argv:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
torch.compile(lambda x: x * 2, backend="eager")(torch.ones(3))
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True)
print("started", os.getpid(), child.pid, file=sys.stderr, flush=True)
if "ends" not in sys.argv:
    signal.pause()
"""


PRINTED = 1_000_004
PRINTS = """\
import sys
import torch

torch.compile(lambda x: x * 2, backend="eager")(torch.ones(3))
for _ in range(100_000):
    print("line of stderr", file=sys.stderr)
print("x" * 1_000_000 + "end")
"""


class Client:
    """The client's side of the pipe. ``session`` is what both have said."""

    def __init__(self, folder: Path) -> None:
        (folder / "starts.py").write_text(STARTS)
        self.folder = folder
        self.session: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dynadiag", "mcp"],
            cwd=folder,
            env=os.environ | {"XDG_STATE_HOME": str(folder / "state")},
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

    def started(self) -> list[int]:
        """The processes that ``starts.py`` has named in a line of progress."""
        lines = [message["params"]["message"] for message in self.session if "progress" in message.get("method", "")]
        return [int(word) for line in lines if line.startswith("started ") for word in line.split()[1:]]

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        code = self._process.wait()
        self._process.stdout.close()
        return code


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    made = Client(tmp_path_factory.mktemp("session"))
    (made.folder / "train.py").write_text(PROGRAM)
    yield made
    assert made.close() == 0


@pytest.fixture(scope="module")
def kept(client: Client) -> Path:
    """A recording in the client's folder."""
    client.call("record", target="train.py", output="kept.dynadiag", run=True)
    (client.folder / "ran").unlink()
    return client.folder / "kept.dynadiag"


def text_of(result: dict[str, Any]) -> str:
    return "".join(part["text"] for part in result["content"])


def test_a_session(client: Client) -> None:
    assert client.hello["serverInfo"]["name"] == "dynadiag"
    tools = {tool["name"]: tool for tool in client.ask("tools/list", {})["result"]["tools"]}
    assert set(tools) == {*COMMANDS, "sql"} - {"browse", "mcp", "schema"}
    assert tools["bisect"]["inputSchema"]["properties"]["accuracy"]["type"] == "boolean"
    assert tools["bisect"]["inputSchema"]["required"] == ["target"]

    refused = client.call("explain", target="train.py")
    assert refused["isError"]
    assert "run=true" in text_of(refused)
    assert not (client.folder / "ran").exists()

    explained = client.call("explain", target="train.py", run=True)
    assert not explained.get("isError")
    assert (client.folder / "ran").exists()
    result = explained["structuredContent"]
    assert (result["exit_code"], result["document"]["break_count"]) == (0, 1)
    assert result["document"]["findings"][0]["id"] == "GB0059"
    assert text_of(explained).startswith("seen\nNot one graph")

    uri = result["recording"]
    listed = client.ask("resources/list", {})["result"]["resources"]
    assert [(item["uri"], item["description"]) for item in listed] == [(uri, "train.py: broke once")]
    recording = uri.removeprefix("dynadiag://")
    (client.folder / "ran").unlink()
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
    assert not (client.folder / "ran").exists()


def test_what_only_reads_needs_no_run_and_what_is_written_has_its_uri(client: Client) -> None:
    made = client.call("record", target="train.py", output="here.dynadiag", run=True)["structuredContent"]
    assert made["recording"] == f"dynadiag://{client.folder / 'here.dynadiag'}"
    (client.folder / "ran").unlink()
    for tool, arguments in (("values", {"target": "here.dynadiag"}), ("prune", {})):
        assert "run=true" not in text_of(client.call(tool, **arguments))
    assert not (client.folder / "ran").exists()


REFUSED: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("explain", {"target": "train.py", "runn": True}, "'runn' was unexpected"),
    ("explain", {}, "'target' is a required property"),
    ("bisect", {"target": "absent.py", "run": True}, "absent.py: no such program"),
    ("kernels", {"recording": "absent.dynadiag"}, "absent.dynadiag"),
    ("kernels", {"recording": "absent.dynadiag", "measure": True}, "run=true"),
    ("explain", {"target": "--all", "run": True}, "--all"),
    ("sql", {"recording": "train.py", "query": "SELECT 1"}, "a program, not a recording"),
    ("absent", {}, "no such tool"),
    ("explain", {"target": "null\0.py", "run": True}, "null byte"),
    ("explain", {"target": "x" * 5000, "run": True}, "too long"),
)


def test_a_program_and_its_arguments_are_one_property_each() -> None:
    tool = command_tools()["explain"]
    schema = tool.schema
    assert [action.option_strings for action in tool.places] == [[]]
    assert schema["required"] == ["target"]
    assert schema["properties"]["arguments"]["type"] == "array"
    assert schema["properties"]["module"]["type"] == "boolean"
    assert "GPU" in schema["properties"]["gpu_target"]["description"]  # the option --target, which names no program
    assert {"coverage", "stop_after", "fresh"} <= schema["properties"].keys()


def test_what_an_exit_code_means_is_true_of_a_recording_too() -> None:
    tools = command_tools()
    assert tools["explain"].meaning(0) == "done"  # also of a recording whose program failed
    assert {tools[name].meaning(3) for name in ("explain", "values", "run")} == {"the program's own exit code"}
    assert tools["compare"].meaning(1) == "every variant failed"


def test_what_cannot_be_done_is_said_in_one_line(client: Client) -> None:
    for tool, arguments, said in REFUSED:
        result = client.call(tool, **arguments)
        assert result["isError"]
        assert said in text_of(result)
        assert "\n" not in text_of(result).strip()
    assert not (client.folder / "ran").exists()


def test_rows_are_sent_until_they_are_too_much_for_a_client(client: Client, kept: Path) -> None:
    many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT hex(zeroblob(20000)) FROM n"
    found = client.call("sql", recording=kept.name, query=many)["structuredContent"]
    assert (len(found["rows"]), found["more"]) == (4, True)
    refused = client.call("sql", recording=kept.name, query="SELECT hex(zeroblob(200000))")
    assert "select a part" in text_of(refused)


def test_a_list_of_a_document_can_be_read_piece_by_piece(client: Client, kept: Path) -> None:
    """A document that is too long for one answer is read so."""
    document = json.loads(client.read(f"dynadiag://{kept}")["result"]["contents"][0]["text"])

    def entries(asked: str) -> Any:
        return json.loads(client.read(f"dynadiag://{kept}?list={asked}")["result"]["contents"][0]["text"])

    assert document["compiles"]
    assert entries("compiles") == {"entries": document["compiles"], "more": False}
    assert entries("compiles:1") == {"entries": document["compiles"][1:], "more": False}
    for wrong in ("program", "absent", "compiles:-1"):
        assert "NAME:FROM of" in client.read(f"dynadiag://{kept}?list={wrong}")["error"]["message"]


def test_a_cancelled_query_ends(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    begun, ended = threading.Event(), queue.Queue[str]()

    def query(recording: OpenRecording, text: str) -> dict[str, object]:
        begun.set()
        try:
            return server_query(recording, text)
        except DynadiagError as error:
            ended.put(str(error))
            raise

    server_query = server.query
    monkeypatch.setattr(server, "query", query)

    async def cancel() -> None:
        async with anyio.create_task_group() as calling:
            calling.start_soon(server._run_query, {"recording": str(kept), "query": endless})
            await anyio.to_thread.run_sync(begun.wait)
            calling.cancel_scope.cancel()

    anyio.run(cancel)
    assert "closed while it was read" in ended.get()


def test_a_uri_has_any_query_and_any_path(client: Client, kept: Path) -> None:
    """A query may have ``+`` and ``&`` as they are, and a path may be no UTF-8."""
    answer = client.read(f"dynadiag://{kept}?sql=SELECT 1+1 AS a, '&;=' AS b")["result"]
    assert json.loads(answer["contents"][0]["text"])["rows"] == [[2, "&;="]]
    odd = client.folder / "state" / "dynadiag" / os.fsdecode(b"odd \xff?.dynadiag")
    odd.parent.mkdir(parents=True, exist_ok=True)
    odd.write_bytes(kept.read_bytes())
    listed = client.ask("resources/list", {})["result"]["resources"]
    odd.unlink()
    (found,) = [item for item in listed if item["name"].startswith("odd")]
    assert found["uri"].endswith("/odd%20%FF%3F.dynadiag")
    assert "No such file" in client.read(found["uri"])["error"]["message"]
    for wrong in ("dynadiag://[", "dynadiag://host/x", "file:///x"):
        assert "the URI of a recording is" in client.read(wrong)["error"]["message"]


def test_a_cancelled_call_ends_what_it_started_and_keeps_what_it_found(tmp_path: Path) -> None:
    (tmp_path / "starts.py").write_text(STARTS)
    (tmp_path / "tmp").mkdir()
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path), "TMPDIR": str(tmp_path / "tmp")}
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "dynadiag", "mcp"], cwd=tmp_path, env=environment
    )

    async def session() -> None:
        progress, listed = Progress(), anyio.Event()

        async def hear(message: object) -> None:
            if isinstance(message, types.ResourceListChangedNotification):
                listed.set()

        async with stdio_client(command) as streams, ClientSession(*streams, message_handler=hear) as client:
            await client.initialize()
            wanted = {"target": "starts.py", "run": True}
            async with anyio.create_task_group() as calling:
                calling.start_soon(partial(client.call_tool, "explain", wanted, progress_callback=progress.hear))
                await progress.started.wait()
                calling.cancel_scope.cancel()  # the client tells the server
            await listed.wait()
            (recording,) = (await client.list_resources()).resources
            query = {"recording": recording.uri.removeprefix("dynadiag://"), "query": "SELECT outcome FROM compile"}
            found = (await client.call_tool("sql", query)).structured_content
        assert found is not None
        assert found["rows"] == [["ok"]]
        assert any("compiling" in line for line in progress.lines)
        assert not any(map(is_running, progress.processes))
        assert {file.name for file in (tmp_path / "tmp").iterdir()} <= {f"torchinductor_{getpass.getuser()}"}

    anyio.run(session)


@pytest.mark.usefixtures("forked_interpreters")
def test_a_program_that_ignores_ctrl_c_is_ended_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_INTERRUPTS", (0.1, 0.1, 60.0))
    progress = Progress()

    async def cancel() -> None:
        async with anyio.create_task_group() as calling:
            words = [f"--output={tmp_path / 'kept.dynadiag'}", str(tmp_path / "starts.py"), "deaf"]
            calling.start_soon(partial(server.run_command, "record", words, has_document=False, report=progress.report))
            await progress.started.wait()
            calling.cancel_scope.cancel()

    (tmp_path / "starts.py").write_text(STARTS)
    anyio.run(cancel)
    assert not any(map(is_running, progress.processes))
    with dynadiag.open(tmp_path / "kept.dynadiag") as recording:
        assert [row.outcome for row in recording.sql("SELECT outcome FROM compile")] == ["ok"]


def test_a_process_that_the_program_leaves_does_not_hold_the_call(client: Client) -> None:
    wanted = {"target": "starts.py", "arguments": ["ends"], "run": True}
    answer = client.ask("tools/call", {"name": "record", "arguments": wanted, "_meta": {"progressToken": "t"}})
    _program, child = client.started()
    os.kill(child, signal.SIGKILL)  # it still runs
    assert answer["result"]["structuredContent"]["recording"].endswith(".dynadiag")


@pytest.mark.usefixtures("forked_interpreters")
def test_a_client_that_takes_no_progress_does_not_hold_the_program(tmp_path: Path) -> None:
    """It prints more than a pipe holds. Begin and end of its text are kept, and its last line, which is a path."""
    (tmp_path / "prints.py").write_text(PRINTS)

    async def never(_line: str) -> None:
        await anyio.sleep_forever()

    words = [f"--output={tmp_path / 'kept.dynadiag'}", str(tmp_path / "prints.py")]
    ended = anyio.run(partial(server.run_command, "record", words, has_document=False, report=never))
    assert ended.last_line == str(tmp_path / "kept.dynadiag")
    assert ended.printed.endswith("end\n")
    begin, cut, end = re.split(r"\n\((\d+) characters left out\)\n", ended.printed)
    assert (len(begin), len(end)) == (server._MAX_BEGIN, server._MAX_END)
    assert len(begin) + int(cut) + len(end) == PRINTED


def test_a_progress_bar_is_lines_of_progress() -> None:
    async def lines() -> list[str]:
        text = [b"1/3\r2", b"/3\r", b"x" * 100_000, b"y\nend"]
        return [line async for line in server._lines(Pieces(text))]

    assert [line[:20] for line in anyio.run(lines)] == ["1/3", "2/3", "x" * 20, "end"]


def test_a_program_ends_with_the_server(tmp_path: Path) -> None:
    client = Client(tmp_path)
    wanted = {"name": "explain", "arguments": {"target": "starts.py", "run": True}, "_meta": {"progressToken": "t"}}
    client.tell("tools/call", wanted, 1000)
    while not client.started():
        client.hear()
    program, child = client.started()
    client.kill()
    try:
        while is_running(program):
            time.sleep(0.05)
    finally:
        os.kill(child, signal.SIGKILL)
    assert client.close() == -signal.SIGKILL


class Pieces(ByteReceiveStream):
    """A pipe from which these bytes come, piece by piece."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if not self._pieces:
            raise anyio.EndOfStream
        return self._pieces.pop(0)

    async def aclose(self) -> None:
        self._pieces = []


class Progress:
    """The lines of progress of a call of ``starts.py``, and the processes of the program and of what it started."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.processes: list[int] = []
        self.started = anyio.Event()

    async def report(self, line: str) -> None:
        self.lines.append(line)
        if line.startswith("started "):
            self.processes = [int(word) for word in line.split()[1:]]
            self.started.set()

    async def hear(self, _done: float, _total: float | None, line: str | None) -> None:
        await self.report(line or "")


def is_running(process: int) -> bool:
    """Whether a process exists that has not ended."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False
