"""Settings: defaults, precedence, bounds, and where each problem is said to be."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.config import settings_file
from dlsched.config.settings import (
    ClusterSettings,
    DeliverHook,
    EngineSettings,
    Gpus,
    Log,
    Reserve,
    Settings,
    TlsFiles,
    load_settings,
    setting_places,
    variable_name,
)
from dlsched.config.users import Rules
from dlsched.config.yaml import dotted, load_document
from dlsched.model.errors import SettingsError
from dlsched.policies.registry import known

SHIPPED = Path(__file__).parents[2] / "config" / "dlsched.yaml"


@pytest.fixture(autouse=True)
def no_system_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "etc" / "dlsched.yaml"
    monkeypatch.setattr(settings_file, "default_settings_file", file)
    return file


def problems(text: str, tmp_path: Path, **overrides: object) -> list[str]:
    file = tmp_path / "s.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_settings(file, {}, overrides)
    return [line.removeprefix(f"{file}:") for line in str(caught.value).split("\n")]


def test_the_shipped_file_holds_every_setting_with_its_default() -> None:
    assert load_settings(SHIPPED, {}, {}) == Settings()
    shown = load_document(SHIPPED.read_text(), "f").values
    for place in setting_places():
        assert place in shown, dotted(place)


def test_without_a_file_the_defaults_hold() -> None:
    assert load_settings(None, {}, {}) == Settings()
    assert Settings().period_s == 1.0
    assert Settings().policy == "adaptive"
    assert Settings().policy in known()
    assert asdict(Settings())["reserve"] == {"cpu_cores": "auto", "memory_bytes": 512 << 20}


def test_the_system_file_is_used_when_it_is_there(no_system_file: Path, tmp_path: Path) -> None:
    no_system_file.parent.mkdir()
    no_system_file.write_text("period: 2s\n")
    assert load_settings(None, {}, {}).period_s == 2.0
    other = tmp_path / "other.yaml"
    other.write_text("# nothing set\n")
    assert load_settings(other, {}, {}).period_s == 1.0
    assert load_settings(None, {"DLSCHED_CONFIG": str(other)}, {}).period_s == 1.0


def test_flag_before_environment_before_file_before_default(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("period: 2s\nwindow: 20s\nmax_jobs: 2\nengine: {timeout: 2s}\n")
    environ = {"DLSCHED_PERIOD": "3s", "DLSCHED_WINDOW": "25s", "DLSCHED_ENGINE_HOST": "unix:///x"}
    loaded = load_settings(file, environ, {"period": "4s", "window": None, "log.level": "debug"})
    assert (loaded.period_s, loaded.window_s, loaded.max_jobs) == (4.0, 25.0, 2)
    assert loaded.engine == EngineSettings("unix:///x", 2.0)
    assert loaded.log == Log("debug")


@pytest.mark.parametrize(
    ("name", "words", "attribute", "value"),
    [
        ("capacity", "cores", "capacity", "cores"),
        ("capacity", "1.5", "capacity", 1.5),
        ("group_weight", "null", "group_weight", None),
        ("policy", "my_module:Mine", "policy", "my_module:Mine"),
        ("policy", "dqoes?gain=0.1&backoff=1", "policy", "dqoes?gain=0.1&backoff=1"),
        ("policy_options", "{alpha: 0.1, classes: [1]}", "policy_options",
         {"alpha": 0.1, "classes": [1]}),
        ("shadow", "fair", "shadow", "fair"),
        ("shadow_options", "{alpha: 0.1}", "shadow_options", {"alpha": 0.1}),
        ("reserve.cpus", "1", "reserve", Reserve(1.0)),
        ("reserve.cpus", "auto", "reserve", Reserve()),
        ("tier_evaluations", "5", "tier_evaluations", 5),
        ("blind_after", "2min", "blind_after_s", 120.0),
        ("max_failed", "0.05", "max_failed_ratio", 0.05),
        ("deliver_hook.command", "[/bin/echo, 5, -n]", "deliver_hook",
         DeliverHook(("/bin/echo", "5", "-n"))),
        ("deliver_hook.command", "null", "deliver_hook", DeliverHook()),
        ("gpus.prefer", "spread", "gpus", Gpus(prefer="spread")),
        ("gpus.reserved", "[GPU-1, MIG-2]", "gpus", Gpus(reserved=("GPU-1", "MIG-2"))),
        ("gpus.device_folder", "/srv/dev", "gpus", Gpus(device_folder=Path("/srv/dev"))),
        ("gpus.injection", "nodes", "gpus", Gpus(injection="nodes")),
        ("gpus.foreign", "share", "gpus", Gpus(foreign="share")),
        ("gpus.on_loss", "move", "gpus", Gpus(on_loss="move")),
        ("gpus.move", "false", "gpus", Gpus(move=False)),
        ("gpus.idle_after", "2h", "gpus", Gpus(idle_after_s=7200.0)),
        ("gpus.idle_after", "null", "gpus", Gpus(idle_after_s=None)),
        ("instance", "123", "instance", "123"),
        ("watch", "/a/b", "watch", Path("/a/b")),
        ("status_group", "", "status_group", "dlsched"),
        ("control_group", "null", "control_group", None),
        ("listen", "127.0.0.1:8123", "listen", ("127.0.0.1", 8123)),
        ("listen", "[::1]:65535", "listen", ("::1", 65535)),
        ("cluster.enabled", "true", "cluster", ClusterSettings(enabled=True)),
        ("cluster.listen", "[::]:1", "cluster", ClusterSettings(listen=("::", 1))),
        ("cluster.tls", "{ca: /a, cert: /b, key: /c}", "cluster",
         ClusterSettings(tls=TlsFiles(Path("/a"), Path("/b"), Path("/c")))),
        ("cluster.tls", "null", "cluster", ClusterSettings()),
        ("cluster.checkpoint_max", "1GiB", "cluster",
         ClusterSettings(checkpoint_max_bytes=1 << 30)),
        ("cluster.policy_options", "{alpha: 1}", "cluster",
         ClusterSettings(policy_options={"alpha": 1})),
    ],
)  # fmt: skip
def test_the_environment_reads_every_kind(
    name: str, words: str, attribute: str, value: object
) -> None:
    variable = variable_name(tuple(name.split(".")))
    assert getattr(load_settings(None, {variable: words}, {}), attribute) == value


def test_options_come_typed_or_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    loaded = load_settings(None, {}, {"watch": Path("jobs"), "max_jobs": 3})
    assert (loaded.watch, loaded.max_jobs) == (tmp_path / "jobs", 3)
    with pytest.raises(KeyError):
        load_settings(None, {}, {"perod": "1s"})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("perod: 1s", "1:1: perod: unknown key; did you mean period?"),
        ("log: {colour: x}", "1:7: log.colour: unknown key; known here: format, level"),
        ("period: 1", "1:9: period: '1' has no unit: write 1s or 1ms"),
        ("period: 50ms", "1:9: period: '50ms' is out of bounds: 100 ms to 1 min"),
        ("engine: 5", "1:9: engine: 5 is given where a mapping is expected"),
        ("log: {level: no}", "1:14: log.level: 'no' means false to some YAML parsers"),
        ("log: {format: xml}", "1:15: log.format: 'xml' is not one of text, json"),
        ("max_jobs: 1e3", "1:11: max_jobs: '1e3' is not a whole number: some YAML parsers"),
        ("state_dir: x", "1:12: state_dir: 'x' is not an absolute path"),
        ("listen: 0.0.0.0:80", "1:9: listen: '0.0.0.0:80' is not 127.0.0.1:PORT or [::1]:PORT"),
        ("listen: localhost:80", "1:9: listen: 'localhost:80' is not 127.0.0.1:PORT"),
        ("listen: 127.0.0.1:65536", "1:9: listen: '127.0.0.1:65536' is not 127.0.0.1:PORT"),
        ("listen: 127.0.0.1:0", "1:9: listen: '127.0.0.1:0' is not 127.0.0.1:PORT"),
        ("cluster: {listen: example:80}", "1:19: cluster.listen: 'example:80' is not ADDRESS:PORT"),
        ("cluster: {listen: 10.0.0.256:80}", "1:19: cluster.listen: '10.0.0.256:80' is not ADD"),
        ("cluster: {listen: '[1.2.3.4]:80'}", "1:19: cluster.listen: '[1.2.3.4]:80' is not ADD"),
        ("cluster: {listen: 10.0.0.1:65536}", "1:19: cluster.listen: '10.0.0.1:65536' is not A"),
        ("cluster: {tls: /a}", "1:16: cluster.tls: '/a' is given where a mapping is"),
        (
            "cluster: {tls: {ca: /a, cert: /b}}",
            "1:16: cluster.tls.key: is required, but missing",
        ),
        (
            "cluster: {tls: {ca: /a, cert: /b, key: /c, cacert: /d}}",
            "1:44: cluster.tls.cacert: unknown key; did you mean",
        ),
        ("cluster: {tls: {ca: a, cert: /b, key: /c}}", "1:21: cluster.tls.ca: 'a' is not an abso"),
        ("cluster: {enable: true}", "1:11: cluster.enable: unknown key; did you mean"),
        ("cluster: {checkpoint_max: 1}", "1:27: cluster.checkpoint_max: "),
        ("capacity: all", "1:11: capacity: 'all' is not threads, cores or a number of cores"),
        ("dead_band: 0.7", "1:12: dead_band: 0.7 is out of bounds: 0 to 0.5"),
        ("engine: {host: x}", "1:16: engine.host: 'x' is not unix:///PATH or tcp://HOST:PORT, w"),
        ("engine: {host: 'tcp://gpu-1:65536'}", "1:16: engine.host: 'tcp://gpu-1:65536' is not u"),
        ("engine: {host: 'tcp://gpu-1'}", "1:16: engine.host: 'tcp://gpu-1' is not unix:///PATH"),
        ("engine: {host: 'http://[::1'}", "1:16: engine.host: 'http://[::1' is not unix:///PATH"),
        ("engine: {host: 'ssh://root@x'}", "1:16: engine.host: 'ssh://root@x' is not unix:///PA"),
        ("engine: {host: 'unix://run/x'}", "1:16: engine.host: 'unix://run/x' is not unix:///PA"),
        ("policy_options: 3", "1:17: policy_options: 3 is given where a mapping is expected"),
        ("period: 1s\nperiod: 2s", "2:1: period: the key was already given in line 1"),
        ("window: 1s\nperiod: 2s", "1:9: window: window 1 s is shorter than period 2 s"),
        (
            "capacity: 1\nreserve: {cpus: 1}",
            "2:17: reserve.cpus: a reserve of 1 cores leaves none of the capacity, 1 cores",
        ),
        ("reserve: {cpus: most}", "1:17: reserve.cpus: 'most' is not auto or a number of cores"),
        ("reserve: {cpus: -1}", "1:17: reserve.cpus: -1 is out of bounds: 0 to"),
        ("tier_evaluations: 0", "1:19: tier_evaluations: 0 is out of bounds: 1 to 1000"),
        ("deliver_hook: /bin/true", "1:15: deliver_hook: '/bin/true' is given where a mapping"),
        (
            "deliver_hook: {command: /bin/a}",
            "1:25: deliver_hook.command: '/bin/a' is given where a",
        ),
        ("deliver_hook: {command: []}", "1:25: deliver_hook.command: has 0 entries, the limit"),
        ("deliver_hook: {command: [cp, a]}", "1:26: deliver_hook.command[0]: 'cp' must be an ab"),
        ("deliver_hook: {command: [/bin/a, yes]}", "1:34: deliver_hook.command[1]: 'yes' means"),
        ("deliver_hook: {command: [/bin/a, [b]]}", "1:34: deliver_hook.command[1]: a list"),
        ("deliver_hook: {timeout: 2h}", "1:25: deliver_hook.timeout: '2h' is out of bounds"),
        ("deliver_hook: {user: a b}", "1:22: deliver_hook.user: 'a b' is not a user's name"),
        (
            "deliver_hook: {command: [/bin/a], user: root}",
            "1:41: deliver_hook.user: 'root' is root: name an unprivileged user",
        ),
        (
            "deliver_hook: {command: [/bin/a], user: no-such-user}",
            "1:41: deliver_hook.user: 'no-such-user' is not a user of this host",
        ),
        ("gpus: {share: 1}", "1:8: gpus.share: unknown key; known here: device_folder, foreign"),
        ("gpus: {injection: hook}", "1:19: gpus.injection: 'hook' is not one of auto, cdi, re"),
        ("gpus: {device_folder: dev}", "1:23: gpus.device_folder: 'dev' is not an absolute"),
        ("gpus: {prefer: fill}", "1:16: gpus.prefer: 'fill' is not one of auto, pack, spread"),
        (
            "gpus: {reserved: GPU-1}",
            "1:18: gpus.reserved: 'GPU-1' is given where a list is expected",
        ),
        ("gpus: {reserved: [0]}", "1:19: gpus.reserved[0]: '0' is not the UUID of a GPU"),
        ("gpus: {foreign: kill}", "1:17: gpus.foreign: 'kill' is not one of avoid, share"),
        ("gpus: {on_loss: stop}", "1:17: gpus.on_loss: 'stop' is not one of keep, move"),
        ("gpus: {move: 1}", "1:14: gpus.move: 1 is neither true nor false"),
        ("- a", "1:1: a list is given where a mapping is expected"),
        ("a: [", "2:1: "),
    ],
)
def test_a_wrong_setting_is_one_line_with_its_place(
    text: str, problem: str, tmp_path: Path
) -> None:
    (said,) = problems(text + "\n", tmp_path)
    assert said.startswith(problem)


def test_all_problems_come_at_once_from_every_source(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("window: 5\nperiod: 0s\n")
    with pytest.raises(SettingsError) as caught:
        load_settings(file, {"DLSCHED_LOG_LEVEL": "on"}, {"reserve.memory": "x"})
    assert str(caught.value).split("\n") == [
        "--reserve-memory: reserve.memory: 'x' is not a size such as 512MiB or 1GiB",
        "DLSCHED_LOG_LEVEL: log.level: 'on' is not one of debug, info, warning, error",
        f"{file}:1:9: window: '5' has no unit: write 5s or 5ms",
        f"{file}:2:9: period: '0s' is out of bounds: 100 ms to 1 min",
    ]


def test_a_file_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"/none\.yaml: cannot be read: No such file"):
        load_settings(tmp_path / "none.yaml", {}, {})
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(SettingsError, match=r"binary\.yaml:1:1: the byte 0xff is not UTF-8"):
        load_settings(tmp_path / "binary.yaml", {}, {})


@given(st.dictionaries(
    st.sampled_from([variable_name(place) for place in setting_places()]), st.text(), max_size=3
))  # fmt: skip
def test_any_environment_is_read_or_refused(environ: dict[str, Any]) -> None:
    try:
        load_settings(None, environ, {})
    except SettingsError as error:
        assert all(problem.file in environ for problem in error.problems)


# ------------------------------------------------------------------------------- tenants


def test_rules_for_users_are_read_whole(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(
        "tenants:\n  everyone: {images: [lab/*], cpus: 2, memory: 4GiB}\n"
        "  nobody: {mounts: [/srv/data, '/home/{user}'], ports: [8000-8999, 80], gpus: 2}\n"
        "  '60001': {run_as: anybody}\n"
    )
    rules = load_settings(file, {}, {}).tenants
    assert rules["everyone"] == Rules(images=("lab/*",), cpu_cores=2.0, memory_bytes=4 << 30)
    assert rules["nobody"].ports == ((8000, 8999), (80, 80))
    assert rules["60001"].run_as == "anybody"
    (listed,) = load_settings(None, {"DLSCHED_TENANTS": "{everyone: {jobs: 1}}"}, {}).tenants
    assert listed == "everyone"


def test_no_root_leads_to_the_engines_socket_wherever_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///srv/engine/docker.sock")
    (said,) = problems("tenants: {everyone: {mounts: [/srv]}}\n", tmp_path)
    assert "'/srv' would let jobs read or change /srv/engine/docker.sock" in said


@pytest.mark.parametrize(("text", "problem"), [
    ("{everyone: {image: [a]}}", "tenants.everyone.image: unknown key; did you mean images?"),
    ("{everyone: {gpus: -1}}", "tenants.everyone.gpus: -1 is out of bounds: 0 to 64"),
    ("{everyone: {cpus: no}}", "tenants.everyone.cpus: 'no' means false to some YAML parsers"),
    ("{everyone: {ports: [0-9]}}", "tenants.everyone.ports[0]: '0-9' is not a port or a range"),
    ("{everyone: {ports: [9-8]}}", "tenants.everyone.ports[0]: '9-8' is not a port or a range"),
    ("{everyone: {mounts: [a]}}", "tenants.everyone.mounts[0]: 'a' is not an absolute path below"),
    ("{everyone: {mounts: [/]}}", "tenants.everyone.mounts[0]: '/' is not an absolute path below"),
    ("{everyone: {mounts: [/a/../b]}}", "tenants.everyone.mounts[0]: '/a/../b' is not an absolute"),
    ("{everyone: {mounts: [/var]}}", (
        "mounts[0]: '/var' would let jobs read or change "
        "/var/run/docker.sock"
    )),
    ("{everyone: {mounts: [/dev/shm]}}", "'/dev/shm' would let jobs read or change /dev"),
    ("{everyone: {mounts: [/etc/dlsched/jobs.d/x]}}", "would let jobs read or change /etc/dlsched"),
    ("{no-such-user-here: {}}", "tenants.no-such-user-here: is not a user of this host"),
    ("{root: {}}", "tenants.root: is root, to whom no rules apply"),
    ("{a b: {}}", "is not a user's name or uid, or everyone"),
    ("[a]", "tenants: "),
])  # fmt: skip
def test_a_wrong_rule_is_one_line_with_its_place(text: str, problem: str, tmp_path: Path) -> None:
    (said,) = problems(f"tenants: {text}\n", tmp_path)
    assert problem in said
