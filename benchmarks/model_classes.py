"""What `dynadiag fix` makes of the model classes of Transformers: breaks before and after, whole or not, and why not.

    python benchmarks/model_classes.py FOLDER --jobs 16                   # all of the open half, eval and training
    python benchmarks/model_classes.py FOLDER --jobs 16 --half held-out   # the half that nobody has looked at
    python benchmarks/model_classes.py FOLDER --shard 2/4                 # a quarter of the classes
    python benchmarks/model_classes.py FOLDER --only 'Whisper|LED'
    python benchmarks/model_classes.py FOLDER --survey                    # breaks alone, without a search for fixes
    python benchmarks/model_classes.py FOLDER --known known.json          # also write what was proved for `fixes/known`

Each class is built small with random weights (`small_models.py`) and compiled with the backend "eager". First the
breaks of all classes are counted; then fixes are searched for those that break. Each result is a file in FOLDER, so
that a run can be stopped and go on; FOLDER/results.json has all of them, and the totals of both halves. Half of the
classes, by a hash of the name, is held out.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue
from typing import Any

MODES = ("eval", "train")
_COUNT_SECONDS, _FIX_SECONDS = 240, 1500  # limits for one class in one mode
_TRIES = 3  # on a loaded machine some forks abort in the backward; why is not known
_PROGRAM = """import torch
from small_models import model_and_inputs, outputs_of

model, inputs = model_and_inputs({name!r}, {mode!r})
compiled = torch.compile(model, backend="eager")
for _ in range(2):
    torch.manual_seed(0)
    with torch.set_grad_enabled({mode!r} == "train"):
        outputs = list(outputs_of(compiled(**inputs)))
        if {mode!r} == "train":
            sum(each.sum() for each in outputs if each.requires_grad).backward()
