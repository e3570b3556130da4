"""Kubelet, Deployment controller and kube-proxy for a release in a sandbox, with real processes as pods.

Pods are containers of `containers.py`, each with its own loopback address; a Service is an address that forwards
connections to its ready pods. Two things differ from a cluster: pods get their listening address from the environment,
as they share one network, and probes and files of changed Secrets are updated immediately instead of after seconds.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import random
import secrets
import signal
import ssl
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import aiohttp
from chart import NAMESPACE, Object
from containers import contained

from admission.sandbox.apiserver.requests import User
from admission.sandbox.sandbox import Sandbox

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
LATE = 1.0
"""Seconds for which connections are still forwarded to a terminating pod, as nodes learn of the termination late."""

_addresses = itertools.count(1)
_network = f"127.{secrets.randbelow(200) + 20}.{secrets.randbelow(250)}"


def _address() -> str:
    """Return an unused loopback address."""
    return f"{_network}.{next(_addresses) % 250 + 1}"


@dataclass
class Pod:
    """A process in the role of a pod, with its log and readiness."""

    component: str
    template: Object
    address: str
    folder: Path
    process: asyncio.subprocess.Process | None = None
    log: list[str] = field(default_factory=list)
    ready: bool = False
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once no more connections are forwarded to the terminating pod."""
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def container(self) -> Object:
        found: Object = self.template["spec"]["containers"][0]
        return found

    def port(self, name: str | int) -> int:
        return next((each["containerPort"] for each in self.container.get("ports", ()) if each["name"] == name), 0)

    def said(self, text: str) -> bool:
        return any(text in line for line in self.log)


