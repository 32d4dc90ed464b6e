"""limen serve: the page where a person names what the model has never seen."""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from limen.web.settings import Limits, ServerError, ServerSettings


def serve(
    model: Annotated[Path | None, typer.Argument(help="A model made by limen fit.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8000,
    db: Annotated[
        str | None,
        typer.Option(help="sqlite:///FILE or postgresql+psycopg://... Default: beside the model."),
    ] = None,
    store: Annotated[
        Path | None, typer.Option(help="Folder for inputs. Default: MODEL.server.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="LIMEN_TOKEN",
            help="What clients must show; needed to listen anywhere but on this machine.",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Another name the server may be asked for by.")
    ] = None,
    keep_items: Annotated[int, typer.Option(min=1, help="Inputs to keep.")] = 100_000,
    keep_mb: Annotated[int, typer.Option(min=1, help="MB of inputs to keep.")] = 2048,
    max_upload_mb: Annotated[int, typer.Option(min=1, help="MB of one request.")] = 32,
    max_pixels: Annotated[int, typer.Option(min=1, help="Pixels of one picture.")] = 40_000_000,
    max_inputs: Annotated[int, typer.Option(min=1, help="Inputs in one request.")] = 256,
    rate: Annotated[
        float, typer.Option(min=0, help="Requests a second from one address; 0: any number.")
    ] = 1000.0,
    window: Annotated[int, typer.Option(min=10, help="Inputs the alarm looks at.")] = 200,
    webhook: Annotated[
        str | None, typer.Option(help="URL that is told when the alarm is raised.")
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="A digits model and a feed of known and novel digits.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Serve a model: an API, and a page where a person names what it has never seen.

    Example: limen serve model.limen
    """
    if (model is None) is not demo:
        raise ServerError("name a model (limen fit makes one), or give --demo for one of digits")
    with contextlib.ExitStack() as stack:
        if demo:
            from limen.web.demo import make_model

            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="limen-demo-"))
            model = Path(folder) / "digits.limen"
            if not quiet:
                typer.echo("Fitting a model to the digits 0 to 6 ...", err=True)
            make_model(model)
        assert model is not None
        limits = Limits(
            max_upload_mb << 20, min(16, max_upload_mb) << 20, max_pixels, max_inputs, rate
        )
        settings = ServerSettings(
            model=model.expanduser(),
            host=host,
            port=port,
            store=store,
            db=db,
            token=token,
            hosts=tuple(name.lower() for name in allow_host or []),
            keep_items=keep_items,
            keep_bytes=keep_mb << 20,
            window=window,
            webhook=webhook,
            limits=limits,
        )
        settings.check()
        _run(settings, demo, quiet)


def _run(settings: ServerSettings, demo: bool, quiet: bool) -> None:
    try:
        import uvicorn

        from limen.web.app import create_app
    except ModuleNotFoundError as error:
        raise ServerError(
            f"limen serve needs {error.name}: pip install -c constraints.txt '.[web]'"
        ) from error
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    listening = _listen(settings.host, settings.port)
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=5,
        limit_concurrency=1000,
        proxy_headers=False,  # whoever asks could claim to be anyone
    )

    class Server(uvicorn.Server):
        """Lets go of pages that listen as soon as it is to stop: they would listen for ever."""

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            app.state.service.events.close()
            super().handle_exit(sig, frame)

    server = Server(config)
    port = listening.getsockname()[1]
    shown = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"http://{shown}:{port}"
    with contextlib.ExitStack() as stack:
        if not quiet:
            served = app.state.service.serving.current
            typer.echo(
                f"limen serves version {served.version} of {settings.model.name} at {address}"
            )
            typer.echo("Stop it with Ctrl-C.", err=True)
        if demo:
            from limen.web.demo import feed

            stack.enter_context(feed(address, settings.token))
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn raises it again at its end
        with contextlib.suppress(KeyboardInterrupt):
            server.run(sockets=[listening])
        if not server.started:
            raise ServerError("the server could not be started: see the log above")


def _listen(host: str, port: int) -> socket.socket:
    """The address, taken before the model is loaded."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        raise ServerError(
            f"cannot listen on {host}:{port}: {error.strerror}. Choose another --port."
        ) from error
    return listening
