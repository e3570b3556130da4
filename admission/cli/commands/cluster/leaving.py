"""`sluice cluster leave`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from admission.cli.arguments.job_kinds import known_kinds
from admission.cli.commands.cluster import there
from admission.cli.commands.uninstall import (
    UninstallPlan,
    carry_out,
    is_running,
    marked_objects,
    own_objects,
    plan_lines,
)
from admission.cli.errors import CommandError
from admission.cli.output.printing import print_line
from admission.client.errors import Conflict, NotFound
from admission.cluster.claim import LEASE_DURATION, cluster_identities
from admission.cluster.client import Client
from admission.model.names import listed

if TYPE_CHECKING:
    from pathlib import Path

    from admission.cli.commands.cluster.hub import Hub
    from admission.client.transport import Document

_POLL_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Leaving:
    """The cluster `name` leaves; the other fields are the options of the command."""

    name: str
    hub: Hub
    kubeconfig: Path | None
    context: str | None
    namespace: str
    wait: bool
    restore: bool

    async def run(self) -> None:
        """Let it leave. Raises SluiceError."""
        found = await self._found()
        if self.kubeconfig is None:
            await self._delete(found)
            print_line(await self.hub.credentials.remove(f"{self.name}.yaml") or f"{self.name}.yaml is not there")
            print_line(
                f"what was made in that cluster stays there, and its gate refuses Jobs with a queue label or suspends "
                f"them: sluice cluster leave {self.name} --kubeconfig FILE takes it away"
            )
            return
        async with Client.from_kubeconfig(str(self.kubeconfig), self.context) as client:
            await self._check(client, found)
            await self._delete(found)
            await self._take_away(client)
        if line := await self.hub.credentials.remove(f"{self.name}.yaml"):
            print_line(line)

    async def _found(self) -> Document | None:
        try:
            return await self.hub.sluice.documents("clusters").get(self.name)
        except NotFound:
            print_line(f"there is no cluster/{self.name} any more")
            return None

    async def _check(self, client: Client, found: Document | None) -> None:
        """Raise CommandError if the kubeconfig is that of another cluster, or does not allow to delete objects."""
        known = ((found or {}).get("status") or {}).get("uid", "")
        if known and known not in await cluster_identities(client):
            raise CommandError(f"{self.kubeconfig} is for another cluster than {self.name}; nothing was changed")
        made = await self._made(client)
        if found is not None and not known and not made:
            raise CommandError(
                f"{self.name} has never joined, and the cluster of {self.kubeconfig} has nothing that sluice cluster "
                f"join {self.name} made; nothing was changed. Without --kubeconfig only the Cluster is deleted"
            )
        if found is None and not made:
            raise CommandError(
                f"the cluster of {self.kubeconfig} has nothing that sluice cluster join {self.name} made"
            )
        if missing := await there.missing_rights(client, made, ("delete",)):
            raise CommandError(
                f"the user of {self.kubeconfig} lacks rights in the cluster: {'; '.join(missing)}; nothing was changed"
            )

    async def _made(self, client: Client) -> list[Document]:
        """Return what `join` has made there, the last one first."""
        everything = there.manifests(
            self.name,
            self.namespace,
            known_kinds(),
            there.GateDeployment("", {"kinds": []}),
            dispatches=True,
            copies_along=True,
        )
        return [
            each
            for each in reversed(await there.read(client, everything))
            if (each["metadata"].get("labels") or {}).get(there.JOINED) == self.name
        ]

    async def _delete(self, found: Document | None) -> None:
        """Drain the cluster, and delete its object. Raises CommandError if workloads hold quota, unless `wait`."""
        if found is None:
            return
        clusters = self.hub.sluice.documents("clusters")
        flavors = [
            each["metadata"]["name"]
            async for each in self.hub.sluice.documents("resourceflavors").list()
            if self.name in ((each.get("spec") or {}).get("clusters") or ())
        ]
        if flavors:
            raise CommandError(
                f"spec.clusters of ResourceFlavor {listed(flavors)} names {self.name}: let it name others (if it "
                "names none it is in all clusters), or delete it first; nothing was changed"
            )
        if found["spec"].get("state", "Active") == "Active":
            await clusters.patch(self.name, {"spec": {"state": "Draining"}})
            print_line(f"cluster/{self.name} is draining: nothing more is started there")
        said = ""
        while True:
            try:
                await clusters.delete(self.name)
            except Conflict as error:
                if not self.wait:
                    raise CommandError(f"{error}; wait for them with --wait, or run the command again later") from error
                if str(error) != said:
                    print_line(f"waiting: {error}")
                    said = str(error)
                await asyncio.sleep(_POLL_SECONDS)
            except NotFound:
                return
            else:
                print_line(f"cluster/{self.name} deleted")
                return

    async def _take_away(self, client: Client) -> None:
        """Take away the gate, the annotations and what `join` has made, once Sluice has let go of the cluster."""
        await self._until_released(client)
        plan = UninstallPlan(await own_objects(client, self.namespace), await marked_objects(client, known_kinds(), {}))
        for line in plan_lines(plan, restore=self.restore, knows_originals=False):
            print_line(f"{self.name}: {line}")
        await carry_out(client, plan, restore=self.restore)
        async for line in there.remove(client, await self._made(client), self.name):
            print_line(f"{self.name}: {line}")

    async def _until_released(self, client: Client) -> None:
        try:
            async with asyncio.timeout(2 * LEASE_DURATION):
                while await is_running(client):  # noqa: ASYNC110  a Lease
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError as error:
            raise CommandError(
                f"a Sluice still decides for the cluster, and cluster/{self.name} was deleted {2 * LEASE_DURATION:g} s "
                "ago: see the Lease kube-system/sluice-database there; then run the command again"
            ) from error
