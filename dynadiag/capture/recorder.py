"""The recorder: a handler of torch's structured trace that appends each event to a journal.

When the torch function that emits an event knows more than the event says, a probe reads that function's local
variables and writes an event of ours to the journal just before torch's. No function of torch is replaced. What is
(the class of two loggers, methods of ``ProcessGroup``: ``docs/architecture.md``) is put back when the recorder is gone.
If a probe fails, the journal notes it and nothing else changes.
"""

from __future__ import annotations

import contextlib
import functools
import json
import linecache
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from dynadiag.capture import breaks, caches, code_locations, exports, generated_code
from dynadiag.capture.collective_recorder import CollectiveRecorder
from dynadiag.capture.generated_code import RefusedFusions
from dynadiag.capture.guards import ObjectNumbers
from dynadiag.capture.later_calls import LaterCalls
from dynadiag.capture.later_imports import LaterImports
from dynadiag.capture.loaded_packages import packages_loaded_since
from dynadiag.capture.probes import PROBES
from dynadiag.capture.redact import Redactor
from dynadiag.capture.run_metadata import cell_namer
from dynadiag.errors import DynadiagError, say
from dynadiag.recording.journal import Journal
from dynadiag.recording.torch_text.reasons import CUDA_GRAPH_RECORDED
from dynadiag.torch_private import capture as torch_private
from dynadiag.torch_private import exception_frames, loggers, process_groups
from dynadiag.torch_private import exports as torch_exports

_MAX_REOPENS = 3  # times that a journal is reopened; a full disk stays full
_MAX_ERROR = 500  # characters of an error that are recorded
_MAX_SOURCE_BYTES = 2_000_000  # bytes of one source file that are recorded
_CONTEXT = ("compiled_autograd_id", "frame_id", "frame_compile_id", "attempt", "rank")


