"""Everything under deploy/k8s, rendered once."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from scripts import manifests
from tests.unit.deploy.pods import Rendered


@pytest.fixture(scope="session")
def rendered() -> dict[str, Rendered]:
    """What each target is made of, by name: base, overlay-local, overlay-prod, component-qdrant ..."""
    targets = manifests.targets()
    with ThreadPoolExecutor(2) as pool:
        texts = list(pool.map(manifests.render, targets))
    return {target.name: Rendered(tuple(manifests.objects(text))) for target, text in zip(targets, texts, strict=True)}
