"""KubeRay's Python client, driven line by line: `KIND COMMAND [NAME] [NUMBER]` in, one line of JSON out.

Runs in an environment of its own, in which `python_client` is installed, or `codeflare-sdk`, which has a copy of it.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import sys
import traceback
from pathlib import Path

if importlib.util.find_spec("python_client") is None:
    sys.path.insert(0, str(Path(importlib.util.find_spec("codeflare_sdk").origin).parent / "vendored"))

from python_client.kuberay_cluster_api import RayClusterApi
from python_client.kuberay_job_api import RayjobApi
from python_client.utils.kuberay_cluster_builder import ClusterBuilder
from python_client.utils.kuberay_cluster_utils import ClusterUtils

LABELS = {"sluice.dev/queue-name": "test"}


def ray_cluster(name):
    """A RayCluster with a head of two CPUs and a worker of one."""
    builder = ClusterBuilder().build_meta(name=name, labels=LABELS).build_head()
    builder = builder.build_worker(group_name="workers", replicas=1, max_replicas=3)
    assert builder.succeeded
    return builder.get_cluster()


class Clusters:
    """RayClusters."""

    def __init__(self):
        self._api = RayClusterApi()

    def submit(self, name):
        return self._api.create_ray_cluster(body=ray_cluster(name))["metadata"]["name"]

    def status(self, name):
        return (self._api.get_ray_cluster_status(name, timeout=60, delay_between_attempts=1) or {}).get("state", "")

    def wait(self, name):
        return str(self._api.wait_until_ray_cluster_running(name, timeout=600, delay_between_attempts=1))

    def scale(self, name, replicas):
        body, done = ClusterUtils().update_worker_group_replicas(
            self._api.get_ray_cluster(name), "workers", 3, 1, int(replicas)
        )
        return str(done and self._api.patch_ray_cluster(name, {"spec": body["spec"]}))

    def list(self):
        return [each["metadata"]["name"] for each in self._api.list_ray_clusters()["items"]]

    def delete(self, name):
        return str(self._api.delete_ray_cluster(name))


class Jobs:
    """RayJobs."""

    def __init__(self):
        self._api = RayjobApi()

    def submit(self, name):
        spec = {"entrypoint": "python t.py", "submissionMode": "HTTPMode", "shutdownAfterJobFinishes": True}
        spec["rayClusterSpec"] = ray_cluster(name)["spec"]
        body = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": name, "labels": LABELS}, "spec": spec}
        return self._api.submit_job(job=body)["metadata"]["name"]

    def status(self, name):
        found = self._api.get_job_status(name, timeout=60, delay_between_attempts=1) or {}
        return found.get("jobDeploymentStatus", "")

    def wait(self, name):
        return str(self._api.wait_until_job_finished(name, timeout=600, delay_between_attempts=1))

    def suspend(self, name):
        return str(self._api.suspend_job(name))

    def resubmit(self, name):
        return str(self._api.resubmit_job(name))

    def list(self):
        return [each["metadata"]["name"] for each in self._api.list_jobs()["items"]]

    def delete(self, name):
        return str(self._api.delete_job(name))


def main():
    logging.disable(logging.CRITICAL)
    clients = {"cluster": Clusters(), "job": Jobs()}
    for line in sys.stdin:
        client, command, *words = line.split()
        try:
            answer = getattr(clients[client], command)(*words)
        except Exception as error:  # noqa: BLE001  the error is reported to the test
            answer = "Error: " + "".join(traceback.format_exception(error))[-1500:]
        print(json.dumps(answer), flush=True)


main()
