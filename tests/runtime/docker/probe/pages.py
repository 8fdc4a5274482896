"""Short metrics pages with the names that programs publish: those that presets read, and others."""

from __future__ import annotations


def _histogram(name: str, labels: str = "", mean_s: float = 0.07) -> str:
    """40 requests, in buckets with bounds at 0.05 and 0.1 s."""
    second = mean_s / 0.07
    comma = "," if labels else ""
    braces = f"{{{labels}}}" if labels else ""
    return (
        f"# TYPE {name} histogram\n"
        f'{name}_bucket{{{labels}{comma}le="{0.05 * second:g}"}} 0\n'
        f'{name}_bucket{{{labels}{comma}le="{0.1 * second:g}"}} 40\n'
        f'{name}_bucket{{{labels}{comma}le="+Inf"}} 40\n'
        f"{name}_sum{braces} {40 * mean_s:g}\n"
        f"{name}_count{braces} 40\n"
    )


def _summary(name: str, labels: str = "") -> str:
    comma = "," if labels else ""
    braces = f"{{{labels}}}" if labels else ""
    return (
        f"# TYPE {name} summary\n"
        f'{name}{{{labels}{comma}quantile="0.5"}} 0.01\n'
        f"{name}_sum{braces} 2.8\n{name}_count{braces} 40\n"
    )


def _values(kind: str, **values: float) -> str:
    return "".join(f"# TYPE {name} {kind}\n{name} {value:g}\n" for name, value in values.items())


_GO = (
    _summary("go_gc_duration_seconds")
    + _values("gauge", go_goroutines=12, process_open_fds=9, process_start_time_seconds=1.79e9)
    + _values("counter", process_cpu_seconds_total=3)
    + '# TYPE promhttp_metric_handler_requests_total counter\n'
    'promhttp_metric_handler_requests_total{code="200"} 4\n'
)  # fmt: skip
_PYTHON = (
    'python_info{implementation="CPython",major="3",minor="11"} 1\n'
    'python_gc_objects_collected_total{generation="0"} 391\n'
    + _values("gauge", process_resident_memory_bytes=2.7e7, process_start_time_seconds=1.79e9)
)
_INSTRUMENTATOR = (
    'http_requests_total{handler="/predict",method="POST",status="2xx"} 40\n'
    + _histogram("http_request_duration_highr_seconds")
    + _histogram("http_request_duration_seconds", 'handler="/predict",method="POST"')
)

KNOWN: dict[str, str] = {
    "bentoml": _PYTHON
    + _histogram(
        "bentoml_service_request_duration_seconds",
        'endpoint="/predict",http_response_code="200",service_name="s"',
    ),
    "fastapi": _PYTHON + _INSTRUMENTATOR,
    "flask": _PYTHON
    + _histogram(
        "flask_http_request_duration_seconds", 'method="POST",path="/predict",status="200"'
    ),
    "mlserver": _PYTHON
    + _summary("model_infer_request_duration", 'model="m",version="1"')
    + _histogram("rest_server_request_duration_seconds", 'path="/v2/models/{model_name}/infer"'),
    "ray-serve": _histogram(
        "ray_serve_http_request_latency_ms",
        'application="app",method="POST",route="/predict",status_code="200"',
        70,
    ),
    "sglang": _histogram("sglang:e2e_request_latency_seconds", 'model_name="m"')
    + _histogram("sglang:time_to_first_token_seconds", 'model_name="m"'),
    "starlette": _PYTHON
    + _histogram(
        "starlette_request_duration_seconds", 'method="POST",path="/predict",status_code="200"'
    ),
    "tei": "te_request_count 40\n" + _histogram("te_request_duration"),
    "tfserving": ":tensorflow:core:graph_runs 40\n"
    + _histogram(":tensorflow:serving:request_latency", 'model_name="m",API="Predict"', 7e4),
    "tgi": "tgi_request_count 40\n" + _histogram("tgi_request_duration"),
    "torchserve": 'Requests2XX{Level="Host"} 40\n'
    'ts_inference_requests_total{model_name="m",model_version="default"} 40\n'
    'ts_inference_latency_microseconds{model_name="m",model_version="default"} 2800000\n',
    "triton": 'nv_inference_request_success{model="m",version="1"} 40\n'
    'nv_inference_request_duration_us{model="m",version="1"} 2800000\n'
    'nv_gpu_utilization{gpu_uuid="GPU-1"} 0.4\n',
    # Its server is one of FastAPI's, with the instrumentator.
    "vllm": _PYTHON
    + _INSTRUMENTATOR
    + _histogram("vllm:e2e_request_latency_seconds", 'engine="0",model_name="m"')
    + _histogram("vllm:time_to_first_token_seconds", 'engine="0",model_name="m"'),
}
"""Of each program that a preset reads at its own port: its page."""