class Recorder(logging.Handler):
    """Appends every event of the trace to a journal, which ``open_journal`` makes at the first event.

    A forked child (such as a DataLoader worker) never writes into its parent's journal. It gets one of its own at its
    first event. Safe for any thread.
    """

    def __init__(self, open_journal: Callable[[], Journal], *, source: bool = True) -> None:
        super().__init__(logging.DEBUG)
        self._open_journal = open_journal
        self._redactor = None if source else Redactor()
        self._journal: Journal | None = None
        self._pid = 0
        self._opening: dict[int, threading.Lock] = {}  # by process id: a fork may copy a locked lock
        self._cuda_graph_handler = _CudaGraphSkipHandler(self)
        self._sources: dict[str, list[str]] = {}  # lines of the user's files when they were first seen
        self._files: set[str] = set()  # files whose text is in the journal
        self._modules: dict[str, Mapping[str, Any]] = {}  # metadata of each generated module's event, by file
        self._cache_lookups: set[str] = set()  # modules, and "pgo", whose lookups are in the journal
        self.refused_fusions = RefusedFusions()
        self._program = getattr(sys.modules.get("__main__"), "__file__", None)  # Python deletes it at the end
        self._started = time.time()
        self.collectives = CollectiveRecorder(self)
        self.later_calls = LaterCalls()
        self.later_imports: LaterImports | None = None  # where these are timed
        self._looked_at: set[str] = set()  # modules of which it is known whether they are of a package
        self.objects = ObjectNumbers()
        self._warm: str | None = None  # the payload of the mark of the warm-up's end, of this process or its parent
        self._reopened = 0
        self._released = False

    def start(self) -> None:
        """Listen to torch."""
        self._released = False
        loggers.listen(self)
        loggers.listen_for_skips(self._on_skipped_frame)
        loggers.listen_for_refused_fusions(self.refused_fusions.add)
        try:
            torch_exports.listen_for_exports(self._on_export)
        except Exception as error:  # noqa: BLE001 - the program is recorded without its exports
            self._note_missed("export", error, {})
        self.collectives.start()
        if self._journal is not None:
            self._note_unseen_collectives(self._journal)
        logging.getLogger(torch_private.CUDA_GRAPH_LOGGER).addHandler(self._cuda_graph_handler)

    def stop(self) -> None:
        """Stop listening and close the journal."""
        self._release()
        if self._journal is not None:
            self._journal.close()

    def mute(self) -> None:
        """Append nothing more from this process, a fork of the program that does work of ours."""
        self._release()

    def add_module(self, metadata: Mapping[str, Any]) -> None:
        """Remember a generated module for `record_kernels`, from the metadata of its event."""
        self.journal()  # first, because a forked child drops its parent's modules when it begins a journal
        if isinstance(file := (metadata["inductor_output_code"] or {}).get("file_path"), str):
            self._modules[file] = metadata

    def record_cache_lookups(self) -> None:
        """Append the cache lookups of the modules that were generated since the last call."""
        for module, metadata in list(self._modules.items()):
            if module not in self._cache_lookups:
                self._cache_lookups.add(module)
                for found in caches.describe_cpp_lookups(module, self._started):
                    self.append("cache", found, metadata)
        if "pgo" not in self._cache_lookups and (lookup := caches.describe_pgo_lookup()) is not None:
            self._cache_lookups.add("pgo")
            self.append("cache", lookup, {})

    def record_kernels(self) -> None:
        """Append the Triton kernels of the generated modules so far. Never raises."""
        if not (self.has_journal and self._modules):
            return
        for module, metadata in self._modules.items():
            try:
                for data, stages in generated_code.describe_kernels(module):
                    self.append("triton", data, metadata, stages)
            except Exception as error:  # noqa: BLE001 - the program is at its end: its exit code is its own
                self._note_missed("triton", error, metadata)
        self._modules.clear()

    def record_exception(self, failure: BaseException | None) -> None:
        """Append the break, recompile or export behind an exception that ended the program, if no event has it.

        Never raises.
        """
        try:
            self._append_export(exports.describe_ending_failure(failure))
            if self.has_journal and (found := exception_frames.find_raised_break(failure)) is not None:
                data = breaks.describe_raised_break(found, self.source_lines)
                self.append("raised", data, {})
                self.record_source(data.get("file"), {})
            if self.has_journal and (recompile := exception_frames.find_refused_recompile(failure)) is not None:
                context = breaks.parse_compile_id(recompile.compile_id)
                self.append(
                    "refused", code_locations.describe_code(recompile.code), context, json.dumps(recompile.reasons)
                )
        except Exception as error:  # noqa: BLE001 - the program is at its end: its exit code is its own
            self._note_missed("exception", error, {})

    @functools.cached_property
    def _name_cells(self) -> Callable[[Any], Any] | None:
        return cell_namer()

    def named(self, value: Any) -> Any:
        """Return a JSON value with the cells of a notebook named by their number."""
        return value if self._name_cells is None else self._name_cells(value)

    def note(self, kind: str, data: Any) -> None:
        """Append a small event of ours that must not be lost, such as the end of the run. Never raises."""
        try:
            self.journal().append({f"dynadiag_{kind}": data}, past_limit=True)
        except Exception as error:  # noqa: BLE001 - the program is at its end: its exit code is its own
            self.give_up(error)

    @property
    def keeps_source(self) -> bool:
        """Whether text of the program may be recorded."""
        return self._redactor is None

    @property
    def is_recording(self) -> bool:
        """Whether this process has a journal, and events are still appended."""
        return self.has_journal and not self._released

    @property
    def has_journal(self) -> bool:
        """Whether this process has a journal."""
        return self._pid == os.getpid()

    def journal(self) -> Journal:
        """Return the journal of this process, opened on first use. Raises `DynadiagError` if it cannot be opened."""
        journal = self._journal
        if journal is None or self._pid != os.getpid():
            with self._opening.setdefault(os.getpid(), threading.Lock()):
                if self._journal is None or self._pid != os.getpid():
                    self._files.clear()
                    self._modules.clear()
                    self._cache_lookups.clear()
                    self.collectives.reset()
                    self.later_calls.forget_calls()
                    self._looked_at.clear()
                    self._journal, self._pid = self._begin_journal(), os.getpid()
                journal = self._journal
        return journal

    def _begin_journal(self) -> Journal:
        """A new journal with the names that torch has interned, which it will not log again, and the mark of a
        warm-up that ended before this process was forked.
        """
        journal = self._open_journal()
        for name, number in torch_private.interned_names().items():
            journal.append({"str": [self.named(name), number]})
        if self._warm is not None:
            journal.append({"artifact": torch_private.WARM_UP}, self._warm)
        self._note_unseen_collectives(journal)
        return journal

    def _note_unseen_collectives(self, journal: Journal) -> None:
        """Append that collectives are not recorded, if they are not."""
        if (failure := self.collectives.failure) is not None:
            journal.append({"dynadiag_missed": {"probe": "collectives", "error": _error_text(failure)}})

    def handle(self, record: logging.LogRecord) -> bool:
        """Append one event, after the event of its probe. Never raises. An append is one write, so it takes no lock."""
        metadata: Mapping[str, Any] | None = getattr(record, "metadata", None)
        if metadata is not None and not self._released:
            try:
                payload: str | None = getattr(record, "payload", None)
                self._probe(metadata, payload or "", sys._getframe(1))
                self._append(metadata, payload, record)
                is_warm = metadata.get("artifact") in (torch_private.WARM_UP, torch_private.LAST_WARM_CALL)
                if is_warm and self._warm is None:
                    self._warm = payload or ""
            except Exception as error:  # noqa: BLE001 - it would reach the user's program through torch.compile
                self.give_up(error)
        return True

    emit = handle  # type: ignore[assignment]  # logging calls handle(); emit() is for direct callers

    def close(self) -> None:
        """Do nothing: ``logging.config`` closes handlers that it did not make, and the journal must stay open."""

    def give_up(self, error: Exception) -> None:
        """Stop recording this process, and say so once. Never raises."""
        if self._released:
            return
        try:
            self._release()
        except Exception as other:  # noqa: BLE001 - we are called out of the user's program
            error = other
        further = "any further" if self.has_journal else "at all"
        say(f"process {os.getpid()} is not recorded {further}", error)

    def _note_missed(self, probe: str, error: Exception, context: Mapping[str, Any]) -> None:
        """Append that a probe failed. Never raises."""
        try:
            self.append("missed", {"probe": probe, "error": _error_text(error)}, context)
        except Exception as other:  # noqa: BLE001 - we are called out of the user's program
            self.give_up(other)

    def _release(self) -> None:
        self._released = True
        loggers.release(self)
        loggers.stop_listening_for_skips(self._on_skipped_frame)
        loggers.stop_listening_for_refused_fusions(self.refused_fusions.add)
        with contextlib.suppress(Exception):
            torch_exports.stop_listening_for_exports(self._on_export)
        self.collectives.stop()
        self.later_calls.stop()
        logging.getLogger(torch_private.CUDA_GRAPH_LOGGER).removeHandler(self._cuda_graph_handler)

    def _on_skipped_frame(self, code: CodeType, reason: str) -> None:
        """Append a frame that Dynamo left to Python untraced. Never raises."""
        try:
            is_for_mode, emitter = code_locations.SKIPPED_FOR_MODE in reason, sys._getframe(1)
            found = code_locations.describe_skipped_frame(code, reason)
            if is_for_mode and (wrapped := torch_private.wrapped_callable(emitter)) is not None:
                found = {**code_locations.describe_callable(wrapped, emitter), "reason": reason}
            if found is not None:
                if is_for_mode:
                    callers = code_locations.user_callers(emitter)
                    for_good = torch_private.is_skipped_for_good(emitter)
                    found |= {"modes": torch_private.dispatch_modes(), "callers": callers, "for_good": for_good}
                self.append("skipped", found, {})
                self.record_source(code.co_filename, {})
            self._count_later_calls(code, reason, found)
        except Exception as error:  # noqa: BLE001 - as in `handle`
            self.give_up(error)

    def _count_later_calls(self, code: CodeType, reason: str, found: dict[str, Any] | None) -> None:
        """Count the calls from now on of a compiled function that Dynamo leaves for good. Never raises."""
        is_for_good = found is not None and found.get("for_good", True)
        if not (is_for_good or code_locations.is_left_while_tracing(reason)):
            return
        try:
            emitter = sys._getframe(2)
            wrapped, called = torch_private.wrapped_callable(emitter), torch_private.called_code(emitter)
            if called is None or (called is not code and wrapped is None):  # a function below the compiled one
                return
            named = code_locations.describe_code(code)
            if wrapped is not None:
                named = code_locations.describe_callable(wrapped, emitter)
            self.later_calls.count_from_now(named, called)
        except Exception as error:  # noqa: BLE001 - what was skipped is recorded without its calls
            self._note_missed("later_calls", error, {})

    def record_later_calls(self) -> None:
        """Append how often the compiled functions that torch left to Python were called from then on. Never raises."""
        try:
            for each in self.later_calls.counts() if self.has_journal else ():
                self.append("later_calls", each, {})
        except Exception as error:  # noqa: BLE001 - the program is at its end: its exit code is its own
            self._note_missed("later_calls", error, {})

    def _on_export(self, outcome: str | Exception) -> None:
        """Append that an export begins, or how it ended; the exception where that cannot be read. Never raises."""
        try:
            if isinstance(outcome, Exception):
                raise outcome
            if not self._released:
                self._append_export(exports.describe_export(outcome, sys._getframe(1)))
        except Exception as error:  # noqa: BLE001 - the program's export goes on
            self._note_missed("export", error, {})

    def _append_export(self, data: dict[str, Any] | None) -> None:
        if data is None:
            return
        self.append("export", data, {})
        self.record_packages()
        places = [data, *data["callers"], *data.get("stack", ())]
        for file in dict.fromkeys(place.get("file") for place in places):
            self.record_source(file, {})

    def record_collectives(self) -> None:
        """Append how many collectives have no event, and the dump of torch's Flight Recorder. Never raises."""
        try:
            if self.has_journal:
                self.collectives.append_unseen()
            if self.has_journal and (text := process_groups.flight_recorder()) is not None:
                self.append("flight_recorder", {}, {}, text)
        except Exception as error:  # noqa: BLE001 - the program is at its end: its exit code is its own
            self._note_missed("flight_recorder", error, {})

    def append(self, kind: str, data: Any, context: Mapping[str, Any], payload: str | None = None) -> None:
        """Append an event of ours, ``dynadiag_<kind>``, with the context of torch's event."""
        self._append({f"dynadiag_{kind}": data, **{key: context[key] for key in _CONTEXT if key in context}}, payload)

    def _append(
        self, metadata: Mapping[str, Any], payload: str | None, record: logging.LogRecord | None = None
    ) -> None:
        if self._redactor is not None:
            metadata, payload = self._redactor.redact(metadata, payload, _is_user_file)
        metadata, payload = self.named(metadata), self.named(payload)
        place = {} if record is None else _log_position(record)
        journal = self.journal()
        if not journal.append(metadata, payload, **place) and journal.failure is not None:
            self._reopen(journal)
            self.journal().append(metadata, payload, **place)

    def _reopen(self, journal: Journal) -> None:
        """Reopen a journal that the program closed (daemons close every descriptor), a limited number of times."""
        self._reopened += 1
        if self._reopened > _MAX_REOPENS or journal.removed:
            raise DynadiagError(f"cannot write {journal.path}: {journal.failure}")
        self._journal = Journal.reopen(journal.path, journal.limit)
        self._journal.append({"dynadiag_missed": {"probe": "journal", "error": journal.failure}})

    def _probe(self, metadata: Mapping[str, Any], payload: str, emitter: FrameType) -> None:
        """Run the probe of an event, if it has one."""
        artifact = metadata.get("artifact")
        name = artifact.get("name") if artifact is not None else next(iter(metadata))
        probe = PROBES.get(name)
        if name == "chromium_event":
            probe = next((functools.partial(each, payload) for text, each in _TIMED.items() if text in payload), None)
        if probe is None:
            return
        try:
            probe(self, metadata, emitter)
        except Exception as error:  # noqa: BLE001 - whatever torch changed must not reach the user's program
            self._note_missed(str(name), error, metadata)

    def record_program(self) -> None:
        """Append the text of the main file if none is recorded: what it calls may tell why nothing was compiled."""
        if not self._files:
            self.record_source(self._program, {})

    def record_packages(self) -> None:
        """Append which modules that were loaded since the last call are of packages, where no path says so."""
        if files := packages_loaded_since(self._looked_at):
            self.append("packages", files, {})

    def record_source(self, file: str | None, metadata: Mapping[str, Any], *, library: bool = False) -> None:
        """Append the text of one of the user's files as it is now, once; if `library`, also of torch's and Python's."""
        if not file or file in self._files:
            return
        is_users = _is_user_file(file)
        if not is_users and not library:
            return
        self._files.add(file)
        if self._redactor is None:
            text = (is_users and "".join(self.source_lines(file))) or _read(file)
            if text is not None:
                self.append("source", {"file": file}, metadata, text[:_MAX_SOURCE_BYTES])

    def source_lines(self, file: str) -> list[str]:
        """Return the lines of a file as Python has them.

        They are cached because torch makes `linecache` drop changed files.
        """
        if not self._sources.get(file):
            self._sources[file] = list(linecache.getlines(file))
        return self._sources[file]


