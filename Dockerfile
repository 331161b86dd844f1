# The server and the worker, in one image: `docker build -t sennit .`
# compose.yaml runs both beside PostgreSQL; docs/deploy.md says how, and how to name images by digest.
ARG PYTHON_IMAGE=python:3.13.9-slim-trixie
ARG UV_IMAGE=ghcr.io/astral-sh/uv:0.9.5

FROM ${UV_IMAGE} AS uv

FROM ${PYTHON_IMAGE} AS build
COPY --from=uv /uv /usr/local/bin/uv
WORKDIR /src
ENV UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_PROJECT_ENVIRONMENT=/opt/sennit UV_PYTHON_DOWNLOADS=never
# What others wrote changes seldom: a layer of its own, so that a change of ours is built in seconds.
COPY pyproject.toml uv.lock README.md LICENSE ./
RUN uv sync --frozen --no-default-groups --no-install-project \
    --extra cli --extra mcp --extra models --extra postgres --extra server
COPY src src
RUN uv sync --frozen --no-default-groups --no-editable \
    --extra cli --extra mcp --extra models --extra postgres --extra server

FROM ${PYTHON_IMAGE}
RUN useradd --create-home --uid 10001 sennit && install -d -o sennit -m 0700 /data
COPY --from=build /opt/sennit /opt/sennit
ENV PATH=/opt/sennit/bin:$PATH PYTHONUNBUFFERED=1 SENNIT_URL=/data/sennit.db
USER sennit
VOLUME /data
EXPOSE 8765
# Only loopback is asked, under a name the server always answers to.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s CMD \
    ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8765/api/health', timeout=2)"]
# SIGTERM suspends the turns that are under way; they go on after the next start.
STOPSIGNAL SIGTERM
ENTRYPOINT ["sennit"]
CMD ["serve", "--host", "0.0.0.0", "--tokens", "/data/tokens.json"]