OTHERS: dict[str, str] = {
    "traefik": _GO
    + _histogram(
        "traefik_service_request_duration_seconds",
        'code="200",method="GET",protocol="http",service="web@docker"',
    ),
    "prometheus": _GO
    + _summary("prometheus_engine_query_duration_seconds", 'slice="inner_eval"')
    + _histogram("prometheus_http_request_duration_seconds", 'handler="/api/v1/query"')
    + _histogram("prometheus_tsdb_compaction_duration_seconds")
    + _summary("prometheus_target_interval_length_seconds", 'interval="15s"'),
    "alertmanager": _GO
    + _histogram("alertmanager_http_request_duration_seconds", 'handler="/",method="get"')
    + _histogram("alertmanager_notification_latency_seconds", 'integration="email"'),
    "node-exporter": _GO + 'node_cpu_seconds_total{cpu="0",mode="idle"} 3e5\nnode_load1 0.4\n'
    'node_scrape_collector_duration_seconds{collector="cpu"} 0.001\n'
    'node_disk_read_time_seconds_total{device="sda"} 31\n',
    "redis-exporter": _GO + "redis_up 1\nredis_connected_clients 3\n"
    'redis_commands_duration_seconds_total{cmd="get"} 1.2\nredis_commands_total{cmd="get"} 9e4\n'
    "redis_exporter_last_scrape_duration_seconds 0.002\n"
    + _summary("redis_exporter_scrape_duration_seconds"),
    "postgres-exporter": _GO + 'pg_up 1\npg_stat_database_xact_commit{datname="a"} 4e4\n'
    "pg_exporter_last_scrape_duration_seconds 0.01\n"
    'pg_stat_activity_max_tx_duration{datname="a",state="active"} 0.2\n',
    "mysqld-exporter": _GO + "mysql_up 1\nmysql_global_status_questions 7e5\n"
    'mysql_exporter_collector_duration_seconds{collector="collect.global_status"} 0.01\n'
    + _histogram("mysql_info_schema_query_response_time_seconds"),
    "rabbitmq": 'rabbitmq_build_info{rabbitmq_version="4.0"} 1\nrabbitmq_connections 3\n'
    "erlang_vm_process_count 400\n" + _histogram("rabbitmq_raft_entry_commit_latency_seconds"),
    "cadvisor": _GO + 'container_cpu_usage_seconds_total{id="/",name="web"} 31\n'
    'container_memory_usage_bytes{id="/",name="web"} 3e8\nmachine_cpu_cores 2\n',
    "traefik-itself": _GO
    + _histogram("traefik_entrypoint_request_duration_seconds", 'code="200",entrypoint="web"')
    + _histogram("traefik_router_request_duration_seconds", 'code="200",router="r@docker"'),
    "etcd": _GO
    + _histogram("etcd_disk_wal_fsync_duration_seconds")
    + _histogram("etcd_network_peer_round_trip_time_seconds", 'To="a"')
    + _histogram("grpc_server_handling_seconds", 'grpc_method="Range",grpc_service="KV"'),
    "kubelet": _GO
    + _histogram("kubelet_http_requests_duration_seconds", 'method="GET",path="pods"')
    + _histogram("kubelet_runtime_operations_duration_seconds", 'operation_type="status"')
    + _histogram("rest_client_request_duration_seconds", 'host="a",verb="GET"'),
    "apiserver": _GO
    + _histogram("apiserver_request_duration_seconds", 'resource="pods",verb="GET"')
    + _histogram("workqueue_queue_duration_seconds", 'name="a"'),
    "grafana": _GO
    + _histogram("grafana_http_request_duration_seconds", 'handler="/",status_code="200"')
    + _histogram("grafana_datasource_request_duration_seconds", 'datasource="a"'),
    "go-client": _GO,
    "python-client": _PYTHON,
    "node-client": "nodejs_eventloop_lag_seconds 0.001\n"
    + _values("gauge", process_start_time_seconds=1.79e9)
    + _histogram("nodejs_gc_duration_seconds", 'kind="minor"'),
    "express-prom-bundle": "nodejs_eventloop_lag_seconds 0.001\n"
    + _histogram("http_request_duration_seconds", 'method="GET",path="/",status_code="200"'),
    "dex": _GO
    + 'http_requests_total{code="200",handler="/token",method="post"} 40\n'
    + _histogram("http_request_duration_seconds", 'code="200",handler="/token",method="post"'),
    "spring-boot": 'jvm_threads_live_threads{application="a"} 31\n'
    + _summary("jvm_gc_pause_seconds", 'action="end of minor GC"')
    + _histogram("http_server_requests_seconds", 'method="GET",status="200",uri="/"'),
    "coredns": _GO
    + _histogram("coredns_dns_request_duration_seconds", 'server="dns://:53",zone="."'),
    "loki": _GO + _histogram("loki_request_duration_seconds", 'method="GET",route="ready"'),
    "minio": 'minio_s3_requests_total{api="getobject"} 40\n'
    + _histogram("minio_s3_requests_ttfb_seconds_distribution", 'api="getobject"'),
    "docker-engine": _GO + _histogram("engine_daemon_container_actions_seconds", 'action="start"'),
    "dcgm-exporter": 'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1"} 40\n'
    'DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-1"} 1024\n',
    "nginx-exporter": _GO + "nginx_up 1\nnginx_http_requests_total 9e4\n",
    "haproxy": 'haproxy_backend_http_responses_total{proxy="b",code="2xx"} 40\n'
    'haproxy_backend_response_time_average_seconds{proxy="b"} 0.02\n',
    "istio-envoy": _histogram(
        "istio_request_duration_milliseconds", 'destination_service="web",response_code="200"'
    )
    + _histogram("envoy_cluster_upstream_rq_time", 'envoy_cluster_name="a"'),
    "influxdb": _GO
    + _histogram("http_api_request_duration_seconds", 'handler="platform",path="/api/v2/write"'),
    "gitlab-rails": _histogram("http_request_duration_seconds", 'method="get",status="200"')
    + _histogram("gitlab_transaction_duration_seconds", 'controller="a"'),
    # These publish again what they collected: the names are other programs'.
    "prometheus-federation": _histogram(
        "vllm:e2e_request_latency_seconds", 'model_name="m",instance="a:8000",job="llm"'
    ),
    "pushgateway": _GO
    + 'pushgateway_build_info{version="1.11"} 1\n'
    + 'push_time_seconds{instance="",job="batch"} 1.79e9\n'
    + _histogram("bentoml_service_request_duration_seconds", 'instance="",job="batch"'),
    "otel-collector": 'target_info{instance="a:1",job="web"} 1\n'
    + _histogram("flask_http_request_duration_seconds", 'instance="a:1",job="web",status="200"'),
}
"""Of programs that no preset reads: exporters, databases, proxies, plain clients."""
