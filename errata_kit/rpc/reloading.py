"""A secure channel that follows its certificate files: grpcio itself reads a client's certificate once and for all."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Final, Literal, Self

import grpc

from errata_kit.calls import stop_task
from errata_kit.logs import get_logger
from errata_kit.rpc.tls import TlsFiles, TlsMaterial, TlsSource, credentials_of

_log = get_logger("errata.tls")
_LOOK_SECONDS: Final = 1.0
# A secret reaches the pods of a cluster one after the other, within about a minute, so that a neighbour may not accept the
# new certificate yet. After this time it is said in the log.
_CONNECT_SECONDS: Final = 90.0
# The longest that a call under way holds on to the connection of an old certificate.
_GRACE_SECONDS: Final = 3600.0

_Kind = Literal["unary_unary", "unary_stream", "stream_unary", "stream_stream"]
_READY: Final = grpc.ChannelConnectivity.READY


class _Generation:
    """A channel with one state of the files, and how many calls are open on it."""

    __slots__ = ("_calls", "_idle", "channel", "replaced")

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.replaced = asyncio.Event()
        self._calls = 0
        self._idle = asyncio.Event()

    def follow(self, call: Any) -> None:
        """Count the call until it is done."""
        self._calls += 1
        call.add_done_callback(self._ended)

    def _ended(self, _: object) -> None:
        self._calls -= 1
        if not self._calls and self.replaced.is_set():
            self._idle.set()

    async def retire(self) -> None:
        """Close the channel as soon as no call is open. Only then: a closing one refuses what interceptors still hold back."""
        if self._calls:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GRACE_SECONDS):
                    await self._idle.wait()
        await self.channel.close()


class ReloadingChannel(grpc.aio.Channel):
    """A channel over TLS, to be used as any other, that turns to new certificates when the files change.

    The files are looked at when a call starts, at most once a second. After a change a second channel connects; new calls
    take it as soon as it is ready, or when the old one has lost its connections. Calls under way end on the old one, which is
    closed after the last of them, after an hour at the latest. Files that can't be used change nothing.
    """

    def __init__(
        self,
        target: str,
        files: TlsFiles,
        options: Sequence[tuple[str, Any]] = (),
        interceptors: Sequence[grpc.aio.ClientInterceptor] = (),
    ) -> None:
        """Call it inside a running event loop. Raises TlsFilesUnusable."""
        self._target = target
        self._options = _with_authority(target, list(options))
        self._interceptors = list(interceptors)
        self._source = TlsSource(files)
        self._generation = self._opened(self._source.material)
        self._next: _Generation | None = None
        self._next_task: asyncio.Task[None] | None = None
        self._look_at = time.monotonic() + _LOOK_SECONDS
        self._retired: dict[asyncio.Task[None], _Generation] = {}
        self._closed = False

    def _opened(self, material: TlsMaterial) -> _Generation:
        credentials = credentials_of(material)
        return _Generation(
            grpc.aio.secure_channel(self._target, credentials, options=self._options, interceptors=self._interceptors)
        )

    def current(self) -> _Generation:
        """The generation that a call must take now."""
        if time.monotonic() >= self._look_at and not self._closed:
            self._look()
        return self._generation

    def _look(self) -> None:
        self._look_at = time.monotonic() + _LOOK_SECONDS
        # A tenth of a millisecond, once a second: not worth a thread.
        if not self._source.refresh():
            return
        if self._next_task is not None:
            # Replaced before it was ever used.
            self._next_task.cancel()
        if self._next is not None:
            self._retire(self._next)
        self._next = self._opened(self._source.material)
        if self._generation.channel.get_state() is _READY:
            self._next_task = asyncio.create_task(self._switch_when_ready(self._next))
        else:
            # The very call that looked shall have the new files, and wait until they have a connection.
            self._switch(self._next)

    async def _switch_when_ready(self, successor: _Generation) -> None:
        new, old = successor.channel, self._generation.channel
        seconds: float | None = _CONNECT_SECONDS
        while not await _first(seconds, new.channel_ready(), old.wait_for_state_change(_READY)):
            _log.warning("tls_new_certificate_not_accepted", target=self._target)
            seconds = None
        self._switch(successor)

    def _switch(self, successor: _Generation) -> None:
        self._retire(self._generation)
        self._generation = successor
        self._next = self._next_task = None

    def _retire(self, generation: _Generation) -> None:
        generation.replaced.set()
        task = asyncio.create_task(generation.retire())
        self._retired[task] = generation
        task.add_done_callback(self._retired.pop)

    def unary_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """A method with one request and one reply."""
        return _Method(self, "unary_unary", method, args, kwargs)

    def unary_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """A method with one request and a stream of replies."""
        return _Method(self, "unary_stream", method, args, kwargs)

    def stream_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """A method with a stream of requests and one reply."""
        return _Method(self, "stream_unary", method, args, kwargs)

    def stream_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """A method with a stream of requests and one of replies."""
        return _Method(self, "stream_stream", method, args, kwargs)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """The state of the channel that new calls take."""
        return self.current().channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Return when the state may be another one, be it because another channel has taken over."""
        generation = self.current()
        await _first(None, generation.channel.wait_for_state_change(last_observed_state), generation.replaced.wait())

    async def channel_ready(self) -> None:
        """Return when new calls find a connection."""
        while (state := self.get_state(try_to_connect=True)) is not _READY:
            await self.wait_for_state_change(state)

    async def close(self, grace: float | None = None) -> None:
        """Close every channel. Calls under way may go on for `grace` seconds and are then cancelled; None cancels at once."""
        self._closed = True
        if self._next_task is not None:
            await stop_task(self._next_task)
        generations = [self._generation, *self._retired.values()]
        if self._next is not None:
            generations.append(self._next)
        await asyncio.gather(*(generation.channel.close(grace) for generation in generations))
        for task in list(self._retired):
            await stop_task(task)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.close()


class _Method:
    """A method of the service, on whichever channel is current when it is called."""

    __slots__ = ("_args", "_call", "_channel", "_generation", "_kind", "_kwargs", "_method")

    def __init__(
        self, channel: ReloadingChannel, kind: _Kind, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._channel = channel
        self._kind = kind
        self._method = method
        self._args = args
        self._kwargs = kwargs
        self._bind(channel.current())

    def _bind(self, generation: _Generation) -> None:
        self._generation = generation
        self._call: Callable[..., Any] = getattr(generation.channel, self._kind)(self._method, *self._args, **self._kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        generation = self._channel.current()
        if generation is not self._generation:
            self._bind(generation)
        call = self._call(*args, **kwargs)
        generation.follow(call)
        return call


async def _first(seconds: float | None, *waits: Coroutine[Any, Any, Any]) -> bool:
    """Wait for the first to end, and stop the others. False when none has within the time. Raises what the first raises."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            await task
        return bool(done)
    finally:
        for task in tasks:
            await stop_task(task)


def _with_authority(target: str, options: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Let the first of several addresses be the name that every replica's certificate must hold.

    gRPC would look for the whole list in the certificate. Behind a dns:/// name it looks for that name.
    """
    scheme, _, addresses = target.partition(":")
    given = any(key in {"grpc.default_authority", "grpc.ssl_target_name_override"} for key, _ in options)
    if scheme not in {"ipv4", "ipv6"} or "," not in addresses or given:
        return options
    return [*options, ("grpc.default_authority", addresses.partition(",")[0])]
