"""The dashboard's panels by row."""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import bargauge, common, dashboard
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models

from tools.dashboard.parts import (
    BYTES,
    CORES,
    HEIGHT,
    PER_MINUTE,
    PLAIN,
    RATE,
    RATIO,
    SECONDS,
    WIDTH,
    lines,
    number,
    of,
    query,
    stacked,
    thresholds,
)

CAPACITY = "capacity"
"""Name of the line that the stacked limits are compared with."""

MISSED_RATIO, LATE_RATIO = 1.0, 1.1
"""Above the first a target is missed, above the second by more than the band (as the alerts)."""

LATE = thresholds((None, "green"), (MISSED_RATIO, "yellow"), (LATE_RATIO, "red"))
NONE_IS_WELL = thresholds((None, "green"), (1, "red"))
ONE_IS_WELL = thresholds((None, "red"), (1, "green"))


def against_capacity(panel: Any) -> Any:
    """Stacked, but for the line of the capacity."""
    return stacked(panel).override_by_name(
        CAPACITY,
        [
            models.DynamicConfigValue("custom.stacking", {"mode": "none", "group": "B"}),
            models.DynamicConfigValue("custom.fillOpacity", 0),
            models.DynamicConfigValue("custom.lineWidth", 3),
            models.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": "red"}),
        ],
    )


