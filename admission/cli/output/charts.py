"""Charts of what-if answers as SVG."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from admission.apimachinery.tables import spoken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from admission.client.transport import Document

_WIDTH: Final = 640
_HEIGHT: Final = 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 20, 44, 48
_MARGIN: Final = 8
_STYLE: Final = (
    "text{font:12px system-ui,sans-serif;fill:#333}.title{font-weight:600}.grid{stroke:#ddd}"
    ".p90{stroke:#2563eb;fill:none;stroke-width:2}.p50{stroke:#94a3b8;fill:none;stroke-width:2}"
    ".dot{fill:#2563eb}.goal{stroke:#dc2626;stroke-dasharray:5 4}.goal-text{fill:#dc2626}"
)


def quota_chart(answer: Document) -> str:
    """Return a chart of the waits of half, and nine of ten, workloads with each quota that was tried for a goal."""
    tried, goal = answer["tried"], answer["p90Seconds"]
    first, last = tried[0]["quota"], tried[-1]["quota"]
    most = max(goal, *(each["waitSeconds"]["p90"] for each in tried)) * 1.05 or 1.0
    inner, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def x(quota: float) -> float:
        return _LEFT + inner * ((quota - first) / (last - first) if last > first else 0.5)

    def y(seconds: float) -> float:
        return _TOP + height * (1 - seconds / most)

    def line(name: str) -> str:
        points = " ".join(f"{x(each['quota']):.1f},{y(each['waitSeconds'][name]):.1f}" for each in tried)
        return f'<polyline class="{name}" points="{points}"/>'

    def axes() -> Iterator[str]:
        for part in (0, 0.25, 0.5, 0.75, 1):
            at = y(part * most)
            yield f'<path class="grid" d="M{_LEFT} {at:.1f}H{_WIDTH - _RIGHT}"/>'
            yield f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{spoken(part * most)}</text>'
        for quota in _apart([each["quota"] for each in tried], x):
            yield f'<text x="{x(quota):.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{quota:g}</text>'

    place = f"{answer['resource']} of flavor {answer['flavor']} in ClusterQueue {answer['clusterQueue']}"
    needed = answer.get("neededQuota")
    title = f"{needed:g} of {place}" if needed is not None else f"No quota of {place}"
    sentence = f"{title}: nine of ten start within {spoken(goal)}"
    dots = "".join(
        f'<circle class="dot" cx="{x(each["quota"]):.1f}" cy="{y(each["waitSeconds"]["p90"]):.1f}" r="3">'
        f"<title>{each['quota']:g}: {spoken(each['waitSeconds']['p90'])}</title></circle>"
        for each in tried
    )
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
                f'aria-label="{escape(sentence)}">'
            ),
            f"<style>{_STYLE}</style>",
            f'<text class="title" x="{_MARGIN}" y="18">{escape(sentence)}</text>',
            (
                f'<text x="{_MARGIN}" y="34">Wait until the first quota, by nominal quota; '
                "blue: nine of ten, grey: half of the workloads</text>"
            ),
            *axes(),
            line("p50"),
            line("p90"),
            dots,
            f'<path class="goal" d="M{_LEFT} {y(goal):.1f}H{_WIDTH - _RIGHT}"/>',
            f'<text class="goal-text" x="{_WIDTH - _RIGHT}" y="{y(goal) - 5:.1f}" text-anchor="end">wish</text>',
            f'<text x="{_LEFT + inner / 2:.0f}" y="{_HEIGHT - 8}" text-anchor="middle">nominal quota</text>',
            "</svg>",
        ]
    )


def _apart(quotas: Sequence[float], x: Callable[[float], float]) -> Iterator[float]:
    """Yield those quotas whose labels do not overlap."""
    last = -100.0
    for quota in quotas:
        if x(quota) - last >= 36:
            last = x(quota)
            yield quota
