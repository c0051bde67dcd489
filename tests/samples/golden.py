"""What of an explanation stays the same from run to run, kept as JSON beside this file for each sample.

    python -m tests.samples.golden            # which differ
    python -m tests.samples.golden --write    # write them anew (on the torch that they are for), and read the diff

Lines are kept as their text, so that a sample can be edited above them; times, paths and object ids are left out.
"""

# ruff: noqa: T201 - also a program

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.samples.running import SAMPLES, TORCH, explained, span_text

FOLDER = Path(__file__).with_name("golden")
FOR_TORCH = "2.13"
# An FX graph out of Inductor's cache, which the samples share, has been through no pass in this run.
OF_PASSES = {"before_pre_grad", "pre_grad", "before_joint", "after_joint", "before_post_grad"}
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


def reduced(name: str) -> dict[str, Any]:
    """The stable facts of one sample's explanation."""
    ran = explained(SAMPLES / f"{name}.py")
    document = ran.document
    return {
        "exit_code": document["exit_code"],
        "graph_count": document["graph_count"],
        "break_count": document["break_count"],
        "recompile_count": document["recompile_count"],
        "roots": [_root(item) for item in ran.roots],
        "skipped_frames": sorted({item["function"] for item in document["skipped_frames"]}),
        "recompiles": [_recompile(item) for item in document["recompiles"]],
        "compiles": [[item["compile_id"], item["function"], item["outcome"]] for item in document["compiles"]],
        "graphs": [
            [item["compile_id"], item["stage"], item["nodes"], item["ops"]]
            for item in document["graphs"]
            if item["stage"] not in OF_PASSES
        ],
        "kernels": [item["language"] for item in document["kernels"]],
    }


def _root(item: dict[str, Any]) -> dict[str, Any]:
    where = span_text(item) if item["column"] is not None else None
    return {key: item[key] for key in ("gb_id", "gb_type", "function", "fatal")} | {"span": where}


def _recompile(item: dict[str, Any]) -> dict[str, Any]:
    reasons = [[reason[key] for key in ("source", "was", "now", "against")] for reason in item["reasons"]]
    return {"compile_id": item["compile_id"], "function": item["function"], "reasons": reasons}


def encoded(name: str) -> str:
    return json.dumps(reduced(name), indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    write = "--write" in sys.argv
    if TORCH != FOR_TORCH:
        sys.exit(f"these files are for torch {FOR_TORCH}, this is {TORCH}")
    changed = 0
    for path in sorted(SAMPLES.glob("*.py")):
        kept, now = FOLDER / f"{path.stem}.json", encoded(path.stem)
        if not kept.exists() or kept.read_text() != now:
            changed += 1
            print(f"{path.stem} differs")
            if write:
                kept.write_text(now)
    return 0 if write else min(changed, 1)


if __name__ == "__main__":
    sys.exit(main())
