"""The target of a command: how the command line names a program or recordings, and how a command records it."""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import stat
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dynadiag import __version__
from dynadiag.capture.compile_progress import CompileProgress
from dynadiag.capture.launch import ProcessEnd, Streams, launch
from dynadiag.capture.settings import Settings, ValueOptions, check_pattern, parse_calls
from dynadiag.commands import common, outputs
from dynadiag.errors import DynadiagError, UnreadableInput
from dynadiag.recording.fold import fold
from dynadiag.recording.import_export import import_log, planned_recordings
from dynadiag.recording.journal import SUFFIX, clean_stem, journal_path
from dynadiag.recording.opening import READ_SUFFIXES, has_recordings, list_recordings, read_head
from dynadiag.recording.packing import is_packed
from dynadiag.recording.reader import Recording
from dynadiag.recording.schema import VERSION
from dynadiag.recording.untrusted_sqlite import SQLITE_MAGIC
from dynadiag.torch_private.gpu_specs import GPU_SPECS, gpu_spec
from dynadiag.trial.program import Program, TargetError
from dynadiag.trial.sandbox import cache_variables
from dynadiag.trial.typed_json import dump

_NO_CODEGEN = (
    "--no-codegen: graphs ran as AOTAutograd leaves them, so no kernel is known, nor whether Inductor compiles them"
)
_SIGNAL_BASE = 128  # a shell adds it to the number of the signal that ended a program

_RUN_PROGRAM = "import sys; from dynadiag.trial.program import main; sys.exit(main(*sys.argv[1:]))"
_RUN_OVERLAID = f"from dynadiag.overlay import load_named; load_named(); {_RUN_PROGRAM}"


class _TargetAction(argparse.Action):
    """Splits ``TARGET ARGS...``, also after ``-m``. All words after a program belong to it.

    A recording takes no words: options after it are the command's.
    """

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object, option: object = None
    ) -> None:
        words = list(values) if isinstance(values, list) else [str(values)]
        if option is None and words[:1] == ["--"]:
            del words[0]  # it ends dynadiag's own options
            namespace.dashes = True
        elif option is None and words and names_recording(words[0]):
            options = [place for place, word in enumerate(words[1:], 1) if word.startswith("-") and word.strip("-")]
            if options:
                parser.parse_args([*words[options[0] :], *words[: options[0]]], namespace)
                return
        if words:
            namespace.module, namespace.target, namespace.arguments = option is not None, words[0], words[1:]


def names_recording(word: str) -> bool:
    """Whether a target is a recording, a log, or a folder of these, and not a program."""
    path = Path(word)
    return path.suffix in READ_SUFFIXES or (path.is_dir() and not (path / "__main__.py").exists())


