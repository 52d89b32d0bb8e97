"""A real S3 server on loopback (moto's), with errors, cut and slow answers on request."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

SECRET = "not-a-real-secret-4f2a9c"
_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


class Troubles:
    """WSGI middleware: each request fails, is cut or is delayed with a given probability, by a fixed sequence."""

    def __init__(self, app: Callable[..., Iterable[bytes]]) -> None:
        self.app = app
        self.rate = 0.0
        self.refuse = ""
        self.seen: Counter[str] = Counter()
        self._chance = random.Random(7)
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        with self._lock:
            draw = self._chance.random()
            self.seen[environ["REQUEST_METHOD"]] += 1
        place = environ["PATH_INFO"]
        if self.refuse and self.refuse in place and environ["REQUEST_METHOD"] in ("PUT", "POST"):
            return self._busy(environ, start_response)
        if draw < self.rate / 3:
            return self._busy(environ, start_response)
        if draw < 2 * self.rate / 3:
            self.seen["slow"] += 1
            time.sleep(0.3)
        elif draw < self.rate and environ["REQUEST_METHOD"] == "GET":
            self.seen["cut"] += 1
            body = b"".join(self.app(environ, start_response))
            return [body[: len(body) // 2]]
        return self.app(environ, start_response)

    def _busy(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        self.seen["503"] += 1
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start_response("503 Slow Down", [("Content-Type", "application/xml"), ("Content-Length", str(len(_SLOW_DOWN)))])
        return [_SLOW_DOWN]


@contextmanager
def s3_server() -> Iterator[tuple[str, Troubles]]:
    """Serve on a free port; gives the endpoint and the troubles to turn on."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log(self, *_: object, **__: object) -> None:
            pass

    troubles = Troubles(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, troubles, threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}", troubles
    finally:
        server.shutdown()
        thread.join()


def use(endpoint: str, patch: pytest.MonkeyPatch) -> None:
    """Make every client of this process, and of those it starts, talk to the server at ``endpoint``."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        patch.delenv(name, raising=False)
    patch.setenv("AWS_ACCESS_KEY_ID", "testing")
    patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    patch.setenv("AWS_ENDPOINT_URL", endpoint)
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
