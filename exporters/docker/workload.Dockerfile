# A base image for programs that use JAX, observed without changing them:
#
#   docker build -f exporters/docker/workload.Dockerfile -t jax-workload \
#     --build-arg JAXMON=jaxmon[otel]==VERSION .
#
# and, in the program's own Dockerfile:
#
#   FROM jax-workload
#   COPY train.py ./
#   CMD ["train.py"]

ARG PYTHON=3.11
FROM python:${PYTHON}-slim
# jax[tpu] on TPUs; jax[cuda12] includes CUDA, so the host needs only the driver.
ARG JAX=jax[cuda12]
# With what pushes by OTLP, which costs nothing until a variable asks for it.
ARG JAXMON=jaxmon[otel]
RUN pip install --no-cache-dir "${JAX}" "${JAXMON}" && \
    install -d -m 2770 -o 10001 -g 10001 /run/jaxmon
# The persistent cache needs a volume that outlives the container: see docs/deployment.md.
ENV JAXMON_RUN_DIR=/run/jaxmon \
    PYTHONUNBUFFERED=1
WORKDIR /app
USER 10001:10001
ENTRYPOINT ["jaxmon", "run"]
CMD ["--help"]
