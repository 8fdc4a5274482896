"""What Lightning loads, unguarded, for every Trainer: functions that never raise.

Beside the reporter's copy this file lies as a top-level module of its own name: a job may have a
package of its own called `dlsched`, or a Python too old for ours. It must therefore stay readable
for any Python 3 and import nothing on its own.
"""


def lightning():  # type: ignore[no-untyped-def]
    """Callbacks for a Trainer of `lightning.pytorch`."""
    return _callbacks("lightning.pytorch")  # type: ignore[no-untyped-call]


def pytorch_lightning():  # type: ignore[no-untyped-def]
    """Callbacks for a Trainer of `pytorch_lightning`."""
    return _callbacks("pytorch_lightning")  # type: ignore[no-untyped-call]


def _callbacks(family):  # type: ignore[no-untyped-def]
    try:
        from dlsched.report.lightning import callbacks

        return callbacks(family)
    except (Exception, SystemExit):  # noqa: BLE001 - the job runs as it would without us
        return []
