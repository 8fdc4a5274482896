"""The daemon's ear: HTTP with JSON on a unix socket, for `ps`, `why`, `stop` and the like.

`routes` says what can be asked, `log_stream` reads logs for it, `server` owns the socket. None of
them decides or measures: they read the last CycleReport, and hand wishes to the StatusSource.
"""

from dlsched.api.routes import StatusSource, build_app
from dlsched.api.server import ApiServer, SocketUnusable

__all__ = ["ApiServer", "SocketUnusable", "StatusSource", "build_app"]
