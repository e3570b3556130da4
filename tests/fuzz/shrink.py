"""Shortening of a game that ends with a finding, as long as the same finding recurs."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from tests.fuzz.moves import Game


async def shrink(game: Game, is_found: Callable[[Game], Awaitable[bool]], *, attempts: int) -> Game:
    """Return the shortest game with the finding, after at most `attempts` replays."""
    left = attempts
    progress = True
    while progress and left > 0:
        progress = False
        for shorter in _shorter(game):
            if left == 0:
                break
            left -= 1
            if await is_found(shorter):
                game, progress = shorter, True
                break
    return game


def _shorter(game: Game) -> Iterator[Game]:
    """Yield shorter games: large parts left out first, then single moves, then single changes within a move."""
    size = len(game) // 2
    while size >= 1:
        for start in range(len(game) - size, -1, -size):
            if rest := game[:start] + game[start + size :]:
                yield rest
        size //= 2
    for number, move in enumerate(game):
        for field in ("odd", "changes"):
            for place in range(len(move.get(field, ()))):
                simpler = copy.deepcopy(game)
                del simpler[number][field][place]
                yield simpler
