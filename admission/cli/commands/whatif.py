"""`sluice whatif`: a past period replayed under other quota, beside what happened; its charts as SVG."""

from __future__ import annotations

import asyncio
import csv
import re
import sys
from html import escape
from typing import TYPE_CHECKING, Final, Self

import click

from admission.apimachinery.tables import spoken
from admission.cli.arguments.connection import ApiConnection, connect, connection_options
from admission.cli.arguments.files import FilesCommand, filename_option
from admission.cli.arguments.objects import namespace_option
from admission.cli.arguments.times import time_options
from admission.cli.arguments.translation import TranslationFlags, translation_options
from admission.cli.commands.import_quotas.manifests import Manifests
from admission.cli.errors import CommandError
from admission.cli.output.printing import print_line, serialized
from admission.cli.output.tables import aligned
from admission.model.manifests import to_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from admission.cli.arguments.times import TimeRange
    from admission.client import Sluice
    from admission.client.transport import Document

_PATH: Final = "/apis/sluice.dev/v1/whatifs"
_COURSES: Final = (("happened", "HAPPENED"), ("replayed", "REPLAYED"), ("changed", "CHANGED"))
"""Field of the answer, and its title. The replay without changes shows how far replays can be trusted."""
_LARGEST: Final = 10
"""Queues, users and Budgets in the table; -o json and csv have all."""


@click.command(cls=FilesCommand)
@filename_option(required=False)
@namespace_option
@time_options(start="30d")
@click.option(
    "--more",
    default="",
    metavar="[CLUSTERQUEUE/FLAVOR/]RESOURCE",
    help="How much more of this quota is needed; RESOURCE is enough if one ClusterQueue has it in one flavor.",
)
@click.option(
    "--until",
    default="",
    metavar="p90=DURATION",
    help="With --more: until nine of ten workloads of the ClusterQueue start within this, as p90=1h.",
)
@click.option(
    "--by",
    type=click.Choice(["clusterqueue", "user", "budget"]),
    default="clusterqueue",
    show_default=True,
    help="Show waits of each ClusterQueue or user, or what each Budget has spent.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml", "csv", "svg"]),
    default="table",
    show_default=True,
    help="Output format; svg: a chart, with --more.",
)
@translation_options
@connection_options
def whatif(
    *,
    paths: tuple[str, ...],
    namespace: str | None,
    times: TimeRange,
    more: str,
    until: str,
    by: str,
    output: str,
    translation: TranslationFlags,
    connection: ApiConnection,
) -> None:  # fmt: skip
    """Replay a past period under other quota.

    The workloads of the period arrive again when they did and run as long as they did,
    under the queue objects in FILE instead of those of the same names. Waits, preemptions,
    usage and what Budgets spent are shown as they happened, as a replay without changes
    has them, and with the changes: compare the last two. Nothing is written.

    \b
    Examples:
      sluice whatif -f more-quota.yaml --month 2026-10
      sluice whatif -f more-quota.yaml --by user -o csv
      sluice whatif -f other-prices.yaml --by budget
      sluice whatif --more nvidia.com/gpu --until p90=1h
      sluice whatif --more ml/h100/nvidia.com/gpu --until p90=1h -o svg > quota.svg
    """
    wanted = _goal(more, until)
    if output == "svg" and wanted is None:
        raise click.UsageError("-o svg is a chart of quota; it needs --more")
    answer = asyncio.run(_answer(connection, paths, Manifests(namespace, translation), times, wanted))
    if output == "svg":
        click.echo(quota_chart(answer))
    elif output == "csv":
        _write_csv(answer, by) if wanted is None else _write_tried(answer)
    elif output in ("json", "yaml"):
        click.echo(serialized(answer, output))
    else:
        for line in _comparison(answer, by) if wanted is None else _needed(answer):
            print_line(line)


def _goal(more: str, until: str) -> Document | None:
    """Return the goal of a question; without ClusterQueue and flavor if `more` has none. Raises BadParameter."""
    if not more and not until:
        return None
    found = re.fullmatch(r"p90=(\d{1,6})([smhd])", until)
    if found is None:
        raise click.BadParameter(f'--until: "{until}" is not a wish; give one such as p90=30m or p90=2h')
    parts = more.split("/", 2) if more.count("/") > 1 else [more]  # the resource may contain a slash
    if not all(parts):
        raise click.BadParameter(
            f'--more: "{more}" is neither a resource nor CLUSTERQUEUE/FLAVOR/RESOURCE, such as ml/h100/nvidia.com/gpu'
        )
    seconds = int(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]]
    place = dict(zip(("clusterQueue", "flavor"), parts[:-1], strict=False))
    return {**place, "resource": parts[-1], "p90Seconds": seconds}


