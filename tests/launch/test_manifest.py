"""What `tfscale launch --kubernetes` prints: valid, and a cluster that the pods find by themselves."""

import kubernetes_validate
import pytest
import yaml

from tests.repository import ROOT
from tfscale import resolve_cluster
from tfscale.errors import LaunchError
from tfscale.launch.manifest import Manifest, name_after

COMMAND = ("python", "train.py", "--rate", "0.1", "it's $HOME: {a}, #b", "no", "größer")
FULL = Manifest("gpt-2", "registry.example:5000/me/gpt_2:v1.0", COMMAND, 4, 8, 3, ("runs", "/runs/of me"))
SMALL = Manifest("no", "python@sha256:" + "0" * 64, ("python", "-m", "train"), 2)
# The oldest that has `podReplacementPolicy`, and the newest that is known.
VERSIONS = ("1.29", kubernetes_validate.latest_version())


def documents(text):
    return list(yaml.safe_load_all(text))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("manifest", [FULL, SMALL], ids=["all of it", "little"])
def test_kubernetes_takes_it(manifest, version):
    service, job = documents(manifest.as_indexed_job())
    for document in (service, job):
        kubernetes_validate.validate(document, version, strict=True)
    # What a JobSet holds is a job like any other.
    (job_set,) = documents(manifest.as_job_set())
    template = job_set["spec"]["replicatedJobs"][0]["template"]
    kubernetes_validate.validate({**job, **template}, version, strict=True)


@pytest.mark.parametrize("manifest", [FULL, SMALL], ids=["all of it", "little"])
@pytest.mark.parametrize("kind", ["job", "set"])
def test_its_pods_find_each_other(manifest, kind):
    if kind == "job":
        service, job = documents(manifest.as_indexed_job())
        spec, prefix = job["spec"], job["metadata"]["name"]
        # Kubernetes gives every pod of a job this label, and a host name of this kind.
        assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
        assert spec["template"]["spec"]["subdomain"] == service["metadata"]["name"]
        domain = service["metadata"]["name"]
    else:
        (job_set,) = documents(manifest.as_job_set())
        (replicated,) = job_set["spec"]["replicatedJobs"]
        domain = job_set["metadata"]["name"]
        spec, prefix = replicated["template"]["spec"], f"{domain}-{replicated['name']}-0"
    (container,) = spec["template"]["spec"]["containers"]
    given = {each["name"]: each["value"] for each in container["env"] if "value" in each}
    pods = spec["completions"]
    assert pods == spec["parallelism"] == manifest.num_workers
    for rank in range(pods):
        found = resolve_cluster({**given, "JOB_COMPLETION_INDEX": str(rank), "HOSTNAME": f"{prefix}-{rank}"})
        assert found.rank == rank
        assert found.workers == tuple(f"{prefix}-{each}.{domain}:2222" for each in range(pods))


@pytest.mark.parametrize("replicas", [1, 2])
def test_pods_of_a_set_of_several_jobs_find_each_other(replicas):
    """Somebody has changed `replicas`, and halved `completions`."""
    (job_set,) = documents(FULL.as_job_set())
    (replicated,) = job_set["spec"]["replicatedJobs"]
    (container,) = replicated["template"]["spec"]["template"]["spec"]["containers"]
    given = {each["name"]: each["value"] for each in container["env"] if "value" in each}
    paths = {each["name"]: each["valueFrom"] for each in container["env"] if "fieldRef" in each.get("valueFrom", {})}
    ranks = []
    for job in range(replicas):
        # JobSet's labels, as its controller sets them.
        labels = {"job-index": job, "replicatedjob-replicas": replicas, "global-replicas": replicas}
        labels = {f"metadata.labels['jobset.sigs.k8s.io/{label}']": str(value) for label, value in labels.items()}
        own = {name: labels[path["fieldRef"]["fieldPath"]] for name, path in paths.items()}
        for index in range(FULL.num_workers // replicas):
            host = {"JOB_COMPLETION_INDEX": str(index), "HOSTNAME": f"gpt-2-worker-{job}-{index}"}
            found = resolve_cluster({**given, **own, **host})
            assert found.workers[found.rank] == f"gpt-2-worker-{job}-{index}.gpt-2:2222"
            ranks.append(found.rank)
    assert ranks == [*range(FULL.num_workers)]


def test_the_script_gets_what_was_given():
    _, job = documents(FULL.as_indexed_job())
    (container,) = job["spec"]["template"]["spec"]["containers"]
    # Kubernetes makes $ of $$.
    assert [word.replace("$$", "$") for word in container["command"]] == list(COMMAND)
    assert container["image"] == FULL.image
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 8}}
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert mounts == {"shm": "/dev/shm", "runs": "/runs/of me"}


