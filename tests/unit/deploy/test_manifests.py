"""Manifests render, are valid for the Kubernetes release named, and fit together; and the script finds what is not."""

import copy
import json
from pathlib import Path

import pytest

from scripts import manifests
from tests.unit.deploy.pods import OVERLAYS, SETTINGS, Manifest, Rendered

ROOT = Path(__file__).resolve().parents[3]


def test_everything_is_rendered(rendered: dict[str, Rendered]) -> None:
    components = {f"component-{folder.name}" for folder in (ROOT / "deploy/k8s/components").iterdir()}
    overlays = {f"overlay-{folder.name}" for folder in (ROOT / "deploy/k8s/overlays").iterdir()}
    assert set(rendered) == {"base"} | components | overlays
    assert overlays == set(OVERLAYS)
    assert len(components) >= 8


def test_all_is_valid(rendered: dict[str, Rendered]) -> None:
    for name, target in rendered.items():
        assert manifests.faults(target.objects) == [], name


def test_each_service_has_all_of_its_objects(rendered: dict[str, Rendered]) -> None:
    for overlay in ("base", *OVERLAYS):
        target = rendered[overlay]
        kinds = ["Deployment", "Service", "ServiceAccount", "PodDisruptionBudget", "NetworkPolicy"]
        if overlay != "overlay-local":
            kinds.append("HorizontalPodAutoscaler")
        for kind in kinds:
            assert set(SETTINGS) <= set(target.of(kind)), (overlay, kind)
        for account in target.of("ServiceAccount").values():
            assert account["automountServiceAccountToken"] is False
        for budget in target.of("PodDisruptionBudget").values():
            assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        assert target.of("Namespace")["errata"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_pods_are_restricted(rendered: dict[str, Rendered]) -> None:
    for target in rendered.values():
        for workload in target.workloads.values():
            pod, container = workload.pod, workload.container
            assert pod["automountServiceAccountToken"] is False
            assert pod["enableServiceLinks"] is False
            assert pod["securityContext"]["runAsNonRoot"] is True
            assert pod["securityContext"]["runAsUser"] > 0
            assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"cpu", "memory", "ephemeral-storage"} <= container["resources"]["requests"].keys()
            assert {"cpu", "memory", "ephemeral-storage"} <= container["resources"]["limits"].keys()
            assert "initContainers" not in pod


def test_secrets_come_as_files_only(rendered: dict[str, Rendered]) -> None:
    for target in rendered.values():
        assert target.of("Secret") == {}
        for workload in target.workloads.values():
            assert "valueFrom" not in json.dumps(workload.container.get("env", []))
            assert "secretRef" not in json.dumps(workload.container.get("envFrom", []))


def test_whatever_is_named_is_there(rendered: dict[str, Rendered]) -> None:
    # What people make themselves, by the page.
    made = {"errata-identity-trust"}
    for target in rendered.values():
        for workload in target.workloads.values():
            assert workload.pod["serviceAccountName"] in target.of("ServiceAccount")
            mounted = {mount["name"] for mount in workload.container.get("volumeMounts", [])}
            claimed = {volume["name"] for volume in workload.pod.get("volumes", [])}
            if workload.kind == "StatefulSet":
                spec = target.of("StatefulSet")[workload.name]["spec"]
                claimed |= {claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]}
                assert spec["serviceName"] in target.of("Service")
            assert mounted == claimed
            for volume in workload.pod.get("volumes", []):
                if "configMap" in volume:
                    assert volume["configMap"]["name"] in {*target.of("ConfigMap"), *made}
                if "persistentVolumeClaim" in volume:
                    assert volume["persistentVolumeClaim"]["claimName"] in target.of("PersistentVolumeClaim")
        labels = [workload.labels for workload in target.workloads.values()]
        for kind in ("Service", "PodDisruptionBudget"):
            for item in target.of(kind).values():
                selector = item["spec"]["selector"]
                wanted = selector.get("matchLabels", selector)
                assert sum(wanted.items() <= own.items() for own in labels) == 1, item["metadata"]["name"]
        for scaler in target.of("HorizontalPodAutoscaler").values():
            assert scaler["spec"]["scaleTargetRef"]["name"] in target.of("Deployment")


def test_replicas(rendered: dict[str, Rendered]) -> None:
    local, production = rendered["overlay-local"], rendered["overlay-prod"]
    assert local.of("HorizontalPodAutoscaler") == {}
    for name in SETTINGS:
        assert local.of("Deployment")[name]["spec"]["replicas"] == 1
        # The autoscaler decides: a number here would undo it with each apply.
        assert "replicas" not in production.of("Deployment")[name]["spec"]
        assert production.of("HorizontalPodAutoscaler")[name]["spec"]["minReplicas"] == 3
    assert local.of("StatefulSet")["qdrant"]["spec"]["replicas"] == 1
    assert production.of("StatefulSet")["qdrant"]["spec"]["replicas"] == 3


