"""What a game may end with."""

from __future__ import annotations


class Finding(Exception):
    """Something that was promised did not hold: `what` in a few words that are the same each time, and the story."""

    def __init__(self, what: str, story: str = "") -> None:
        super().__init__(f"{what}: {story}" if story else what)
        self.what = what
        self.story = story
