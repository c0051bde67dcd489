"""The log of a search: its trials, written to its recording as they end, so that the search can be resumed."""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dynadiag.errors import DynadiagError, UnwritableOutput, say
from dynadiag.recording.fold import fold
from dynadiag.recording.journal import Journal, process_space
from dynadiag.recording.opening import has_ended
from dynadiag.recording.reader import Recording
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.typed_json import dump, load, to_data

_MAX_TAIL = 4000  # characters of a trial's output that are kept in its row


def outcome_to_json(outcome: Outcome, status: str, label: str = "") -> str:
    """A JSON record of a trial. ``status`` compares it with the failure that is searched for, ``label`` says what was
    tried. Empty fields are left out. `typed_json.load` reads it as an `Outcome`.
    """
    data = {name: value for name, value in to_data(outcome).items() if value not in (None, (), "")}
    data["tail"] = outcome.tail[-_MAX_TAIL:]
    return dump({"status": status, **({"label": label} if label else {}), **data})


class TrialLog:
    """The journal of one search, and the trials of the search that it resumes."""

    def __init__(
        self,
        output: Path,
        target: str,
        argv: list[str],
        resume: Path | None = None,
        asked: Mapping[str, Any] | None = None,
        force: bool = False,
    ) -> None:
        """``asked`` has the command and its options, which a resumed search must repeat.

        Raises `DynadiagError` if ``resume`` is no search of this target, or is to be replaced by the search of another
        command, or where the journal exists: another search is writing it, or a stopped search has left it. ``force``
        removes that; resumed in its place, it first becomes the recording, so that its trials are kept whatever comes.
        """
        self.output = output
        self.count = 0
        self.replayed = 0  # trials taken from the resumed search
        self._recorded: dict[str, list[str]] = {}
        self._began = time.time()
        self.kept = output  # where the search is once it has ended
        in_place = resume is not None and os.path.realpath(resume) == os.path.realpath(output)
        command = str(asked["command"]) if asked is not None and in_place else None
        earlier = _load_trials(resume, target, command) if resume is not None else []
        self._path = Path(f"{output}.journal")
        if self._path.exists():
            self._take_over_journal(in_place, force)
        self._journal = Journal.create(self._path)
        self._journal.append({"dynadiag_run": self._run_record(target, argv)})
        if asked is not None:
            self._journal.append({"dynadiag_search": dict(asked)})
        for candidate, outcome, pid, seconds in earlier:
            self._append(candidate, outcome, pid, seconds)
            self._recorded.setdefault(candidate, []).append(outcome)

    def _take_over_journal(self, resumed: bool, force: bool) -> None:
        """Make the name of the journal free, if its search was stopped."""
        if not has_ended(self._path):
            raise DynadiagError(
                f"{self._path} is being written by another search, here or on another machine: give another name with "
                "-o"
            )
        if not (resumed or force):
            raise DynadiagError(
                f"{self._path} was left by a search that was stopped: --resume {self.output} continues it, "
                "--force starts again"
            )
        if resumed:
            fold(self._path, self.output, force=True)
        self._path.unlink(missing_ok=True)

    def _run_record(self, target: str, argv: list[str]) -> dict[str, Any]:
        return {
            "target": target,
            "argv": argv,
            "cwd": str(Path.cwd()),
            "python": sys.version.split()[0],
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "space": process_space(),
            "started": self._began,
        }

    def next_recorded(self, candidate: str) -> Outcome | None:
        """The outcome of the next run of this candidate in the resumed search, or ``None``."""
        left = self._recorded.get(candidate)
        self.replayed += bool(left)
        return load(left.pop(0), Outcome) if left else None

    def has_recorded(self, candidate: str) -> bool:
        """Whether the resumed search has a run of this candidate that was not used yet."""
        return bool(self._recorded.get(candidate))

    def recorded_with_prefix(self, prefix: str) -> dict[str, str]:
        """The last outcome of each candidate that begins with ``prefix`` in the resumed search, as JSON."""
        return {c: outcomes[-1] for c, outcomes in self._recorded.items() if c.startswith(prefix) and outcomes}

    def add(self, candidate: str, outcome: Outcome, status: str, label: str = "") -> None:
        """Write a trial to the journal."""
        self._append(candidate, outcome_to_json(outcome, status, label), outcome.pid, outcome.seconds)

    def _append(self, candidate: str, outcome: str, pid: int | None, seconds: float) -> None:
        self.count += 1
        row = {"pid": pid, "candidate": candidate, "outcome": outcome, "seconds": round(seconds, 3)}
        self._journal.append({"dynadiag_trial": row})

    def add_verdict(self, verdict: str, written: Mapping[str, str] | None = None) -> None:
        """Write the verdict, a JSON document, with the text of the files that it names: readers may be on another
        machine.

        ``written`` has the texts of files that the search wrote.
        """
        self._journal.append({"dynadiag_verdict": {}}, verdict)
        texts = dict(written or {})
        culprits = json.loads(verdict).get("culprits", ())
        for file in dict.fromkeys(one["file"] for one in culprits if one.get("file")):
            with suppress(OSError):  # an unreadable file stays without its text
                texts[file] = Path(file).read_text(encoding="utf-8", errors="replace")
        for file, text in texts.items():
            self._journal.append({"dynadiag_source": {"file": file}}, text)

    def finish(self, exit_code: int | None, force: bool) -> Path:
        """Turn the journal into the recording, and remove it. Returns where the search is kept.

        If the recording cannot be written (a full disk), that is the journal, and a line on stderr says so: what was
        found is reported all the same.
        """
        end = {"code": exit_code, "seconds": round(time.time() - self._began, 3)}
        self._journal.append({"dynadiag_exit": end})
        self._journal.close()
        if self._journal.failure is not None:
            say("trials are missing from the recording", UnwritableOutput(f"{self._path}: {self._journal.failure}"))
        try:
            fold(self._path, self.output, force=force)
        except UnwritableOutput as error:
            self.kept = self._path
            say(f"the search is kept in {self._path}", error)
            return self.kept
        self._path.unlink()
        return self.output

    @contextmanager
    def kept_after_interrupt(self) -> Iterator[None]:
        """Run a search. After Ctrl-C its recording has the trials so far; after a `DynadiagError` there is none.

        A search without a trial replaces nothing.
        """
        try:
            yield
        except KeyboardInterrupt:
            if self.count == 0 and self.output.exists():
                self.discard()
            else:
                self.finish(None, force=True)
            raise
        except DynadiagError:
            self.discard()
            raise

    def discard(self) -> None:
        """Remove the journal: the search did not begin."""
        self._journal.close()
        self._path.unlink(missing_ok=True)


