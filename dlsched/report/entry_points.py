"""Functions that Lightning loads, unguarded, for every Trainer. They never raise.

This file is installed as a top-level module, too: a job may have its own `dlsched` package or an
old Python. So it must run on any Python 3 and import nothing by itself.
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
    except (Exception, SystemExit):  # noqa: BLE001 - the job must run as without us
        return []
