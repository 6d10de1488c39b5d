"""Which variables of which engine say who is in the job? One row for each engine.

A row with `hosts` is enough for a job: the engine says the rank (or this host's own name) and lists the hosts. A row
without is a sign that there are other processes: who they are comes from `TFSCALE_HOSTS`, or it is an error. A new
engine is one more row.

References:
    https://docs.skypilot.co/en/stable/running-jobs/distributed-jobs.html
    https://dstack.ai/docs/concepts/tasks
    https://github.com/aws/sagemaker-training-toolkit/blob/master/ENVIRONMENT_VARIABLES.md
    https://github.com/volcano-sh/volcano/blob/master/docs/user-guide/how_to_use_svc_plugin.md
    https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables
    https://docs.aws.amazon.com/batch/latest/userguide/mnp-env-vars.html
    https://lws.sigs.k8s.io/docs/reference/labels-annotations-and-environment-variables/
"""

from dataclasses import dataclass

_LAUNCH = "Start the workers with `tfscale launch --workers N`, on several hosts with `--hosts`, in place of"


@dataclass(frozen=True)
class Engine:
    """The variables in which an engine describes a job.

    Args:
        name: As the log and messages name it.
        rank: Holds the rank of this worker.
        own: Holds this host's name, as it is in the list; looked at where there is no rank.
        hosts: Holds the list of hosts: one per worker, in the order of their ranks. A `*` stands for any text.
        count: Holds the number of workers; of several that a `*` stands for, their sum counts.
        more_counts: Hold other numbers of processes: above 1, there is more than one.
        more_ranks: Hold other numbers of this process: above 0, there is more than one.
        way_out: What to run in its place, if anything.
    """

    name: str
    rank: str = ""
    own: str = ""
    hosts: str = ""
    count: str = ""
    more_counts: tuple[str, ...] = ()
    more_ranks: tuple[str, ...] = ()
    way_out: str = ""


# Other programs and people use these names as well, or a job of one has no more: a first rank alone says nothing.
SHARED = frozenset({"HOSTNAME", "RANK", "PMIX_RANK", "TPU_WORKER_ID", "_CONDOR_PROCNO"})

# The first row that tells of several workers is the job's. Those that run processes come before those that lend hosts:
# `jsrun` inside of a job knows more of it than the job.
ENGINES = (
    Engine("Horovod", rank="HOROVOD_RANK", count="HOROVOD_SIZE", way_out=f"{_LAUNCH} horovodrun."),
    Engine("jsrun", rank="JSM_NAMESPACE_RANK", count="JSM_NAMESPACE_SIZE"),
    Engine("MVAPICH2", rank="MV2_COMM_WORLD_RANK", count="MV2_COMM_WORLD_SIZE"),
    Engine("Flux", rank="FLUX_TASK_RANK", count="FLUX_JOB_SIZE"),
    Engine("SkyPilot", rank="SKYPILOT_NODE_RANK", hosts="SKYPILOT_NODE_IPS", count="SKYPILOT_NUM_NODES"),
    Engine("dstack", rank="DSTACK_NODE_RANK", hosts="DSTACK_NODES_IPS", count="DSTACK_NODES_NUM"),
    Engine("SageMaker", own="SM_CURRENT_HOST", hosts="SM_HOSTS"),
    Engine("Volcano", own="HOSTNAME", hosts="VC_*_HOSTS", count="VC_*_NUM"),
    Engine("TPU slice", rank="TPU_WORKER_ID", hosts="TPU_WORKER_HOSTNAMES"),
    Engine("AWS Batch", rank="AWS_BATCH_JOB_NODE_INDEX", count="AWS_BATCH_JOB_NUM_NODES"),
    Engine("LeaderWorkerSet", rank="LWS_WORKER_INDEX", count="LWS_GROUP_SIZE"),
    Engine("DGX Cloud Lepton", rank="LEPTON_JOB_WORKER_INDEX", count="LEPTON_JOB_TOTAL_WORKERS"),
    Engine("Base Command", rank="NGC_ARRAY_INDEX", count="NGC_ARRAY_SIZE"),
    Engine("Beaker", rank="BEAKER_REPLICA_RANK", count="BEAKER_REPLICA_COUNT"),
    Engine("Metaflow", rank="MF_PARALLEL_NODE_INDEX", count="MF_PARALLEL_NUM_NODES"),
    Engine("HTCondor", rank="_CONDOR_PROCNO", count="_CONDOR_NPROCS"),
    Engine("JAX", rank="JAX_PROCESS_ID", count="JAX_NUM_PROCESSES"),
    Engine("MXNet", count="DMLC_NUM_WORKER"),
    # torchrun, accelerate, DeepSpeed, Lightning, PyTorchJob, PAI and Azure ML: all set these.
    Engine(
        "torchrun",
        rank="RANK",
        count="WORLD_SIZE",
        more_counts=("LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "PET_NNODES"),
        more_ranks=("LOCAL_RANK", "GROUP_RANK", "NODE_RANK", "PET_NODE_RANK"),
        way_out=f"{_LAUNCH} torchrun.",
    ),
    Engine("PMIx", rank="PMIX_RANK"),
)
