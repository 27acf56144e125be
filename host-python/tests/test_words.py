"""The words of the page and of `watm.status`."""

import json
from pathlib import Path

import pytest

from mitmproxy_watm import words

CASES = json.loads((Path(__file__).resolve().parents[2] / "tests/words.json").read_text())
"""Arguments of each function, and their words."""


def say(name, given):
    if name == "generation":
        given = {"age": given["age_seconds"], "draining": given["draining_seconds"], "flows": given["flows"]}
    return getattr(words, name)(given)


@pytest.mark.parametrize("name", CASES)
def test_words_are_for_people(name):
    assert [say(name, given) for given, _ in CASES[name]] == [expected for _, expected in CASES[name]]


def test_a_grant_that_leaves_something_out_is_named():
    (_, (everything, _), (little, _), _) = CASES["permissions"]
    assert words.refused(everything, everything) == []
    assert "send UDP to any address" in words.refused(everything, little)
    assert words.refused(None, None) == []
