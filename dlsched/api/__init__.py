"""HTTP with JSON on unix sockets, for `ps`, `why`, `stop` and other commands.

`schema` defines the answers, `status` fills them, `routes` defines the requests, `access` who may
send them, `log_stream` streams logs, `sockets` opens addresses, `server` answers, `client` asks.
The API reads the last CycleReport and hands requests to the StatusSource.
"""