def _probe_cuda_graph(payload: str, recorder: Recorder, _metadata: Mapping[str, Any], emitter: FrameType) -> None:
    """Append why code is recorded again as a CUDA graph, if torch has a reason. One event is of the begin, one of the
    end.
    """
    if json.loads(payload).get("ph") == "B" and (reason := torch_private.cuda_graph_mismatch(emitter)):
        named = torch_private.cuda_graph_compile_id(emitter)
        moved, count = torch_private.cuda_graph_moved_inputs(emitter)
        inputs = [{"name": name, "stack": trace} for name, trace in moved]
        data = {"reason": reason, "compile_id": named, "inputs": inputs, "input_count": count}
        recorder.append("cuda_graph_again", data, {})


def _probe_package(_payload: str, recorder: Recorder, _metadata: Mapping[str, Any], emitter: FrameType) -> None:
    """Append that AOTInductor fails. A program that catches the exception goes on."""
    if torch_exports.is_failing_compile(emitter):
        recorder._append_export(exports.describe_export("error", emitter))


_TIMED = {CUDA_GRAPH_RECORDED: _probe_cuda_graph, torch_exports.COMPILE: _probe_package}  # by what torch times


class _CudaGraphSkipHandler(logging.Handler):
    """Appends Inductor's reasons for making no CUDA graph. The trace does not have all of them."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(logging.WARNING)
        self._recorder = recorder

    def handle(self, record: logging.LogRecord) -> bool:
        """Append one reason, with the compile that it belongs to. Never raises."""
        if record.levelno >= self.level:
            try:
                named = torch_private.current_compile_id() or torch_private.cuda_graph_compile_id(sys._getframe(1))
                data = {"reason": record.getMessage(), "compile_id": named}
                self._recorder.append("cuda_graph_skip", data, {})
            except Exception as error:  # noqa: BLE001 - it would be raised in the user's program
                self._recorder.give_up(error)
        return True


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:_MAX_ERROR]


def _is_user_file(file: str) -> bool:
    return not code_locations.is_stdlib_or_torch(file)


def _log_position(record: logging.LogRecord) -> dict[str, Any]:
    return {"pathname": record.pathname, "lineno": record.lineno, "created": record.created}


def _read(file: str) -> str | None:
    try:
        return Path(file).read_text(errors="replace")
    except (OSError, ValueError):
        return None
