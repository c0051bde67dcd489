"""30 programs run with and without the recorder, in turn, and what they see and do is compared.

    python benchmarks/undisturbed.py [--only NAME] [--runs N]

Each program prints what it sees of its environment, signals, children, streams and threads. It is run bare and under
`dynadiag record`, N times in turn. Its stdout, its stderr and its exit code have to be the same.

Exit code: 0 if all are.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

LIMIT = 600  # seconds for one program, so that a hang ends
COMPILE = "import torch\nf = torch.compile(lambda x: x.sin() + 1, backend='eager')\nprint(f(torch.ones(2)).tolist())\n"
SEEN = "import os, sys; print(sorted(os.environ.items()), sys.path[1:], sys.argv[1:], sys.flags)"


@dataclass(frozen=True)
class Program:
    """A program, its arguments, its input, more variables, and the redirections of a shell."""

    source: str
    arguments: tuple[str, ...] = ()
    stdin: str = ""
    variables: dict[str, str] = field(default_factory=dict)
    shell: str = ""


def handles(name: str) -> str:
    """A program that handles a signal while it compiles."""
    return (
        f"import os, signal\nsignal.signal(signal.{name}, lambda n, f: print('got', signal.Signals(n).name))\n"
        f"os.kill(os.getpid(), signal.{name})\n{COMPILE}os.kill(os.getpid(), signal.{name})\n"
    )


PROGRAMS = {
    # environment
    "environment": Program(SEEN),
    "environment, with torch": Program(f"{COMPILE}{SEEN}"),
    "PYTHONPATH": Program(SEEN, variables={"PYTHONPATH": "/nowhere:/other"}),
    "PYTHONPATH, empty": Program(SEEN, variables={"PYTHONPATH": ""}),
    "arguments and stdin": Program(f"{SEEN}; print(sys.stdin.read())", ("--json", "-o", "a b", "--"), stdin="in\n"),
    "frozen environment": Program(
        "import os\nbefore = dict(os.environ)\nimport torch\nprint(before == dict(os.environ))"
    ),
    "the user's DYNADIAG variables": Program(
        "import os\nprint(os.environ['DYNADIAG_X'])", variables={"DYNADIAG_X": "1"}
    ),
    # signals
    "SIGTERM handled": Program(handles("SIGTERM")),
    "SIGUSR1 handled": Program(handles("SIGUSR1")),
    "SIGHUP handled": Program(handles("SIGHUP")),
    "dispositions": Program("import signal\nprint([signal.getsignal(n) for n in range(1, 32) if n not in (9, 19)])"),
    "mask": Program("import signal\nprint(signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.sigpending())"),
    "killed": Program(f"{COMPILE}import os, sys\nsys.stdout.flush()\nos.kill(os.getpid(), 9)"),
    "aborted": Program(f"{COMPILE}import os, sys\nsys.stdout.flush()\nos.abort()"),
    # children
    "children": Program(
        f"import os, subprocess, sys\nseen = {SEEN!r}\nfor e in (None, {{}}, {{'A': '1'}}, dict(os.environ)):\n"
        "    print(subprocess.run([sys.executable, '-c', seen], env=e, capture_output=True, text=True).stdout)\n"
        "    print(subprocess.run(['/usr/bin/env'], env=e, capture_output=True, text=True).stdout)\n"
    ),
    "children of a shell": Program(
        "import os\nprint(os.system('env'), os.popen('env; exit 3').read(), os.system('exit 5'))"
    ),
    "a child that fails": Program("import subprocess\nsubprocess.run(['no-such-program'])"),
    "fork": Program(f"{COMPILE}import os\npid = os.fork()\nif not pid:\n    os._exit(4)\nprint(os.waitpid(pid, 0)[1])"),
    "multiprocessing": Program(
        "import multiprocessing as mp, os\ndef work(n):\n    import torch\n    return n, sorted(os.environ)\n"
        "if __name__ == '__main__':\n    for way in ('fork', 'spawn'):\n"
        "        with mp.get_context(way).Pool(1) as pool: print(pool.map(work, [1, 2]))\n"
    ),
    "exec": Program(
        "import os, sys\nif len(sys.argv) < 2:\n    os.execv(sys.executable, [sys.executable, sys.argv[0], 'x'])\n"
        f"{SEEN}"
    ),
    "what makes children": Program(
        "import inspect, subprocess, os\nprint(inspect.signature(subprocess.Popen.__init__),"
        " inspect.signature(os.execve), inspect.signature(os.system), os.posix_spawn.__name__, os.execv.__doc__)"
    ),
    # streams
    "stdout closed": Program("import sys\nprint(sys.stdout, file=sys.stderr)\nsys.exit(7)", shell=">&-"),
    "stderr closed": Program("import sys\nprint(sys.stderr)\nsys.exit(7)", shell="2>&-"),
    "stdin closed": Program(f"import sys\nprint(sys.stdin)\n{COMPILE}", shell="<&-"),
    "all closed": Program("import sys\nopen('seen', 'w').write(repr(sys.stdout))\nsys.exit(7)", shell="<&- >&- 2>&-"),
    "descriptors": Program("import os\nprint(sorted(os.listdir('/proc/self/fd'))[:-1])"),
    # threads and ends
    "threads": Program(
        f"{COMPILE}import threading, os\nprint(threading.enumerate(), len(os.listdir('/proc/self/task')) < 99)"
    ),
    "an exception": Program(f"{COMPILE}def g():\n    raise KeyError('mine')\ng()"),
    "atexit and os._exit": Program(
        f"import atexit, os\natexit.register(print, 'end')\n{COMPILE}os._exit(9) if 0 else exit(9)"
    ),
    "hooks": Program(
        f"{COMPILE}import sys, gc, warnings\nprint(sys.excepthook is sys.__excepthook__, sys.gettrace(),"
        " sys.getprofile(), gc.isenabled(), len(gc.callbacks), warnings.filters[:2])"
    ),
}


def run(folder: Path, program: Program, *, recorded: bool) -> tuple[int, str, str]:
    """Run a program, and return its exit code, stdout and stderr."""
    (folder / "program.py").write_text(textwrap.dedent(program.source))
    (folder / "seen").unlink(missing_ok=True)
    words = (
        [sys.executable, "-m", "dynadiag", "record", "--force", "-o", "run.dynadiag"] if recorded else [sys.executable]
    )
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    same = {"HOME": str(folder / "home"), "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [*words, "program.py", *program.arguments]
    if program.shell:
        command = ["sh", "-c", f'"$@" {program.shell}', "sh", *command]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**kept, **same, **program.variables},
        input=program.stdin,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    code = 128 - done.returncode if done.returncode < 0 else done.returncode  # as a shell gives it
    seen = (folder / "seen").read_text() if (folder / "seen").exists() else ""
    err = done.stderr.removesuffix("run.dynadiag\n") if recorded else done.stderr
    return code, _alike(done.stdout + seen), _alike(err)


def _alike(text: str) -> str:
    """A text without what differs from run to run: addresses, the ids of threads."""
    return re.sub(r"0x[0-9a-f]+|started \d+|pid=\d+", "N", text)


def main() -> int:
    """Run the programs, and print what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME", help="only this program")
    parser.add_argument("--runs", type=int, default=1, metavar="N", help="runs of each, in turn (default 1)")
    args = parser.parse_args()
    names = [args.only] if args.only else list(PROGRAMS)
    different = 0
    with tempfile.TemporaryDirectory() as root:
        for name in names:
            folder = Path(root, re.sub(r"\W", "-", name))
            (folder / "home").mkdir(parents=True)
            pairs = [
                [run(folder, PROGRAMS[name], recorded=recorded) for recorded in (False, True)] for _ in range(args.runs)
            ]
            same = all(bare == recorded for bare, recorded in pairs)
            different += not same
            print(f"{'same' if same else 'DIFFERENT':<10} {name}", flush=True)
            for bare, recorded in () if same else pairs:
                print(f"  bare:     {bare}\n  recorded: {recorded}")
    print(f"{len(names) - different} of {len(names)} programs are the same")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