def test_the_local_overlay_fits_on_a_small_machine(rendered: dict[str, Rendered]) -> None:
    requests = [item.container["resources"]["requests"] for item in rendered["overlay-local"].workloads.values()]
    assert sum(int(request["cpu"].removesuffix("m")) for request in requests) <= 1000
    assert sum(int(request["memory"].removesuffix("Mi")) for request in requests) <= 2048


def test_every_image_has_an_exact_tag(rendered: dict[str, Rendered]) -> None:
    for target in rendered.values():
        for workload in target.workloads.values():
            name, _, tag = workload.container["image"].rpartition(":")
            assert name
            assert tag == "local" or tag.removeprefix("v").count(".") >= 1
            assert tag != "latest"


@pytest.mark.parametrize(
    ("kind", "path", "value", "fault"),
    [
        ("Deployment", ("spec", "template", "spec", "terminationGracePeriod"), 65, "terminationGracePeriod"),
        ("Service", ("spec", "ports", 0, "port"), "50053", "is not of type 'integer'"),
        ("NetworkPolicy", ("spec", "ingres"), [], "ingres"),
        ("Certificate", ("spec", "dnsName"), ["judge"], "dnsName"),
        ("Issuer", ("spec", "ca"), {}, "secretName"),
        ("ServiceMonitor", ("spec", "endpoints", 0, "targetport"), "metrics", "targetport"),
        ("Deployment", ("kind",), "Deploymnet", "there is no schema"),
    ],
)
def test_a_slip_is_found(
    kind: str, path: tuple[str | int, ...], value: object, fault: str, rendered: dict[str, Rendered]
) -> None:
    item: Manifest = copy.deepcopy(next(iter(rendered["overlay-prod"].of(kind).values())))
    assert manifests.faults([item]) == []
    place = item
    for step in path[:-1]:
        place = place[step]  # type: ignore[index]  # a path through maps and lists
    place[path[-1]] = value  # type: ignore[index]
    (found,) = manifests.faults([item])
    assert fault in found


def test_the_same_object_twice_is_found(rendered: dict[str, Rendered]) -> None:
    service = rendered["base"].of("Service")["judge"]
    assert manifests.faults([service, service]) == ["Service/judge is there 2 times"]


def test_what_cannot_be_rendered_is_said(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text("resources: [nowhere.yaml]\n", encoding="utf-8")
    with pytest.raises(manifests.ManifestsFailed, match=r"nowhere\.yaml"):
        manifests.render(manifests.Target("broken", tmp_path))


def test_the_scanners_report_is_read() -> None:
    def check(number: str, result: dict[str, str]) -> dict[str, object]:
        return {"check_id": number, "resource": "Pod.judge", "check_name": "No root", "check_result": result}

    results = {
        "passed_checks": [check("CKV_1", {"result": "PASSED"})],
        # In two files: it is told once.
        "failed_checks": [check("CKV_2", {"result": "FAILED"})] * 2,
        "skipped_checks": [check("CKV_3", {"result": "SKIPPED", "suppress_comment": "why"})] * 2,
        "parsing_errors": [],
    }
    scan = manifests.parse_scan("kubernetes", json.dumps({"results": results}))
    assert (scan.passed, scan.failures, dict(scan.skipped)) == (1, ("CKV_2 Pod.judge: No root",), {"CKV_3 why": 2})
    with pytest.raises(manifests.ManifestsFailed, match=r"can't read a\.yaml"):
        manifests.parse_scan("kubernetes", json.dumps({"results": results | {"parsing_errors": ["a.yaml"]}}))
    # This is how it reports that it found nothing to check.
    with pytest.raises(manifests.ManifestsFailed, match="checked nothing"):
        manifests.parse_scan("kubernetes", json.dumps({"passed": 0, "failed": 0, "skipped": 0}))


def test_each_exception_to_a_policy_has_a_reason(rendered: dict[str, Rendered]) -> None:
    exceptions = {
        value
        for target in rendered.values()
        for item in target.objects
        for name, value in item["metadata"].get("annotations", {}).items()
        if name.startswith("checkov.io/skip")
    }
    assert exceptions
    for exception in exceptions:
        check, _, reason = exception.partition("=")
        assert check.startswith("CKV_K8S_")
        assert len(reason) > 20, exception
