# A base image for programs that use JAX, observed without changing them:
#
#   docker build -f exporters/docker/workload.Dockerfile -t jax-workload \
#     --build-arg DIGEST=sha256:... --build-arg JAXMON=jaxmon[otel]==VERSION .
#
# and, in the program's own Dockerfile:
#
#   FROM jax-workload
#   COPY train.py ./
#   CMD ["train.py"]

# As in Dockerfile; without it, the build fails.
ARG DIGEST
FROM python:3.11-slim@${DIGEST}
# jax[tpu] on TPUs; jax[cuda12] includes CUDA, so the host needs only the driver. Versions
# are those of constraints.txt.
ARG JAX=jax[cuda12]
# A release, with what pushes by OTLP, which costs nothing until a variable asks for it.
ARG JAXMON
COPY constraints.txt ./
RUN test -n "${JAXMON}" || { echo "give --build-arg JAXMON=jaxmon[otel]==VERSION"; exit 1; }
RUN pip install --no-cache-dir -c constraints.txt "${JAX}" "${JAXMON}" && \
    install -d -m 2770 -o 10001 -g 10001 /run/jaxmon
# The persistent cache needs a volume that outlives the container: see docs/deployment.md.
ENV JAXMON_RUN_DIR=/run/jaxmon \
    PYTHONUNBUFFERED=1
WORKDIR /app
USER 10001:10001
ENTRYPOINT ["jaxmon", "run"]
CMD ["--help"]
