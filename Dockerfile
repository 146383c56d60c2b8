# The broker alone: `docker build --target broker .`; with Java and Spark for the audit: `--target spark`.
FROM python:3.12-slim-bookworm AS broker
WORKDIR /app
COPY pyproject.toml README.md LICENSE pyspark_ottla.py ./
COPY ottla ottla
RUN pip install --no-cache-dir . \
 && useradd --system --create-home ottla \
 && install --directory --owner ottla /data
USER ottla
VOLUME /data
EXPOSE 9092
# What clients are told to connect to; other containers need the name they reach this one by.
ENV KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092
HEALTHCHECK --interval=5s --timeout=3s --start-period=2s --retries=5 \
  CMD ["python", "-c", "import socket; socket.create_connection(('127.0.0.1', 9092), 2).close()"]
ENTRYPOINT ["ottla"]
CMD ["serve", "--data-dir", "/data", "--listen", "0.0.0.0:9092"]

FROM broker AS spark
USER root
RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
 && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir '.[spark]'
USER ottla
HEALTHCHECK NONE
ENTRYPOINT []
CMD ["ottla", "audit", "/data"]
