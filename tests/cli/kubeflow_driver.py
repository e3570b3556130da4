"""Kubeflow's Python clients, driven line by line: `CLIENT COMMAND [NAME]` in, one line of JSON out.

Runs in an environment of its own, in which `kubeflow` and `kubeflow-training` are installed.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback

from kubeflow.trainer import CustomTrainer, TrainerClient
from kubeflow.trainer.options import Labels, Name
from kubeflow.training import KubeflowOrgV1PyTorchJob, TrainingClient

LABELS = {"sluice.dev/queue-name": "test"}


def train():
    """Training function of the submitted jobs; does nothing."""


class Trainer:
    """The SDK of Kubeflow Trainer 2, for TrainJobs."""

    def __init__(self):
        self._client = TrainerClient()

    def submit(self, name):
        trainer = CustomTrainer(func=train, num_nodes=2, resources_per_node={"cpu": "1", "memory": "1Gi"})
        return self._client.train(runtime="torch", trainer=trainer, options=[Labels(LABELS), Name(name)])

    def status(self, name):
        return self._client.get_job(name).status

    def list(self):
        return [job.name for job in self._client.list_jobs()]

    def logs(self, name):
        return list(self._client.get_job_logs(name))

    def delete(self, name):
        self._client.delete_job(name)


class Training:
    """The SDK of the training operator, for PyTorchJobs."""

    def __init__(self):
        self._client = TrainingClient(job_kind="PyTorchJob")

    def submit(self, name):
        resources = {"cpu": "1", "memory": "1Gi"}
        self._client.create_job(
            name=name, train_func=train, num_workers=2, resources_per_worker=resources, queue_name="test"
        )
        return name

    def status(self, name):
        types = [each.type for each in self._client.get_job_conditions(name) if each.status == "True"]
        job = self._client.get_job(name)
        assert isinstance(job, KubeflowOrgV1PyTorchJob)
        return "Suspended" if job.spec.run_policy.suspend else next(iter(reversed(types)), "Created")

    def list(self):
        return [job.metadata.name for job in self._client.list_jobs()]

    def logs(self, name):
        return list(self._client.get_job_logs(name)[0])

    def delete(self, name):
        self._client.delete_job(name)


def main():
    logging.disable(logging.CRITICAL)
    clients = {"trainer": Trainer(), "training": Training()}
    for line in sys.stdin:
        client, command, *names = line.split()
        try:
            answer = getattr(clients[client], command)(*names)
        except Exception as error:  # noqa: BLE001  the error is reported to the test
            answer = "Error: " + "".join(traceback.format_exception(error))[-1500:]
        print(json.dumps(answer), flush=True)


main()
