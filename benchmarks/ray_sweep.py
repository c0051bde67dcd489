"""`check` here and on Ray, with 2 and 4 workers: are the problems the same, and what does a program cost more?

    .venv/bin/pip install '.[ray]'
    .venv/bin/python benchmarks/ray_sweep.py [PROGRAM...]

The programs are ten of `samples/` unless some are named. Each way runs in a process of its own. Prints the seconds of
each way, and those that a program takes more than its share of the run without Ray. Exit code 1 if a way gives other
problems.
"""

from __future__ import annotations

import _paths  # noqa: F401 - for what it does to sys.path

# isort: split

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_SAMPLES = Path(__file__).resolve().parents[1] / "samples"
_CHECK = "import sys; from dynadiag.__main__ import main; sys.exit(main(sys.argv[1:]))"
_WITH_WORKERS = """
import sys, ray
workers = int(sys.argv.pop(1))
ray.init(num_cpus=workers, log_to_driver=False, include_dashboard=False, _system_config={"worker_niceness": 0})
"""


def main() -> int:
    """Run each way, print a row for it, and return the exit code."""
    programs = sys.argv[1:] or [str(path) for path in sorted(_SAMPLES.glob("*.py"))[:10]]
    here, seconds = _problems(_CHECK, ["check"], programs)
    print(f"here       {seconds:6.1f} s  {len(here)} problems of {len(programs)} programs")
    alike = True
    for workers in (2, 4):
        found, took = _problems(_WITH_WORKERS + _CHECK, [str(workers), "check", "--on", "ray"], programs)
        alike &= found == here
        more = (took - seconds) / len(programs)
        print(f"{workers} workers  {took:6.1f} s  {'same problems' if found == here else 'OTHER PROBLEMS'}", end="")
        print(f", {more:+.1f} s a program")
    return 0 if alike else 1


def _problems(script: str, arguments: list[str], programs: list[str]) -> tuple[list[dict[str, Any]], float]:
    with tempfile.TemporaryDirectory() as folder:
        result, began = Path(folder, "check.json"), time.perf_counter()
        command = [sys.executable, "-c", script, *arguments, "--json", str(result), *programs]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        took = time.perf_counter() - began
        if not result.exists():
            raise SystemExit(done.stderr)
        problems: list[dict[str, Any]] = json.loads(result.read_text())["problems"]
        return problems, took


if __name__ == "__main__":
    sys.exit(main())