async def _placed(sluice: Sluice, goal: Document) -> Document:
    """Return a goal with the only ClusterQueue and flavor that have its resource. Raises CommandError."""
    if "flavor" in goal:
        return goal
    places = [
        (queue["metadata"]["name"], flavor["name"])
        async for queue in sluice.documents("clusterqueues").list()
        for group in queue["spec"].get("resourceGroups", ())
        for flavor in group["flavors"]
        if any(quota["name"] == goal["resource"] for quota in flavor["resources"])
    ]
    if len(places) == 1:
        return dict(zip(("clusterQueue", "flavor"), places[0], strict=True)) | goal
    if not places:
        raise CommandError(f"no ClusterQueue has quota of {goal['resource']}")
    names = ", ".join("/".join((*place, goal["resource"])) for place in places[:_LARGEST])
    more = f" and {len(places) - _LARGEST} more" if len(places) > _LARGEST else ""
    raise CommandError(f"several quotas of {goal['resource']} could be raised; give one to --more: {names}{more}")


async def _answer(
    connection: ApiConnection, paths: Sequence[str], manifests: Manifests, times: TimeRange, goal: Document | None
) -> Document:
    """Ask the server, show its progress, and return its answer."""
    async with connect(connection) as sluice:
        objects = manifests.read(paths, namespace=manifests.namespace or sluice.namespace) if paths else []
        goal = None if goal is None else await _placed(sluice, goal)
        body = {**dict(times.params()), "objects": [to_manifest(item) for item in objects]}
        answer: Document | None = None
        async with sluice.stream(_PATH, body if goal is None else {**body, "goal": goal}) as lines:
            with _Progress() as progress:
                async for line in lines:  # to its end, before which the server answers no other question
                    match line["type"]:
                        case "PROGRESS":
                            progress.show(line["share"])
                        case "ANSWER":
                            answer = line["object"]
                        case _:
                            raise CommandError(line["object"]["message"])
    if answer is None:
        raise CommandError("the server ended the answer before it was complete; try again")
    return answer


