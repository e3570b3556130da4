"""Public kinds that Sluice does not know: queued by the children that they make, or by a description in YAML.

The manifests follow public samples of the projects, with what their users add. The children are those that the
operators make of them, without configuration: Apache's Spark operator makes the driver's pod, and the driver makes the
executors' pods; Flux makes an indexed Job; Kubeflow makes a StatefulSet, with the labels of the Notebook in its
template. None of the three has a suspend field, as a description needs. MXJobs (training-operator up to 1.8) have one.
"""

from __future__ import annotations

import pytest
import yaml
from custom_kinds import served
from grouped_kinds import pods_until, running
from job_examples import cluster_queue, flavor, local_queue, runs
from pod_examples import gated

from admission.cli.configuration.integrations import IntegrationsSettings
from admission.kinds import all_kinds, parse_form

KINDS = IntegrationsSettings().registry()
LASTING = {"sandbox.sluice.dev/run-seconds": "1000000"}

SPARK = """
apiVersion: spark.apache.org/v1
kind: SparkApplication
metadata: {name: pi}
spec:
  mainClass: org.apache.spark.examples.SparkPi
  jars: local:///opt/spark/examples/jars/spark-examples.jar
  sparkConf: {spark.executor.instances: "2"}
  driverSpec:
    podTemplateSpec:
      metadata:
        labels:
          sluice.dev/queue-name: lq
          sluice.dev/pod-group-name: pi
          sluice.dev/pod-set-name: driver
        annotations:
          sluice.dev/pod-group-pod-sets: |
            [{"name": "driver", "count": 1}, {"name": "executor", "count": 2, "requests": {"cpu": "1"}}]
  executorSpec:
    podTemplateSpec:
      metadata:
        labels:
          sluice.dev/queue-name: lq
          sluice.dev/pod-group-name: pi
          sluice.dev/pod-set-name: executor
"""
FLUX = """
apiVersion: flux-framework.org/v1alpha2
kind: MiniCluster
metadata: {name: flux-sample}
spec:
  size: 3
  jobLabels: {sluice.dev/queue-name: lq}
  containers:
  - {image: "ghcr.io/flux-framework/flux-restful-api:latest", command: echo hello world}
"""
NOTEBOOK = """
apiVersion: kubeflow.org/v1
kind: Notebook
metadata:
  name: notebook
  labels: {sluice.dev/queue-name: lq}
spec:
  template:
    spec:
      containers:
      - {name: notebook, image: jupyter, resources: {requests: {cpu: "1"}}}
"""
MXJOB_FORM = """
group: kubeflow.org
kind: MXJob
plural: mxjobs
versions: [v1]
suspend: spec.runPolicy.suspend
podSets:
- {path: spec.mxReplicaSpecs.Scheduler, name: scheduler, template: template, replicas: replicas}
- {path: spec.mxReplicaSpecs.Server, name: server, template: template, replicas: replicas}
- {path: spec.mxReplicaSpecs.Worker, name: worker, template: template, replicas: replicas, minCount: true}
active: [{path: "status.replicaStatuses[*].active", above: 0}]
ready: [{condition: Running}]
succeeded: [{condition: Succeeded}]
failed: [{condition: Failed}]
"""
MXJOB = """
apiVersion: kubeflow.org/v1
kind: MXJob
metadata:
  name: mxnet-job
  namespace: team-a
  labels: {sluice.dev/queue-name: lq}
spec:
  jobMode: MXTrain
  mxReplicaSpecs:
    Scheduler: &role
      replicas: 1
      restartPolicy: Never
      template:
        metadata: {annotations: {sandbox.sluice.dev/run-seconds: "1000000"}}
        spec:
          containers:
          - {name: mxnet, image: "mxjob/mxnet:gpu", resources: {requests: {cpu: "1"}}}
    Server: *role
    Worker: *role
"""


@pytest.fixture
async def cluster(world, tmp_path):
    """A cluster whose objects are gated, with a stopped queue of 4 CPUs; Sluice runs without configuration."""
    await world.apply(flavor(), cluster_queue(stopPolicy="Hold"), local_queue())
    async with gated(world.sandbox.local("admin"), KINDS, tmp_path / "certificates"):
        await world.start(kinds=KINDS)
        yield world


