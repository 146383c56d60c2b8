# The broker alone: `docker build --target broker .`; with Java and Spark for the audit: `--target spark`.
# The C compiler that the engine wants stays in a stage of its own.
FROM python:3.12-bookworm AS wheel
WORKDIR /app
COPY pyproject.toml hatch_build.py README.md LICENSE pyspark_ottla.py ./
COPY ottla ottla
RUN OTTLA_COMPILE=1 pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim-bookworm AS broker
WORKDIR /app
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir "$(ls /wheels/*.whl)[zookeeper]"
# The places and commands of the images of Kafka, which compose files and testcontainers count on: docs/containers.md.
COPY docker/kafka /etc/kafka/docker
COPY docker/confluent /etc/confluent/docker
COPY docker/bin /usr/local/bin
RUN useradd --system --create-home ottla \
 && install --directory --owner ottla /data /var/lib/kafka/data /mnt/shared/config \
 && chown --recursive ottla /etc/kafka /etc/confluent
USER ottla
VOLUME /data
EXPOSE 9092
HEALTHCHECK --interval=5s --timeout=5s --start-period=60s --retries=3 CMD ["ottla", "health", "--ready-file", "/tmp/ottla.ready"]
CMD ["/etc/kafka/docker/run"]

FROM broker AS spark
USER root
RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
 && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir "$(ls /wheels/*.whl)[spark]"
USER ottla
HEALTHCHECK NONE
CMD ["ottla", "audit", "/data"]
