"""Updates from the reference implementation of a registry."""

import json
import pathlib
import urllib.request

from .authority import Authority, Host, done, watm
from .servers import Certificates, registry

# The user `me` with the password `secret`, hashed by bcrypt.
USERS = "me:$2b$04$9hkgstKm.IaM6u6rn5672OObBZkvtEuVdEU7hiOJPbLnsNHOaDUfa\n"


def publish(module: bytes, to: str, folder: pathlib.Path, *more: object) -> str:
    file = folder / "publish.wasm"
    file.write_bytes(module)
    return json.loads(done("publish", file, to, *more, "--json"))["digest"]


def test_a_tag_is_followed(plain_registry: str, authority: Authority, host: Host, tmp_path: pathlib.Path) -> None:
    source = f"oci://{plain_registry}/team/wireguard:stable"
    first, second = authority.seal("1.1"), authority.seal("1.2")
    pinned = publish(first, source, tmp_path, "--plain-http")
    status, report = host.update(source, "--plain-http")
    assert (status, report["outcome"], report["release"]) == (0, "updated", "1.1")
    assert host.place.read_bytes() == first
    assert host.update(source, "--plain-http")[1]["outcome"] == "unchanged"
    publish(second, source, tmp_path, "--plain-http")
    status, report = host.update(source, "--plain-http")
    assert (status, report["outcome"], report["previous"]) == (0, "updated", "1.1")
    assert host.place.read_bytes() == second
    # The tag moves back, and the host does not follow. The digest of the older module is refused
    # too.
    publish(first, source, tmp_path, "--plain-http")
    for again in (source, f"oci://{plain_registry}/team/wireguard@{pinned}"):
        status, report = host.update(again, "--plain-http")
        assert (status, report["code"]) == (1, "rollback")
    assert host.place.read_bytes() == second


def test_the_artifact_is_what_other_tools_expect(
    plain_registry: str, authority: Authority, tmp_path: pathlib.Path
) -> None:
    module = authority.seal("1.1")
    digest = publish(module, f"oci://{plain_registry}/team/artifact:v1", tmp_path, "--plain-http")
    url = f"http://{plain_registry}/v2/team/artifact/manifests/v1"
    request = urllib.request.Request(url, headers={"Accept": "application/vnd.oci.image.manifest.v1+json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.headers["Docker-Content-Digest"] == digest
        manifest = json.load(answer)
    assert manifest["config"]["mediaType"] == "application/vnd.wasm.config.v0+json"
    (layer,) = manifest["layers"]
    assert (layer["mediaType"], layer["size"]) == ("application/wasm", len(module))
    blob = f"http://{plain_registry}/v2/team/artifact/blobs/"
    with urllib.request.urlopen(blob + layer["digest"], timeout=10) as answer:
        assert answer.read() == module
    with urllib.request.urlopen(blob + manifest["config"]["digest"], timeout=10) as answer:
        assert json.load(answer)["layerDigests"] == [layer["digest"]]


def test_what_is_not_there_or_not_sealed(plain_registry: str, host: Host, tmp_path: pathlib.Path) -> None:
    status, report = host.update(f"oci://{plain_registry}/team/nothing:v1", "--plain-http")
    assert (status, report["code"]) == (1, "status")
    file = tmp_path / "unsealed.wasm"
    file.write_bytes(b"\0asm\x01\0\0\0")
    to = f"oci://{plain_registry}/team/nothing:v1"
    run = watm("publish", file, to, "--plain-http")
    assert (run.returncode, run.stderr.count("\n")) == (2, 1), run.stderr
    assert "not sealed" in run.stderr


def test_tls_and_passwords(
    authority: Authority, certificates: Certificates, host: Host, tmp_path: pathlib.Path
) -> None:
    module = authority.seal("1.1")
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text("me:secret\n")
    bad.write_text("me:wrong\n")
    with registry(tmp_path, certificates, USERS) as address:
        source = f"oci://{address}/team/wireguard:stable"
        trusting = ("--ca", certificates.authority)
        publish(module, source, tmp_path, *trusting, "--credentials", good)
        # The registry is not trusted by default.
        assert host.update(source, "--credentials", good)[1]["code"] == "connection"
        assert host.update(source, *trusting)[1]["code"] == "unauthorized"
        assert host.update(source, *trusting, "--credentials", bad)[1]["code"] == "unauthorized"
        assert not host.place.exists()
        status, report = host.update(source, *trusting, "--credentials", good)
        assert (status, report["outcome"]) == (0, "updated")
        assert host.place.read_bytes() == module
