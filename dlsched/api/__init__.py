"""The daemon's ear: HTTP with JSON on unix sockets, for `ps`, `why`, `stop` and the like.

`routes` says what can be asked, `access` by whom, `log_stream` reads logs for them, `sockets` are
where it is asked, and `server` answers. None of them decides or measures: they read the last
CycleReport, and hand wishes to the StatusSource.
"""

from dlsched.api.routes import StatusSource, build_app
from dlsched.api.server import ApiServer
from dlsched.api.sockets import SocketUnusable

__all__ = ["ApiServer", "SocketUnusable", "StatusSource", "build_app"]
