# The agent as a container. It acts on the host's engine and on the containers beside it, so it needs
# more of the host than others do: docs/how-to/container.md says what, and what for.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
COPY . /src
ENV PIP_TARGET=/opt/dlsched PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore
# Where no package index can be reached, a folder `wheels` is taken (requirements/README.md), and the
# pip in it, too: the base need not have one. --upgrade: else pip leaves the folder `bin` as the first
# installation made it, without `dlsched`.
RUN set -eu; cd /src; pip="python3 -m pip"; \
    if [ -d wheels ]; then \
        pip="python3 $(ls wheels/pip-*.whl)/pip"; \
        export PIP_NO_INDEX=1 PIP_FIND_LINKS=/src/wheels; \
    fi; \
    $pip install --require-hashes -r requirements/runtime.txt; \
    $pip install --no-deps --upgrade .

FROM ${BASE}
LABEL org.opencontainers.image.title="dlsched" \
      org.opencontainers.image.description="Target-driven CPU scheduling for deep-learning containers" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/dlsched /opt/dlsched
ENV PYTHONPATH=/opt/dlsched PATH=/opt/dlsched/bin:$PATH
STOPSIGNAL SIGTERM
# The loop answers, not only the process. Only its end counts: what it prints would be kept.
HEALTHCHECK --interval=60s --timeout=20s --start-period=60s --retries=3 CMD dlsched ps >/dev/null
ENTRYPOINT ["python3", "-m", "dlsched"]
CMD ["run"]