def _load_trials(path: Path, target: str, command: str | None) -> list[tuple[str, str, int | None, float]]:
    """The trials in a recording, or in the journal that a killed search left beside it.

    Raises `DynadiagError` if it is no search of this target, or, with ``command``, not of this command.
    """
    journal = Path(f"{path}.journal")
    if not journal.exists():
        return _read_trials(path, path, target, command)
    with tempfile.TemporaryDirectory() as folder:
        folded = Path(folder, "search.dynadiag")
        fold(journal, folded)
        return _read_trials(path, folded, target, command)


def _read_trials(name: Path, path: Path, target: str, command: str | None) -> list[tuple[str, str, int | None, float]]:
    """The trials in a file, which the user named ``name``."""
    with Recording(path) as earlier:
        made_by = _search_command(earlier)
        if made_by is None:
            raise DynadiagError(f"{name}: not the recording of a search that can be resumed; it is left as it is")
        if command not in (None, made_by):
            raise DynadiagError(
                f"{name}: a search of {made_by}, which {command} does not replace: name another file for its recording"
            )
        if earlier.run.target != target:
            raise DynadiagError(
                f"{name}: a search on {earlier.run.target}, not on {target}. Give the target that it was made with."
            )
        return [(t.candidate, t.outcome, t.pid, t.seconds) for t in earlier.trials()]


def _search_command(recording: Recording) -> str | None:
    """The command that searched, ``None`` for a recording that is no search, or one over releases of torch."""
    for event in recording.events("dynadiag_search", limit=1):
        search = recording.metadata(event.index).get("dynadiag_search")
        if isinstance(search, dict) and not {"--torch", "--python"}.intersection(search.get("options") or ()):
            return str(search.get("command"))
    return None
