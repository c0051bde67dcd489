"""The events of caches become lookups with their keys, reasons and costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dynadiag.recording.cache_keys import merge_components, parse_components
from dynadiag.recording.import_export import import_log
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import CacheLookup, KeyComponent
from tests.recording.test_digest import ZERO, artifact, digest, only
from tests.recording.test_versions import LOGS, unpacked

Item = tuple[dict[str, Any], str]
KEY = {"key": "fabc", "components": ["[a1] gm: code", "[b2] inductor_config[x.y]: True"]}
CODE: Item = ({"inductor_output_code": {}, **ZERO}, "")


def cache(name: str, **data: Any) -> Item:
    return artifact(name), json.dumps(data)


def metrics(kind: str = "compilation_metrics", **data: Any) -> Item:
    return {kind: data, **ZERO}, ""


def lookups(*events: Item) -> list[CacheLookup]:
    return only(digest(*events), CacheLookup)


def test_a_miss_has_its_key_and_its_seconds_and_a_hit_what_it_saved() -> None:
    found = lookups(
        cache("aotautograd_cache_miss", key="akey", components=[]),
        ({"aot_forward_graph": {}, **ZERO}, ""),
        ({"aot_backward_graph": {}, **ZERO}, ""),
        CODE,
        cache("fx_graph_cache_miss", time_taken_ns=2_500_000_000, **KEY),
        metrics(backend_compile_time_s=4.0, inductor_compile_time_s=2.6),
        CODE,
        cache("fx_graph_cache_hit", time_saved_ns=1_000_000_000, **KEY),
        metrics("bwd_compilation_metrics"),
    )
    assert [(one.graph, one.cache, one.outcome, one.key, one.seconds) for one in found] == [
        ("dynamo", "aot_autograd", "miss", "akey", 4.0),
        ("forward", "fx_graph", "miss", "fabc", 2.5),
        ("backward", "fx_graph", "hit", "fabc", 1.0),
    ]
    assert [one.index for one in found] == [0, 1, 2]


def test_a_bypass_has_torchs_reason_and_what_its_compile_cost() -> None:
    told = {"cache_bypass_reason": "Unsupported post grad custom pass"}
    found = lookups(
        cache("aotautograd_cache_bypass", **told),
        CODE,
        cache("fx_graph_cache_bypass", **told),
        metrics(backend_compile_time_s=4.0, inductor_compile_time_s=3.0),
    )
    assert [(one.outcome, one.reason, one.seconds) for one in found] == [
        ("bypass", told["cache_bypass_reason"], 4.0),
        ("bypass", told["cache_bypass_reason"], 3.0),
    ]
    assert all(one.event is None for one in found)


@pytest.mark.parametrize(
    ("part", "option", "value", "told"),
    [
        ("compiler_config", "force_disable_caches", True, "torch.compiler.config.force_disable_caches is True"),
        ("inductor_config", "fx_graph_cache", False, "torch._inductor.config.fx_graph_cache is False"),
        ("dynamo_config", "fx_graph_cache", False, None),
    ],
)
def test_a_module_without_a_lookup_shows_that_the_cache_is_off(
    part: str, option: str, value: bool, told: str | None
) -> None:
    found = lookups(CODE, metrics(**{part: json.dumps({option: value})}))
    assert [(one.cache, one.outcome) for one in found] == [("aot_autograd", "disabled"), ("fx_graph", "disabled")]
    assert found[1].reason == told


def test_what_cannot_be_stored_is_told_of_its_miss() -> None:
    (found,) = lookups(
        cache("aotautograd_cache_miss", key="a", components=[]),
        cache("aotautograd_cache_pickle_failure", error="cannot pickle", field="compiled_fw"),
        metrics(),
    )
    assert (found.outcome, found.reason) == ("miss", "the result cannot be stored: cannot pickle (field compiled_fw)")


def test_kernels_that_are_tuned_and_libraries_that_are_built_are_lookups_too() -> None:
    tuned = {
        "k0": {"autotune_cache_state": "hit"},
        "k1": {"autotune_cache_state": "miss"},
        "k2": {"compile_time_us": 3},
    }
    ours = {"cache": "cpp", "name": "cpp_fused_0", "key": "c1", "outcome": "miss", "seconds": 0.5}
    found = lookups(cache("triton_kernel_info", **tuned), ({"dynadiag_cache": ours, **ZERO}, ""), metrics())
    assert [(one.graph, one.cache, one.outcome, one.seconds) for one in found] == [
        ("k0", "autotune", "hit", None),
        ("k1", "autotune", "miss", None),
        ("cpp_fused_0", "cpp", "miss", 0.5),
    ]


@pytest.mark.parametrize(
    ("events", "outcome"),
    [
        ([(artifact("put_local_code_state"), "")], "miss"),
        ([(artifact("get_local_code_state"), ""), (artifact("put_local_code_state"), "")], "hit"),
        ([({"dynadiag_cache": {"cache": "pgo", "outcome": "disabled", "key": None}}, "")], "disabled"),
    ],
)
def test_the_profile_of_sizes_is_looked_up_once(events: list[Item], outcome: str) -> None:
    (found,) = lookups(*events)
    assert (found.cache, found.outcome) == ("pgo", outcome)


@pytest.mark.parametrize("payload", ["", "[]", "{", '{"components": 3}', '{"components": [4, "no hash"]}', "\ud800"])
def test_no_payload_breaks_the_reader_of_keys(payload: str) -> None:
    assert parse_components(payload) == ()
    lookups((artifact("fx_graph_cache_miss"), payload), (artifact("triton_kernel_info"), payload), metrics())


def test_a_component_is_a_hash_a_name_and_a_value_of_any_text() -> None:
    lines = ["[ab] example_inputs[0]: T(shape=[2])", "[cd] inductor_config[a.b]: x: [1]\ny", "[ef] cache_key_tag: "]
    assert parse_components(json.dumps({"components": lines})) == (
        KeyComponent("example_inputs[0]", "ab", "T(shape=[2])"),
        KeyComponent("inductor_config[a.b]", "cd", "x: [1]\ny"),
        KeyComponent("cache_key_tag", "ef", ""),
    )


def test_a_key_takes_the_groups_that_it_lacks_from_another() -> None:
    own = (KeyComponent("gm", "1", ""), KeyComponent("fx_kwargs[a]", "2", ""))
    other = (
        KeyComponent("gm", "3", ""),
        KeyComponent("fx_kwargs[b]", "4", ""),
        KeyComponent("inductor_config[c]", "5", ""),
    )
    assert merge_components(own, other) == (*own, other[2])


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.name.removesuffix(".log.zst"))
def test_logs_of_each_torch_have_their_lookups(log: Path, tmp_path: Path) -> None:
    import_log(unpacked(log, tmp_path), tmp_path / "run.dynadiag")
    with Recording(tmp_path / "run.dynadiag") as recording:
        found = recording.cache_lookups("0/0")
        assert [(one.graph, one.cache, one.outcome) for one in found] == [
            ("dynamo", "aot_autograd", "miss"),
            ("forward", "fx_graph", "miss"),
            ("backward", "fx_graph", "miss"),
        ]
        assert all(one.seconds for one in found)
        assert len({one.name for one in recording.key_components(found[1])}) > 500
        assert bool(recording.key_components(found[0])) == ("2.11" in log.name)
