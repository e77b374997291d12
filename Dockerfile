# slime on Debian 12, for NVIDIA GPUs and for CPUs.
#
#   docker build -t slime .                                     # an hour and more on two cores
#   docker build -t slime --build-arg SLIME_CUDA=0 .            # without the GPU side: 40 minutes
#   docker run --gpus all --shm-size 16g -v /models:/models -v $PWD/runs:/work/runs slime train --hf-checkpoint /models/Qwen3-4B ...
#
# The driver comes from the host (580 or later, with the NVIDIA container toolkit), CUDA's libraries from PyPI. SLIME_CUDA_ARCHITECTURES
# names the GPUs to compile for (docs/gpu.md). Model-written code runs in bubblewrap, which makes name spaces and mounts: docs/install.md
# says what docker has to allow. tools/docker/run_in_bare_root.sh runs every line of this file without docker.
FROM debian:12 AS build
ARG SLIME_CUDA=1
ARG SLIME_CUDA_ARCHITECTURES=90a
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates python3 python3-venv
COPY . /opt/slime
WORKDIR /opt/slime
RUN SLIME_CUDA=$SLIME_CUDA SLIME_CUDA_ARCHITECTURES=$SLIME_CUDA_ARCHITECTURES ./dev wheel /wheels

FROM debian:12
ARG SLIME_CUDA=1
RUN apt-get update && apt-get install -y --no-install-recommends \
      bubblewrap ca-certificates g++ procps python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    python3 -m venv /opt/slime \
    && if [ "$SLIME_CUDA" = 0 ]; then name=slime-rl; else name='slime-rl[cuda]'; fi \
    && /opt/slime/bin/pip install --no-cache-dir --find-links /wheels "$name"
ENV PATH=/opt/slime/bin:$PATH
WORKDIR /work
ENTRYPOINT ["slime"]
CMD ["--help"]