class Node:
    """The pods and Services of a release. `images` are the file trees by tag."""

    def __init__(self, sandbox: Sandbox, folder: Path, images: Mapping[str, Path]) -> None:
        self.pods: list[Pod] = []
        self._sandbox = sandbox
        self._admin = sandbox.local("admin")
        self._folder = folder
        self._images = images
        self._names = itertools.count()
        self._servers: dict[str, asyncio.Server] = {}
        self._mounted: dict[tuple[str, str], list[tuple[Path, list[Object] | None]]] = {}
        """(Plural, name) of a Secret or ConfigMap to the folders with its files, each with the selected items."""
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._keep_files()), asyncio.create_task(self._keep_services())]
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(self.end(pod) for pod in [*self.pods]))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for server in self._servers.values():
            server.close()

    # ------------------------------------------------------------------ Deployments

    async def roll_out(self) -> None:
        """Roll out the Deployments: start a new pod, then end an old one, and so on."""
        wanted = {
            each["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]: each["spec"]
            for each in self._admin.list("deployments", NAMESPACE)
        }
        await asyncio.gather(*(self._roll_out(component, wanted.get(component)) for component in ("serve", "webhook")))

    async def _roll_out(self, component: str, spec: Object | None) -> None:
        old = self.of(component)
        if spec is None:
            await asyncio.gather(*(self.end(pod) for pod in old))
            return
        kept = [pod for pod in old if pod.template == spec["template"]]
        old = [pod for pod in old if pod not in kept]
        if not old:
            missing = spec["replicas"] - len(kept)
            await asyncio.gather(*(self.start(component, spec["template"]) for _ in range(missing)))
            return
        for number in range(max(spec["replicas"] - len(kept), len(old))):
            if number < spec["replicas"] - len(kept):
                await self.start(component, spec["template"])
            if number < len(old):
                await self.end(old[number])

    def of(self, component: str) -> list[Pod]:
        return [pod for pod in self.pods if pod.component == component]

    # ------------------------------------------------------------------ pods

    async def start(self, component: str, template: Object, *, probed: bool = True) -> Pod:
        """Start a pod and return it once it is ready, or immediately if it is not probed."""
        folder = self._folder / f"{component}-{next(self._names)}"
        pod = Pod(component, template, _address(), folder)
        volumes = dict(self._volumes(pod))
        while not all((place / "..data").exists() for place in volumes.values()):  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # like the kubelet, wait for a Secret that does not exist yet
        spec = template["spec"]
        account = spec.get("serviceAccountName")
        if account and spec.get("automountServiceAccountToken", True):
            volumes[ACCOUNT] = self._account(folder / "account", account)
        environment = {each["name"]: str(each["value"]) for each in pod.container.get("env", ()) if "value" in each}
        pod.process = await pod.stack.enter_async_context(
            contained(
                self._images[pod.container["image"].rpartition(":")[2]],
                folder,
                pod.container["args"],
                volumes=volumes,
                KUBERNETES_SERVICE_HOST="127.0.0.1",
                KUBERNETES_SERVICE_PORT=self._sandbox.url.rpartition(":")[2],
                SLUICE_API_ADDRESS=f"{pod.address}:8443",
                SLUICE_WEBHOOK_ADDRESS=f"{pod.address}:9443",
                **environment,
            )
        )
        self.pods.append(pod)
        pod.tasks = [asyncio.create_task(self._read(pod))]
        if probed:
            pod.tasks.append(asyncio.create_task(self._probe(pod)))
            while not pod.ready:
                assert pod.process.returncode is None, "\n".join(pod.log)
                await asyncio.sleep(0.05)
        return pod

    async def end(self, pod: Pod, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal to a pod, wait for its end and return its exit code."""
        assert pod.process is not None
        if pod.process.returncode is None:
            pod.process.send_signal(number)
        asyncio.get_running_loop().call_later(LATE, pod.ending.set)
        code = await pod.process.wait()
        pod.ready = False
        await asyncio.wait(pod.tasks[:1])  # reads its log to the end
        for task in pod.tasks:
            task.cancel()
        await pod.stack.aclose()
        if pod in self.pods:
            self.pods.remove(pod)
        return code

    async def _read(self, pod: Pod) -> None:
        assert pod.process is not None
        assert pod.process.stderr is not None
        while line := await pod.process.stderr.readline():
            pod.log.append(line.decode().rstrip())

    async def _probe(self, pod: Pod) -> None:
        probe = pod.container["readinessProbe"]["httpGet"]
        url = f"https://{pod.address}:{pod.port(probe['port'])}{probe['path']}"
        timeout = aiohttp.ClientTimeout(total=pod.container["readinessProbe"].get("timeoutSeconds", 1))
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                try:
                    async with session.get(url, ssl=False) as answer:
                        pod.ready = answer.status == 200
                except (aiohttp.ClientError, TimeoutError):
                    pod.ready = False
                await asyncio.sleep(0.2)

    # ------------------------------------------------------------------ volumes

    def _volumes(self, pod: Pod) -> Iterator[tuple[str, Path]]:
        volumes = {each["name"]: each for each in pod.template["spec"].get("volumes", ())}
        for mount in pod.container.get("volumeMounts", ()):
            volume = volumes[mount["name"]]
            if "emptyDir" in volume:
                continue  # `contained` mounts them in every container
            plural, source = (
                ("secrets", volume["secret"]) if "secret" in volume else ("configmaps", volume["configMap"])
            )
            name = source.get("secretName") or source["name"]
            place = pod.folder / mount["name"]
            place.mkdir(parents=True)
            if source.get("optional"):  # it is empty while there is no such object
                (place / "..none").mkdir()
                (place / "..data").symlink_to("..none")
            self._mounted.setdefault((plural, name), []).append((place, source.get("items")))
            self._write((plural, name))
            yield mount["mountPath"], place

    def _account(self, place: Path, name: str) -> Path:
        place.mkdir(parents=True)
        user = f"system:serviceaccount:{NAMESPACE}:{name}"
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated")
        (place / "token").write_text(self._sandbox.add_user(User(user, name, groups)))
        (place / "namespace").write_text(NAMESPACE)
        (place / "ca.crt").write_text(self._sandbox.ca_pem)
        return place

    async def _keep_files(self) -> None:
        async for batch in self._admin.watch("secrets", "configmaps"):
            for plural, _, obj, _ in batch:
                self._write((plural, obj["metadata"]["name"]))

    def _write(self, key: tuple[str, str]) -> None:
        """Write the files of a Secret or ConfigMap; a symbolic link replaces all at once, as with the kubelet."""
        obj = self._admin.get(key[0], NAMESPACE, key[1])
        if obj is None:
            return
        decode = base64.b64decode if key[0] == "secrets" else str.encode
        data = {name: decode(value) for name, value in obj.get("data", {}).items()}
        for place, items in self._mounted.get(key, ()):
            content = place / f"..{secrets.token_hex(6)}"
            content.mkdir()
            for item in items or [{"key": name, "path": name} for name in data]:
                (content / item["path"]).write_bytes(data[item["key"]])
                link = place / item["path"]
                if not link.is_symlink():
                    link.symlink_to(Path("..data") / item["path"])
            (place / "..new").symlink_to(content.name)
            (place / "..new").rename(place / "..data")

    # ------------------------------------------------------------------ Services

    async def _keep_services(self) -> None:
        async for batch in self._admin.watch("services"):
            for _, change, service, _ in batch:
                name = service["metadata"]["name"]
                if service["metadata"]["namespace"] != NAMESPACE:
                    continue
                if change == "DELETED":
                    self._servers.pop(name).close()
                elif name not in self._servers:
                    await self._serve(service)

    async def _serve(self, service: Object) -> None:
        (port,) = service["spec"]["ports"]
        component = service["spec"]["selector"]["app.kubernetes.io/component"]
        address = _address()

        async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            pods = [pod for pod in self.of(component) if pod.ready and not pod.ending.is_set()]
            if not pods:
                writer.transport.abort()
                return
            pod = random.choice(pods)
            try:
                inner = await asyncio.open_connection(pod.address, pod.port(port["targetPort"]))
            except OSError:
                writer.transport.abort()
                return
            await asyncio.gather(_pass(reader, inner[1]), _pass(inner[0], writer))

        name = service["metadata"]["name"]
        self._servers[name] = await asyncio.start_server(connect, address, port["port"])
        await self._admin.patch("services", NAMESPACE, name, {"spec": {"clusterIP": address}})

    def url(self, service: str) -> str:
        """Return the URL of a Service."""
        host, port = self._servers[service].sockets[0].getsockname()[:2]
        return f"https://{host}:{port}"

    async def shown_certificates(self) -> set[bytes]:
        """Return the server certificates of all pods of the gate, as DER."""
        found = set()
        for pod in self.of("webhook"):
            text = await asyncio.to_thread(ssl.get_server_certificate, (pod.address, 9443))
            found.add(ssl.PEM_cert_to_DER_cert(text))
        return found

    # ------------------------------------------------------------------ hooks

    async def run_hook(self) -> list[Pod]:
        """Run the pods of the uninstall hook's Job until one succeeds; return all of them in order."""
        ran: dict[str, Pod] = {}
        async for batch in self._admin.watch("pods"):
            for _, _, found, _ in batch:
                metadata = found["metadata"]
                is_up = found.get("status", {}).get("phase") == "Running"
                is_hook = metadata.get("labels", {}).get("app.kubernetes.io/component") == "uninstall"
                if metadata["namespace"] != NAMESPACE or not is_hook or metadata["uid"] in ran or not is_up:
                    continue
                pod = ran[metadata["uid"]] = await self.start(
                    "uninstall", {"metadata": {}, "spec": found["spec"]}, probed=False
                )
                assert pod.process is not None
                code = await pod.process.wait()
                await self.end(pod)
                # The sandbox only simulates the pod; annotations tell it the end and the exit code.
                notes = {"sandbox.sluice.dev/run-seconds": "0", "sandbox.sluice.dev/exit-code": str(code)}
                await self._admin.patch("pods", NAMESPACE, metadata["name"], {"metadata": {"annotations": notes}})
                if code == 0:
                    return [*ran.values()]
        raise AssertionError("the watch ended")


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()
    writer.close()


def messages(pod: Pod) -> list[Any]:
    """Return the parsed JSON lines of a log."""
    return [json.loads(line) for line in pod.log if line.startswith("{")]
