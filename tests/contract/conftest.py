"""The implementations that the conformance suite of `PassageIndex` runs against.

The server runs twice: against the test server over the wire, and against a real one where
`ERRATA_TEST_QDRANT_URL` names it.
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from services.retriever.index.base import PassageIndex
from services.retriever.index.edge import EdgeIndex
from services.retriever.index.qdrant_server import QdrantServerIndex
from tests.harness.qdrant_server import QdrantTestServer
from tests.harness.run_stores import database, postgres, stores, template

__all__ = ["database", "index", "postgres", "stores", "template"]

REAL_SERVER = os.environ.get("ERRATA_TEST_QDRANT_URL", "")


@pytest_asyncio.fixture(params=["edge", "server", "real_server"])
async def index(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[PassageIndex]:
    if request.param == "edge":
        edge = await EdgeIndex.open(tmp_path)
        yield edge
        await edge.close()
    elif request.param == "server":
        async with QdrantTestServer() as server:
            remote = QdrantServerIndex.connect(server.url)
            yield remote
            await remote.close()
    else:
        if not REAL_SERVER:
            pytest.skip("ERRATA_TEST_QDRANT_URL is not set")
        real = QdrantServerIndex.connect(REAL_SERVER, os.environ.get("QDRANT_API_KEY"))
        yield real
        await real.close()
