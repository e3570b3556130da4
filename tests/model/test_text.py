"""Cleaning of user-supplied text: one line of bounded length that any database can store and any terminal can show."""

from __future__ import annotations

import pytest

from admission.model.errors import Misconfigured
from admission.model.text import clean


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, ümläut and 日本", "plain, ümläut and 日本"),
        ("two\nlines\tand more", "two lines and more"),
        ("nul \x00 bell \x07 escape \x1b[2J", r"nul \x00 bell \x07 escape \x1b[2J"),
        ("lone \ud800 surrogate", r"lone \ud800 surrogate"),
        ("right to left \u202e", r"right to left \u202e"),
    ],
)
def test_unprintable_characters_are_escaped(text, shown):
    assert clean(text) == shown


@pytest.mark.parametrize("text", ["x" * 10_000_000, "\x00" * 10_000_000])
def test_long_text_is_cut(text):
    shown = clean(text)
    assert len(shown) == 1000
    assert shown.endswith("…")


def test_text_of_the_maximum_length_is_not_cut():
    assert clean("x" * 20, longest=20) == "x" * 20
    assert clean("x" * 21, longest=20) == "x" * 19 + "…"


def test_message_of_misconfigured_is_cleaned():
    assert str(Misconfigured("a\x00b")) == r"a\x00b"
