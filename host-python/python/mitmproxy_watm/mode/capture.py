"""The capture that the page in mitmweb begins and ends: a file of its own, removed with the program."""

from pathlib import Path
from tempfile import TemporaryDirectory

from mitmproxy_watm.server import Server


class PageCapture:
    """A server's capture for the page. Only mitmproxy's own user can read its file."""

    _folder: TemporaryDirectory[str] | None = None
    writing = False
    """True between `start` and `stop`."""

    @property
    def file(self) -> Path | None:
        """The file, if there is one with packets or one that gets them."""
        if self._folder is None:
            return None
        file = Path(self._folder.name) / "capture.pcapng"
        return file if file.exists() else None

    @property
    def size(self) -> int | None:
        """The bytes of the file, if there is one."""
        return None if self.file is None else self.file.stat().st_size

    def start(self, server: Server) -> None:
        """Begin a capture in place of the one before, blocking. Raises OSError and ValueError."""
        folder = TemporaryDirectory(prefix="watm-capture-")
        try:
            server.start_capture_now(Path(folder.name) / "capture.pcapng")
        except BaseException:
            folder.cleanup()
            raise
        former, self._folder, self.writing = self._folder, folder, True
        if former is not None:
            former.cleanup()

    def stop(self, server: Server) -> None:
        """End the capture, blocking. Raises OSError."""
        self.writing = False
        server.stop_capture_now()
