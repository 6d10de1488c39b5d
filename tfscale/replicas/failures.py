"""How does a failure of one worker reach the others, which wait for it in a collective, and what do they make of it?

TensorFlow lets them wait until it misses the failed worker's heartbeats, about 10 s after that has ended, and then says
that a task is unhealthy. Here the failed worker says at once what happened; of one that cannot, the others find out.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import logging
import os
import re
import time
from collections.abc import Iterator

import tensorflow as tf

from tfscale.cluster.doors import knock_again
from tfscale.cluster.peer_failure import describe_end, describe_peer_failure
from tfscale.cluster.place import Place, describe_place
from tfscale.cluster.verdict import Verdict, describe_verdict, judge_doors
from tfscale.errors import ClusterError, TfscaleError
from tfscale.framework.collectives import exchange_with_other_workers, report_to_other_workers
from tfscale.replicas.owners import Fact, ReplicaGroup
from tfscale.replicas.peers import PeerWatch, find_watch, start_watch
from tfscale.replicas.replica_batch import local_replicas, worker_addresses, worker_rank

_log = logging.getLogger(__name__)

# So that it is found in what TensorFlow makes of it.
_MARK = "tfscale: worker"
_MARK_END = "tfscale: the job ends: "
# What follows a report in TensorFlow's own words.
_AFTER = r"(?: \[type\.googleapis|\n\t \[\[|\n\s*RPC:|\nThe error could be from a previous operation|$)"
_SHOWN_CHARACTERS = 1000
_RAW_CHARACTERS = 300
# What TensorFlow says where it was another worker, or the way to it, that failed.
_OF_OTHERS = re.compile(
    "[Cc]ollective instance|CoordinationService|coordination service|unhealthy|stopped sending heartbeats|"
    "Socket closed|recvmsg:|Connection re|[Ff]ailed to connect|Broken pipe|GOAWAY|Deadline Exceeded|tfscale: |"
    "Collective ops is aborted by: [Cc]ancel"
)
_SHAPES = re.compile(
    r"/job:(\w+)/replica:\d+/task:(\d+)/\S* expected shape (\[[\d,]*\]) but another member in the group expected shape "
    r"(\[[\d,]*\])"
)

# For all who do not answer.
_KNOCK_S = 2.0
# How long the ports of a worker may be open after a connection to it is closed.
_CLOSING_S = 2.0
# How long others may take to refuse the same.
_PATIENCE_S = 5.0
# The calls so far; all workers make the same ones. And the one that lasts.
CALLS = Fact[int](ReplicaGroup, "calls")
CALL = Fact[str](ReplicaGroup, "call")
# Why the collectives are spoilt for good.
ENDED = Fact[str](ReplicaGroup, "ended")
# The same in full, for an engine that ends the process: strategies may be gone by then.
_LAST_WORDS: list[str] = []

# TensorFlow's own way out may take a minute: the end of an iterator waits for the next turn of its tuning.
_END_S = 4.0


@atexit.register
def _end_soon() -> None:
    """Where a job has failed, others wait for this process. Registered early, so that it comes after the user's own."""
    if ENDED.everywhere():
        # The only clock that goes on when Python has been taken down, or waits for TensorFlow.
        faulthandler.dump_traceback_later(_END_S, exit=True, file=os.open(os.devnull, os.O_WRONLY))


@contextlib.contextmanager
def failing_together(strategy: tf.distribute.Strategy, name: str) -> Iterator[PeerWatch | None]:
    """Reports an exception of this worker to the others, and turns what others have done into an error.

    Args:
        strategy: Of the job.
        name: Of the call, one of `place.CALLS`.

    Yields:
        What is to be told where this call is; None where there is nobody to tell.

    Raises:
        ClusterError: When another worker failed, is gone, or does something else; it holds that worker's rank, address
            and what it did last.
    """
    if not local_replicas(strategy).on_several_workers or strategy in CALL:
        yield None
        return
    _refuse_ended(strategy, f"`{name}`")
    CALLS.set(strategy, CALLS.of(strategy, 0) + 1)
    CALL.set(strategy, name)
    try:
        with _explaining(strategy):
            watch = start_watch(strategy)
            if watch is not None:
                watch.begin_call(name)
            yield watch
        if watch is not None:
            watch.end_call()
    finally:
        CALL.forget(strategy)


