# A server of one model, without PyTorch: `docker compose up`, see docs/how-to/deploy.md.
FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY configs configs
COPY seq2seq seq2seq
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim
COPY requirements.lock /tmp/requirements.lock
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --constraint /tmp/requirements.lock \
       numpy onnx onnxruntime protobuf sentencepiece \
       pydantic pyyaml safetensors \
       fastapi h11 jinja2 python-multipart uvicorn \
       prometheus-client \
    && pip install --no-cache-dir --no-deps /wheels/*.whl \
    && useradd --system --no-create-home --uid 10001 seq2seq
USER 10001
ENV SEQ2SEQ_HOST=0.0.0.0 SEQ2SEQ_MODEL=/model OMP_NUM_THREADS=1
EXPOSE 8000
HEALTHCHECK --start-period=30s --interval=10s --timeout=5s \
    CMD ["seq2seq", "serve", "--health"]
ENTRYPOINT ["seq2seq"]
CMD ["serve"]
