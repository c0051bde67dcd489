"""Runs a program bare and under the recorder; the two runs share nothing but the program."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DYNADIAG = [sys.executable, "-m", "dynadiag"]
LIMIT = 240  # seconds for one program, so that a hang ends
# What a program can see of the process at its end, printed by itself in both runs.
STATE = """
def state():
    import gc, hashlib, logging, os, random, signal, sys, threading, warnings
    import torch, torch._inductor.config
    def text(config):
        return {k: repr(v) for k, v in sorted(config.get_config_copy().items()) if " at 0x" not in repr(v)}
    configs = repr([text(torch._dynamo.config), text(torch._inductor.config), text(torch._functorch.config)])
    print("environ", sorted(os.environ.items()))
    print("config", hashlib.sha256(configs.encode()).hexdigest(), os.getcwd(), sys.path, sys.argv, sys.flags)
    print("threads", threading.active_count(), torch.get_num_threads(), sys.getrecursionlimit())
    print("handlers", [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)])
    print("hooks", sys.excepthook is sys.__excepthook__, sys.gettrace(), sys.getprofile(), len(sys.meta_path))
    print("logging", logging.root.handlers, logging.root.level, logging.raiseExceptions, logging.lastResort.level)
    print("random", random.random(), torch.rand(2).tolist(), torch.is_grad_enabled(), warnings.filters[:3])
    print("imported", sorted(n for n in sys.modules if n.partition(".")[0] in ("tui", "minifier", "textual", "orjson")))
"""


@dataclass(frozen=True)
class Run:
    """How a program ended, and the files that it left."""

    code: int
    out: str
    err: str
    files: tuple[str, ...]
    document: dict[str, Any]

    @property
    def complaint(self) -> str:
        """The traceback on stderr, without what torch logs beside it, and without addresses."""
        start = self.err.find("Traceback (most recent call last)")
        text = re.sub(r"0x[0-9a-f]{6,}", "0x", self.err[start:]) if start >= 0 else ""
        return "\n".join(line for line in text.splitlines() if not re.match(r"^[VDIWE]\d{4} |.*\.dynadiag$", line))


class Bench:
    """A folder with a program, its own home and its own folder for temporary files, made anew for each run."""

    def __init__(self, root: Path, program: str, **beside: str) -> None:
        self._root, self._program = root, textwrap.dedent(program).strip() + "\n"
        self._beside = beside
        self.work, self.out = root / "work", root / "out"

    def bare(self, *arguments: str, stdin: str = "") -> Run:
        """As Python runs it."""
        self._lay_out()
        return self._run([sys.executable, "program.py", *arguments], stdin)

    def recorded(self, *arguments: str, options: tuple[str, ...] = (), stdin: str = "") -> Run:
        """As ``dynadiag explain`` runs it; its recording is ``out/run.dynadiag``."""
        self._lay_out()
        options = ("--json", str(self.out / "run.json"), "-o", str(self.out / "run.dynadiag"), *options)
        return self._run([*DYNADIAG, "explain", *options, "program.py", *arguments], stdin)

    def _lay_out(self) -> None:
        for name in ("work", "home", "tmp", "out"):
            shutil.rmtree(self._root / name, ignore_errors=True)
            (self._root / name).mkdir()
        (self.work / "program.py").write_text(self._program)
        for name, text in self._beside.items():
            (self.work / f"{name}.py").write_text(textwrap.dedent(text))

    def environment(self) -> dict[str, str]:
        """The same for every run: nothing of the machine's own settings, but the compiler of the tests."""
        names = ("PATH", "LANG", "VIRTUAL_ENV", "CXX", "KEPT_COMPILER")
        kept = {name: os.environ[name] for name in names if name in os.environ}
        home, tmp = str(self._root / "home"), str(self._root / "tmp")
        same = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
        return {**kept, **same, "HOME": home, "TMPDIR": tmp}

    def _run(self, command: list[str], stdin: str) -> Run:
        done = subprocess.run(
            command,
            cwd=self.work,
            env=self.environment(),
            input=stdin.encode(),
            capture_output=True,
            timeout=LIMIT,
            check=False,
        )
        report = self.out / "run.json"
        document = json.loads(report.read_text()) if report.exists() else {}
        out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        return Run(done.returncode, out, err, self._files(), document)

    def _files(self) -> tuple[str, ...]:
        """Every file outside the named output; random parts of names are taken out.

        An entry of torch's caches is named by its bytes, which differ from run to run where it holds a set.
        """
        found = []
        for name in ("work", "home", "tmp"):
            root = self._root / name
            found += (
                [f"{name}/{path.relative_to(root)}" for path in root.rglob("*")] if root.exists() else [f"no {name}"]
            )
        entry = r"(/(?:fxgraph|aotautograd)/(?:\w\w/)?\w{52}/)\w{51,52}$"
        plain = (re.sub(entry, r"\1entry", re.sub(r"tmp[a-z0-9_]{8}", "tmpXXXXXXXX", path)) for path in found)
        return tuple(sorted(plain))


def assert_undisturbed(bench: Bench, *arguments: str, stdin: str = "") -> Run:
    """Run a program both ways and compare the recorded run to the bare one. Returns the recorded one."""
    bare = bench.bare(*arguments, stdin=stdin)
    recorded = bench.recorded(*arguments, stdin=stdin)
    assert recorded.out[: len(bare.out)] == bare.out
    assert recorded.document["exit_code"] == bare.code
    assert recorded.code == (128 - bare.code if bare.code < 0 else bare.code)
    assert recorded.complaint == bare.complaint
    assert recorded.files == bare.files
    return recorded
