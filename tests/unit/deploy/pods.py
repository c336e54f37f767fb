"""What manifests say of pods: their environment, ports, probes and files, and which settings class reads them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, Final

from errata_kit.settings import ServiceSettings, is_secret
from services.generator.settings import GeneratorSettings
from services.judge.settings import JudgeSettings
from services.orchestrator.settings import OrchestratorSettings
from services.retriever.settings import RetrieverSettings

SETTINGS: Final[Mapping[str, type[ServiceSettings]]] = {
    "orchestrator": OrchestratorSettings,
    "retriever": RetrieverSettings,
    "judge": JudgeSettings,
    "generator": GeneratorSettings,
}
OVERLAYS: Final = ("overlay-local", "overlay-prod")

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Workload:
    """Something that makes pods: one container each, in these manifests."""

    kind: str
    name: str
    labels: Mapping[str, str]
    pod: Manifest
    environment: Mapping[str, str]

    @property
    def container(self) -> Manifest:
        """Its container."""
        (container,) = self.pod["containers"]
        return dict(container)

    @property
    def command(self) -> list[str]:
        """Command and arguments."""
        return [*self.container["command"], *self.container.get("args", [])] if "command" in self.container else []

    @property
    def service(self) -> str:
        """The service of ours that it runs, or nothing."""
        modules = [word.removeprefix("services.") for word in self.command if word.startswith("services.")]
        return modules[0] if modules else ""

    @property
    def ports(self) -> dict[str, int]:
        """The container's ports by name."""
        return {port["name"]: port["containerPort"] for port in self.container.get("ports", [])}

    def source_of(self, path: str) -> tuple[str, str, str] | None:
        """Where a file in the container comes from: secret or configMap, its name, and the file's key in it."""
        volumes = {volume["name"]: volume for volume in self.pod.get("volumes", [])}
        for mount in self.container.get("volumeMounts", []):
            if PurePosixPath(mount["mountPath"]) == PurePosixPath(path).parent:
                volume = volumes[mount["name"]]
                if "secret" in volume:
                    return "secret", volume["secret"]["secretName"], PurePosixPath(path).name
                if "configMap" in volume:
                    return "configMap", volume["configMap"]["name"], PurePosixPath(path).name
        return None


@dataclass(frozen=True)
class Rendered:
    """The objects of a rendered target."""

    objects: tuple[Manifest, ...]

    def of(self, kind: str) -> dict[str, Manifest]:
        """The objects of a kind, by name."""
        return {item["metadata"]["name"]: item for item in self.objects if item["kind"] == kind}

    @cached_property
    def workloads(self) -> dict[str, Workload]:
        """Everything that makes pods, by name."""
        return {workload.name: workload for workload in self._workloads()}

    @property
    def ours(self) -> dict[str, Workload]:
        """Those that run code of ours with its settings: the services, and the migration."""
        return {name: workload for name, workload in self.workloads.items() if workload.service}

    def _workloads(self) -> Iterator[Workload]:
        for item in self.objects:
            spec = item.get("spec", {})
            spec = spec.get("jobTemplate", {}).get("spec", spec)
            if "template" not in spec:
                continue
            template = spec["template"]
            labels, pod = template["metadata"]["labels"], template["spec"]
            yield Workload(item["kind"], item["metadata"]["name"], labels, pod, self._environment(pod["containers"][0]))

    def _environment(self, container: Manifest) -> dict[str, str]:
        found: dict[str, str] = {}
        for source in container.get("envFrom", []):
            found |= self.of("ConfigMap")[source["configMapRef"]["name"]]["data"]
        return found | {item["name"]: item["value"] for item in container.get("env", [])}


def variables(service: str) -> set[str]:
    """The names that may be set for a service: those that its settings read, and for a secret NAME_FILE instead of NAME."""
    names = set()
    for field in SETTINGS[service].model_fields.values():
        alias = str(field.validation_alias)
        names.add(f"{alias}_FILE" if is_secret(field) else alias)
    return names
