"""The examples for containers: valid for the programs that read them, and in step with the image."""

import re
import subprocess
import tomllib
from pathlib import Path

import compose_spec
import kubernetes_validate
import program
import project
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "container"

SETTINGS = (FOLDER / "watm.toml").read_text()
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
RESOURCES = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))


def resource(kind: str) -> dict:
    [found] = [each for each in RESOURCES if each["kind"] == kind]
    return found


def pod() -> dict:
    return resource("Deployment")["spec"]["template"]["spec"]


def drain(settings: str) -> float:
    return tomllib.loads(settings)["drain"]["timeout"]


def test_compose_accepts_its_file():
    compose_spec.PyCompose.from_yaml((FOLDER / "compose.yaml").read_text())


def test_compose_refuses_a_wrong_file():
    with pytest.raises(Exception, match="."):
        compose_spec.PyCompose.from_yaml("services:\n  watm:\n    image: [1]\n")


@pytest.mark.parametrize("one", RESOURCES, ids=lambda one: one["kind"])
def test_kubernetes_accepts_each_resource(one: dict):
    kubernetes_validate.validate(one, "1.34", strict=True)


def test_kubernetes_refuses_a_wrong_field():
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**resource("Service"), "speck": {}}, "1.34", strict=True)


def test_both_have_the_same_settings():
    files = resource("ConfigMap")["data"]
    assert files.keys() == {"watm.toml", "grants.toml"}
    for name, text in files.items():
        assert tomllib.loads(text) == tomllib.loads((FOLDER / name).read_text())
        assert f"./{name}:/etc/watm/{name}:ro" in COMPOSE["services"]["watm"]["volumes"]


def test_watm_accepts_the_settings(tmp_path: Path):
    # The modules have another path in an image, and names of Compose services do not resolve here.
    assert "/usr/share/watm/modules/" in SETTINGS
    file = tmp_path / "watm.toml"
    file.write_text(SETTINGS.replace("/usr/share/watm/modules", str(ROOT / "watm" / "target" / "modules")))
    command = [project.HOST_PROGRAM, "serve", "--unsealed", "--check", "--grants", FOLDER / "grants.toml", file]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stderr


def test_connections_may_end_before_a_container_does():
    [grace] = re.fullmatch(r"(\d+)s", COMPOSE["services"]["watm"]["stop_grace_period"]).groups()
    assert int(grace) > drain(SETTINGS)
    assert pod()["terminationGracePeriodSeconds"] > drain(SETTINGS)


def test_probes_ask_where_the_pages_are():
    [container] = pod()["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    listen = tomllib.loads(SETTINGS)["metrics"]["listen"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert ports[container["readinessProbe"]["httpGet"]["port"]] == int(listen.rpartition(":")[2])
    assert tomllib.loads(SETTINGS)["listener"][0]["addresses"] == [f"0.0.0.0:{ports['web']}"]


def test_nothing_needs_a_privilege():
    [container] = pod()["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] and pod()["securityContext"]["runAsNonRoot"]
    assert pod()["securityContext"]["fsGroup"] == program.USER
    service = COMPOSE["services"]["watm"]
    assert service["read_only"] and service["cap_drop"] == ["ALL"] and "privileged" not in service


def test_images_are_of_this_version():
    assert COMPOSE["services"]["watm"]["image"] == pod()["containers"][0]["image"] == f"watm:{project.version()}"
