"""Under the recorder a program prints the same, ends the same way and leaves the same files, and is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.capture.runs import STATE, Bench, Run, assert_undisturbed

COMPILED = """
import atexit, hashlib, logging, logging.config, os, shutil, signal, sys, tempfile, threading
import random
import torch

random.seed(0)
torch.manual_seed(0)

def f(x):
    y = torch.sin(x)
    torch._dynamo.graph_break()
    return (y * x.shape[0]).sum()

def go(*sizes):
    g = torch.compile(f, backend="aot_eager")
    for n in sizes:
        x = torch.arange(n, dtype=torch.float32).requires_grad_()
        out = g(x)
        out.backward()
        bits = out.detach().numpy().tobytes() + x.grad.numpy().tobytes()
        print("result", hashlib.sha256(bits).hexdigest()[:16], flush=True)

"""

# What a program does, and the breaks that its main process is seen to make.
ENDINGS = {
    "returns": ("go(3, 4)\nstate()", 1),
    "raises": ("go(3)\ndef inner():\n    raise ValueError('bad \\x1b[31m thing')\ninner()", 1),
    "exits": ("go(3)\nsys.exit(3)", 1),
    "exits with words": ("go(3)\nsys.exit('enough')", 1),
    "os._exit": ("go(3)\nos._exit(7)", 1),
    "killed": ("go(3)\nos.kill(os.getpid(), signal.SIGKILL)", 1),
    "aborts": ("go(3)\nos.abort()", 1),
    "fullgraph": ("torch.compile(f, fullgraph=True, backend='eager')(torch.ones(2))", 1),
    "backend fails": (
        "def backend(gm, inputs):\n    raise RuntimeError('no')\n"
        "torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))",
        0,
    ),
    "never compiles": ("print('nothing')", 0),
}
DEEDS = {
    "bytes": ("go(3)\nsys.stdout.buffer.write(b'\\xff\\x00no newline')", 1),
    "quiet": (
        "logging.config.dictConfig({'version': 1})\nlogging.disable(logging.CRITICAL)\ngo(3)\n"
        "logging.config.dictConfig({'version': 1, 'loggers': {'torch': {'level': 'ERROR'}}})\n"
        "torch.compiler.reset()\ngo(3)\nlogging.disable(0)\nstate()",
        1,
    ),
    "threads": (
        "t = [threading.Thread(target=go, args=(3,)) for _ in range(2)]\n[x.start() for x in t]\n[x.join() for x in t]",
        1,
    ),
    "gone folder": ("go(3)\nos.mkdir('gone')\nos.chdir('gone')\nos.rmdir('../gone')\ngo(4)", 1),
    "no temporary folder": ("shutil.rmtree(tempfile.gettempdir())\ngo(3)", 1),
    "closes descriptors": ("os.closerange(3, 2000)\ngo(3)", 1),
    "hooks": (
        "sys.excepthook = lambda *e: print('hook', e[1], flush=True)\natexit.register(go, 4)\n"
        "atexit.register(print, 'bye', flush=True)\ngo(3)\nraise KeyError('x')",
        1,
    ),
    "forks": ("go(3)\npid = os.fork()\nif pid == 0:\n    go(5)\n    os._exit(4)\nprint(os.waitpid(pid, 0)[1])", 1),
    "execs": ("go(3)\nos.execv(sys.executable, [sys.executable, '-c', 'import torch; print(1 + 1)'])", 1),
    "changes torch": (
        "torch._dynamo.config.cache_size_limit = 3\nos.environ['MINE'] = '1'\ngo(3, 4, 5, 6)\nstate()",
        1,
    ),
}


def bench(tmp_path: Path, deed: str) -> Bench:
    return Bench(tmp_path, STATE + COMPILED + deed)


def roots(run: Run) -> int:
    return sum(entry["cause"] is None for entry in run.document["breaks"])


def test_it_is_as_it_was(tmp_path: Path) -> None:
    deed, seen = ENDINGS["returns"]
    assert roots(assert_undisturbed(bench(tmp_path, deed))) == seen


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ENDINGS, *DEEDS])
def test_it_is_as_it_was_whatever_it_does(name: str, tmp_path: Path) -> None:
    deed, seen = {**ENDINGS, **DEEDS}[name]
    assert roots(assert_undisturbed(bench(tmp_path, deed))) == seen


@pytest.mark.slow
def test_arguments_and_stdin_are_the_programs(tmp_path: Path) -> None:
    program = Bench(tmp_path, "import sys\nprint(sys.argv, sys.stdin.read(), sys.stdin.isatty(), __file__, __name__)")
    assert_undisturbed(program, "--", "-x", "--json", "y", stdin="a\nb")


WORKERS = {
    "DataLoader": """
        import torch
        from torch.utils.data import DataLoader, Dataset

        class Squares(Dataset):
            def __len__(self):
                return 6
            def __getitem__(self, index):
                return torch.tensor(float(index)) ** 2

        if __name__ == "__main__":
            step = torch.compile(lambda x: x.sum() * 2, backend="eager")
            for batch in DataLoader(Squares(), batch_size=2, num_workers=2):
                print(step(batch).item())
        """,
    "multiprocessing": """
        import multiprocessing, sys, torch

        def work(n):
            def g(x):
                torch._dynamo.graph_break()
                return x * n
            return torch.compile(g, backend="eager")(torch.ones(2)).tolist()

        if __name__ == "__main__":
            for method in ("spawn", "fork"):
                with multiprocessing.get_context(method).Pool(2) as pool:
                    print(method, pool.map(work, [1, 2, 3]))
        """,
    "mp.spawn": """
        import torch

        def work(rank):
            def g(x):
                torch._dynamo.graph_break()
                return x + rank
            torch.compile(g, backend="eager")(torch.ones(2))

        if __name__ == "__main__":
            torch.multiprocessing.spawn(work, nprocs=2)
            print("joined")
        """,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKERS)
def test_workers_leave_the_parents_recording_alone(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("w")  # the path of a socket in it must be short
    run = assert_undisturbed(Bench(folder, WORKERS[name]))
    others = run.document.get("ranks", [])
    assert not run.document["breaks"]
    assert bool(others) == (name != "DataLoader")
    for other in others:
        assert len(other["breaks"]) >= 1
    assert len(list((folder / "out").glob("*.dynadiag"))) == 1 + len(others)


@pytest.mark.slow
def test_a_program_without_torch_is_said_to_have_none(tmp_path: Path) -> None:
    run = assert_undisturbed(Bench(tmp_path, "print('plain')"))
    assert "the program never imported torch" in " ".join(run.document["notes"])


SAMPLES = sorted((Path(__file__).parents[2] / "samples").glob("*.py"))
CASES = Path(__file__).parents[3] / "shared" / "cases"  # beside a developer's checkout, if anywhere
CHOSEN = ("breaks/gb0051.py", "breaks/gb0221.py", "breaks/gb8985.py", "real/wrong_173478.py")


@pytest.mark.slow
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_the_samples_do_not_notice(sample: Path, tmp_path: Path) -> None:
    assert_undisturbed(Bench(tmp_path, sample.read_text()))


@pytest.mark.slow
@pytest.mark.parametrize("name", CHOSEN)
def test_the_cases_do_not_notice(name: str, tmp_path: Path) -> None:
    if not (CASES / name).is_file():
        pytest.skip("the cases are not here")
    assert_undisturbed(Bench(tmp_path, (CASES / name).read_text()))
