"""Explain on twelve models: does it account for every break and recompile that torch logged?

The models are those of `twelve.py`, called under the recorder. What the explanation says is then held against the
events of the trace in the same recording: one entry for each break event, one root for each distinct site, the model's
own source line for each root (or, where torch compiles a function of its own, the line that called it), and for each
recompile the guards that failed, with both values and a line.

    python benchmarks/models.py                    # all of them, as a table
    python benchmarks/models.py bert whisper       # some
    python benchmarks/models.py --write docs/models.md
    python benchmarks/models.py --twice            # recorded twice, one after the other: is `dynadiag diff` empty?
"""

from __future__ import annotations

from twelve import MODELS  # before transformers is loaded: it has that fetch nothing

# isort: split

import argparse
import contextlib
import io
import json
import linecache
import re
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers

import dynadiag
from dynadiag.render.report import report

_NEEDED = ("source", "was", "now", "file", "line")  # of each reason of a recompile
_SHOWN = 2  # changes that the page names for one recompile


@dataclass(frozen=True, slots=True)
class Outcome:
    """What explain said of one model, and each way in which that is not what the trace holds."""

    name: str
    document: dict[str, Any]
    events: int
    recompile_events: int
    seconds: float
    wrong: tuple[str, ...]
    sites: tuple[str, ...] = field(default=())


def study(name: str) -> Outcome:
    """Build a model, call it in each shape under the recorder, and check the explanation against the trace."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            calls = MODELS[name]()
            with dynadiag.record(Path(folder, "model.dynadiag")) as path:
                for call in calls:
                    call()
        seconds = time.perf_counter() - began
        with dynadiag.open(path) as recording:
            document = json.loads(report(recording).to_json())
            events = [recording.payload(event.index) for event in _artifacts(recording, "dynamo_graph_break_reason")]
            again = sum(1 for _ in _artifacts(recording, "recompile_reasons"))
    wrong = (*_wrong_breaks(document, events), *_wrong_recompiles(document, again))
    return Outcome(name, document, len(events), again, seconds, wrong, tuple(_sites(document)))


def _artifacts(recording: dynadiag.Recording, name: str) -> Iterable[Any]:
    return recording.events(kind="artifact", name=name)


def _roots(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in document["breaks"] if one["cause"] is None]


def _wrong_breaks(document: dict[str, Any], texts: list[str]) -> Iterator[str]:
    breaks, roots = document["breaks"], _roots(document)
    logged = [one for one in breaks if not one["fatal"]]
    if len(logged) != len(texts):
        yield f"{len(logged)} breaks for {len(texts)} break events"
    for one, text in zip(logged, texts, strict=False):
        told = set(re.findall(r'File "([^"\n]*)", line (\d+)', text)) | set(
            re.findall(r"in user code at (.*):(\d+)", text)
        )
        if (one["file"], str(one["line"])) not in told:
            yield f"{one['gb_id']} at {Path(one['file']).name}:{one['line']}, which torch's text does not name"
    # torch's function that is compiled by itself too breaks at its own line: that follows from the program's line.
    sites = {_site(one) for one in breaks if one["cause"] is None or not _is_plumbing(one["file"])}
    if len(sites) != len(roots) or document["break_count"] != len(roots):
        yield f"{len(roots)} roots for {len(sites)} distinct sites"
    for root in roots:
        named = f"root {root['gb_id']} at {Path(root['file']).name}:{root['line']}"
        if _is_plumbing(root["file"]) and _caller(root) is None:
            yield f"{named} is torch's line, or Python's, and no line of the program leads to it"
        elif root["column"] is None or not _text(root)[root["column"] :].strip():
            yield f"{named} has no span on a line of source"


def _caller(root: dict[str, Any]) -> dict[str, Any] | None:
    """The program's line that called what torch compiled as a frame of its own (an optimizer's step, say)."""
    theirs = [frame for frame in root["user_stack"] if not _is_plumbing(frame["file"])]
    return theirs[-1] if theirs else None


def _site(one: dict[str, Any]) -> tuple[object, ...]:
    return tuple(one[key] for key in ("file", "line", "column", "end_line", "end_column", "gb_type"))


def _text(place: dict[str, Any]) -> str:
    return linecache.getline(place["file"], place["line"]).rstrip("\n")


def _is_plumbing(file: str) -> bool:
    folders = (Path(torch.__file__).parent, Path(sysconfig.get_path("stdlib")))
    inside = any(Path(file).is_relative_to(folder) for folder in folders)
    return inside and ("site-packages" not in file or Path(file).is_relative_to(folders[0]))


def _wrong_recompiles(document: dict[str, Any], events: int) -> Iterator[str]:
    if document["recompile_count"] != events:
        yield f"{document['recompile_count']} recompiles for {events} recompile events"
    for one in document["recompiles"]:
        name = f"recompile {one['compile_id']} of {one['function']}"
        if not one["reasons"]:
            yield f"{name} has no reason"
        for reason in one["reasons"]:
            lacks = [key for key in _NEEDED if reason[key] is None]
            if lacks:
                yield f"{name}: no {', '.join(lacks)} for {reason['guard'][:160]}"


def _sites(document: dict[str, Any]) -> Iterator[str]:
    for root in _roots(document):
        span = _text(root)[root["column"] : root["end_column"] if root["end_line"] == root["line"] else None]
        site = f"{root['gb_id']} {Path(root['file']).name}:{root['line']} `{span.strip()}` in `{root['function']}`"
        caller = _caller(root) if _is_plumbing(root["file"]) else None
        yield site + (f", called at {Path(caller['file']).name}:{caller['line']}" if caller else "")


def table(outcomes: Iterable[Outcome]) -> str:
    """A Markdown table, one row a model."""
    rows = [
        "| model | graphs | break events | breaks | roots | recompile events | recompiles | explained in full |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in outcomes:
        told = [_in_full(recompile) for recompile in one.document["recompiles"]]
        figures = (one.document["graph_count"], one.events, len(one.document["breaks"]), one.document["break_count"])
        cells = (*figures, one.recompile_events, len(told), f"{sum(told)} of {len(told)}")
        rows.append(f"| {one.name} | " + " | ".join(map(str, cells)) + " |")
    return "\n".join(rows) + "\n"


def _in_full(recompile: dict[str, Any]) -> bool:
    reasons = recompile["reasons"]
    return bool(reasons) and all(reason[key] is not None for reason in reasons for key in _NEEDED)


def page(outcomes: Iterable[Outcome]) -> str:
    """The section of the documentation for this torch: the table, the sites, what each recompile came from."""
    done = list(outcomes)
    lines = [
        f"## torch {torch.__version__.partition('+')[0]}, transformers {transformers.__version__}",
        "",
        table(done),
    ]
    lines += ["Sites of breaks:", ""]
    lines += [f"- {one.name}: {site}" for one in done for site in one.sites]
    lines += [
        "",
        "What changed before each recompile (of the entry made last; sizes, not the strides that follow them):",
        "",
    ]
    lines += [
        f"- {one.name} {recompile['compile_id']}: {_changed(recompile)}"
        for one in done
        for recompile in one.document["recompiles"]
    ]
    wrong = [f"- {one.name}: {sentence}" for one in done for sentence in one.wrong]
    return "\n".join([*map(_wrapped, lines), *(["", "Not as it should be:", "", *wrong] if wrong else []), ""])


def _wrapped(line: str) -> str:
    """An item of a list on lines of at most 120 columns. Tables and headings stay as they are."""
    if not line.startswith("- "):
        return line
    return textwrap.fill(line, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _changed(recompile: dict[str, Any]) -> str:
    """The failing guards of the newest entry, short."""
    reasons = recompile["reasons"]
    newest = [
        one for one in reasons if one["against"] == reasons[0]["against"] and ".stride()" not in str(one["source"])
    ]
    told = [
        f"`{one['source'] or one['guard']}` {one['was']} -> {one['now']}, line {_place(one)}" for one in newest[:_SHOWN]
    ]
    return "; ".join(told) + (f"; and {len(newest) - _SHOWN} more" if len(newest) > _SHOWN else "")


def _place(reason: dict[str, Any]) -> str:
    return f"{Path(reason['file']).name}:{reason['line']}" if reason["file"] else "unknown"


def put(path: Path, section: str) -> None:
    """Put a section into a page, in place of the one with the same heading."""
    text = path.read_text() if path.exists() else ""
    heading = section.partition("\n")[0]
    before, found, after = text.partition(heading + "\n")
    following = after.partition("\n## ")[2] if found else ""
    rest = f"\n## {following}" if following else ""
    path.write_text(f"{before.rstrip()}\n\n{section}{rest}".lstrip("\n"))


_PROGRAM = """
import sys