print([f"{{each.double().mean().item():.4g}}" for each in outputs])
"""


def is_held_out(name: str) -> bool:
    """Whether a class is of the half that is not looked at while rewrites are made."""
    return hashlib.sha1(name.encode()).digest()[0] % 2 == 1


def main() -> None:
    """Count, search, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--shard", default="1/1", metavar="I/N")
    parser.add_argument("--half", choices=("open", "held-out", "both"), default="open")
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--survey", action="store_true")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no search after so long")
    parser.add_argument("--known", type=Path)
    parser.add_argument("--count", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # a process that has used a GPU cannot fork
    if args.count:
        _count_all(args.count, args.modes, args.folder)
        return
    args.folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    names = _names(args)
    try:
        _survey(names, args)
        if not args.survey:
            _search(names, args, began)
    finally:
        _write_results(args.folder)
    if args.known:
        args.known.write_text(json.dumps(list(_known(args.folder)), indent=1))


def _names(args: argparse.Namespace) -> list[str]:
    from small_models import class_names

    number, of = map(int, args.shard.split("/"))
    half = {"open": (False,), "held-out": (True,), "both": (False, True)}[args.half]
    wanted = [name for name in class_names() if is_held_out(name) in half and re.search(args.only, name)]
    order = sorted(wanted, key=lambda name: hashlib.sha1(name.encode()).hexdigest())
    return order[number - 1 :: of]


def _part(folder: Path, name: str, mode: str, kind: str) -> Path:
    return folder / f"{name}.{mode}.{kind}.json"


# Counting: processes that have Transformers loaded, with a fork for each class.


def _survey(names: Sequence[str], args: argparse.Namespace) -> None:
    left = [name for name in names if any(not _part(args.folder, name, mode, "count").exists() for mode in args.modes)]
    jobs = min(args.jobs, len(left))
    print(f"{len(names)} classes, {len(left)} to count", flush=True)
    command = [sys.executable, __file__, str(args.folder), "--modes", *args.modes, "--count"]
    running = [subprocess.Popen([*command, *left[job::jobs]]) for job in range(jobs)]
    for process in running:
        process.wait()


def _count_all(names: Iterable[str], modes: Sequence[str], folder: Path) -> None:
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    with torch.no_grad():  # a backward before the fork would forbid one after it
        torch.compile(torch.nn.Linear(2, 2), backend="eager")(torch.ones(2, 2))
    for name in names:
        for mode in modes:
            part = _part(folder, name, mode, "count")
            if part.exists():
                continue
            ends = (_in_fork(name, mode, part) for _ in range(_TRIES))
            if (end := next((end for end in ends if end != -signal.SIGABRT), -signal.SIGABRT)) != 0:
                _write(part, {"name": name, "mode": mode, "error": f"ended with {end}"})


def _in_fork(name: str, mode: str, part: Path) -> int:
    """Count in a fork, and return how it ended."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(_COUNT_SECONDS)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        _write(part, _counted(name, mode))
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _counted(name: str, mode: str) -> dict[str, Any]:
    """The root breaks of a class, and how many graphs it has."""
    import torch
    from small_models import model_and_inputs, outputs_of

    import dynadiag
    from dynadiag.render.report import report

    row: dict[str, Any] = {"name": name, "mode": mode, "held_out": is_held_out(name)}
    try:
        model, inputs = model_and_inputs(name, mode)
    except BaseException as error:  # noqa: BLE001 - a class that cannot be built small may fail in any way
        return {**row, "error": f"{type(error).__name__}: {error}"[:300]}
    with tempfile.TemporaryDirectory() as scratch:
        try:
            with dynadiag.record(Path(scratch, "run.dynadiag")) as path, torch.set_grad_enabled(mode == "train"):
                outputs = list(outputs_of(torch.compile(model, backend="eager")(**inputs)))
                if mode == "train":
                    sum(each.sum() for each in outputs if each.requires_grad).backward()
        except Exception as error:  # noqa: BLE001 - it is told with the breaks
            row["raised"] = f"{type(error).__name__}: {error}"[:300]
        with dynadiag.open(path) as recording:
            document = json.loads(report(recording).to_json())
    roots = [entry for entry in document["breaks"] if entry["cause"] is None]
    return {**row, "graphs": document["graph_count"], "breaks": [_place(entry) for entry in roots]}


def _place(entry: dict[str, Any]) -> dict[str, Any]:
    file = (entry["file"] or "").split("site-packages/")[-1]
    return {"file": file, **{name: entry[name] for name in ("gb_id", "gb_type", "line", "function")}}


# Searching: the command itself, on a program for each class that breaks.


def _search(names: Sequence[str], args: argparse.Namespace, began: float) -> None:
    broken = [
        (name, mode)
        for name in names
        for mode in args.modes
        if (row := _read(_part(args.folder, name, mode, "count"))).get("breaks") and "raised" not in row
    ]
    left = [pair for pair in broken if not _part(args.folder, *pair, "fix").exists()]
    print(f"{len(broken)} of {len(names) * len(args.modes)} break, {len(left)} to search", flush=True)
    pairs = _pairs_of_cores(args.jobs)
    with ThreadPoolExecutor(args.jobs) as pool:
        running = [pool.submit(_fixed, *pair, args.folder, began + args.seconds, pairs) for pair in left]
        for done in as_completed(running):
            if row := done.result():
                print(f"{row['name']} {row['mode']}: {row.get('breaks')} whole {row.get('whole')}", flush=True)


def _pairs_of_cores(jobs: int) -> SimpleQueue[str]:
    """Two cores for each search, as `taskset` writes them. A search runs as many trials at once as it has cores: with
    all cores of a large machine for each, the processes of all searches need more than its memory.
    """
    cores = sorted(os.sched_getaffinity(0))
    pairs = [",".join(map(str, cores[first : first + 2])) for first in range(0, len(cores), 2)]
    queue: SimpleQueue[str] = SimpleQueue()
    for job in range(jobs):
        queue.put(pairs[job % len(pairs)])
    return queue


def _fixed(name: str, mode: str, folder: Path, until: float, pairs: SimpleQueue[str]) -> dict[str, Any]:
    """What the command proves of one class; also the overlay, which stays in the folder."""
    if time.monotonic() > until:
        return {}
    pair = pairs.get()
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        (place / "program.py").write_text(_PROGRAM.format(name=name, mode=mode))
        shutil.copy(Path(__file__).with_name("small_models.py"), place)
        overlay = folder.absolute() / f"{name}.{mode}.overlay.py"
        command = ["taskset", "-c", pair, sys.executable, "-m", "dynadiag", "fix", "--json", "fix.json", "--force"]
        command += ["--recording", "fix.dynadiag", "--overlay", str(overlay), "program.py"]
        start = time.monotonic()
        paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        process = subprocess.Popen(
            command,
            cwd=place,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            _, errors = process.communicate(timeout=_FIX_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            errors = "it took too long"
        document = _read(place / "fix.json")
    pairs.put(pair)
    overlay.with_suffix(".log").write_text(errors)
    row = {"name": name, "mode": mode, "held_out": is_held_out(name), "seconds": time.monotonic() - start}
    row |= _judged(document) if document else {"error": errors[-300:]}
    _write(_part(folder, name, mode, "fix"), row)
    return row


def _judged(document: dict[str, Any]) -> dict[str, Any]:
    """Breaks before and after, by root cause, and the reason for each that is left."""
    causes = [entry for entry in document["fixes"] if entry["for"]["kind"] == "break"]
    evidence = document["evidence"] or {"breaks": None}
    left = [
        {**entry["for"], "why": [f"{each['title']}: {each['why']}" for each in entry["rejected"]] or [entry["title"]]}
        for entry in causes
        if entry["verdict"] != "proved"
    ]
    return {
        "causes": len(causes),
        "mended": len(causes) - len(left),
        "breaks": evidence["breaks"],
        "whole": bool(causes) and evidence["breaks"] is not None and evidence["breaks"][1] == 0,
        "evidence": document["evidence"],
        "fixes": [
            {"for": entry["for"], "title": entry["title"], "package": entry["package"]}
            for entry in causes
            if entry["verdict"] == "proved" and not entry["combined"]
        ],
        "left": left,
        "region": document["region"],
        "trials": document["trials"],
    }


def _known(folder: Path) -> Iterator[dict[str, Any]]:
    """What was proved, by the function that it changes, with the classes that it was proved on."""
    import msgspec

    from dynadiag.fixes.fix_search import entry_of, merged
    from dynadiag.fixes.problems import FixProblem
    from dynadiag.fixes.project import Project
    from dynadiag.recording.records import Span
    from dynadiag.trial.program import Program

    project, entries = Project(Program("program.py"), Path(), Path()), []
    for row in (_read(path) for path in sorted(folder.glob("*.fix.json"))):
        command = f"python benchmarks/model_classes.py FOLDER --only '^{row.get('name')}$' --modes {row.get('mode')}"
        for fix in row.get("fixes", ()):
            place = fix["for"]
            span, file = Span(place["file"], place["line"]), project.name(place["file"])
            problem = FixProblem("break", "", file, span, "", "", "", place["gb_id"])
            entries.append(entry_of(project, problem, fix["title"], str(row["name"]), command))
    yield from map(msgspec.to_builtins, merged(each for each in entries if each is not None))


def _write_results(folder: Path) -> None:
    counts = [_read(path) for path in sorted(folder.glob("*.count.json"))]
    fixes = {(row["name"], row["mode"]): row for row in map(_read, sorted(folder.glob("*.fix.json"))) if row}
    rows = [{**row, "fix": fixes.get((row["name"], row["mode"]))} for row in counts if row]
    halves = {"open": False, "held-out": True}
    totals = {half: _totals([row for row in rows if is_held_out(row["name"]) == held]) for half, held in halves.items()}
    _write(folder / "results.json", {"totals": totals, "classes": rows})
    print(json.dumps(totals, indent=1))


def _totals(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    broken = [row for row in rows if row.get("breaks")]
    searched = [row["fix"] for row in broken if row["fix"] is not None]
    classes = {row["name"] for row in broken}
    not_whole = {row["name"] for row in searched if not row.get("whole")}
    return {
        "built": sum("breaks" in row for row in rows),
        "not built": sum("error" in row for row in rows),
        "runs that break": len(broken),
        "classes that break": len(classes),
        "runs searched": len(searched),
        "runs whole": sum(bool(row.get("whole")) for row in searched),
        "classes whole": len({row["name"] for row in searched} - not_whole),
        "not whole, with a smaller region": sum(_has_region(row) for row in searched),
        "root breaks": sum(row.get("causes", 0) for row in searched),
        "root breaks mended": sum(row.get("mended", 0) for row in searched),
    }


def _has_region(row: dict[str, Any]) -> bool:
    return not row.get("whole") and (row.get("region") or {}).get("verdict") == "proved"


def _read(path: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        return dict(json.loads(path.read_text()))
    return {}


def _write(path: Path, row: dict[str, Any]) -> None:
    scratch = path.with_suffix(".part")
    scratch.write_text(json.dumps(row, indent=1))
    scratch.rename(path)


if __name__ == "__main__":
    main()
