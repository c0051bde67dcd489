"""A remedy is given where its presuppositions hold, with how far it was tried."""

from __future__ import annotations

from collections.abc import Mapping

from dynadiag.explanation.remedy import Remedy, Trial, advise


def named(facts: str) -> Mapping[str, str] | None:
    return {"name": facts} if facts else None


MENDS = Remedy("mends", "Mend `{name}`.", named, trials=(Trial("program"),))
EXPLAINS = Remedy("explains", "`{name}` is a name.", named, ends=False)


def test_a_remedy_is_not_given_where_a_presupposition_does_not_hold() -> None:
    assert advise([MENDS], "") == ()
    assert [item.text for item in advise([MENDS], "f")] == ["Mend `f`."]


def test_what_ends_the_problem_comes_first_and_two_are_enough() -> None:
    assert [item.key for item in advise([EXPLAINS, EXPLAINS, MENDS], "f")] == ["mends", "explains"]


def test_a_remedy_that_was_tried_on_another_torch_says_so() -> None:
    old = Remedy("old", "Do it.", named, trials=(Trial("program", torch=("2.13",)),))

    here, there = old.advice("f", torch="2.13.0+cpu"), old.advice("f", torch="2.15.0")

    assert here is not None
    assert (here.checked, here.elsewhere) == ("tried", ())
    assert there is not None
    assert (there.checked, there.elsewhere) == ("consistent", ("2.13",))


def test_a_trial_on_another_kind_of_break_does_not_count() -> None:
    of_one = Remedy("one", "Do it.", named, trials=(Trial("program", case="GB0007"),))

    assert [item.checked for item in advise([of_one], "f", case="GB0007")] == ["tried"]
    assert [item.checked for item in advise([of_one], "f", case="GB0008")] == ["consistent"]


def test_what_usually_helps_and_nobody_tried_is_unchecked() -> None:
    usual = Remedy("usual", "Do it.", named, usual=True)

    assert [item.checked for item in advise([usual], "f")] == ["unchecked"]
