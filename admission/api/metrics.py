"""`/metrics` in the text format of Prometheus: numbers are read when they are asked for, nothing is counted twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Family:
    """All samples of one name. A counter's name ends in `_total`; units are base units, and end the name, too."""

    name: str
    type: Literal["counter", "gauge"]
    help: str
    samples: Iterable[tuple[tuple[str, ...], float]] = ()
    """The values of the labels, and the number."""
    labels: tuple[str, ...] = ()
    """Their names."""


Families: TypeAlias = "Callable[[], Awaitable[Iterable[Family]]]"


def single(name: str, kind: Literal["counter", "gauge"], text: str, value: float) -> Family:
    """A family of one sample without labels."""
    return Family(name, kind, text, [((), value)])


def exposition(families: Iterable[Family]) -> str:
    """The text format, version 0.0.4."""
    lines: list[str] = []
    for family in families:
        lines.append(f"# HELP {family.name} {_escaped(family.help)}")
        lines.append(f"# TYPE {family.name} {family.type}")
        lines += [f"{family.name}{_labels(family.labels, values)} {value!r}" for values, value in family.samples]
    return "\n".join(lines) + "\n"


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    if not names:
        return ""
    pairs = ((name, _escaped(value).replace('"', r"\"")) for name, value in zip(names, values, strict=True))
    return "{" + ",".join(f'{name}="{value}"' for name, value in pairs) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


class Metrics:
    """The door; like every other but those of the probes it is for users who may `get` its path."""

    def __init__(self, families: Families) -> None:
        self._families = families

    async def get(self, _: web.Request) -> web.Response:
        """All numbers as they are now."""
        return web.Response(
            body=exposition(await self._families()).encode(),
            headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"},
        )
