"""Presets of services that print each request, on lines in their documented formats."""

from __future__ import annotations

import pytest

from dlsched.config.metrics.keys import MetricsKeys
from dlsched.config.metrics.loading import package_presets
from dlsched.runtime.progress.log_lines import LogBatch, LogLines


@pytest.mark.parametrize(
    ("preset", "lines", "latencies_s", "errors"),
    [
        (
            "ollama",
            """\
[GIN] 2024/05/01 - 12:00:01 | 200 |  4.207351709s |      172.17.0.1 | POST     "/api/generate"
[GIN] 2024/05/01 - 12:00:09 | 200 |          1m2s |      172.17.0.1 | POST     "/v1/chat/x"
[GIN] 2024/05/01 - 12:00:10 | 200 |      52.541µs |      172.17.0.1 | GET      "/api/tags"
[GIN] 2024/05/01 - 12:00:11 | 404 |      1.2351ms |      172.17.0.1 | POST     "/api/generate"
[GIN] 2024/05/01 - 12:00:12 | 200 |      83.541ms |      172.17.0.1 | POST     "/api/embed"
""",
            [4.207351709, 62.0, 0.083541],
            0,
        ),
        (
            "llama.cpp",
            """\
slot print_timing: id  0 | task 0 | \n\
prompt eval time =     120.50 ms /    14 tokens (    8.61 ms per token,   116.18 tokens per second)
       eval time =    2500.25 ms /   100 tokens (   25.00 ms per token,    40.00 tokens per second)
      total time =    2620.75 ms /   114 tokens
""",
            [2.62075],
            0,
        ),
        (
            "gunicorn",
            """\
172.17.0.1 "POST /predict HTTP/1.1" 200 23 410250
172.17.0.1 "GET /health HTTP/1.1" 200 2 310
172.17.0.1 "POST /predict HTTP/1.1" 503 23 99
""",
            [0.41025],
            1,
        ),
        (
            "nginx",
            """\
172.17.0.1 - - [01/May/2024:12:00:01 +0000] "POST /predict HTTP/1.1" 200 23 "-" rt=0.143
172.17.0.1 - - [01/May/2024:12:00:01 +0000] "GET / HTTP/1.1" 200 23 "-" rt=0.001
""",
            [0.143],
            0,
        ),
        (
            "ollama",
            """\
[GIN] 2024/12/11 - 09:28:58 | 200 |          2.0s |      10.0.0.5 | POST     "/api/chat"
[GIN] 2024/12/11 - 09:29:58 | 200 |          2.0s |      10.0.0.5 | POST     "/api/chat"
[GIN] 2024/12/11 - 09:58:58 | 500 |        29m59s |      10.0.0.5 | POST     "/api/chat"
[GIN] 2024/12/11 - 09:59:58 | 500 |         30m0s |      10.0.0.5 | POST     "/api/chat"
[GIN] 2024/12/11 - 10:00:58 | 500 |        29m59s |      10.0.0.5 | POST     "/api/chat"
[GIN] 2024/12/11 - 10:00:59 | 499 |        12.01s |      10.0.0.5 | POST     "/api/chat"
[GIN] 2024/12/11 - 10:00:59 | 500 |         1.0ms |      10.0.0.5 | GET      "/api/tags"
""",
            [2.0, 2.0],
            4,
        ),
        (
            "nginx",
            """\
172.17.0.1 - - [01/May/2024:12:00:01 +0000] "POST /predict HTTP/1.1" 200 23 "-" rt=0.143
172.17.0.1 - - [01/May/2024:12:00:01 +0000] "POST /predict HTTP/1.1" 504 23 "-" rt=60.000
172.17.0.1 - - [01/May/2024:12:00:01 +0000] "POST /predict HTTP/1.1" 499 0 "-" rt=30.000
172.17.0.1 - - [01/May/2024:12:00:01 +0000] "POST /predict HTTP/1.1" 422 0 "-" rt=0.001
""",
            [0.143],
            2,
        ),
        (
            "gunicorn",
            """\
172.17.0.1 "POST /predict HTTP/1.1" 200 23 410250
[2024-05-01 12:00:01 +0000] [7] [CRITICAL] WORKER TIMEOUT (pid:9)
172.17.0.1 "POST /predict HTTP/1.1" 499 - 30000000
""",
            [0.41025],
            2,
        ),
        (
            "llama.cpp",
            """\
      total time =    2620.75 ms /   114 tokens
srv          stop: cancel task, id_task = 12
srv  cancel_tasks: cancel task, id_task = 13
""",
            [2.62075],
            2,
        ),
    ],
)
def test_the_requests_and_nothing_else_are_read(
    preset: str, lines: str, latencies_s: list[float], errors: int
) -> None:
    (source,) = package_presets().sources(MetricsKeys(base=preset))
    log = LogLines(source.pattern, source.step, source.when, failed=source.failed)
    batch = LogBatch()
    log.take(lines.encode(), log.parsed(lines.encode()), 1.0, batch)
    assert batch.latencies_s == pytest.approx(latencies_s)
    assert (batch.errors, log.hides_failures) == (errors, False)
    assert batch.bad_lines == 0, batch.refused
