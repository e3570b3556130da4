"""`sluice cluster join`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import click
import yaml

from admission.cli.commands.cluster import there
from admission.cli.commands.cluster.there import GateDeployment
from admission.cli.commands.uninstall import is_running
from admission.cli.configuration.integrations import IntegrationsSettings, parse_integrations, read_integrations
from admission.cli.errors import CommandError
from admission.cli.output.printing import print_line, serialized
from admission.cli.serve.adoption import survey
from admission.client.errors import NotFound as NoSuchCluster
from admission.cluster.claim import cluster_identities
from admission.cluster.client import Client
from admission.cluster.errors import Forbidden, NotFound, RefusedByCluster
from admission.cluster.kubeconfig import cluster_entry
from admission.controller.intake.served import served_versions
from admission.model.manifests import API_VERSION, parse_documents
from admission.model.names import listed
from webhooks.policies import has_policies
from webhooks.switch import gate_objects

if TYPE_CHECKING:
    from pathlib import Path

    from admission.cli.commands.cluster.hub import Hub
    from admission.client.transport import Document
    from admission.cluster.client import Object
    from admission.kinds.registry import Kinds

_KEPT: Final = ("server", "certificate-authority-data", "insecure-skip-tls-verify", "tls-server-name", "proxy-url")
"""Fields of the admin's kubeconfig that say how the API server is reached."""
_POLICIES: Final = "mutatingadmissionpolicies"
_POLL_SECONDS: Final = 0.5
_ASKS: Final = "spec.uid"
"""What a message names if an admin has to decide, so that waiting is no use."""


