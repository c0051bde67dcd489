"""The parser: every byte of a log belongs to one event, however the log is cut and whatever it holds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.recording import log
from dynadiag.recording.log import MAX_HEADER, LogParser, RawEvent, event_kind, event_time, parse_metadata, payload_text

HEADER = b'V1120 06:38:46.123456 77 torch/_dynamo/a b.py:12] {"artifact": {"name": "x"}, "frame_id": 0}'


def parsed(pieces: list[bytes]) -> list[RawEvent]:
    parser = LogParser()
    return [raw for piece in pieces for raw in parser.feed(piece)] + parser.finish()


def line(kind: str) -> bytes:
    return b"V1120 06:38:46.123456 77 a.py:1] " + json.dumps({kind: {}}).encode()


fragments = st.sampled_from(
    [
        HEADER,
        HEADER[:30],
        HEADER[:-1],
        line("b"),
        b"\n",
        b"\n\t",
        b"\t",
        b"printed",
        b"\xff\x00",
        b"\r",
        b"] {",
        b"V",
        b"",
    ]
)
logs = st.lists(st.one_of(fragments, st.binary(max_size=8)), max_size=40).map(b"".join)


@given(logs, st.lists(st.integers(1, 20)))
def test_events_cover_every_byte_and_do_not_depend_on_the_cuts(data: bytes, cuts: list[int]) -> None:
    whole = parsed([data])
    at, pieces = 0, []
    for cut in cuts:
        pieces.append(data[at : at + cut])
        at += cut
    assert parsed([*pieces, data[at:]]) == whole
    end = 0
    for raw in whole:
        assert raw.start == end
        assert raw.size > 0
        assert (raw.header is None) == (raw.lines > 0)
        if raw.header is not None:
            assert data[raw.start :].startswith(raw.header)
        end += raw.size
    assert end == len(data)


@given(st.lists(st.text(), min_size=1))
def test_payloads_come_back(payloads: list[str]) -> None:
    data = b"".join(HEADER + b"\n\t" + text.replace("\n", "\n\t").encode() + b"\n" for text in payloads)
    found = [payload_text(data[raw.start + len(HEADER) + 1 : raw.start + raw.size]) for raw in parsed([data])]
    assert found == payloads


def test_header_is_read() -> None:
    (raw,) = parsed([HEADER + b"\n\tpayload\n\t\n"])
    assert raw.header == HEADER
    assert event_time(HEADER) == "1120 06:38:46.123456"
    assert parse_metadata(HEADER) == {"artifact": {"name": "x"}, "frame_id": 0}


def test_noise_between_events_is_one_event_and_counted() -> None:
    data = b"\n".join([b"printed", b"", b"more", line("a"), b"\tpayload", b"again", b"\tindented", line("b"), b""])
    found = parsed([data])
    assert [raw.header is None for raw in found] == [True, False, True, False]
    assert [raw.lines for raw in found] == [3, 0, 1, 0]


@pytest.mark.parametrize("size", [MAX_HEADER - 100, MAX_HEADER + 100, 5 * MAX_HEADER])
def test_endless_line_is_noise_and_not_kept_in_memory(size: int) -> None:
    data = HEADER[:-1] + b" " * size + b"\n" + line("a") + b"\n"
    parser, found, held = LogParser(), [], 0
    for start in range(0, len(data), 1 << 18):
        found += parser.feed(data[start : start + (1 << 18)])
        held = max(held, len(parser._carry))
    found += parser.finish()
    assert [raw.header for raw in found][1:] == [line("a")]
    assert held <= MAX_HEADER
    assert sum(raw.size for raw in found) == len(data)


def test_long_noise_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_MAX_NOISE", 100)
    found = parsed([b"printed\n" * 1000])
    assert sum(raw.lines for raw in found) == 1000
    assert max(raw.size for raw in found) <= 108


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": NaN}', True),
        ('{"a": "\\ud800"}', True),
        ('{"a": 1' + "0" * 100 + "}", True),
        ('{"a": 1' + "0" * 10_000 + "}", False),
        ("[" * 100_000, False),
        ('{"a":' * 100_000, False),
        ('{"a": 1', False),
        ("[1]", False),
        ("7", False),
        ("", False),
    ],
)
def test_hostile_json(text: str, expected: bool) -> None:
    metadata = parse_metadata(b"V1120 06:38:46.123456 77 a.py:1] " + text.encode())
    assert (metadata is not None) == expected
    if metadata is not None:
        assert json.dumps(metadata, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("metadata", "kind"),
    [
        ({"artifact": {}, "rank": 0}, "artifact"),
        ({"rank": 0, "frame_id": 0, "attempt": 0, "dynamo_start": {}}, "dynamo_start"),
        ({"chromium_event": {}, "has_payload": ""}, "chromium_event"),
        ({"has_payload": ""}, "unknown"),
        ({}, "unknown"),
    ],
)
def test_kind(metadata: dict[str, Any], kind: str) -> None:
    assert event_kind(metadata) == kind


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert payload_text(b"\t\xff\n\tb") == "�\nb"