@contextlib.contextmanager
def explaining(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """As `failing_together`, of what needs all workers and is none of their calls, such as making a variable."""
    with contextlib.ExitStack() as stack:
        if local_replicas(strategy).on_several_workers and strategy not in CALL:
            _refuse_ended(strategy, "a new variable")
            stack.enter_context(_explaining(strategy))
        yield


def explain_uncaught(strategy: tf.distribute.Strategy, error: BaseException) -> BaseException:
    """What is to be shown of an error that ends this worker outside of any call; the others are told of it.

    Args:
        strategy: Of the job.
        error: That nobody has caught.
    """
    if strategy in ENDED:
        return error
    ours = _explain(strategy, error)
    # Of ours, those of a call were told of by it.
    if ours is None and not (isinstance(error, TfscaleError) and strategy in CALLS):
        _report(strategy, error)
    return error if ours is None else ours


def explain_caught(strategy: tf.distribute.Strategy, error: Exception) -> Exception:
    """As `explain_uncaught`, of an error behind which this worker may go on; the others are told of none of its own."""
    if strategy in ENDED:
        return error
    return _explain(strategy, error) or error


def all_come_to(strategy: tf.distribute.Strategy, what: str) -> bool:
    """Says that this worker came to some point within its present call, and hears whether all do, within seconds.

    No collective is needed for it: those of a step that has failed may still have the others wait in them.

    Args:
        strategy: Of the job.
        what: A name of the point, such as `"refused"`; each point of a call has its own.
    """
    replicas, rank = local_replicas(strategy), worker_rank(strategy)
    if not replicas.on_several_workers:
        return True
    call = f"tfscale/{what}/{CALLS.of(strategy, 0)}"
    others = [f"{call}/{other}" for other in range(replicas.total // replicas.here) if other != rank]
    return exchange_with_other_workers(f"{call}/{rank}", others, timeout_s=_PATIENCE_S)


def wait_for_last_words(timeout_s: float) -> str | None:
    """Returns what this worker has to say of one that failed or is gone, when it has left the call that it is in.

    Args:
        timeout_s: How long it may take.
    """
    deadline_s = time.monotonic() + timeout_s
    while CALL.everywhere() and time.monotonic() < deadline_s:
        time.sleep(0.1)
    return next(iter(_LAST_WORDS), None)


def _refuse_ended(strategy: tf.distribute.Strategy, what: str) -> None:
    if strategy in ENDED:
        raise ClusterError(
            f"A job in which a worker has failed must be started again.\nReceived: {what}, after "
            f"{ENDED[strategy]}. End this process, and start all workers again."
        )


class EndedTogetherError(SystemExit):
    """Ends the process of every worker alike, as they have agreed to: none has failed, and none waits for another."""


@contextlib.contextmanager
def _explaining(strategy: tf.distribute.Strategy) -> Iterator[None]:
    ours = None
    try:
        yield
    except EndedTogetherError:
        raise
    except BaseException as error:
        ours = _explain(strategy, error)
        if ours is None:
            _report(strategy, error)
            raise
        _log.debug("What TensorFlow said of it:", exc_info=error)
    if ours is not None:
        # Sixty lines of TensorFlow about the graph of a step would stand between the user and the cause.
        raise ours from None


def _explain(strategy: tf.distribute.Strategy, error: BaseException) -> ClusterError | None:
    """What has happened, if it was on another worker; None if it was here."""
    if isinstance(error, TfscaleError) or not isinstance(error, Exception):
        return None
    text, watch = str(error), find_watch(strategy)
    reported = re.search(rf"{_MARK} (\d+)(?:, ([^:]*))?: (.*?){_AFTER}", text, re.DOTALL)
    ended = re.search(rf"{_MARK_END}(.*?){_AFTER}", text, re.DOTALL)
    if ended is not None:
        said = describe_end(ended[1].strip())
    elif reported is not None:
        rank = int(reported[1])
        said = describe_peer_failure(rank, reported[3].strip(), _address(strategy, rank), reported[2] or "")
    elif watch is not None and watch.verdict is not None and isinstance(error, tf.errors.OpError):
        said = describe_end(describe_verdict(watch.verdict, _address(strategy, watch.verdict.rank)))
    elif isinstance(error, tf.errors.OpError) and _OF_OTHERS.search(text):
        verdict = _find_gone(strategy) if watch is None else watch.find_blamed()
        if verdict is not None:
            said = describe_end(describe_verdict(verdict, _address(strategy, verdict.rank)))
        else:
            received = _from_tensorflow(strategy, text)
            said = describe_end(received)
            # Nobody told the others of it, who may wait.
            _tell(f"{_MARK_END}{received}")
    else:
        return None
    ENDED.set(strategy, said.partition("Received: ")[2].split(". ")[0])
    _LAST_WORDS[:] = [said]
    return ClusterError(said)


def _find_gone(strategy: tf.distribute.Strategy) -> Verdict | None:
    """Whose port nobody listens at any more, before there are heartbeats."""
    own = worker_rank(strategy)
    others = {rank: address for rank, address in enumerate(worker_addresses(strategy)) if rank != own}
    return judge_doors(knock_again(others, _KNOCK_S, _CLOSING_S), {}, Place())


def _from_tensorflow(strategy: tf.distribute.Strategy, text: str) -> str:
    """What can be said by TensorFlow's words alone."""
    shapes = _SHAPES.search(text)
    if shapes is not None:
        rank = _rank_of(strategy, shapes[1], int(shapes[2]))
        return (
            f"worker {rank} ({_address(strategy, rank)}) has a tensor of the shape {shapes[3]}, where another worker "
            f"has {shapes[4]}. Give all workers the same data, model and script: what depends on the rank must not "
            "change what they do."
        )
    own = worker_rank(strategy)
    named = [_rank_of(strategy, job, int(task)) for job, task in re.findall(r"/job:(\w+)/replica:\d+/task:(\d+)", text)]
    # Where the error arose comes first, and is here.
    rank = next((each for each in named if each != own), own)
    lines = [line.strip() for line in text.splitlines() if _OF_OTHERS.search(line)]
    return (
        f"worker {rank} ({_address(strategy, rank)}) is named by TensorFlow, which says: "
        f"{lines[0][:_RAW_CHARACTERS] if lines else ''!r}. The other workers' output may have the cause. Start all "
        "workers again."
    )


def _report(strategy: tf.distribute.Strategy, error: BaseException) -> None:
    """Tells the others that this worker ends its call, unless they end theirs as well and nobody waits."""
    # What we refuse, every worker refuses, as a rule; then the job may go on.
    if isinstance(error, TfscaleError) and CALLS.of(strategy) and all_come_to(strategy, "refused"):
        return
    ENDED.set(strategy, f"this worker's {_in_short(error, 200)}")
    watch = find_watch(strategy)
    where = "" if watch is None else f", {describe_place(watch.place)}"
    _tell(f"{_MARK} {worker_rank(strategy)}{where}: {_in_short(error)}")
    if watch is not None:
        # For those whom TensorFlow tells that a connection is closed, and nothing else.
        watch.tell()


def _tell(message: str) -> None:
    # Where the job has failed already, the others know; this worker's own error is what is to be seen.
    with contextlib.suppress(tf.errors.OpError):
        report_to_other_workers(message)


def _in_short(error: BaseException, limit: int = _SHOWN_CHARACTERS) -> str:
    """The type and what a person looks for: of TensorFlow's pages, the part about the data and the cause."""
    text = str(error)
    cause = re.search(r"Error in user-defined function.*", text, re.DOTALL)
    return f"{type(error).__name__}: {(cause[0] if cause else text)[:limit]}"


def _address(strategy: tf.distribute.Strategy, rank: int) -> str:
    workers = worker_addresses(strategy)
    return workers[rank] if rank < len(workers) else "unknown address"


def _rank_of(strategy: tf.distribute.Strategy, job: str, task: int) -> int:
    chiefs = len(strategy.cluster_resolver.cluster_spec().as_dict().get("chief", []))
    return task + (chiefs if job == "worker" else 0)
