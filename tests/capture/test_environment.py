"""A recorded program and its children see the environment that they would see without us, and are recorded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dynadiag.capture.startup.sitecustomize import _may_run_python
from tests.capture.runs import DYNADIAG, LIMIT

# Everything is printed before `import torch`, and by children of every kind.
PROGRAM = """
import os, subprocess, sys
SEEN = "import os, sys; print(os.environ, [p for p in sys.path if p], 'sitecustomize' in sys.modules)"
if "child" in sys.argv:
    exec(SEEN)
    sys.exit()
exec(SEEN)
import inspect, multiprocessing, shutil, traceback
print(inspect.signature(subprocess.Popen.__init__), inspect.signature(os.execve), inspect.signature(os.system))
print([f.__name__ for f in (os.execv, os.execve, os.posix_spawn, os.posix_spawnp, os.system)], os.system.__module__)
python, out = sys.executable, {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
def show(*words, **options):
    print(subprocess.run(words, **out, **options).stdout, flush=True)
show(python, "-c", SEEN)
show(python, "-I", "-c", "print('isolated')")
show(python, "-c", SEEN, env={**os.environ, "MORE": "1"})
show(python, "-c", SEEN, env={**os.environ, "PYTHONPATH": "/nowhere"})
show(python, "-c", SEEN, env={"OWN": "1"})
show(python, "-c", SEEN, env={})
show(python, "-c", SEEN, close_fds=False)
show("env")
show("env", env={"OWN": "1"})
show("sh", "-c", "env")
show("sh", "-c", f'{python} -c "print(1)"; exit 3')
os.system("env")
os.system(f"{python} program.py child")
print(os.waitstatus_to_exitcode(os.system("exit 5")))
print(os.waitpid(os.posix_spawn(python, [python, "program.py", "child"], os.environ), 0)[1])
print(os.waitpid(os.posix_spawnp("env", ["env"], {"OWN": "2"}, setsigmask=()), 0)[1])
print(os.spawnv(os.P_WAIT, python, [python, "program.py", "child"]))
for wrong in (lambda: subprocess.run(["no-such-program"]), lambda: subprocess.run([1]), lambda: os.system(3),
              lambda: os.execv("/no/such", ["x"]), lambda: subprocess.run(["x"], env={"a=b": "c"})):
    try:
        wrong()
    except Exception as error:
        print(type(error).__name__, error)
try:
    subprocess.Popen(["no-such-program"])
except OSError:
    traceback.print_exc(file=sys.stdout)
print(sorted(os.environ) == sorted(os.fsdecode(name) for name in os.environb), flush=True)
if os.environ.get("LAST") == "torch":
    import torch
    exec(SEEN)
sys.stdout.flush()
os.execve(python, [python, "program.py", "child"], {**os.environ, "LAST": "1"})
"""


@pytest.mark.parametrize("path", [None, "", "/nowhere", "/nowhere:/other"])
def test_environments_are_the_same(path: str | None, tmp_path: Path) -> None:
    """``os.environ``, the path, and what functions that make children are and raise."""
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1"} | ({} if path is None else {"PYTHONPATH": path})
    runs = []
    for words in ([sys.executable], [*DYNADIAG, "record", "--force", "-o", "r.dynadiag"]):
        done = subprocess.run(
            [*words, "program.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LIMIT
        )
        assert done.returncode == 0, done.stderr
        runs.append(done)
    assert runs[0].stdout == runs[1].stdout
    assert "DYNADIAG" not in runs[0].stdout
    assert runs[1].stderr.removesuffix("r.dynadiag\n") == runs[0].stderr


def test_the_programs_own_sitecustomize_runs(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import sys\nsys.mine = 1\n")
    (tmp_path / "program.py").write_text("import sys\nprint(sys.mine, sys.modules['sitecustomize'].__file__)\n")
    done = subprocess.run(
        [*DYNADIAG, "record", "-o", "r.dynadiag", "program.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "own")},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.stdout == f"1 {tmp_path / 'own' / 'sitecustomize.py'}\n", done.stderr


WORKER = "import torch\ntorch.compile(lambda x: x + 1, backend='eager')(torch.ones(2))\n"
WAYS = {
    "inherited": "subprocess.run([python, 'worker.py'])",
    "copied": "subprocess.run([python, 'worker.py'], env=dict(os.environ, MORE='1'))",
    "shell": "os.system(f'{python} worker.py')",
    "own": "subprocess.run([python, 'worker.py'], env={'PATH': os.environ['PATH']})",
}


@pytest.mark.parametrize("way", [pytest.param(way, marks=pytest.mark.slow) if way != "copied" else way for way in WAYS])
def test_children_are_recorded(way: str, tmp_path: Path) -> None:
    """A launcher that never imports torch: its workers leave recordings, but for one with an environment of its own."""
    (tmp_path / "worker.py").write_text(WORKER)
    (tmp_path / "program.py").write_text(f"import os, subprocess, sys\npython = sys.executable\n{WAYS[way]}\n")
    done = subprocess.run(
        [*DYNADIAG, "record", "-o", "r.dynadiag", "program.py"], cwd=tmp_path, capture_output=True, timeout=LIMIT
    )
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("r-*.dynadiag"))) == (way != "own")


@pytest.mark.parametrize(
    ("line", "may"),
    [
        ("python3 x", True),
        ("/usr/bin/python3.11 -m a", True),
        ("bash run.sh", True),
        ("mpirun -n 2 python train.py", True),
        ("sh -c 'exec python x'", True),
        ("env", False),
        ("git status", False),
        ("sh -c env", False),
        ("g++ -O2 a.cpp -o a.so", False),
        ("", False),
    ],
)
def test_which_children_may_run_python(line: str, may: bool) -> None:
    assert _may_run_python(line.split()) is may