def add_target(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(module=False, target=None, arguments=[], dashes=False)
    parser.usage = "%(prog)s [OPTIONS] TARGET [ARGS...]"
    rest: dict[str, Any] = {"action": _TargetAction, "nargs": argparse.REMAINDER}
    parser.add_argument("-m", dest="words", **rest, metavar="MOD ...", help="run a module as `python -m` would")
    # One positional for all words: between two, argparse would remove a `--` of the program.
    parser.add_argument("words", **rest, metavar="TARGET", help="the program and its own arguments")


def add_recorder_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every command that records a program."""
    common.add_flag(parser, "--no-source", "leave your source text out of the recording")
    common.add_count(parser, "--stop-after", "calls", "stop the program after N calls of compiled functions")
    told = "size cap of the log in gigabytes, after which nothing more is recorded (default 2)"
    common.add_amount(parser, "--limit", "a size in gigabytes", "GB", told, 2.0)
    told = "stop the program after S seconds, and go on with what was recorded"
    common.add_amount(parser, "--seconds", "seconds", "S", told)
    common.add_flag(parser, "--fresh", "use empty compiler caches, in a temporary folder")
    told = "write a line to stderr as each compile begins, breaks, recompiles, ends or gives up"
    common.add_flag(parser, "--live", told)
    told = f"generate the code for a GPU that is not here ({', '.join(GPU_SPECS)}); the program runs on the CPU"
    parser.add_argument("--target", dest="gpu", type=_gpu, metavar="GPU", help=told)


def add_value_options(parser: argparse.ArgumentParser, *, always: bool = False) -> None:
    """Add the options on recorded values. With ``always`` there is no ``--values``: the command records them."""
    parser.set_defaults(values=always)
    if not always:
        common.add_flag(parser, "--values", "record the values of each node, as `dynadiag values`")
    parser.add_argument("--calls", metavar="N,N..M", help="the calls of each graph to record, from 0 (default 0)")
    parser.add_argument("--nodes", metavar="REGEX", help="the nodes to record: a regular expression, or NAME,NAME")
    told = "the nodes whose values are kept whole, in a folder beside the recording"
    parser.add_argument("--full", metavar="REGEX", help=told)
    told = "size cap of the values of a process (default 64)"
    common.add_amount(parser, "--values-limit", "a size in megabytes", "MB", told, 64.0)


def check_no_value_options(args: argparse.Namespace) -> None:
    """Raise `DynadiagError` if options on what to record are given for a recording that is made already."""
    for name in ("calls", "nodes", "full"):
        if getattr(args, name, None) is not None:
            raise DynadiagError(f"{args.target}: it is recorded already: --{name} is for a program")


def _value_options(args: argparse.Namespace) -> ValueOptions | None:
    """The values that a command line asks for. Raises `DynadiagError` if they are named wrongly."""
    given = [name for name in ("calls", "nodes", "full") if getattr(args, name, None) is not None]
    if not getattr(args, "values", False):
        if given:
            raise DynadiagError(f"--{given[0]} is about recorded values: add --values")
        return None
    for name in ("nodes", "full"):
        if (pattern := getattr(args, name)) is not None:
            check_pattern(f"--{name}", pattern)
    calls = parse_calls(args.calls) if args.calls is not None else ValueOptions().calls
    return ValueOptions(calls, args.nodes, args.full, None, int(args.values_limit * 1e6))


def _gpu(text: str) -> str:
    if text.lower() not in GPU_SPECS:
        raise argparse.ArgumentTypeError(f"no GPU {text!r} is known: choose from {', '.join(GPU_SPECS)}")
    if importlib.util.find_spec("triton") is None:
        raise argparse.ArgumentTypeError("code for a GPU is generated by Triton, which is missing: pip install triton")
    return text.lower()


def parse_program(args: argparse.Namespace) -> Program:
    """Return the program that the command line names. Raises `TargetError` if it names none."""
    return program_of(args.target, tuple(args.arguments), module=args.module)


def program_of(target: str | None, arguments: tuple[str, ...] = (), *, module: bool = False) -> Program:
    """Return the program of these words. Raises `TargetError` if there is none."""
    if not target:
        raise TargetError("name a program: FILE.py, -m pkg.mod, FILE.py:NAME, pkg.mod:NAME or FILE.py::TEST")
    if Path(target).suffix == SUFFIX and not module:
        raise TargetError(f"{target[:200]}: a recording cannot be run; name the program that it is of")
    file, colon, _ = target.rpartition(":")
    try:
        if colon and file.endswith(".py") and not module and not Path(file).is_file():
            raise TargetError(f"{file}: no such file")
        return Program.parse(target, arguments, module)
    except (OSError, ValueError) as error:  # not a valid file name
        raise TargetError(f"{target[:200]}: no such program ({error.__class__.__name__})") from error


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """How a program is recorded."""

    target: str  # as the user named it
    fresh: bool = False  # empty compiler caches
    source: bool = True  # the program's text is in the recording
    stop_after: int | None = None  # calls of compiled functions
    limit: float = 2.0  # gigabytes of the log
    live: bool = False
    gpu: str | None = None
    seconds: float | None = None  # after which the program is stopped
    codegen: bool = True
    after: int | None = None  # calls of the warm-up
    prints_document: bool = False  # on our stdout, so the program's goes to stderr
    values: ValueOptions | None = None

    @classmethod
    def of(cls, args: argparse.Namespace, target: str | None = None) -> RecordOptions:
        """Those of a command line with `add_recorder_options`. ``target`` is one of several."""
        same = ("fresh", "stop_after", "limit", "live", "gpu", "seconds")
        return cls(
            args.target if target is None else target,
            source=not args.no_source,
            codegen=not getattr(args, "no_codegen", False),
            after=getattr(args, "after", None) or None,
            prints_document=getattr(args, "json", None) == "-",
            values=_value_options(args),
            **{name: getattr(args, name) for name in same},
        )

    def settings(self, target: str | None = None, whole_values: Path | None = None) -> Settings:
        """The settings of the recorder. Values that are kept whole go to the folder ``whole_values``."""
        kept = None
        if self.values is not None:
            kept = asdict(replace(self.values, folder=None if whole_values is None else str(whole_values)))
        return Settings(
            target=target,
            source=self.source,
            stop_after=self.stop_after,
            limit=int(self.limit * 1e9),
            live=self.live,
            stop_seconds=self.seconds,
            codegen=self.codegen,
            after=self.after,
            values=kept,
        )


@dataclass(frozen=True, slots=True)
class LaunchedProgram:
    """A program that was run and recorded. Its journal becomes the recording once `keep` is called."""

    recording: Path
    journal: Path
    ended: ProcessEnd

    def keep(self) -> tuple[Path, ...]:
        """Make the recordings of its processes complete. Returns their paths, the program's own first.

        If one cannot be written, its journal is kept, and a line on stderr says where. So the program's exit code is
        never lost to a full disk. A program that removed its journal has no recording: a line on stderr has said so.
        """
        own = (_keep(self.journal, self.recording),) if self.ended.has_journal else ()
        return (*own, *(_keep(path, path) for path in self.ended.other_journals))


def _keep(journal: Path, recording: Path) -> Path:
    try:
        fold(journal, recording, force=True)
    except DynadiagError as error:
        kept = f"; what was recorded is kept in {journal}: dynadiag explain {journal}" if journal.exists() else ""
        common.print_error(f"{error}{kept}")
        return journal
    if journal != recording:
        journal.unlink()
    return recording


def run_recorded(
    program: Program,
    recording: Path,
    how: RecordOptions,
    *,
    caches: Path | None = None,
    streams: Streams = (None, None),
    limit: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> LaunchedProgram:
    """Run a program and record it. ``recording`` is written, and what it replaces kept, until `LaunchedProgram.keep`.

    With ``caches`` its compiler caches are in that folder, and what torch imports later is timed. ``streams`` are the
    descriptors of its stdout and stderr where these are not ours, ``limit`` the seconds after which it is killed,
    ``options`` of torch are set before it begins. With `RecordOptions.prints_document` its stdout goes to stderr: ours
    is for the document alone.

    Raises `TargetError`, and leaves no recording, if a function must be imported and cannot be.
    """
    whole_values = recording.absolute().with_suffix(".values")
    if how.values is not None and how.values.full is not None and whole_values.exists():
        raise DynadiagError(
            f"{whole_values}: values of an earlier run are there; remove them, or name another recording"
        )
    settings = how.settings(program.text, whole_values)
    settings = replace(settings, options=dict(options or {}), imports=caches is not None)
    if how.prints_document and streams[0] is None:
        streams = common.STDERR, streams[1]
    gpu = gpu_spec(how.gpu).name if how.gpu else ""
    notes = [] if how.codegen else [_NO_CODEGEN]
    notes += [f"the code is generated for a GPU that is not here, {gpu}; the program ran on the CPU"] if gpu else []
    shows = not how.live and streams[1] is None
    progress = CompileProgress(journal_path(recording), common.print_error) if shows else None
    journal = journal_path(recording)
    with tempfile.TemporaryDirectory(prefix="dynadiag-") as folder:
        refusal = Path(folder, "refusal")
        variables = cache_variables(caches or Path(folder)) if caches or how.fresh else {}
        command = python_command(program, how.target, refusal, how.gpu)
        ended = launch(command, journal, settings, variables, notes, streams, limit, progress)
        if refusal.exists():
            journal.unlink(missing_ok=True)
            raise TargetError(refusal.read_text())
    return LaunchedProgram(recording, journal, ended)


def exit_code(ended: ProcessEnd) -> int:
    """Return the exit code of a command that only runs a program: the program's own, as a shell gives it."""
    if ended.interrupted:
        return common.INTERRUPTED
    return _SIGNAL_BASE - ended.exit_code if ended.exit_code < 0 else ended.exit_code


def overlay_command(program: Program, refusal: Path) -> list[str]:
    """Return the command line that loads the overlays of the environment, and then runs a program."""
    return [sys.executable, "-P", "-c", _RUN_OVERLAID, dump(program), str(refusal)]


def python_command(program: Program, path: str, refusal: Path, gpu: str | None) -> list[str]:
    """Return the command line that runs a program.

    It is Python's own, with ``path`` as the user gave it, unless a function or a test is called, or code is generated
    for another GPU. Then an error of the target is written to the file ``refusal``.
    """
    if program.name is not None or program.test is not None or gpu is not None:
        return [sys.executable, "-P", "-c", _RUN_PROGRAM, dump(program), str(refusal), gpu or ""]
    if program.module:
        return [sys.executable, "-m", program.target, *program.arguments]
    return [sys.executable, path, *program.arguments]


def recordings_of(arguments: tuple[str, ...], options: RecordOptions, *, module: bool) -> tuple[Path, ...]:
    """Return the recordings of one target of several: those that it names, or that of the program when it has run."""
    existing = None if module else existing_recordings(options.target, None, force=False)
    if existing:
        return existing
    program = program_of(options.target, arguments, module=module)
    ran = run_recorded(program, outputs.new_recording(None, program.text, force=False), options)
    paths = ran.keep()
    if not paths:
        raise DynadiagError(f"{options.target}: it removed its recording while it ran")
    common.print_path(paths[0])
    if ran.ended.interrupted:
        raise KeyboardInterrupt
    return paths


def named_recordings(args: argparse.Namespace) -> tuple[Path, ...] | None:
    """Return the recordings that the command line names, None if it names a program.

    A log is converted to a recording at ``args.output``.
    """
    first = None if args.module else existing_recordings(args.target, args.output, force=args.force)
    if first is None:
        return None
    paths = list(first)
    for word in args.arguments:
        more = existing_recordings(word, None, force=False)
        if more is None:
            raise DynadiagError(f"{word}: a program beside a recording; record it first (dynadiag record)")
        paths += more
    return tuple(paths)


def existing_recordings(target: str, output: Path | None, *, force: bool) -> tuple[Path, ...] | None:
    """Return the recordings that a target names, a log converted to ``output``; ``None`` if it is a program."""
    path = Path(target)
    try:
        if has_recordings(path):
            return _already_recorded(target, output, list_recordings(path))
        if path.is_dir():
            return _import_log(path, output, force=force)
        if path.suffix == ".py":
            return None
        if is_packed(path.parent):
            return _already_recorded(target, output, (path,))
        if not path.exists():
            if target.endswith(os.sep):
                raise UnreadableInput(f"{target}: no such folder; a process leaves a recording there once it compiles")
            if path.suffix in READ_SUFFIXES:
                raise UnreadableInput(f"{path}: no such file")
            return None
    except OSError as error:
        raise UnreadableInput(f"{target[:200]}: {error.strerror}") from error
    if path.suffix == SUFFIX or read_head(path, len(SQLITE_MAGIC)) == SQLITE_MAGIC:
        return _already_recorded(target, output, (path,))
    return _import_log(path, output, force=force)


def _already_recorded(target: str, output: Path | None, recordings: tuple[Path, ...]) -> tuple[Path, ...]:
    if output is not None:
        raise DynadiagError(f"{target}: it is recorded already, so -o has nothing to write: leave it out")
    return recordings


def import_to(log: Path, output: Path | None, *, force: bool) -> tuple[Path, ...]:
    """Convert a log, or each log in a folder, to recordings at ``output``, or else in the state folder.

    There a log has one recording, named by the hash of its content: it is made once, however often the log is read.
    """
    if output is not None:
        for _, target in planned_recordings(log, output):
            outputs.new_recording(target, "", force=force)
        return import_log(log, output, force=force).recordings
    made = []
    for source, target in planned_recordings(log, outputs.new_recording(None, log.name, force=False)):
        kept = target.with_name(f"{clean_stem(source.name)}-{_content_key(source)}{SUFFIX}")
        if _is_readable(kept):
            os.utime(kept)  # it is in use, which `dynadiag prune` goes by
        else:
            fold(source, kept, force=True)
        made.append(kept)
    return tuple(made)


def _content_key(log: Path) -> str:
    """The hash of a log and of what makes a recording of it."""
    try:
        with log.open("rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UnreadableInput(f"{log}: not a file")
            content = hashlib.file_digest(file, hashlib.blake2b).digest()
    except OSError as error:
        raise UnreadableInput(f"{log}: {error.strerror}") from error
    return hashlib.blake2b(content + f"{__version__} {VERSION}".encode(), digest_size=8).hexdigest()


def _is_readable(recording: Path) -> bool:
    try:
        Recording(recording).close()
    except UnreadableInput:
        return False
    return True


def _import_log(log: Path, output: Path | None, *, force: bool) -> tuple[Path, ...]:
    """Convert a log to recordings, and print the path of the first."""
    recordings = import_to(log, output, force=force)
    common.print_path(recordings[0])
    return recordings
