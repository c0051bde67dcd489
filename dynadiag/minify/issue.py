"""Writes a bug report for a repro: the failure, the program, its output, the proof and the versions."""

from __future__ import annotations

import platform

from dynadiag import __version__
from dynadiag.minify.minify_result import MinifyResult, culprit_names
from dynadiag.minify.repro_header import strip_directories
from dynadiag.render.clean import clean

__all__ = ["issue_text"]

_MAX_OUTPUT_LINES = 60  # lines of the repro's output; its end names the failure


def issue_text(result: MinifyResult) -> str:
    """The report in Markdown, without paths of this machine."""
    failure = result.reduced or result.failure
    assert failure is not None
    message = next((line for line in failure.message.splitlines() if line.strip()), failure.kind)
    printed = "\n".join(clean(strip_directories(result.printed)).splitlines()[-_MAX_OUTPUT_LINES:])
    proof = "\n".join(f"- {line}" for line in result.proof)
    return (
        f"# torch.compile: {failure.type}: {strip_directories(message)[:120]}\n\n"
        f"It fails at rung `{result.rung}` and passes uncompiled. The program below is reduced from one with "
        f"{result.nodes_before} operations in the failing graph to {result.nodes_after}.{_bisected(result)}\n\n"
        f"```python\n{result.text.rstrip()}\n```\n\n"
        f"## What it prints\n\n{_fenced(printed)}\n\n"
        f"## What was run\n\n{proof}\n\n"
        f"## Versions\n\n- torch {result.torch}\n- Python {platform.python_version()}, {platform.system()} "
        f"{platform.machine()}\n- reduced with dynadiag {__version__}\n"
    )


def _bisected(result: MinifyResult) -> str:
    if result.bisect_verdict is None:
        return ""
    return f" Bisected to {'; '.join([culprit_names(result.bisect_verdict), *result.bisect_verdict.confirmed])}."


def _fenced(text: str) -> str:
    """The text in a fence that is longer than any fence in it."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}text\n{text}\n{fence}"
