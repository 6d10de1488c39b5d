"""`tfscale launch`: what it starts."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tfscale.cluster import ClusterSpec
from tfscale.cluster.addresses import DEFAULT_PORT, add_ports
from tfscale.cluster.cores import find_cores
from tfscale.cluster.host_list import expand_hosts
from tfscale.cluster.nvml import list_gpus
from tfscale.cluster.secret import SECRET, make_secret, read_secret
from tfscale.cluster.shown import quoted
from tfscale.cluster.tf_config import EvaluatorError
from tfscale.cluster.variables import ALONE
from tfscale.errors import LaunchError
from tfscale.launch.facts import job_in_json, manifest_in_json, plan_in_json
from tfscale.launch.flags import meant_for_the_launcher
from tfscale.launch.gpus import find_gpus
from tfscale.launch.isolation import isolate_network
from tfscale.launch.join import check_flags, find_job
from tfscale.launch.limits import check_num_workers, start_error
from tfscale.launch.manifest import Manifest, name_after
from tfscale.launch.own_ranks import find_own_ranks, same_host
from tfscale.launch.ports import free_addresses
from tfscale.launch.restarts import run_until_done
from tfscale.launch.worker_plan import Resources, Worker, describe, plan_workers


def run(args: argparse.Namespace) -> int:
    """Runs the subcommand and returns its exit status.

    Args:
        args: With every flag of `tfscale.launch.flags`.

    Raises:
        ClusterError: The environment or `--hosts` describe a job by halves, or its secret is too short.
        LaunchError: The workers cannot be started as asked.
    """
    if args.kubernetes or args.jobset:
        _print(manifest_in_json(_manifest(args)) if args.json else _manifest(args))
        return 0
    _refuse_manifest_flags(args)
    _check_script(args.script, is_module=args.module)
    environ = dict(os.environ)
    read_secret(environ, ())
    try:
        job = find_job(environ, has_hosts=args.hosts is not None)
    except EvaluatorError as error:
        sys.stderr.write(f"tfscale launch: this is the job's evaluator; nothing to start. {error}\n")
        return 0
    if job is not None:
        check_flags(args, job)
        return _join(args, environ, job)
    make_workers = _local_workers(args, environ) if args.hosts is None else _workers_of_hosts(args, environ)
    if words := meant_for_the_launcher(args):
        sys.stderr.write(
            f"tfscale launch: {words[0].partition('=')[0]} behind the script is the script's own; what is for the "
            f"launcher stands before it: tfscale launch {shlex.join(words)} ... SCRIPT\n"
        )
    # It was for this launcher: the workers are several.
    environ.pop(ALONE, None)
    if args.dry_run:
        _show_plan(make_workers(), as_json=args.json)
        return 0
    if args.isolate_network:
        isolate_network()
    if args.hosts is None and SECRET not in environ:
        # Not among the settings of a worker, which a dry run prints.
        environ[SECRET] = make_secret()
    # Standard output is for the facts alone, then.
    stream = sys.stderr if args.json else None
    done = run_until_done(make_workers, environ, args.max_restarts, args.log_dir, stream)
    if args.json:
        _print(job_in_json(done))
    return done.status


def _manifest(args: argparse.Namespace) -> str:
    if args.image is None or args.workers is None:
        missing = " and ".join(f"--{name}" for name in ("image", "workers") if getattr(args, name) is None)
        raise LaunchError(
            f"A manifest needs --image and --workers.\nReceived: {'--jobset' if args.jobset else '--kubernetes'} "
            f"without {missing}."
        )
    for flag in ("hosts", "rank", "log_dir", "cores_per_worker", "replicas_per_worker"):
        if getattr(args, flag) is not None:
            raise LaunchError(
                f"--{flag.replace('_', '-')} is for workers that are started here.\nReceived: "
                f"{quoted(str(getattr(args, flag)))}, with a manifest. Leave it out."
            )
    manifest = Manifest(
        args.name or name_after(args.script.rpartition(".")[2] if args.module else args.script),
        args.image,
        ("python", *(["-m"] if args.module else []), args.script, *args.arguments),
        num_workers=args.workers,
        num_gpus=args.gpus or 0,
        max_restarts=args.max_restarts,
        volume=None if args.volume is None else (args.volume.partition(":")[0], args.volume.partition(":")[2]),
    )
    return manifest.as_job_set() if args.jobset else manifest.as_indexed_job()


def _refuse_manifest_flags(args: argparse.Namespace) -> None:
    for flag in ("image", "gpus", "volume", "name"):
        if getattr(args, flag) is not None:
            raise LaunchError(
                f"--{flag} is for a manifest.\nReceived: {quoted(str(getattr(args, flag)))}, without --kubernetes or "
                "--jobset. Add one of them, or leave it out."
            )


def _join(args: argparse.Namespace, environ: Mapping[str, str], job: ClusterSpec) -> int:
    worker = Worker(job, _argv(args), {"TF_CONFIG": job.to_tf_config()}, cores=None)
    if args.dry_run:
        _show_plan([worker], as_json=args.json)
    else:
        sys.stderr.write(f"tfscale launch: joins as worker {job.rank} of {job.num_workers} (from {job.source}).\n")
        sys.stderr.flush()
        try:
            os.execve(worker.argv[0], worker.argv, {**environ, **worker.settings})
        except OSError as error:
            raise start_error(worker, error) from error
    return 0


def _local_workers(args: argparse.Namespace, environ: Mapping[str, str]) -> Callable[[], list[Worker]]:
    if args.rank is not None:
        raise LaunchError(
            f"--rank must come with --hosts.\nReceived: --rank {args.rank}. "
            f"Leave it out: every worker on this machine is started here."
        )
    ranks = range(check_num_workers(args.workers or 1))
    resources = _resources(args, environ)
    used: set[str] = set()

    def make_workers() -> list[Worker]:
        addresses = free_addresses(len(ranks), used)
        used.update(addresses)
        return plan_workers(addresses, ranks, _argv(args), environ, resources)

    return make_workers


def _workers_of_hosts(args: argparse.Namespace, environ: Mapping[str, str]) -> Callable[[], list[Worker]]:
    if args.workers is not None or args.isolate_network:
        flag = "--isolate-network" if args.isolate_network else f"--workers {args.workers}"
        raise LaunchError(
            f"--hosts must be the only flag that says where the workers are.\nReceived: {flag} too. "
            f"Leave one of the two out; repeat a host in --hosts that runs several workers."
        )
    addresses = add_ports(expand_hosts(args.hosts, "--hosts"), DEFAULT_PORT)
    if args.rank is None:
        started = here = find_own_ranks(addresses)
    else:
        spec = ClusterSpec(addresses, args.rank, source="--hosts and --rank")
        started, here = (spec.rank,), same_host(addresses, spec.rank)
    workers = plan_workers(addresses, here, _argv(args), environ, _resources(args, environ))
    return lambda: [worker for worker in workers if worker.rank in started]


def _argv(args: argparse.Namespace) -> tuple[str, ...]:
    return (sys.executable, *(["-m"] if args.module else []), args.script, *args.arguments)


def _check_script(name: str, *, is_module: bool) -> None:
    try:
        is_found = _finds_module(name) if is_module else Path(name).is_file()
        problem = ""
    except OSError as error:
        # A name that is too long, or a directory that this user may not look into.
        is_found, problem = False, f" ({error.strerror})"
    if not is_found and is_module:
        raise LaunchError(
            f"The module must be one that Python finds.\nReceived: {quoted(name)}{problem}. "
            f"Name it as for `python -m`, without .py, or leave -m out to start a file."
        )
    if not is_found:
        raise LaunchError(
            f"The script must be a file.\nReceived: {quoted(name)}{problem}. "
            f"Name it after the launcher's flags and before its own."
        )


def _finds_module(name: str) -> bool:
    """Looks for the first part of a module's name alone: to find the others would import it."""
    package = name.partition(".")[0]
    # `python -m` looks in the working directory first, the launcher itself does not.
    here = [Path(package, "__init__.py"), Path(f"{package}.py"), Path(package)]
    return package.isidentifier() and (any(map(Path.exists, here)) or importlib.util.find_spec(package) is not None)


def _show_plan(workers: Sequence[Worker], *, as_json: bool) -> None:
    _print(plan_in_json(workers) if as_json else "".join(map(describe, workers)))


def _print(text: str) -> None:
    """Writes what a shell is to take, as the bytes that it was given: a name of a file need not be text."""
    sys.stdout.flush()
    sys.stdout.buffer.write(os.fsencode(text))
    sys.stdout.buffer.flush()


def _resources(args: argparse.Namespace, environ: Mapping[str, str]) -> Resources:
    gpus = find_gpus(environ, list_gpus)
    return Resources(gpus, find_cores(), args.cores_per_worker, args.replicas_per_worker)
