"""Vectors over HTTP as people write it: FastAPI before sentence-transformers, texts in batches.

`python rival_server.py MODEL PORT THREADS PRECISION`, run by the Python that has both. What waits
is encoded together, at most 32 texts at a time, in one thread beside the event loop; while that
computes, further requests gather.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

_MAX_WORDS = 32


def make_app(folder: str, threads: int, precision: str) -> Any:  # noqa: ANN401
    """Return the application."""
    import torch
    from fastapi import FastAPI, Response
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(threads)
    model = SentenceTransformer(folder, device="cpu")
    if precision == "bf16":
        model = model.bfloat16()
    pool = ThreadPoolExecutor(1)
    waiting: asyncio.Queue[tuple[str, asyncio.Future[list[float]]]] = asyncio.Queue()

    def encode(texts: list[str]) -> list[list[float]]:
        with torch.inference_mode():
            found: list[list[float]] = model.encode(texts, batch_size=_MAX_WORDS).tolist()
        return found

    async def batches() -> None:
        loop = asyncio.get_running_loop()
        while True:
            group = [await waiting.get()]
            while len(group) < _MAX_WORDS and not waiting.empty():
                group.append(waiting.get_nowait())
            vectors = await loop.run_in_executor(pool, encode, [text for text, _ in group])
            for (_, answer), vector in zip(group, vectors, strict=True):
                if not answer.done():
                    answer.set_result(vector)

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:  # noqa: ANN401
        task = asyncio.create_task(batches())
        yield
        task.cancel()

    app = FastAPI(lifespan=lifespan)

    async def health() -> dict[str, str]:
        return {"status": "alive"}

    async def embeddings(asked: dict[str, Any]) -> Response:
        import orjson

        loop = asyncio.get_running_loop()
        answers: list[asyncio.Future[list[float]]] = []
        for text in asked["input"]:
            answers.append(loop.create_future())
            waiting.put_nowait((text, answers[-1]))
        vectors = await asyncio.gather(*answers)
        data = [{"index": n, "embedding": vector} for n, vector in enumerate(vectors)]
        return Response(orjson.dumps({"data": data}), media_type="application/json")

    # the annotations of an inner function are strings here, which FastAPI could not resolve
    embeddings.__annotations__ = {"asked": dict[str, Any]}
    app.post("/v1/embeddings")(embeddings)
    app.get("/health")(health)
    return app


if __name__ == "__main__":
    import uvicorn

    _, path, port, count, kind = sys.argv
    uvicorn.run(make_app(path, int(count), kind), port=int(port), log_level="warning")
