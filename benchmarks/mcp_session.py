"""What does one call of an agent answer? A session with `dynadiag mcp` by the client of the `mcp` package, over stdio.

    python benchmarks/mcp_session.py [--log FILE] CALLS.json

CALLS.json is a list of calls, each ``{"name": ..., "tool": "fix", "arguments": {"target": "model.py:case"}}``; its
folder is where the server is started. Each call is allowed to run its program, and reports progress. A line for each
says how long it took, how many lines of progress came, and the first line of the answer. ``--log`` keeps each request
with its whole result, a JSON object a line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def session(calls: list[dict[str, Any]], folder: Path, log: Path | None) -> None:
    """Make the calls one after the other."""
    server = StdioServerParameters(command=sys.executable, args=["-m", "dynadiag", "mcp"], cwd=folder)
    async with stdio_client(server) as streams, ClientSession(*streams) as client:
        await client.initialize()
        tools = await client.list_tools()
        print(f"{len(tools.tools)} tools: {', '.join(tool.name for tool in tools.tools)}", flush=True)
        runs = {tool.name for tool in tools.tools if "run" in tool.input_schema["properties"]}
        for call in calls:
            began, lines = time.monotonic(), list[str]()

            async def hear(_done: float, _total: float | None, message: str | None, lines: list[str] = lines) -> None:
                lines.append(message or "")

            arguments = {**call["arguments"], **({"run": True} if call["tool"] in runs else {})}
            result = await client.call_tool(call["tool"], arguments, progress_callback=hear)
            text = "\n".join(part.text for part in result.content if part.type == "text")
            print(
                f"{call['name']}: {call['tool']}, {time.monotonic() - began:.0f} s, {len(lines)} lines of progress: "
                f"{text.partition(chr(10))[0]}",
                flush=True,
            )
            if log is not None:
                with log.open("a") as file:
                    kept = {**call, "progress": lines, "result": result.model_dump(mode="json")}
                    file.write(json.dumps(kept) + "\n")


def main() -> None:
    """Read the calls, and make them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("calls", type=Path, metavar="CALLS.json")
    parser.add_argument("--log", type=Path)
    options = parser.parse_args()
    asyncio.run(session(json.loads(options.calls.read_bytes()), options.calls.absolute().parent, options.log))


if __name__ == "__main__":
    main()