def container():
    return {"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}}


def spark_pod(app, role, name):
    metadata = app["spec"][f"{role}Spec"]["podTemplateSpec"]["metadata"]
    annotations = {**LASTING, **metadata.get("annotations", {})}
    meta = {"name": name, "namespace": "team-a", "labels": metadata["labels"], "annotations": annotations}
    return {"metadata": meta, "spec": {"restartPolicy": "Never", "containers": [container()]}}


async def drained(cluster):
    await cluster.apply(cluster_queue(stopPolicy="HoldAndDrain"))
    await pods_until(cluster.user, "team-a", running(0))


async def test_apache_spark_application_is_queued_by_its_pods(cluster):
    app = yaml.safe_load(SPARK)
    operator = cluster.sandbox.local("system:serviceaccount:spark:operator")
    driver = await operator.create("pods", "team-a", spark_pod(app, "driver", "pi-0-driver"))
    assert driver["spec"]["schedulingGates"] == [{"name": "sluice.dev/admission"}]
    await cluster.record("pi", "pending", reason="Suspended")
    await cluster.apply(cluster_queue())
    await pods_until(cluster.user, "team-a", running(1))
    admitted = await cluster.record("pi", "admitted")
    assert {each.name: each.count for each in admitted.admission.pod_sets} == {"driver": 1, "executor": 2}
    for number in range(int(app["spec"]["sparkConf"]["spark.executor.instances"])):
        executor = spark_pod(app, "executor", f"pi-exec-{number}")
        await cluster.sandbox.local("system:serviceaccount:team-a:spark").create("pods", "team-a", executor)
    await pods_until(cluster.user, "team-a", running(3))
    await drained(cluster)


async def test_flux_mini_cluster_is_queued_by_its_job(cluster):
    spec = yaml.safe_load(FLUX)["spec"]
    metadata = {"name": "flux-sample", "namespace": "team-a", "labels": spec["jobLabels"]}
    pod = {"restartPolicy": "Never", "containers": [container()]}
    job = {
        "metadata": metadata,
        "spec": {
            "completionMode": "Indexed",
            "completions": spec["size"],
            "parallelism": spec["size"],
            "template": {"metadata": {"annotations": LASTING}, "spec": pod},
        },
    }
    operator = cluster.sandbox.local("system:serviceaccount:operator-system:operator-controller-manager")
    created = await operator.create("jobs", "team-a", job)
    assert created["spec"]["suspend"] is True
    await cluster.record("flux-sample", "pending", reason="Suspended")
    await cluster.apply(cluster_queue())
    await cluster.job("flux-sample", runs)
    await pods_until(cluster.user, "team-a", running(3))
    await drained(cluster)


async def test_kubeflow_notebook_is_queued_by_its_stateful_set(cluster):
    notebook = yaml.safe_load(NOTEBOOK)
    selector = {"statefulset": "notebook"}
    template = notebook["spec"]["template"]
    labels = {**notebook["metadata"]["labels"], **selector}
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": selector},
        "template": {**template, "metadata": {"labels": labels, "annotations": LASTING}},
    }
    operator = cluster.sandbox.local("system:serviceaccount:kubeflow:notebook-controller")
    stateful_set = {"metadata": {"name": "notebook", "namespace": "team-a"}, "spec": spec}
    await operator.create("statefulsets", "team-a", stateful_set)
    await cluster.record("notebook", "pending", reason="Suspended")
    await cluster.apply(cluster_queue())
    await pods_until(cluster.user, "team-a", running(1))
    await drained(cluster)


async def test_mxjob_is_queued_by_its_description(world, tmp_path):
    kinds = all_kinds(frameworks=("batch/job",), own=[parse_form(yaml.safe_load(MXJOB_FORM))])
    kind = kinds.get("kubeflow.org", "MXJob")
    await world.apply(flavor(), cluster_queue(stopPolicy="Hold"), local_queue())
    async with served(world.sandbox, kind), gated(world.sandbox.local("admin"), kinds, tmp_path / "certificates"):
        await world.start(kinds=kinds)
        made = await world.sandbox.local("alice").create("mxjobs", "team-a", yaml.safe_load(MXJOB))
        await world.record("mxnet-job", "pending", reason="Suspended")
        await world.apply(cluster_queue())
        await pods_until(world.user, "team-a", running(3))
        admitted = await world.record("mxnet-job", "admitted")
        assert {each.name: each.count for each in admitted.admission.pod_sets} == dict.fromkeys(
            ("scheduler", "server", "worker"), 1
        )
        await drained(world)
        await world.record("mxnet-job", "pending")
        assert world.user.get("mxjobs", "team-a", "mxnet-job")["spec"] == made["spec"]
