"""What of an explanation stays the same from run to run, kept as JSON beside this file for each sample.

    python -m tests.samples.golden            # which differ
    python -m tests.samples.golden --write    # write them anew, and read the diff

Those of torch 2.13 stand in the folder `golden`, and those of another version, where they differ, in a folder of its
name. Lines are kept as their text, so that a sample can be edited above them; times, paths and object ids are left out.
"""

# ruff: noqa: T201 - also a program

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests import shared
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


def of_version(name: str) -> Path:
    """The file with a sample's facts on this torch, if they differ there; it need not exist."""
    return (FOLDER if TORCH == FOR_TORCH else FOLDER / TORCH) / f"{name}.json"


def kept(name: str) -> str:
    """A sample's facts, as last reviewed on this torch."""
    own = of_version(name)
    return (own if own.exists() else FOLDER / f"{name}.json").read_text()


def main() -> int:
    write = "--write" in sys.argv
    changed = 0
    for name in NAMES:
        now = encoded(name)
        if kept(name) != now:
            changed += 1
            print(f"{name} differs")
            if write:
                of_version(name).parent.mkdir(exist_ok=True)
                of_version(name).write_text(now)
    return 0 if write else min(changed, 1)


if __name__ == "__main__":
    with shared.use():
        sys.exit(main())
