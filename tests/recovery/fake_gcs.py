"""A stand-in for Google Cloud Storage, which TensorFlow's own `gs://` client talks to.

TensorFlow (2.21) has the addresses of the store compiled in. It takes a proxy and a list of certificates from the
environment all the same: this server is the proxy, and answers in the store's name with a certificate of its own.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import ssl
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

TOKEN = "a token of the test"
_HOSTS = ("www.googleapis.com", "storage.googleapis.com")
_API, _UPLOAD = "/storage/v1/b/", "/upload/storage/v1/b/"

Fault = Callable[[str, str], int | None]


class FakeGcs:
    """One bucket of objects, each of which is there as a whole or not at all.

    Args:
        bucket: Its name; there is no other one.
    """

    def __init__(self, bucket: str):
        self.bucket = bucket
        self.objects: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.fault: Fault = lambda method, path: None
        """Given method and address, returns a status to answer with, 0 to cut the connection, None to do as asked."""
        self.lock = threading.Lock()
        self.sessions: dict[str, tuple[str, bytes]] = {}
        self.generation = 0


@contextlib.contextmanager
def serve(gcs: FakeGcs, directory: Path) -> Iterator[dict[str, str]]:
    """Answers for `gcs`; gives the environment in which TensorFlow finds it.

    Args:
        gcs: What is answered for.
        directory: Where the certificate is put.
    """
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    names = ",".join(f"DNS:{host}" for host in _HOSTS)
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=stand-in", "-addext", f"subjectAltName={names}"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    handler = type("Handler", (_Handler,), {"gcs": gcs, "context": context})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    # Connections that are left open must not keep the test from ending.
    server.daemon_threads, server.block_on_close = True, False
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield {
            "https_proxy": f"http://127.0.0.1:{server.server_port}",
            "CURL_CA_BUNDLE": str(certificate),
            "GOOGLE_AUTH_TOKEN_FOR_TESTING": TOKEN,
        }
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    gcs: FakeGcs
    context: ssl.SSLContext

    def log_message(self, *args: Any) -> None:
        pass

    def do_CONNECT(self) -> None:
        if self.path.partition(":")[0] not in _HOSTS:
            self._answer(403)
            return
        self._answer(200)
        self.connection = self.context.wrap_socket(self.connection, server_side=True)
        self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb", 0)

    def handle(self) -> None:
        # A client that is killed leaves its connection in the midst of anything.
        with contextlib.suppress(OSError, ValueError):
            super().handle()

    def finish(self) -> None:
        # What `do_CONNECT` has made, too.
        with contextlib.suppress(OSError, ValueError):
            super().finish()
        self.connection.close()

    def do_GET(self) -> None:
        self._handle(self._get)

    def do_POST(self) -> None:
        self._handle(self._post)

    def do_PUT(self) -> None:
        self._handle(self._put)

    def do_DELETE(self) -> None:
        self._handle(self._delete)

    def _handle(self, action: Callable[[str, dict[str, str]], None]) -> None:
        parts = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(parts.path)
        query = {name: values[0] for name, values in urllib.parse.parse_qs(parts.query).items()}
        whole = urllib.parse.unquote(self.path)
        self.gcs.requests.append((self.command, whole))
        status = self.gcs.fault(self.command, whole)
        self._body = self._read_body() if status != 0 else b""
        if status == 0:
            self.close_connection = True
            self.connection.close()
        elif status is not None:
            self._answer(status, b"on purpose")
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._answer(401, b"Anonymous caller does not have storage access.")
        elif not re.match(rf"(?:{_API}|{_UPLOAD}|/){self.gcs.bucket}(?:/|$)", path):
            self._answer(404, b"The specified bucket does not exist.")
        else:
            with self.gcs.lock:
                action(path, query)

    def _read_body(self) -> bytes:
        # libcurl sends a file's length and, all the same, in chunks.
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _get(self, path: str, query: dict[str, str]) -> None:
        objects = self.gcs.objects
        if path == f"{_API}{self.gcs.bucket}":
            self._answer_json({"location": "HERE"})
        elif path == f"{_API}{self.gcs.bucket}/o":
            self._answer_json(self._list(query))
        elif path.startswith(_API):
            name = path.partition("/o/")[2]
            if name not in objects:
                self._answer(404)
                return
            updated = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
            generation = str(self.gcs.generation)
            self._answer_json({"size": str(len(objects[name])), "generation": generation, "updated": updated})
        else:
            self._read(path.partition(f"/{self.gcs.bucket}/")[2])

    def _list(self, query: dict[str, str]) -> dict[str, Any]:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        items, prefixes = [], set()
        for name in sorted(self.gcs.objects):
            if name.startswith(prefix):
                head, found, _ = name[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
                prefixes.add(prefix + head + found) if found else items.append({"name": name})
        # Pages of two, so that there is more than one.
        first = int(query.get("pageToken", 0))
        page = {"items": items[first : first + 2], "prefixes": sorted(prefixes) if not first else []}
        return {**page, "nextPageToken": str(first + 2)} if first + 2 < len(items) else page

    def _read(self, name: str) -> None:
        if name not in self.gcs.objects:
            self._answer(404)
            return
        content = self.gcs.objects[name]
        first, last = (int(each) for each in re.match(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups())
        if first >= len(content):
            self._answer(416)
        else:
            self._answer(206, content[first : last + 1])

    def _post(self, path: str, query: dict[str, str]) -> None:
        name = query["name"]
        if query["uploadType"] == "resumable":
            session = f"{path}?upload_id={len(self.gcs.sessions)}"
            self.gcs.sessions[session] = (name, b"")
            self._answer(200, headers={"Location": f"https://{_HOSTS[0]}{session}"})
        elif query.get("ifGenerationMatch") == "0" and name in self.gcs.objects:
            self._answer(412)
        else:
            self._store(name, self._body)

    def _put(self, path: str, query: dict[str, str]) -> None:
        del path, query
        name, before = self.gcs.sessions[self.path]
        match = re.match(r"bytes (?:\*|(\d+)-(\d+))/(\d+)", self.headers.get("Content-Range", "bytes */0"))
        content = before[: int(match[1])] + self._body if match[1] else before
        self.gcs.sessions[self.path] = (name, content)
        if len(content) < int(match[3]):
            self._answer(308, headers={"Range": f"bytes=0-{len(content) - 1}"} if content else {})
        else:
            self._store(name, content)

    def _delete(self, path: str, query: dict[str, str]) -> None:
        del query
        found = self.gcs.objects.pop(path.partition("/o/")[2], None)
        self._answer(204 if found is not None else 404)

    def _store(self, name: str, content: bytes) -> None:
        self.gcs.generation += 1
        self.gcs.objects[name] = content
        self._answer_json({"name": name})

    def _answer_json(self, value: Any) -> None:
        self._answer(200, json.dumps(value).encode())

    def _answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status != 204 and self.command != "CONNECT":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
