"""What does one call of an agent answer? A session with `dynadiag mcp` by the client of the `mcp` package, over stdio.

    python benchmarks/mcp_session.py [--log FILE] [--only NAME] CALLS.json
    python benchmarks/mcp_session.py benchmarks/agent_questions.json

CALLS.json is a list of calls, each ``{"name": ..., "tool": "fix", "arguments": {"target": "model.py:case"}}``; its
folder is where the server is started. Each call is allowed to run its program, and reports progress. A line for each
says how long it took, how many lines of progress came, and the first line of the answer. ``--log`` keeps each request
with its whole result, a JSON object a line.

A call may say how its answer is marked: ``cause``, ``remedy`` and ``works`` are lists of patterns, all of which stand
in the report if it names the cause, says what to do, or shows that there is no problem. One without a tool is not made,
and ``why`` says the reason. The last lines count the marks.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

BOTH, CAUSE, WORKS = "names the cause and what to do", "names the cause", "shows that it works with this torch"
NEITHER, NOT_MADE = "does not answer", "was not made"


def mark(call: dict[str, Any], report: str) -> str:
    """What the report answers. Lines of a report are wrapped, so a space of a pattern is any white space."""

    def has(kind: str) -> bool:
        patterns = [pattern.replace(" ", r"\s+") for pattern in call.get(kind, ())]
        return bool(patterns) and all(re.search(pattern, report) for pattern in patterns)

    if has("works"):
        return WORKS
    if not has("cause"):
        return NEITHER
    return BOTH if has("remedy") else CAUSE


async def session(calls: list[dict[str, Any]], folder: Path, log: Path | None) -> dict[str, list[str]]:
    """Make the calls in order. Returns the names of the calls for each mark."""
    marks = defaultdict[str, list[str]](list)
    server = StdioServerParameters(command=sys.executable, args=["-m", "dynadiag", "mcp"], cwd=folder)
    async with stdio_client(server) as streams, ClientSession(*streams) as client:
        await client.initialize()
        tools = await client.list_tools()
        print(f"{len(tools.tools)} tools: {', '.join(tool.name for tool in tools.tools)}", flush=True)
        runs = {tool.name for tool in tools.tools if "run" in tool.input_schema["properties"]}
        for call in calls:
            if "tool" not in call:
                marks[NOT_MADE].append(call["name"])
                continue
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
            marks[mark(call, text)].append(call["name"])
            if log is not None:
                with log.open("a") as file:
                    kept = {**call, "progress": lines, "result": result.model_dump(mode="json")}
                    file.write(json.dumps(kept) + "\n")
    return marks


def main() -> None:
    """Read the calls, and make them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("calls", type=Path, metavar="CALLS.json")
    parser.add_argument("--log", type=Path)
    parser.add_argument("--only", action="append", metavar="NAME", help="make this call alone (may be repeated)")
    options = parser.parse_args()
    calls = json.loads(options.calls.read_bytes())
    calls = [call for call in calls if not options.only or call["name"] in options.only]
    marks = asyncio.run(session(calls, options.calls.absolute().parent, options.log))
    if any(call.keys() & {"cause", "works"} for call in calls):
        for name in (BOTH, CAUSE, WORKS, NEITHER, NOT_MADE):
            print(f"{name}: {len(marks[name])}: {', '.join(marks[name])}")


if __name__ == "__main__":
    main()
