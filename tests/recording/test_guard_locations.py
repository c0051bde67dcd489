"""The lines of guards are found again whatever compile was read meanwhile, in little memory."""

from __future__ import annotations

import tracemalloc

from dynadiag.recording.digest.context import GuardLocations


def test_the_guards_of_earlier_compiles_are_found_again() -> None:
    locations = GuardLocations()
    for number in range(3):
        locations.add(f"{number}/0", "L['x']", "/p.py", number + 1)
    locations.add("1/0", "L['\ud800']", "/p.py", None)
    locations.add("1/0", "L['x']", "/other.py", 9)
    assert [locations.find(f"{number}/0", "L['x']") for number in (0, 2, 1)] == [
        ("/p.py", 1),
        ("/p.py", 3),
        ("/p.py", 2),
    ]
    assert locations.find("1/0", "L['\ud800']") == ("/p.py", None)
    assert locations.find("1/0", "L['y']") is None
    assert locations.find("7/0", "L['x']") is None


def test_a_guard_takes_few_bytes() -> None:
    locations = GuardLocations()
    tracemalloc.start()
    try:
        for number in range(100):
            for layer in range(300):
                locations.add(
                    f"{number}/0", f"L['self'].layers[{layer}].attention.weight", "/home/user/model.py", layer
                )
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert used < 100 * 300 * 40
