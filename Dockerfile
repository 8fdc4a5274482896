# The agent as a container. It still acts on the host's engine, so it needs:
#   the engine's socket, the host's cgroups, the host's PIDs (sidecars are read through
#   /proc/PID/root), and its state directory under the same path as on the host (jobs bind from it).
FROM python:3.11-slim-bookworm AS build
COPY requirements/runtime.txt /src/requirements.txt
RUN pip install --no-cache-dir --require-hashes --target /opt/dlsched -r /src/requirements.txt
COPY pyproject.toml README.md /src/
COPY dlsched /src/dlsched
RUN pip install --no-cache-dir --no-deps --target /opt/dlsched /src

FROM python:3.11-slim-bookworm
LABEL org.opencontainers.image.title="dlsched" \
      org.opencontainers.image.description="Target-driven CPU scheduling for deep-learning containers" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/dlsched /opt/dlsched
ENV PYTHONPATH=/opt/dlsched PATH=/opt/dlsched/bin:$PATH
STOPSIGNAL SIGTERM
ENTRYPOINT ["python", "-m", "dlsched"]
CMD ["run"]
