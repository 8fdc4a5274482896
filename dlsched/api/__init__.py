"""HTTP with JSON on unix sockets, for `ps`, `why`, `stop` and the like.

`schema` says what is answered, `status` fills it, `routes` says what can be asked, `access` by
whom, `log_stream` streams logs, `sockets` are where the daemon listens, `server` answers, and
`client` asks. None of them decides or measures: they read the last CycleReport, and hand requests
to the StatusSource.
"""
