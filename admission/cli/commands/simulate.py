"""`sluice simulate`: simulated scheduling of the workloads in files, without a cluster."""

from __future__ import annotations

import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
import orjson

from admission.cli.arguments.files import standard_input
from admission.cli.configuration.local_file import url_fault
from admission.cli.errors import Unreadable
from admission.model.errors import InvalidObject, SluiceError
from admission.model.manifests import parse_documents
from admission.model.quantity import format_amount
from admission.simulate import simulate as play
from admission.simulate.manifests import from_manifests
from admission.simulate.scenario import timestamp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.model.manifests import Document

_UNREADABLE = 2
"""Exit code for a file that cannot be read, or has invalid content."""


@click.command()
@click.argument("paths", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Output format."
)
@click.option(
    "--cycles",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of scheduling cycles.  [default: until nothing changes any more]",
)
def simulate(*, paths: tuple[str, ...], output: str, cycles: int | None) -> None:
    """Simulate scheduling of the workloads in files, without a cluster.

    The FILEs (- for standard input) are manifests, which are simulated together: queue
    objects, with Workloads or Jobs. A FILE can also be a scenario (JSON with clusterQueues,
    localQueues, workloads, their arrivals and completions), which is simulated by itself.

    \b
    Examples:
      sluice simulate queues.yaml jobs.yaml
      sluice simulate scenario.json -o json --cycles 10
    """
    manifests: list[Document] = []
    of_manifests: list[str] = []
    scenarios: list[tuple[str, dict[str, Any]]] = []
    for path in paths:
        with _blaming(path):
            documents = _documents(path)
            if len(documents) == 1 and "kind" not in documents[0].body:
                scenarios.append((path, _scenario(documents[0], path)))
            else:
                manifests += documents
                of_manifests.append(path)
    if of_manifests:
        together = ", ".join(of_manifests)
        with _blaming(together):
            scenarios.insert(0, (together, {**from_manifests(manifests), "clock": timestamp(time.time())}))
    for path, scenario in scenarios:
        with _blaming(path):
            answer = play(scenario, cycles)
        if output == "json":
            click.echo(orjson.dumps(answer, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS))
        else:
            _print(path, answer)


@contextmanager
def _blaming(path: str) -> Iterator[None]:
    """Context manager: an error in the block is printed as one of this file, and ends the command."""
    try:
        yield
    except Unreadable:
        raise  # it is about standard input, and says so
    except OSError as error:
        _give_up(path, f"cannot be read ({error.strerror or error}); check FILE")
    except (UnicodeDecodeError, SluiceError) as error:
        _give_up(path, str(error))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        # A scenario is free-form JSON: a missing field, or one of a wrong type, shows where it is used.
        _give_up(path, f"is not a valid scenario: {type(error).__name__}: {error}")


def _give_up(path: str, fault: str) -> NoReturn:
    """Print an error about a file, and exit. Faults of manifests name the file already."""
    named = any(fault.startswith(each) for each in path.split(", "))
    click.echo(f"error: {fault}" if named else f"error: {path}: {fault}", err=True)
    raise SystemExit(_UNREADABLE)


def _documents(path: str) -> list[Document]:
    if fault := url_fault(path, "-"):
        _give_up(path, fault)
    text = standard_input().read() if path == "-" else Path(path).read_text()
    return parse_documents(text, source=path)


def _scenario(document: Document, path: str) -> dict[str, Any]:
    """Return the scenario that the only document of a file is. Raises InvalidObject if it is none."""
    scenario = dict(document.body)
    if "clusterQueues" not in scenario:
        raise InvalidObject([("", "is neither a scenario (it has no clusterQueues) nor a manifest")], subject=path)
    return scenario


def _print(path: str, answer: dict[str, Any]) -> None:
    """Print the result of a scenario as text: the decisions of each cycle, and the final usage."""
    click.echo(f"{path}:")
    for cycle in answer["cycles"]:
        number = cycle["cycle"]
        for key, admission in cycle["admitted"].items():
            click.echo(f"  cycle {number}: {key} admitted by {admission['clusterQueue']}{_flavors(admission)}")
        for key, preemption in cycle["preempted"].items():
            click.echo(f"  cycle {number}: {key} preempted for {preemption['by']} ({preemption['reason']})")
        for key in cycle["finished"]:
            click.echo(f"  cycle {number}: {key} finished")
        for key, why in cycle["notAdmitted"].items():
            click.echo(f"  cycle {number}: {key} waits: {why['reason']}: {why['message']}")
    final = answer["final"]
    click.echo(f"  at the end: {len(final['admitted'])} admitted, {len(final['pending'])} pending")
    for name, flavors in final["usage"].items():
        for flavor, amounts in flavors.items():
            used = ", ".join(f"{resource} {format_amount(resource, value)}" for resource, value in amounts.items())
            click.echo(f"  {name} uses of {flavor}: {used}")


def _flavors(admission: dict[str, Any]) -> str:
    """Return pod sets and flavors of an admission: ` (main x4; spot)`."""
    pod_sets = [f"{entry['name']} x{entry['count']}" for entry in admission["podSetAssignments"]]
    flavors = sorted({flavor for entry in admission["podSetAssignments"] for flavor in entry["flavors"].values()})
    return f" ({', '.join(pod_sets)}; {', '.join(flavors)})"
