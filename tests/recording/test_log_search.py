"""The log is searched by blocks: what is found must not depend on where they end."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from dynadiag.recording.fold import fold
from dynadiag.recording.log_search import search_log
from dynadiag.recording.reader import Recording
from dynadiag.recording.schema import BLOCK_SIZE

_HEADER = 'V1120 06:38:46.123456 77 a.py:1] {"artifact": {"name": "n"}, "frame_id": 0, "frame_compile_id": 0}\n'


class _Cut:
    """A recording whose log comes in pieces of another size."""

    def __init__(self, recording: Recording, size: int) -> None:
        self._recording, self._size = recording, size
        self.path, self.event_spans = recording.path, recording.event_spans

    def raw(self) -> list[bytes]:
        data = b"".join(self._recording.raw())
        return [data[start : start + self._size] for start in range(0, len(data), self._size)]


def _found(recording: object, pattern: str) -> list[tuple[int, int]]:
    seen = (one for _, one in search_log(recording, pattern) if one is not None)  # type: ignore[arg-type]
    return [(one.span.event.index, one.line) for one in seen]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(["", "Ab", "needle", "nee dle", "aneedleneedle", "x" * 40]), max_size=6)),
    st.integers(1, 300),
)
def test_lines_are_those_of_the_payloads_wherever_the_blocks_end(payloads: list[list[str]], size: int) -> None:
    with TemporaryDirectory() as folder:
        log = Path(folder, "a.log")
        parts = [_HEADER + ("\t" + "\n\t".join(lines) + "\n" if lines else "") for lines in payloads]
        log.write_text("".join(parts) or _HEADER)
        fold(log, Path(folder, "a.dynadiag"))
        with Recording(Path(folder, "a.dynadiag")) as recording:
            whole = [
                (event.index, number)
                for event in recording.events()
                for number, text in enumerate(recording.payload(event.index).split("\n"), 1)
                if "needle" in text
            ]
            assert _found(recording, "needle") == whole
            assert _found(_Cut(recording, size), "needle") == whole


def test_a_text_across_two_blocks_is_found_with_its_line(tmp_path: Path) -> None:
    line = "y" * 99
    log = tmp_path / "a.log"
    before = (BLOCK_SIZE - len(_HEADER)) // (len(line) + 2) - 1
    text = "\t" + "\n\t".join([line] * before + [line + "NEEDLE" * 60, line, "Needle"]) + "\n"
    log.write_text(_HEADER + text)
    fold(log, tmp_path / "a.dynadiag")
    with Recording(tmp_path / "a.dynadiag") as recording:
        assert len(list(recording.raw())) == 2
        assert _found(recording, "needle") == [(0, before + 1), (0, before + 3)]
        assert _found(recording, "Needle") == [(0, before + 3)]


def test_an_event_that_is_full_of_it_is_told_fifty_times(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text((_HEADER + "\t" + "\n\t".join(["needle"] * 500) + "\n") * 2)
    fold(log, tmp_path / "a.dynadiag")
    with Recording(tmp_path / "a.dynadiag") as recording:
        assert _found(recording, "needle") == [(event, line) for event in (0, 1) for line in range(1, 51)]