sys.path.insert(0, {folder!r})
from twelve import MODELS

import torch

torch.manual_seed(0)
for call in MODELS[{name!r}]():
    call()
"""


def differs(name: str) -> bool:
    """Record a model twice, in processes of their own, and print whether `dynadiag diff` finds them the same."""
    with tempfile.TemporaryDirectory() as folder:
        program, document = Path(folder, "model.py"), Path(folder, "diff.json")
        recordings = [Path(folder, f"{number}.dynadiag") for number in (1, 2)]
        program.write_text(_PROGRAM.format(folder=str(Path(__file__).parent), name=name))
        for recording in recordings:
            _dynadiag("record", "-o", recording, program)
        _dynadiag("diff", "--json", document, *recordings)
        found = json.loads(document.read_text())
    told = [f"{one['stage']}: {one['text']}" for one in found["differences"]]
    print(f"{name}: {'same' if found['same'] else f'{len(told)} differences'}", *told, sep="\n    ", flush=True)
    return not found["same"]


def _dynadiag(*words: str | Path) -> None:
    command = [sys.executable, "-m", "dynadiag", *words]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"dynadiag {words[0]} ended with {done.returncode}: {done.stderr[-500:]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="put the results into this page of the documentation"
    )
    parser.add_argument("--json", type=Path, metavar="FOLDER", help="keep each explanation as JSON there")
    parser.add_argument("--twice", action="store_true", help="record each twice, and compare the recordings")
    args = parser.parse_args()
    chosen = [name for name in MODELS if not args.names or any(word in name for word in args.names)]
    if not chosen:
        parser.error(f"no model has a name like {', '.join(args.names)}: {', '.join(MODELS)}")
    if args.twice:
        return int(sum(map(differs, chosen)) > 0)
    outcomes = [_reported(name, args.json) for name in chosen]
    print(table(outcomes), end="")
    if args.write:
        put(args.write, page(outcomes))
    return int(any(outcome.wrong for outcome in outcomes))


def _reported(name: str, folder: Path | None) -> Outcome:
    outcome = study(name)
    print(f"{name}: {outcome.seconds:.1f} s, {len(outcome.wrong)} discrepancies", flush=True)
    for sentence in (*outcome.sites, *(f"WRONG {one}" for one in outcome.wrong)):
        print("   ", sentence)
    if folder:
        (folder / f"{name.replace(' ', '_')}.json").write_text(json.dumps(outcome.document, indent=1))
    return outcome


if __name__ == "__main__":
    sys.exit(main())
