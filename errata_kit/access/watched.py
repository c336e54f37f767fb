"""A small file that other hands replace while we run: it is read again when it changes."""

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

from errata_kit.errors import StartFailed
from errata_kit.logs import get_logger

MAX_BYTES: Final = 8 * 1024 * 1024
_LOOK_EVERY_SECONDS: Final = 1.0
_SAY_AGAIN_SECONDS: Final = 60.0
# A file that was written this recently may have been written once more within one tick of its clock.
_SETTLED_AFTER_NS: Final = 2_000_000_000

T = TypeVar("T")
_Stamp = tuple[int, int, int, int, int]
_log = get_logger("errata.access")


class WatchedFile(Generic[T]):
    """What a file says, kept up to date.

    parse gets the file's bytes, and raises ValueError with a sentence that does not quote secrets. The first reading raises
    StartFailed, which names the file. Later a file that is missing, unreadable or wrong leaves the last good content in force,
    and an error is logged: a half-written file must neither let everybody in nor lock everybody out.

    The file is looked at when it is used, at most once a second. Links are followed, so that the swap of links by which
    Kubernetes brings a mounted secret up to date is seen as well. clock: seconds, monotonic.
    """

    def __init__(self, path: Path, parse: Callable[[bytes], T], *, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self._parse = parse
        self._clock = clock
        self._said: tuple[str, float] = ("", 0.0)
        try:
            content, self._stamp, self._settled = _read(path)
            self._value = parse(content)
        except (OSError, ValueError) as error:
            raise StartFailed(f"{path}: {_sentence(error)}") from None
        self._digest = hashlib.sha256(content).digest()
        self._next_look = clock() + _LOOK_EVERY_SECONDS

    def current(self) -> T:
        """The last good content; the same object as long as nothing has changed. Never raises."""
        now = self._clock()
        if now >= self._next_look:
            self._next_look = now + _LOOK_EVERY_SECONDS
            self._look(now)
        return self._value

    def _look(self, now: float) -> None:
        try:
            if self._settled and not self._said[0] and _stamp(os.stat(self.path)) == self._stamp:
                return
            content, stamp, settled = _read(self.path)
            digest = hashlib.sha256(content).digest()
            if digest != self._digest:
                self._value = self._parse(content)
                self._digest = digest
                _log.info("file_read_again", path=str(self.path))
        except (OSError, ValueError) as error:
            self._complain(_sentence(error), now)
            return
        self._stamp, self._settled, self._said = stamp, settled, ("", 0.0)

    def _complain(self, sentence: str, now: float) -> None:
        said, when = self._said
        if sentence != said or now - when >= _SAY_AGAIN_SECONDS:
            _log.error("file_unusable", path=str(self.path), why=sentence, consequence="what it said before is still in force")
            self._said = (sentence, now)


def _stamp(status: os.stat_result) -> _Stamp:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _read(path: Path) -> tuple[bytes, _Stamp, bool]:
    with open(path, "rb") as file:
        # Of the file that is open: the name may lead to another one by now.
        status = os.fstat(file.fileno())
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"is larger than {MAX_BYTES} bytes")
    return content, _stamp(status), abs(time.time_ns() - status.st_mtime_ns) > _SETTLED_AFTER_NS


def _sentence(error: OSError | ValueError) -> str:
    if isinstance(error, OSError):
        return f"can't be read: {str(error.strerror).lower()}"
    return str(error)
