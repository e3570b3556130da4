"""Search for queues, and shares of ClusterQueues, in tests of the dashboard."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from admission.store.audit_log import Author

if TYPE_CHECKING:
    from dashboard_people import Person
    from dashboard_world import World
    from playwright.async_api import Page


async def search(page: Page, text: str) -> None:
    """Focus the search field by its key, and type."""
    field = page.get_by_role("combobox", name="Search queues and workloads")
    # The page handles keys only some time after the first paint.
    while not await field.evaluate("field => field === document.activeElement"):
        await page.keyboard.press("/")
    await page.keyboard.type(text)


async def set_weight(running: World, name: str, weight: int) -> None:
    """Set the weight of a ClusterQueue for fair sharing."""

    def weighted(queue: Any) -> Any:
        document = queue.model_dump(by_alias=True, mode="json", exclude_none=True)
        document["spec"]["fairSharing"] = {"weight": str(weight)}
        return type(queue).model_validate(document)

    found = await running.store.queues.get("ClusterQueue", name)
    await running.store.queues.write(found.key, weighted, author=Author("ada"))


def finished_days() -> str:
    """Return parameters of a report about days that are over, so that running workloads add nothing to it."""
    today = datetime.now(UTC).date()
    return f"from={today - timedelta(days=29)}&to={today - timedelta(days=1)}"


async def received_shares(someone: Person) -> dict[str, float]:
    """Return the percentage of each ClusterQueue of the Cohort research in its borrowed GPUs, until now."""
    path = "/apis/sluice.dev/v1/reports/usage?by=clusterqueue&from=7d"
    report = await (await someone.context.request.get(f"{someone.url}{path}")).json()
    borrowed = dict.fromkeys(("vision", "language", "speech"), 0.0)
    for item in report["items"]:
        if item["clusterQueue"] in borrowed and item["resource"] == "nvidia.com/gpu":
            borrowed[item["clusterQueue"]] += item["borrowedSeconds"]
    total = sum(borrowed.values())
    assert total > 0
    return {name: 100 * seconds / total for name, seconds in borrowed.items()}
