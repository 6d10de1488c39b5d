"""Which key do the workers of a job share, so that nobody else takes part in what they say to each other?

`TFSCALE_SECRET` is the same for all workers of a job; `tfscale launch` makes one for those that it starts. Where there
is none, the key follows from the list of workers, which is no secret: it keeps out who comes by accident, and not who
means to come in.
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tfscale.errors import ClusterError

SECRET = "TFSCALE_SECRET"
# Who has heard one message may try keys on it for as long as he likes.
_LEAST_CHARACTERS = 16
SIGNATURE_BYTES = hashlib.sha256().digest_size


@dataclass(frozen=True)
class Secret:
    """What the workers of a job know, and others do not.

    Args:
        key: From which all keys of the job are derived.
        is_given: Whether it was given; else it follows from what is known of the job.
    """

    key: bytes = field(repr=False)
    is_given: bool

    def derive(self, purpose: str, *nonces: bytes) -> bytes:
        """Returns the key for one purpose; other nonces give another one.

        Args:
            purpose: A word of ours.
            nonces: Of fixed length for each purpose.
        """
        return sign(self.key, b"\0".join([purpose.encode(), *nonces]))


def read_secret(environ: Mapping[str, str], workers: Sequence[str]) -> Secret:
    """Returns the secret of a job.

    Args:
        environ: `TFSCALE_SECRET`, where there is one.
        workers: The addresses of the job's workers. In any order: a wrong order is found when all meet, and named.

    Raises:
        ClusterError: The secret is too short.

    Example:
        >>> from tfscale.cluster.secret import read_secret
        >>> read_secret({"TFSCALE_SECRET": "5f0c7b1e9a2d4c68"}, ["a:2222", "b:2222"])
        Secret(is_given=True)
        >>> read_secret({}, ["a:2222", "b:2222"]) == read_secret({}, ["b:2222", "a:2222"])
        True
    """
    if SECRET not in environ:
        return Secret(_key("job", "\0".join(sorted(workers))), is_given=False)
    text = environ[SECRET]
    if len(text) < _LEAST_CHARACTERS:
        raise ClusterError(
            f"`{SECRET}` must have {_LEAST_CHARACTERS} characters or more: shorter ones can be guessed.\n"
            f"Received: {len(text)}. Set it to what `openssl rand -hex 32` prints, the same for every worker of the "
            f"job, or unset it."
        )
    return Secret(_key("secret", text), is_given=True)


def make_secret() -> str:
    """Returns a new value for `TFSCALE_SECRET`."""
    return secrets.token_hex(32)


def sign(key: bytes, message: bytes) -> bytes:
    """Returns the signature of a message: its HMAC with SHA-256 (RFC 2104)."""
    return hmac.digest(key, message, "sha256")


def is_signed(key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether a signature is that of a message. Takes as long for a wrong one as for the right one."""
    return hmac.compare_digest(sign(key, message), signature)


def _key(kind: str, text: str) -> bytes:
    return hashlib.sha256(f"tfscale {kind}\0{text}".encode(errors="surrogateescape")).digest()
