"""User-supplied text in messages: on one line, without control characters, and of bounded length."""

from __future__ import annotations

import pytest

from admission.model import sentences


@pytest.mark.parametrize("say", [sentences.held_by_admin, lambda a, r: sentences.deactivated(author=a, reason=r)])
def test_user_text_in_messages_is_cleaned_and_bounded(say):
    said = say("ada\n", "two\nlines \x1b[31m" + "x" * 100_000)
    assert said.isprintable()
    assert len(said) < 800
    assert "ada : two lines \\x1b[31mxxx" in said


def test_message_omits_a_missing_author_and_reason():
    assert sentences.held_by_admin("", "").startswith("It was put on hold. Ask")
    assert sentences.deactivated().startswith("It was deactivated. It does")
    assert sentences.held_by_admin("ada", "it is broken.").startswith("It was put on hold by ada: it is broken. Ask")
