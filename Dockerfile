# slime on Debian 12, for NVIDIA GPUs (compute capability 9.0) and for CPUs.
#
#   docker build -t slime .                                          # an hour on two cores; SLIME_CUDA=0: without the GPU side
#   docker run --gpus all --shm-size 16g -v /models:/models -v $PWD/runs:/opt/slime/runs slime train --hf-checkpoint /models/Qwen3-4B ...
#
# The driver comes from the host (580 or later, with the NVIDIA container toolkit); CUDA's libraries come from PyPI. Without docker the
# RUN lines are the installation of a bare Debian 12.
FROM debian:12 AS build
ARG SLIME_CUDA=1
COPY . /opt/slime
WORKDIR /opt/slime
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates git python3 python3-venv
RUN SLIME_CUDA=$SLIME_CUDA ./dev build
RUN find build/release -name '*.o' -delete && rm -rf build/release/slime_tests build/log .venv /root/.cache

FROM debian:12
RUN apt-get update && apt-get install -y --no-install-recommends \
      bubblewrap ca-certificates g++ procps python3 \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/slime /opt/slime
ENV PATH=/opt/slime/build/release:$PATH PYTHONPATH=/opt/slime/python
WORKDIR /opt/slime
ENTRYPOINT ["slime"]
CMD ["--help"]
