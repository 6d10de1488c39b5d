"""What does a person give to Kubernetes to run a script as a job of several workers?

It is printed, and never applied: who runs a cluster has tools for that. The manifest is an Indexed Job with the
headless Service that its pods find each other by, which any cluster takes; or a JobSet, where its operator is
installed.

References:
    https://kubernetes.io/docs/tasks/job/job-with-pod-to-pod-communication/
    https://kubernetes.io/docs/tasks/job/pod-failure-policy/
    https://jobset.sigs.k8s.io/docs/concepts/
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from tfscale.cluster.addresses import DEFAULT_PORT
from tfscale.cluster.host_list import MAX_WORKERS
from tfscale.cluster.jobset import LABELS
from tfscale.cluster.kubernetes import NUM_WORKERS, SERVICE
from tfscale.cluster.secret import SECRET
from tfscale.cluster.shown import quoted
from tfscale.errors import LaunchError

# Images are pulled, and pods that failed come back after 10 s, 20 s, 40 s ... up to 6 min.
_MEETING_S = 900
# To save after SIGTERM. Kubernetes kills after 30 s otherwise.
_GRACE_S = 60
_LONGEST_NAME = 63
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_CLAIM = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
# Those that are something else in YAML than a text.
_WORDS = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")
# registry:port/path:tag@digest, as the OCI's distribution specification has it.
_IMAGE = re.compile(
    r"([a-zA-Z0-9]([-.a-zA-Z0-9]*[a-zA-Z0-9])?(:[0-9]+)?/)?[a-z0-9]+((\.|_|__|-+|/)[a-z0-9]+)*(:\w[\w.-]{0,127})?"
    r"(@[a-z0-9]+:[0-9a-f]{32,})?",
    re.ASCII,
)


@dataclass(frozen=True)
class Manifest:
    """A job of several workers, one pod each.

    Args:
        name: Of the job, and of its Service.
        image: In which the script, Python and tfscale are.
        command: What each pod runs.
        num_workers: Pods.
        num_gpus: Of each pod.
        max_restarts: How often all pods are started again after one has failed by itself.
        volume: A PersistentVolumeClaim and where it is mounted, for what is saved; None for none.

    Raises:
        LaunchError: A name is none, or is too long.

    Example:
        >>> from tfscale.launch.manifest import Manifest
        >>> job = Manifest("train", "registry.example/train:1", ("python", "train.py"), num_workers=4)
        >>> "completions: 4" in job.as_indexed_job()
        True
    """

    name: str
    image: str
    command: tuple[str, ...]
    num_workers: int
    num_gpus: int = 0
    max_restarts: int = 0
    volume: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        if self.num_workers > MAX_WORKERS:
            raise LaunchError(
                f"A job has {MAX_WORKERS} workers at most.\nReceived: {self.num_workers}. Give fewer by --workers."
            )
        # The longest name that is made of it is that of a JobSet's pod.
        longest = f"{self.name}-worker-0-{self.num_workers - 1}"
        if not _NAME.fullmatch(self.name) or len(longest) > _LONGEST_NAME:
            raise LaunchError(
                "The name of a job must be a label of DNS: small letters, digits and hyphens, beginning with a letter, "
                f"and with what is added no longer than {_LONGEST_NAME} characters.\n"
                f"Received: {quoted(self.name)}. Give another one by --name."
            )
        if not _IMAGE.fullmatch(self.image):
            raise LaunchError(
                "An image must be named as `docker pull` takes it: registry/path:tag, the path in small letters.\n"
                f"Received: --image {quoted(self.image)}. For example: --image registry.example/train:1."
            )
        if self.volume is not None:
            claim, path = self.volume
            if not _CLAIM.fullmatch(claim) or not path.startswith("/") or ":" in path:
                raise LaunchError(
                    "A volume must be CLAIM:PATH, the name of a PersistentVolumeClaim and an absolute path.\n"
                    f"Received: --volume {quoted(':'.join(self.volume))}. For example: --volume runs:/runs."
                )

    def as_indexed_job(self) -> str:
        """An Indexed Job of `batch/v1` and its headless Service, as YAML."""
        name = _scalar(self.name)
        return "\n".join(
            [
                *self._header("an Indexed Job"),
                "apiVersion: v1",
                "kind: Service",
                f"metadata: {{name: {name}}}",
                "spec:",
                "  clusterIP: None  # Headless: a DNS record for each pod.",
                "  publishNotReadyAddresses: true  # Workers look for each other before they are ready.",
                f"  selector: {{job-name: {name}}}",
                "---",
                "apiVersion: batch/v1",
                "kind: Job",
                f"metadata: {{name: {name}}}",
                "spec:",
                *_indented(self._job_spec(), 2),
                "",
            ]
        )

    def as_job_set(self) -> str:
        """A JobSet of one job, as YAML; its operator makes the Service, and starts all pods again together."""
        return "\n".join(
            [
                *self._header("a JobSet"),
                "apiVersion: jobset.x-k8s.io/v1alpha2",
                "kind: JobSet",
                f"metadata: {{name: {_scalar(self.name)}}}",
                "spec:",
                "  network: {enableDNSHostnames: true, publishNotReadyAddresses: true}",
                "  failurePolicy:",
                f"    maxRestarts: {self.max_restarts}",
                "    rules:  # What the job's own policy names goes on, and does not count.",
                "    - name: goes_on",
                "      action: RestartJobSetAndIgnoreMaxRestarts",
                "      onJobFailureReasons: [PodFailurePolicy]",
                "  replicatedJobs:",
                "  - name: worker",
                f"    replicas: 1  # One job with all workers; of several, {NUM_WORKERS} counts the pods of all.",
                "    template:",
                "      spec:",
                *_indented(self._job_spec(in_set=True), 8),
                "",
            ]
        )

    def _header(self, kind: str) -> list[str]:
        secret = f"kubectl create secret generic {self.name} --from-literal=secret=$(openssl rand -hex 32)"
        return [
            f"# {self.num_workers} workers, {kind}. Once, so that the workers know each other: {secret}",
            "# It does not wait for room for all pods: Kueue or Volcano do.",
        ]

    def _job_spec(self, *, in_set: bool = False) -> list[str]:
        action = "FailJob" if in_set else "Ignore"
        limit = 0 if in_set else self.num_workers * self.max_restarts
        why = "the set starts again, not the job" if in_set else "it counts pods, and the failure of one ends all"
        subdomain = [] if in_set else [f"    subdomain: {_scalar(self.name)}  # The Service."]
        return [
            "completionMode: Indexed",
            f"completions: {self.num_workers}",
            f"parallelism: {self.num_workers}  # All at once: they wait for each other.",
            f"backoffLimit: {limit}  # {why.capitalize()}.",
            "podReplacementPolicy: Failed  # Never two pods of one rank at a time.",
            "podFailurePolicy:",
            "  rules:",
            "  # Evicted or drained; or it has saved after SIGTERM.",
            f'  - {{action: {action}, onPodConditions: [{{type: DisruptionTarget, status: "True"}}]}}',
            f"  - {{action: {action}, onExitCodes: {{containerName: worker, operator: In, values: [143]}}}}",
            "template:",
            "  spec:",
            *subdomain,
            "    restartPolicy: Never",
            f"    terminationGracePeriodSeconds: {_GRACE_S}  # To save after SIGTERM.",
            "    shareProcessNamespace: true  # For process 1, SIGTERM does nothing by itself.",
            "    containers:",
            "    - name: worker",
            f"      image: {_scalar(self.image)}",
            f"      command: {_sequence(self.command)}",
            "      env:",
            f'      - {{name: {NUM_WORKERS}, value: "{self.num_workers}"}}',
            f"      - {{name: {SERVICE}, value: {_scalar(self.name)}}}",
            f'      - {{name: TFSCALE_TIMEOUT_S, value: "{_MEETING_S}"}}  # Images are pulled, pods come back late.',
            f"      - name: {SECRET}",
            f"        valueFrom: {{secretKeyRef: {{name: {_scalar(self.name)}, key: secret, optional: true}}}}",
            *(_label_lines() if in_set else []),
            f"      ports: [{{containerPort: {DEFAULT_PORT}}}]",
            *self._resources(),
        ]

    def _resources(self) -> list[str]:
        limits, mounts, volumes = [], [], []
        if self.num_gpus:
            limits = [f"      resources: {{limits: {{nvidia.com/gpu: {self.num_gpus}}}}}"]
        if self.num_gpus > 1:
            # NCCL's GPUs of one pod meet there, and a container has 64 MiB of it.
            mounts.append("      - {name: shm, mountPath: /dev/shm}")
            volumes.append("    - {name: shm, emptyDir: {medium: Memory}}")
        if self.volume is not None:
            claim, path = map(_scalar, self.volume)
            mounts.append(f"      - {{name: runs, mountPath: {path}}}")
            volumes.append(f"    - {{name: runs, persistentVolumeClaim: {{claimName: {claim}}}}}")
        return [
            *limits,
            *(["      volumeMounts:", *mounts] if mounts else []),
            *(["    volumes:", *volumes] if volumes else []),
        ]


def _label_lines() -> list[str]:
    """What tells the pods of several jobs of a JobSet apart, each of which counts its own from 0."""
    lines = []
    for name, label in LABELS.items():
        path = json.dumps(f"metadata.labels['jobset.sigs.k8s.io/{label}']")
        lines += [f"      - name: {name}", f"        valueFrom: {{fieldRef: {{fieldPath: {path}}}}}"]
    return lines


def name_after(script: str) -> str:
    """The name of a job, after that of its script.

    Example:
        >>> from tfscale.launch.manifest import name_after
        >>> name_after("examples/Train_GPT.py")
        'train-gpt'
    """
    words = re.sub(r"[^a-z0-9]+", "-", PurePosixPath(script).stem.lower()).strip("-0123456789")
    return words[:40].rstrip("-") or "train"


def _scalar(text: str) -> str:
    """A text in YAML, which has JSON in it."""
    return text if _NAME.fullmatch(text) and text not in _WORDS else json.dumps(text)


def _sequence(words: Sequence[str]) -> str:
    # Kubernetes puts variables in the place of $(NAME), and $$ is a $.
    return "[" + ", ".join(json.dumps(word.replace("$", "$$")) for word in words) + "]"


def _indented(lines: Sequence[str], by: int) -> list[str]:
    return [" " * by + line for line in lines]