def test_restarts_count_pods_in_a_job_and_starts_in_a_set():
    _, job = documents(FULL.as_indexed_job())
    (job_set,) = documents(FULL.as_job_set())
    assert job["spec"]["backoffLimit"] == 12
    assert job_set["spec"]["failurePolicy"]["maxRestarts"] == 3
    assert job_set["spec"]["replicatedJobs"][0]["template"]["spec"]["backoffLimit"] == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "Train"}, "'Train'"),
        ({"name": "1st"}, "'1st'"),
        ({"name": ""}, "''"),
        ({"name": "a" * 60}, "--name"),
        ({"name": "a\nb: c"}, "--name"),
        ({"image": "My/Image"}, "--image 'My/Image'"),
        ({"image": "a b"}, "docker pull"),
        ({"image": "a\nb: c"}, "docker pull"),
        ({"image": ""}, "docker pull"),
        ({"volume": ("runs", "")}, "--volume 'runs:'"),
        ({"volume": ("runs", "here")}, "CLAIM:PATH"),
        ({"volume": ("", "/runs")}, "CLAIM:PATH"),
        ({"volume": ("runs", "/a:/b")}, "CLAIM:PATH"),
        ({"num_workers": 10**7}, "10000000"),
    ],
)
def test_what_is_no_name_is_refused(change, said):
    given = {"name": "train", "image": "a/b:1", "command": ("python", "t.py"), "num_workers": 2, **change}
    with pytest.raises(LaunchError) as caught:
        Manifest(**given)
    stated, _, received = str(caught.value).partition("\nReceived: ")
    assert stated.endswith((".", ":"))
    assert said in stated + received


@pytest.mark.parametrize(
    ("script", "name"),
    [("a/train.py", "train"), ("Train_GPT.py", "train-gpt"), ("01_x.py", "x"), ("_.py", "train"), ("x" * 99, "x" * 40)],
)
def test_name_after_the_script(script, name):
    assert name_after(script) == name
    Manifest(name, "a", ("python", script), 100)


ASKED = ("--kubernetes", "--workers", "4", "--image", "a/b:1")


def test_it_is_printed_and_nothing_is_started(launcher, tmp_path):
    status, out, err = launcher.run("started()", *ASKED, "--max-restarts", "2", args=["--epochs", "3"])
    assert (status, err) == (0, "")
    _, job = documents(out)
    assert job["metadata"]["name"] == "script"
    assert job["spec"]["backoffLimit"] == 8
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["python", str(tmp_path / "script.py"), "--epochs", "3"]
    assert not list(tmp_path.glob("started*"))


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (ASKED[:3], "--kubernetes without --image"),
        (("--jobset", *ASKED[3:]), "--jobset without --workers"),
        ((*ASKED, "--hosts", "a,b"), "'a,b', with a manifest"),
        ((*ASKED, "--replicas-per-worker", "2"), "--replicas-per-worker"),
        (("--gpus", "2"), "without --kubernetes or --jobset"),
        (("--image", "a"), "without --kubernetes or --jobset"),
    ],
)
def test_flags_that_do_not_go_together(launcher, flags, said):
    status, out, err = launcher.run("started()", *flags)
    assert (status, out) == (2, "")
    assert said in err


def test_pods_of_kubeflow_s_trainer_find_each_other():
    runtime = yaml.safe_load((ROOT / "examples/kubernetes/training_runtime.yaml").read_text())
    (replicated,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    (container,) = replicated["template"]["spec"]["template"]["spec"]["containers"]
    given = {each["name"]: each["value"] for each in container["env"] if "value" in each}
    pods = runtime["spec"]["mlPolicy"]["numNodes"]
    for rank in range(pods):
        # A JobSet's name is its pods' label, and that of the TrainJob.
        own = {"TFSCALE_SERVICE": "gpt", "JOB_COMPLETION_INDEX": str(rank), "HOSTNAME": f"gpt-node-0-{rank}"}
        found = resolve_cluster({**given, **own})
        assert found.rank == rank
        assert found.workers == tuple(f"gpt-node-0-{each}.gpt:2222" for each in range(pods))
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, **replicated["template"]}
    job = {**job, "spec": {**job["spec"], "completionMode": "Indexed", "completions": pods, "parallelism": pods}}
    kubernetes_validate.validate({**job, "metadata": {"name": "a"}}, VERSIONS[-1], strict=True)
