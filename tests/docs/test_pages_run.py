"""Execution of all blocks of commands in the documentation, against a sandbox, except blocks with a stated reason.

The reason is a comment above a block: `<!-- not run: REASON -->` or `<!-- run by: tests/... -->`. Prerequisites of a
page (names, files, Jobs) are in `BEFORE`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from page_commands import PAGES, ROOT, Block, blocks, name

from admission.sandbox.sandbox import Sandbox
from tests import sluice_server
from tests.cli.serve_processes import TOKEN, serving
from tests.ports import free_port

SOURCES = ("deploy", "admission", "webhooks", "alembic", "Makefile", "pyproject.toml", "constraints.txt", "README.md")
FILES = Path(__file__).parent / "files"
WITH_BLOCKS = {page: found for page in PAGES if (found := blocks(page.read_text()))}

NOT_HERE = {
    r"kubectl top ": "needs a metrics server",
    r"kubectl describe certificates ": "needs cert-manager",
    r"kubectl get --raw /metrics ": "the sandbox has no metrics of an API server",
    r"kubectl get lease ": "one replica on SQLite has no Lease",
    r".* --previous": "no pod of the sandbox was started again",
    r"podman ": "needs a builder of images",
}
"""Patterns of single lines that are skipped, and why."""

PLACEHOLDERS = {
    r"\bNAMESPACE\b": "team-a",
    r"\bclusterqueue([ /])NAME\b": r"clusterqueue\1vision",
    r"\bJOB\b": "train",
    r"\bRESOURCE\b": "jobs",
    r"\bREGISTRY\b": "registry.example",
    r"=NEW\b": "=0.1.0",
    r"(?<![\w.])/(etc/sluice|var/lib/sluice)/": r"$PWD/\1/",
    r"sqlite:///\$PWD": "sqlite:///$PWD",
    r"(kubectl apply -k \S+)": r"\1 --dry-run=server",  # Helm has created these objects
    r"export KUBECONFIG=.*": "",
    r"job-hello-2-4e448": "$(kubectl get wl -o name | head -1 | cut -d/ -f2)",
}

QUEUES = "sluice apply -f queues.yaml\n"
TRAIN = (
    "sed s/60/1000000/ job.yaml | kubectl create -n {0} -f -; until sluice why train -n {0} >why; do sleep 0.2; done\n"
)
DEPLOYED = (
    "kubectl create deployment sluice -n sluice-system --image sluice; kubectl apply -f deploy/rbac/sluice.yaml\n"
)
RELEASED = (
    "helm install sluice deploy/helm/sluice --wait -n sluice-system --create-namespace --set image.repository=x\n"
)
# The sandbox has no volumes, and only simulates the pod of the hook.
HELPING = """
(until kubectl patch pvc sluice-database -n sluice-system --subresource=status -p '{"status":{"phase":"Bound"}}'
do sleep 0.2; done) >helping 2>&1 &
(until kubectl annotate pods -n sluice-system -l app.kubernetes.io/component=uninstall \
  sandbox.sluice.dev/run-seconds=0 | grep annotated
do sleep 0.2; done) >>helping 2>&1 &
"""
BEFORE = {
    "README.md": HELPING,
    "docs/api.md": QUEUES + "sluice stop cq/vision\n" + TRAIN.format("default"),
    "docs/disaster-recovery.md": HELPING + RELEASED,
    "docs/install.md": HELPING,
    "docs/kinds.md": "echo 'apiVersion: sluice.dev/v1\nkind: Configuration\n"
    "integrations: {frameworks: [batch/job, pod, jobset.x-k8s.io/jobset]}' >sluice.yaml\n",
    "docs/migrating-from-kueue.md": "kubectl create namespace kueue-system\n"
    "kubectl create deployment kueue-controller-manager -n kueue-system --image kueue\n"
    "kubectl create configmap kueue-manager-config -n kueue-system --from-file=controller_manager_config.yaml\n"
    "kubectl apply -f kueue.yaml --server-side\n"
    "mkdir queues && cp queues.yaml queues\n",
    "docs/notifications.md": QUEUES,
    "docs/operations.md": QUEUES,
    "docs/runbooks.md": QUEUES + DEPLOYED + TRAIN.format("team-a"),
    "docs/tasks/budgets.md": QUEUES,
    "docs/tasks/objectives.md": QUEUES,
    "docs/tasks/preemption.md": QUEUES,
    "docs/tasks/reserve-gpus.md": QUEUES + "sluice create flavor a100 --node-labels gpu=a100\n",
    "docs/tasks/run-jobs.md": QUEUES,
    "docs/tasks/topology.md": "for n in 0 1; do kubectl label node node-$n pool=gpu block=b rack=r$n; done\n",
    "docs/tasks/usage.md": QUEUES,
}
"""Commands that a page requires, run before its own."""

BETWEEN = {
    "sluice hold train": "kubectl delete job train\n" + TRAIN.format("default"),
    "kubectl get wl -o wide": "sluice submit --queue main --name hello-1 --image x --cpu 1 -- sleep 600\n",
    "kubectl wait --for=condition=Active cq/vision": "kubectl patch cq vision --type=merge -p "
    """'{"spec":{"stopPolicy":"None"}}'\n""",
    "kubectl delete -k deploy/kustomize/base": "kubectl apply -k deploy/kustomize/base\n",
}
"""Commands that are run before a line of a page, to create the state that the reader would have."""

WITHOUT_SLUICE = (
    "CONTRIBUTING.md",
    "README.md",
    "docs/chaos.md",
    "docs/disaster-recovery.md",
    "docs/getting-started.md",
    "docs/install.md",
    "docs/migrating-from-kueue.md",
)
"""Pages that start without Sluice in the cluster; pods installed by Helm are only simulated."""

# Report each failed command. grep may find nothing, and kubectl diff may find differences.
PREAMBLE = r"""
set -o pipefail -o errtrace
trap 'codes="${PIPESTATUS[*]}"; told "$BASH_COMMAND" "$codes"' ERR
told() {
  case "$1" in grep*) [ "${2%% *}" = 0 ] && return ;; "kubectl diff"*) [ "$2" = 1 ] && return ;; esac
  echo "FAILED ($2): $1"
}
make() { command make --dry-run "$@" | tail -1; }
"""
READY = """
until curl -skf -H "Authorization: Bearer $TOKEN" --output ready https://SLUICE/readyz; do sleep 0.1; done
kubectl wait --for=condition=Available apiservice/v1.sluice.dev --timeout=5m
"""


def script(page: Path, found: list[Block]) -> str:
    text = "".join(block.script for block in found if not block.not_run and not block.run_by)
    for line, why in NOT_HERE.items():
        text = re.sub(rf"^{line}.*$", f": {why}", text, flags=re.MULTILINE)
    for what, value in PLACEHOLDERS.items():
        text = re.sub(what, value, text)
    for line, first in BETWEEN.items():
        text = text.replace(line, first + line)
    ready = READY
    if name(page) in WITHOUT_SLUICE:
        ready = ""
        text = re.sub(
            r"^kubectl (apply -f queues.yaml|get clusterqueues)$", ": nobody answers here", text, flags=re.MULTILINE
        )
    return PREAMBLE + ready + BEFORE.get(name(page), "") + text + "kill $(jobs -p) 2>/dev/null || :; echo all was run\n"


def test_skipped_lines_and_tests_that_run_blocks_exist():
    everything = [(page, block) for page, found in WITH_BLOCKS.items() for block in found]
    for line in NOT_HERE:
        assert any(re.search(rf"^{line}", block.script, re.MULTILINE) for _, block in everything), line
    for page, block in everything:
        assert not block.run_by or (ROOT / block.run_by).is_file(), f"{name(page)}: {block.run_by}"
    assert BEFORE.keys() <= {name(page) for page in WITH_BLOCKS}


RUN = [page for page, found in WITH_BLOCKS.items() if any(not block.not_run and not block.run_by for block in found)]


def _create_files(world: Path, page: Path, database_url: str) -> None:
    """Create the files that pages name, and those whose content this page shows."""
    shutil.copytree(FILES, world)
    for place in SOURCES:
        (world / place).symlink_to(ROOT / place)
    titled = r'^```yaml title="(\S+)"\n(.*?)^```'
    for title, content in re.findall(titled, page.read_text(), re.MULTILINE | re.DOTALL):
        (world / title).write_text(content)
    for place in ("etc/sluice", "var/lib/sluice", ".kube", "bin"):
        (world / place).mkdir(parents=True)
    (world / "etc/sluice/database-url").write_text(database_url)
    (world / "bin/helm").symlink_to(Path(__file__).with_name("helm"))
    (world / "bin/sluice").symlink_to(sluice_server.COMMAND)


FIRST = ("README.md", "docs/getting-started.md", "docs/install.md", "docs/kubectl.md", "docs/tasks/run-jobs.md")
"""The pages of a first hour."""


@pytest.mark.costly
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=() if name(page) in FIRST else pytest.mark.long, id=name(page)) for page in RUN]
)
async def test_the_commands_of_a_page_run(page: Path, tmp_path: Path, database_url: str, warm_sluice: dict[str, str]):
    world = tmp_path / "world"
    _create_files(world, page, database_url)
    async with Sandbox(speed=60) as sandbox:
        admin = sandbox.local("admin")
        for number in range(4):
            await admin.create("nodes", "", _node(number))
        await admin.create("namespaces", "", {"metadata": {"name": "team-a"}})
        sandbox.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        kubeconfig = sandbox.kubeconfig("admin")
        kubeconfig["contexts"].append(kubeconfig["contexts"][0] | {"name": "prod"})
        (world / ".kube/config").write_text(json.dumps(kubeconfig))
        gate, api = free_port(), free_port()
        flags = (
            f"--webhook-url=https://127.0.0.1:{gate}",
            f"--webhook-address=127.0.0.1:{gate}",
            f"--apiservice-url=https://localhost:{api}",
            f"--certificate-directory={tmp_path / 'certificates'}",
        )
        text = script(page, WITH_BLOCKS[page]).replace("https://SLUICE", f"https://localhost:{api}")
        async with AsyncExitStack() as stack:
            if name(page) not in WITHOUT_SLUICE:
                await stack.enter_async_context(serving(tmp_path, database_url, *flags, port=api))
            printed = await _run(text, world, warm_sluice)
    failed = re.findall(r"(?:^.*\n){0,8}^FAILED .*$", printed, re.MULTILINE)
    assert not failed, "\n...\n".join(failed)
    assert printed.endswith("all was run\n"), printed


@pytest.fixture
def database_kind() -> str:
    return "sqlite"  # the pages do not depend on the database


async def _run(text: str, world: Path, warm_sluice: dict[str, str]) -> str:
    """Run a script by bash in a new home directory; return its output."""
    environment = {
        "HOME": str(world),
        "PATH": f"{world / 'bin'}:{warm_sluice['PATH']}",
        "EDITOR": str(world / "editor"),
        "KUBECONFIG": str(world / ".kube/config"),
        "TOKEN": TOKEN,
        "WARM_SLUICE": warm_sluice["WARM_SLUICE"],
    }
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", text, cwd=world, env=environment, start_new_session=True,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return printed.decode()


def _node(number: int) -> dict[str, object]:
    amounts = {"cpu": "100", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
    labels = {"gpu": "a100"} if number else {}
    return {
        "metadata": {"name": f"node-{number}", "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "status": {"allocatable": amounts, "capacity": amounts},
    }
