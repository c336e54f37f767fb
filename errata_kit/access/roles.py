"""Which role each RPC needs. A test compares this with the services' descriptors."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from errata_kit.access.principals import Role

_ORCHESTRATOR: Final = "/errata.orchestrator.v1.OrchestratorService/"
_RETRIEVER: Final = "/errata.retriever.v1.RetrieverService/"
_JUDGE: Final = "/errata.judge.v1.JudgeService/"
_GENERATOR: Final = "/errata.generator.v1.GeneratorService/"

REQUIRED: Final[Mapping[str, Role]] = MappingProxyType(
    {
        # The orchestrator itself sees to it that a principal meets its own tenant's runs only.
        _ORCHESTRATOR + "Ask": Role.ASK,
        _ORCHESTRATOR + "Compose": Role.ASK,
        _ORCHESTRATOR + "WatchRun": Role.ASK,
        _ORCHESTRATOR + "GetRun": Role.ASK,
        _ORCHESTRATOR + "ListRuns": Role.ASK,
        _ORCHESTRATOR + "CancelRun": Role.ASK,
        _ORCHESTRATOR + "ResumeRun": Role.ASK,
        _RETRIEVER + "Search": Role.ASK,
        _RETRIEVER + "ListDocuments": Role.ASK,
        _RETRIEVER + "ListCollections": Role.ASK,
        _RETRIEVER + "IngestDocuments": Role.INGEST,
        _RETRIEVER + "DeleteDocuments": Role.INGEST,
        _RETRIEVER + "DeleteCollection": Role.ADMIN,
        _JUDGE + "GradePassages": Role.ASK,
        _JUDGE + "GradeAnswer": Role.ASK,
        _JUDGE + "CheckClaims": Role.ASK,
        _JUDGE + "ReviewDraft": Role.ASK,
        _GENERATOR + "BroadenQuery": Role.ASK,
        _GENERATOR + "GenerateAnswer": Role.ASK,
        _GENERATOR + "RefineAnswer": Role.ASK,
        _GENERATOR + "WriteDraft": Role.ASK,
        _GENERATOR + "ReviseDraft": Role.ASK,
    }
)
"""Full method name to role."""


def required_role(method: str) -> Role:
    """The role that a full method name needs, such as "/errata.judge.v1.JudgeService/GradeAnswer".

    A method that nobody thought of needs ADMIN. Whom the orchestrator calls for needs the role like everybody else.
    """
    return REQUIRED.get(method, Role.ADMIN)
