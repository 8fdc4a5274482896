"""The serving programs."""

from __future__ import annotations

from tests.stacks.stack import LATENCY, MEAN, Stack


def _service(name: str, title: str, preset: str, reads: str, program: str, **more: object) -> Stack:
    return Stack(name, title, preset, reads, command=tuple(program.split()), **more)  # type: ignore[arg-type]


SERVING = (
    _service(
        "fastapi",
        "FastAPI with prometheus-fastapi-instrumentator, uvicorn",
        "fastapi",
        LATENCY,
        "fastapi_single.py",
        packages=("prometheus-fastapi-instrumentator", "fastapi", "uvicorn"),
    ),
    _service(
        "fastapi-multiprocess",
        "FastAPI under gunicorn with 2 workers, multi-process mode",
        "fastapi",
        LATENCY,
        "fastapi_gunicorn.py multiprocess",
        packages=("prometheus-fastapi-instrumentator", "fastapi", "gunicorn", "uvicorn-worker"),
        note="PROMETHEUS_MULTIPROC_DIR names a folder",
    ),
    _service(
        "fastapi-in-turn",
        "FastAPI under gunicorn with 2 workers, without it",
        "fastapi",
        "nothing: `ps` and `why` say that several processes answer in turn, and what helps",
        "fastapi_gunicorn.py in-turn",
        packages=("prometheus-fastapi-instrumentator", "fastapi", "gunicorn", "uvicorn-worker"),
        problem="several processes answer in turn",
    ),
    _service(
        "starlette",
        "Starlette with starlette_exporter",
        "starlette",
        LATENCY,
        "starlette_exporter_run.py",
        packages=("starlette_exporter", "starlette"),
    ),
    _service(
        "flask",
        "Flask with prometheus_flask_exporter",
        "flask",
        LATENCY,
        "flask_exporter.py",
        packages=("prometheus_flask_exporter", "flask", "gunicorn"),
    ),
    _service(
        "gunicorn-log",
        "gunicorn's access log, 2 workers",
        "gunicorn",
        LATENCY,
        "gunicorn_log.py",
        packages=("gunicorn", "flask"),
    ),
    _service(
        "nginx-log",
        "nginx as proxy, by its access log",
        "nginx",
        LATENCY,
        "nginx_log.py",
        packages=("nginx", "gunicorn"),
        files=("/usr/sbin/nginx",),
    ),
    _service(
        "bentoml",
        "BentoML, 2 workers",
        "bentoml",
        LATENCY,
        "bentoml_serve.py",
        packages=("bentoml",),
        environment="bentoml",
    ),
    _service(
        "mlserver",
        "MLServer, one model",
        "mlserver",
        MEAN,
        "mlserver_serve.py",
        has_quantiles=False,
        packages=("mlserver",),
        environment="mlserver",
    ),
    _service(
        "mlserver-rest",
        "MLServer, all models together, asked by REST",
        "mlserver-rest",
        LATENCY,
        "mlserver_serve.py",
        packages=("mlserver",),
        environment="mlserver",
    ),
    _service(
        "ray-serve",
        "Ray Serve",
        "ray-serve",
        LATENCY,
        "ray_serve.py",
        packages=("ray",),
        environment="rayserve",
        note="its page shows requests up to 10 s late",
    ),
)
