"""The Job manifest that `sluice submit` makes of its flags."""

from __future__ import annotations

import pytest

from admission.cli.arguments.job_flags import JobFlags, job_manifest, key_value, seconds
from admission.cli.errors import BadFlag


def test_job_requests_a_level_of_the_topology():
    required = job_manifest(JobFlags("i", (), topology_required="rack"), queue="q", namespace="")
    template = required["spec"]["template"]
    assert template["metadata"]["annotations"] == {"sluice.dev/podset-required-topology": "rack"}
    preferred = job_manifest(JobFlags("i", (), topology_preferred="example.com/block"), queue="q", namespace="")
    annotations = preferred["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {"sluice.dev/podset-preferred-topology": "example.com/block"}
    with pytest.raises(BadFlag, match="exclude each other"):
        job_manifest(JobFlags("i", (), topology_required="a", topology_preferred="b"), queue="q", namespace="")
    with pytest.raises(BadFlag, match='--topology-required: "a rack" is no node label'):
        job_manifest(JobFlags("i", (), topology_required="a rack"), queue="q", namespace="")


def test_job_contains_the_values_of_all_flags():
    flags = JobFlags(
        image="trainer:1",
        command=("python", "train.py"),
        name="train",
        requests=(("cpu", "2"), ("memory", "4Gi"), ("nvidia.com/gpu", "1")),
        pods=2,
        retries=3,
        environment=(("SEED", "7"),),
        priority_class="high",
        time_limit=3600,
        hold=True,
    )
    assert job_manifest(flags, queue="batch", namespace="team-a") == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "train",
            "namespace": "team-a",
            "labels": {
                "sluice.dev/queue-name": "batch",
                "sluice.dev/priority-class": "high",
                "sluice.dev/max-exec-time-seconds": "3600",
                "sluice.dev/hold": "true",
            },
        },
        "spec": {
            "suspend": True,
            "parallelism": 2,
            "completions": 2,
            "completionMode": "Indexed",
            "backoffLimit": 3,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [
                        {
                            "name": "main",
                            "image": "trainer:1",
                            "command": ["python", "train.py"],
                            "env": [{"name": "SEED", "value": "7"}],
                            "resources": {
                                "requests": {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"},
                                "limits": {"memory": "4Gi", "nvidia.com/gpu": "1"},
                            },
                        }
                    ],
                }
            },
        },
    }


@pytest.mark.parametrize(
    ("image", "command", "name"),
    [
        ("trainer:1", ("./Train_it.sh",), "train-it-sh-"),
        ("registry.example:5000/team/trainer:1@sha256:abc", (), "trainer-"),
        ("i", ("/",), "job-"),
        ("i", ("x" * 100,), "x" * 57 + "-"),
    ],
)
def test_job_without_a_name_is_named_after_its_command_or_image(image, command, name):
    manifest = job_manifest(JobFlags(image, command), queue="q", namespace="n")
    assert manifest["metadata"]["generateName"] == name
    assert "name" not in manifest["metadata"]


@pytest.mark.parametrize(
    ("flags", "queue", "message"),
    [
        (JobFlags("i", (), name="Train"), "q", '--name: "Train" is not a valid Job name'),
        (JobFlags("i", (), name="x" * 64), "q", "at most 63 characters"),
        (JobFlags("i", (), requests=(("memory", "4GB"),)), "q", 'memory: "4GB" is not a quantity'),
        (JobFlags("i", (), requests=(("cpu", "-1"),)), "q", "cpu: must not be negative"),
        (JobFlags("i", (), requests=(("nvidia.com/gpu", "0.5"),)), "q", 'nvidia.com/gpu: "0.5" is not a whole number'),
        (JobFlags("i", (), requests=(("nvidia.com/gpu", "half"),)), "q", 'nvidia.com/gpu: "half" is not a quantity'),
        (JobFlags("i", (), priority_class="a b"), "q", '"a b" is not a valid value of the label sluice.dev/priority'),
        (JobFlags("i", ()), "a/b", '"a/b" is not a valid value of the label sluice.dev/queue-name'),
    ],
)
def test_invalid_flag_value_is_refused_with_a_message(flags, queue, message):
    with pytest.raises(BadFlag, match=f"^.*{message}".replace("(", r"\(")):
        job_manifest(flags, queue=queue, namespace="n")


@pytest.mark.parametrize(("text", "expected"), [("90m", 5400), ("1h30m", 5400), ("2d", 172_800), ("45", 45)])
def test_time_limit_accepts_units_and_plain_seconds(text, expected):
    assert seconds(text, flag="--time-limit") == expected


@pytest.mark.parametrize("text", ["", "0", "0m", "1x", "m", "1h 30m", "-5", "1.5h", "²"])
def test_invalid_time_limit_is_refused(text):
    with pytest.raises(BadFlag, match=r"^--time-limit: "):
        seconds(text, flag="--time-limit")


def test_environment_variable_requires_a_key_and_an_equals_sign_but_no_value():
    assert key_value("A=b=c", flag="--env") == ("A", "b=c")
    assert key_value("A=", flag="--env") == ("A", "")
    for text in ("A", "=b", ""):
        with pytest.raises(BadFlag, match=r"^--env: .* is not KEY=VALUE"):
            key_value(text, flag="--env")