class _Progress:
    """The share that is done, on standard error if that is a terminal."""

    def __init__(self) -> None:
        self._terminal = sys.stderr is not None and sys.stderr.isatty()

    def show(self, share: float) -> None:
        """Show a share from 0 to 1."""
        if self._terminal:
            click.echo(f"\r\x1b[Kreplaying: {share:.0%}", err=True, nl=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._terminal:
            click.echo("\r\x1b[K", err=True, nl=False)


def _comparison(answer: Document, by: str) -> Iterator[str]:
    """Yield the lines of a comparison."""
    courses = [(field, title) for field, title in _COURSES if field in answer]
    yield f"{answer['from']} to {answer['to']}: {answer['happened']['all']['workloads']:,} workloads waited"
    yield ""
    waits = {
        "mean wait": [spoken(answer[field]["all"]["waitSeconds"]["mean"]) for field, _ in courses],
        "half started within": [spoken(answer[field]["all"]["waitSeconds"]["p50"]) for field, _ in courses],
        "nine of ten within": [spoken(answer[field]["all"]["waitSeconds"]["p90"]) for field, _ in courses],
        "longest wait": [spoken(answer[field]["all"]["waitSeconds"]["longest"]) for field, _ in courses],
        "not started": [f"{answer[field]['all']['waiting']:,}" for field, _ in courses],
        "preemptions": [f"{answer[field]['all']['preemptions']:,}" for field, _ in courses],
    }
    rows = [["", *(title for _, title in courses)], *([name, *cells] for name, cells in waits.items())]
    yield from aligned([*rows, *_usage_rows(answer, courses)])
    yield ""
    titles = [title for _, title in courses]
    if by == "budget":
        rows = list(_budget_rows(answer, courses))
        yield "spent in this time, of what the Budget gives in its period" if rows else "there was no Budget"
        yield from aligned([["BUDGET", "CHARGES", *titles], *rows[:_LARGEST]] if rows else ())
    else:
        rows = list(_group_rows(answer, courses, by))
        yield f"nine of ten started within, by {by}"
        yield from aligned([[by.upper(), "WORKLOADS", *titles], *rows[:_LARGEST]])
    if len(rows) > _LARGEST:
        yield f"... and {len(rows) - _LARGEST} more; -o csv has all"
    yield ""
    yield from _agreement(answer["agreement"])


def _usage_rows(answer: Document, courses: Sequence[tuple[str, str]]) -> Iterator[list[str]]:
    """Yield the shares of quota that were used, by flavor and resource."""
    uses = {
        field: {(use["flavor"], use["resource"]): use for use in answer[field]["resources"]} for field, _ in courses
    }
    for place in sorted({place for found in uses.values() for place in found}):
        cells = []
        for field, _ in courses:
            use = uses[field].get(place)
            quota = use["quotaSeconds"] if use else 0
            cells.append(f"{use['usedSeconds'] / quota:.0%}" if use and quota else "-")
        flavor, resource = place
        yield [f"{resource} in {flavor} used", *cells]


def _groups(answer: Document, field: str, by: str) -> dict[str, Document]:
    key, name = ("users", "user") if by == "user" else ("clusterQueues", "clusterQueue")
    return {group[name]: group for group in answer[field][key]}


def _group_rows(answer: Document, courses: Sequence[tuple[str, str]], by: str) -> Iterator[list[str]]:
    """Yield a row of each group, the one with most workloads first."""
    groups = {field: _groups(answer, field, by) for field, _ in courses}
    names = {name: group["workloads"] for found in groups.values() for name, group in found.items()}
    for name in sorted(names, key=lambda name: (-names[name], name)):
        cells = [
            spoken(groups[field][name]["waitSeconds"]["p90"]) if name in groups[field] else "-" for field, _ in courses
        ]
        yield [name or "<none>", f"{names[name]:,}", *cells]


def _budget_rows(answer: Document, courses: Sequence[tuple[str, str]]) -> Iterator[list[str]]:
    """Yield a row of each Budget and each of its resources that a course has."""
    spent = {
        field: {(use["budget"], use["unit"], *use.get("flavors", ())): use for use in answer[field]["budgets"]}
        for field, _ in courses
    }
    for key in sorted({key for found in spent.values() for key in found}):
        budget, unit, *flavors = key
        uses = [spent[field].get(key) for field, _ in courses]
        cells = [f"{use['spent']} of {use['hours']}" if use else "-" for use in uses]
        yield [budget, f"{unit} in {', '.join(flavors)}" if flavors else unit, *cells]


def _agreement(agreement: Document) -> Iterator[str]:
    started = agreement["started"]
    if started:
        share = f"{agreement['agree'] / started:.0%} of {started:,} workloads"
        yield f"The replay without changes starts {share} when they did, to a minute or 10 % of their wait."
    if agreement["estimated"]:
        yield f"Run times of {agreement['estimated']:,} workloads that had not ended are estimated."
    if agreement["ordered"]:
        yield f"Orders of admins about {agreement['ordered']:,} workloads (hold, move, prioritize) are not replayed."
    if agreement["misdated"]:
        yield (
            f"Sluice saw {agreement['misdated']:,} workloads more than a minute after they were created or had quota "
            "(it did not run, or clocks differ): when they would have been queued is not known."
        )


def _needed(answer: Document) -> Iterator[str]:
    now = answer["nominalQuota"]
    place = f"{answer['resource']} of flavor {answer['flavor']} in ClusterQueue {answer['clusterQueue']}"
    wish = f"nine of ten workloads start within {spoken(answer['p90Seconds'])}"
    if "neededQuota" not in answer:
        yield f"Not even 64 times the present {now:g} {place} would let {wish}."
    elif (needed := answer["neededQuota"]) == now:
        yield f"With the present {now:g} {place}, {wish}."
    else:
        yield f"With {needed:g} ({needed - now:g} more) {place}, {wish}."


def _write_tried(answer: Document) -> None:
    """Print a row of each quota that was tried, with seconds."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["quota", "workloads", "waiting", "mean", "p50", "p90", "longest", "preemptions"])
    for each in answer["tried"]:
        waits = [each["waitSeconds"][name] for name in ("mean", "p50", "p90", "longest")]
        writer.writerow([f"{each['quota']:g}", each["workloads"], each["waiting"], *waits, each["preemptions"]])


def _write_csv(answer: Document, by: str) -> None:
    """Print a row of each group in each course, with seconds; of a Budget, with what it has spent."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    if by == "budget":
        writer.writerow(["budget", "course", "charges", "flavors", "spent", "given"])
        for field in (field for field, _ in _COURSES if field in answer):
            for use in answer[field]["budgets"]:
                flavors = " ".join(use.get("flavors", ()))
                writer.writerow([use["budget"], field, use["unit"], flavors, use["spent"], use["hours"]])
        return
    writer.writerow([by, "course", "workloads", "waiting", "mean", "p50", "p90", "longest", "preemptions"])
    for field, _ in _COURSES:
        if field in answer:
            for name, group in _groups(answer, field, by).items():
                seconds = group["waitSeconds"]
                waits = [seconds[name] for name in ("mean", "p50", "p90", "longest")]
                writer.writerow([name, field, group["workloads"], group["waiting"], *waits, group["preemptions"]])


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