@dataclass(frozen=True, slots=True)
class Joining:
    """A cluster that joins as `name`; the other fields are the options of the command."""

    name: str
    hub: Hub
    kubeconfig: Path
    context: str | None
    namespace: str
    api_server: str | None
    gate: Literal["auto", "policies", "webhook"]
    dispatch: bool
    copy_along: bool
    image: str | None
    config: Path | None
    uid: str
    timeout: float
    dry_run: bool

    async def run(self) -> None:
        """Let it join, or print the manifests. Raises SluiceError."""
        async with Client.from_kubeconfig(str(self.kubeconfig), self.context) as client:
            integrations, accepts_kueue_labels = await self._integrations()
            kinds = integrations.registry()
            before = await self._check_names(client, integrations.registry(kueue_labels=accepts_kueue_labels))
            gate = None
            if why := await self._needs_webhook(client, kinds):
                given = integrations.model_dump(mode="json", by_alias=True, exclude_defaults=True)
                gate = GateDeployment(await self._image(why), given, accepts_kueue_labels)
            objects = there.manifests(
                self.name, self.namespace, kinds, gate, dispatches=self.dispatch, copies_along=self.copy_along
            )
            wanted = self._cluster(before, gate)
            if self.dry_run:
                click.echo("\n---\n".join(serialized(each, "yaml") for each in (*objects, wanted)))
                return
            await self._check(client, objects)
            async for line in there.apply(client, objects):
                print_line(f"{self.name}: {line}")
            kubeconfig = yaml.safe_dump(self._kubeconfig(await there.token(client, self.namespace)))
            print_line(await self.hub.credentials.write(f"{self.name}.yaml", kubeconfig.encode()))
            clusters = self.hub.sluice.documents("clusters")
            if before is None:
                await clusters.create(wanted)
            elif wanted != before:
                await clusters.replace(wanted)
            done = "created" if before is None else "configured" if wanted != before else "unchanged"
            print_line(f"cluster/{self.name} {done}")
            await self._wait(client)

    # --- what is checked before anything is changed

    async def _check_names(self, client: Client, kinds: Kinds) -> Document | None:
        """Return the Cluster of this name, if there is one. Raises CommandError if it is that of another cluster."""
        try:
            identity, *_ = await cluster_identities(client)
        except RefusedByCluster:
            raise CommandError(
                f"the user of {self.kubeconfig} may not even read how the cluster is identified, by its namespace "
                "kube-system; nothing was changed. An admin (ClusterRole cluster-admin) may"
            ) from None
        if self.hub.cluster is not None and identity in await cluster_identities(self.hub.cluster):
            raise CommandError(f"{self.kubeconfig} is for the cluster in which Sluice runs, which is local")
        found = None
        async for each in self.hub.sluice.documents("clusters").list():
            name, known = each["metadata"]["name"], (each.get("status") or {}).get("uid", "")
            if name == self.name:
                found = each
                if known and known != identity != self.uid:
                    effect = await survey(None, client, kinds)
                    raise CommandError(
                        f"cluster {name} is another one: its namespace kube-system has the uid {known}, and that of "
                        f"{self.kubeconfig} has {identity}; choose another name, or if it was built anew use --uid "
                        f"{identity}: what ran in the former one is then regarded as gone"
                        + (f", and Sluice would {effect}" if effect.stopped else "")
                    )
            elif known == identity:
                raise CommandError(f"this cluster has joined already, as {name}")
        has_joined = found is not None and (found.get("status") or {}).get("uid") == identity
        if not has_joined and (other := await is_running(client)):
            raise CommandError(
                f"a Sluice, {other}, decides for the cluster of {self.kubeconfig} already: it runs in it, or that has "
                "joined it; nothing was changed. Let it leave there first (sluice uninstall, sluice cluster leave)"
            )
        return found

    async def _check(self, client: Client, objects: list[Object]) -> None:
        """Raise CommandError if names are taken in the cluster, or rights are missing."""
        if missing := await there.missing_rights(client, objects, ("get", "create", "patch")):
            raise CommandError(
                f"the user of {self.kubeconfig} lacks rights in the cluster: {'; '.join(missing)}; nothing was "
                "changed. An admin (ClusterRole cluster-admin) has them"
            )
        others = [
            f"{there.title(each)} ({label})" if label else there.title(each)
            for each in await there.read(client, objects)
            if (label := (each["metadata"].get("labels") or {}).get(there.JOINED, "")) != self.name
            and each["kind"] != "Namespace"
        ]
        if others:
            raise CommandError(
                f"the cluster has a Sluice of its own, or has joined under another name: {', '.join(others)} exist "
                f"there; nothing was changed. Take it away first (sluice uninstall, sluice cluster leave)"
            )

    # --- what is made

    async def _integrations(self) -> tuple[IntegrationsSettings, bool]:
        """Return which kinds are queued, and whether by Kueue's labels: by --config, else by the hub's ConfigMap."""
        if self.config is not None:
            return read_integrations(self.config), _accepts_kueue_labels(self.config.read_text())
        found = await self._of_hub(f"/api/v1/namespaces/{self.hub.namespace}/configmaps/sluice")
        text = (found.get("data") or {}).get("config.yaml", "")
        return parse_integrations(text, source="the hub's ConfigMap sluice"), _accepts_kueue_labels(text)

    async def _image(self, why: str) -> str:
        if self.image:
            return self.image
        found = await self._of_hub(f"/apis/apps/v1/namespaces/{self.hub.namespace}/deployments/{there.SERVICE}")
        try:
            return str(found["spec"]["template"]["spec"]["containers"][0]["image"])
        except (KeyError, IndexError):
            raise CommandError(f"a webhook is needed there, as {why}: name its image with --image") from None

    async def _of_hub(self, path: str) -> Object:
        """Return an object of the hub's cluster; empty if there is none, or the cluster is not known."""
        if self.hub.cluster is None:
            return {}
        try:
            return await self.hub.cluster.get(path)
        except (Forbidden, NotFound):
            return {}

    async def _needs_webhook(self, client: Client, kinds: Kinds) -> str:
        """Return why a webhook gates Jobs there, to follow `as`; empty: admission policies do.

        Raises CommandError if policies are asked for, and there are none.
        """
        if self.gate == "webhook":
            return "--gate asks for it"
        resources = (await client.get("/apis/admissionregistration.k8s.io/v1"))["resources"]
        if not any(each["name"] == _POLICIES for each in resources):
            if self.gate == "policies":
                raise CommandError(
                    "this API server has no MutatingAdmissionPolicy, which is part of Kubernetes from 1.36 on: use "
                    "--gate webhook"
                )
            return "this API server has no MutatingAdmissionPolicy, which is part of Kubernetes from 1.36 on"
        if self.gate == "policies":
            return ""
        without = [kind for kind in kinds.gated if not has_policies(kind)]
        served = await served_versions(client, [kind for kind in without if kind.is_custom])
        names = sorted({kind.kind for kind in without if not kind.is_custom or kind in served})
        if not names:
            return ""
        return f"admission policies cannot gate {listed(names)}, which are queued (--config) and served there"

    def _cluster(self, before: Document | None, gate: GateDeployment | None) -> Document:
        spec: dict[str, Any] = {} if before is None else {**before["spec"]}
        for key in ("context", "webhook", "state"):
            spec.pop(key, None)
        spec["kubeconfig"] = f"{self.name}.yaml"
        if self.uid:
            spec["uid"] = self.uid
        if gate is not None:
            spec["webhook"] = {"service": {"namespace": self.namespace, "name": there.SERVICE}}
        head = {"apiVersion": API_VERSION, "kind": "Cluster", "metadata": {"name": self.name}}
        return {**(head if before is None else before), "spec": spec}

    def _kubeconfig(self, token: str) -> Object:
        entry = {key: value for key, value in cluster_entry(str(self.kubeconfig), self.context).items() if key in _KEPT}
        if self.api_server:
            entry["server"] = self.api_server
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": self.name,
            "clusters": [{"name": self.name, "cluster": entry}],
            "users": [{"name": "sluice", "user": {"token": token}}],
            "contexts": [{"name": self.name, "context": {"cluster": self.name, "user": "sluice"}}],
        }

    async def _wait(self, client: Client) -> None:
        """Wait until the cluster is active and gated, and print each state. Raises CommandError after the timeout."""
        last, text, state = "", "", ""
        try:
            async with asyncio.timeout(self.timeout):
                while state != "Active" or not [each async for each in gate_objects(client)]:
                    status = await self._status()
                    state = status.get("state", "")
                    text = f"{self.name} is {state}" + (f": {status['message']}" if status.get("message") else "")
                    if text != last:
                        print_line(text)
                        last = text
                    if not self.uid and _ASKS in status.get("message", ""):
                        break
                    await asyncio.sleep(_POLL_SECONDS)
                else:
                    print_line(f"{self.name}: its gate is registered")
                    return
        except TimeoutError:
            if state == "Active":
                text = f"{self.name} has no gate yet; the log of sluice serve says why"
        again = " (with --uid)" if _ASKS in text else ""
        raise CommandError(
            f"{text}; what was made stays: when that is mended run sluice cluster join again{again}, or take it "
            "away with sluice cluster leave"
        )

    async def _status(self) -> Document:
        try:
            found: Document = (await self.hub.sluice.documents("clusters").get(self.name)).get("status") or {}
        except NoSuchCluster:
            raise CommandError(f"cluster {self.name} was deleted meanwhile") from None
        return found


def _accepts_kueue_labels(text: str) -> bool:
    documents = parse_documents(text, source="configuration")
    return not documents or documents[0].body.get("acceptKueueLabels") is not False