def targets() -> list[Any]:
    """Whether targets are kept, and which are not."""
    satisfied = of("job_satisfied", 'reading="slo"')
    kept = f"avg by (instance) ({satisfied})"
    missed = f"sum by (instance) ({satisfied} == bool 0)"
    kept_colours = thresholds((None, "red"), (0.9, "yellow"), (1, "green"))
    worst = (
        bargauge.Panel()
        .title("Worst jobs")
        .description(
            "The ten services with the highest latency over target. Above 100 % the target is "
            "missed. `dlsched why JOB` explains each."
        )
        .unit(RATIO)
        .min(0)
        .thresholds(LATE)
        .orientation(common_models.VizOrientation.HORIZONTAL)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .with_target(
            query(f"topk(10, {of('job_target_ratio')})", "{{instance}} {{job_name}}", instant=True)
        )
        .height(HEIGHT)
        .span(WIDTH // 2)
    )
    over_time = (
        lines(
            "Latency over target",
            RATIO,
            "Measured latency as a part of the target, on a logarithmic scale: half and double are "
            "equally far. Above 100 % the target is missed. A gap: fewer than 5 requests.",
            (of("job_target_ratio"), "{{instance}} {{job_name}}"),
        )
        .scale_distribution(
            common.ScaleDistributionConfig().type(common_models.ScaleDistribution.LOG).log(2)
        )
        .thresholds(LATE)
        .thresholds_style(
            common.GraphThresholdsStyleConfig().mode(common_models.GraphTresholdsStyleMode.LINE)
        )
    )
    return [
        dashboard.Row("Targets"),
        number("Targets kept", RATIO, kept, kept_colours, "Part of the targets that are kept now."),
        number("Targets missed", PLAIN, missed, NONE_IS_WELL, "Targets that are missed now."),
        number(
            "Blind jobs",
            PLAIN,
            of("blind_jobs"),
            NONE_IS_WELL,
            "Jobs with a target whose progress is unknown. `dlsched why JOB` says why.",
        ),
        number(
            "Jobs running",
            PLAIN,
            of("jobs", 'state="running"'),
            thresholds((None, "green")),
            "Jobs whose container runs.",
        ),
        number("Alarms", PLAIN, of("alarms"), NONE_IS_WELL, "Alarms that `dlsched ps` shows now."),
        number(
            "Rejected files",
            PLAIN,
            of("rejected_files"),
            NONE_IS_WELL,
            "Job files that are rejected now. Their jobs run on as before.",
        ),
        worst,
        over_time,
        lines(
            "Targets kept over time",
            RATIO,
            "Part of the targets that are kept, by instance.",
            (kept, "{{instance}}"),
        )
        .min(0)
        .max(1),
        lines(
            "Trainings",
            PLAIN,
            "Each training's metric, and the values at which it can be delivered and is finished.",
            (of("job_metric"), "{{instance}} {{job_name}} {{metric}}"),
            (of("job_metric_target"), "{{instance}} {{job_name}} {{metric}} to {{tier}}"),
        ),
    ]


def cpu() -> list[Any]:
    """Who has which CPU."""
    return [
        dashboard.Row("CPU"),
        against_capacity(
            lines(
                "Limits against capacity",
                CORES,
                "CPU limits of the jobs, with what others on the host use on top. The line is the "
                "CPU that jobs may use: a sum above it is more than there is. Jobs without a limit "
                "are not shown.",
                (of("job_cpu_limit_cores"), "{{instance}} {{job_name}}"),
                (f"sum({of('node_foreign_cores')})", "others on the host"),
                (f"sum({of('node_capacity_cores')})", CAPACITY),
            )
        ),
        against_capacity(
            lines(
                "CPU used",
                CORES,
                "CPU that each job used, with what others on the host use on top. The line is the "
                "CPU that jobs may use.",
                (of("job_cpu_usage_cores"), "{{instance}} {{job_name}}"),
                (f"sum({of('node_foreign_cores')})", "others on the host"),
                (f"sum({of('node_capacity_cores')})", CAPACITY),
            )
        ),
        lines(
            "Throttled",
            RATIO,
            "Part of the scheduling periods in which a job hit its CPU limit. That is how limits "
            "work: it matters where a target is missed.",
            (of("job_cpu_throttled_ratio"), "{{instance}} {{job_name}}"),
        )
        .min(0)
        .max(1),
        lines(
            "Memory used",
            BYTES,
            "Memory that each job's container uses.",
            (of("job_memory_bytes"), "{{instance}} {{job_name}}"),
        ).min(0),
    ]


def changes() -> list[Any]:
    """What dlsched does, and what it expects."""
    changed = of("job_changes_total")
    return [
        dashboard.Row("Changes and forecasts"),
        lines(
            "Changes by minute",
            PER_MINUTE,
            "Actions on containers by kind and status, and decisions of the policy that a guard "
            "changed, each a minute.",
            (
                f"60 * sum by (instance, kind, status) (rate({changed}[{RATE}]))",
                "{{instance}} {{kind}} {{status}}",
            ),
            (f"60 * rate({of('guarded_total')}[{RATE}])", "{{instance}} guarded"),
        ).min(0),
        stacked(
            lines(
                "Forecasts",
                PLAIN,
                "Targets by what the policy expects of them: `met` now, `expected` later, "
                "`crowded` by other jobs, `impossible` on this node, `unlikely`, or `unknown`.",
                (f"sum by (instance, kind) ({of('job_outlook')})", "{{instance}} {{kind}}"),
            )
        ),
        lines(
            "Time until targets are reached",
            SECONDS,
            "As the policy forecasts it. Targets without a forecast are not shown.",
            (of("job_outlook_seconds"), "{{instance}} {{job_name}} {{tier}}"),
        ).min(0),
        lines(
            "CPU that targets need",
            CORES,
            "As the policy estimates it. Targets without an estimate are not shown.",
            (of("job_outlook_needed_cores"), "{{instance}} {{job_name}} {{tier}}"),
        ).min(0),
    ]


def gpus() -> list[Any]:
    """GPUs, and who is on them. Empty on a host without one."""
    return [
        dashboard.Row("GPUs"),
        number(
            "GPUs lost",
            PLAIN,
            f"sum by (instance) ({of('gpu_up')} == bool 0)",
            NONE_IS_WELL,
            "GPUs that cannot be used: no job starts on them. No value: the host has no GPU.",
        ).height(HEIGHT),
        lines(
            "GPUs busy",
            RATIO,
            "Part of the time in which each GPU computed. MIG instances do not report it.",
            (of("gpu_busy_ratio"), "{{instance}} {{uuid}}"),
        )
        .min(0)
        .max(1)
        .span(WIDTH // 2 - WIDTH // 6),
        lines(
            "GPU memory used",
            RATIO,
            "Part of each GPU's memory that is used.",
            (f"{of('gpu_memory_used_bytes')} / {of('gpu_memory_bytes')}", "{{instance}} {{uuid}}"),
        )
        .min(0)
        .max(1),
        lines(
            "GPU time by job",
            RATIO,
            "Part of its GPUs' time that each job used.",
            (of("job_gpu_usage_ratio"), "{{instance}} {{job_name}}"),
        )
        .min(0)
        .max(1),
        lines(
            "GPU memory by job",
            BYTES,
            "GPU memory that each job uses, over all its GPUs.",
            (of("job_gpu_memory_bytes"), "{{instance}} {{job_name}}"),
        ).min(0),
    ]


def itself() -> list[Any]:
    """Whether dlsched and the engine work."""
    cycles = of("cycle_duration_seconds_bucket")
    total, count = of("cycle_duration_seconds_sum"), of("cycle_duration_seconds_count")
    return [
        dashboard.Row("dlsched itself"),
        number(
            "dlsched answers",
            PLAIN,
            'up{job="dlsched", instance=~"$instance"}',
            ONE_IS_WELL,
            "1: the last scrape succeeded. 0: containers run on under their last limits.",
        ),
        number(
            "Engine answers",
            PLAIN,
            of("engine_up"),
            ONE_IS_WELL,
            "1: the Docker Engine answers. 0: containers run on under their last limits.",
        ),
        number(
            "Last cycle ago",
            SECONDS,
            f"time() - {of('last_cycle_timestamp_seconds')}",
            thresholds((None, "green"), (60, "yellow"), (180, "red")),
            "Time since the last complete cycle. Limits stay as they are while none completes. It "
            "compares Prometheus' clock with the host's.",
        ),
        number(
            "Journal",
            BYTES,
            of("journal_bytes"),
            thresholds((None, "green")),
            "Size of the journal, which the setting `journal.max_size` bounds.",
        ),
        number(
            "Cycles not written",
            PLAIN,
            of("journal_write_errors_total"),
            NONE_IS_WELL,
            "Cycles since the start that could not be written to the journal.",
        ),
        number(
            "Jobs without series",
            PLAIN,
            of("jobs_without_series"),
            NONE_IS_WELL,
            "Jobs past the bound of the metrics page: no panel shows them.",
        ),
        lines(
            "Cycle time",
            SECONDS,
            "Wall time of a cycle: the mean, and the 95th percentile within its bucket.",
            (
                f"histogram_quantile(0.95, sum by (instance, le) (rate({cycles}[{RATE}])))",
                "{{instance}} p95",
            ),
            (f"rate({total}[{RATE}]) / rate({count}[{RATE}])", "{{instance}} mean"),
        ).min(0),
        lines(
            "CPU of the control loop",
            CORES,
            "CPU that the loop's thread uses, by phase of the cycle.",
            (
                f"sum by (instance, phase) (rate({of('cycle_cpu_seconds_total')}[{RATE}]))",
                "{{instance}} {{phase}}",
            ),
        ).min(0),
        lines(
            "Engine errors by minute",
            PER_MINUTE,
            "Cycles in which the engine did not answer (`list`), and actions that failed.",
            (f"60 * rate({of('engine_errors_total')}[{RATE}])", "{{instance}} {{call}}"),
        ).min(0),
        lines(
            "Alarms and rejected files",
            PLAIN,
            "Alarms and rejected job files over time. `dlsched ps` shows their texts.",
            (of("alarms"), "{{instance}} alarms"),
            (of("rejected_files"), "{{instance}} rejected files"),
        ).min(0),
    ]
