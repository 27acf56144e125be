"""Who is good no more, and how a server proves that it still is."""

import base64
import datetime

import pytest
from backends import backend, echo, web
from certificates import Authority, Leaf
from peers import COMPONENT, WATER, listen, run, written
from test_listen import s_client

VERSIONS = pytest.mark.parametrize("version", ["1.2", "1.3"])
SHAPES = pytest.mark.parametrize("module", [COMPONENT, WATER], ids=["component", "water"])


@SHAPES
@VERSIONS
async def test_a_response_of_ocsp_is_stapled(module, version, authority: Authority, localhost, root, tmp_path) -> None:
    staple = base64.b64encode(authority.vouch(localhost)).decode()
    config = {"certificates": [localhost.pair | {"ocsp": staple}]}
    option = f"-tls{version.replace('.', '_')}"
    async with backend(echo) as to, listen(config, to, tmp_path, module=module) as port:
        said = await s_client(port, root, option, "-status")
        assert "OCSP Response Status: successful" in said
        assert "Cert Status: good" in said
        # Who does not ask is not told.
        assert "OCSP Response Status" not in await s_client(port, root, option)


@VERSIONS
async def test_revoked_clients_are_refused(version, authority: Authority, localhost: Leaf, root, tmp_path) -> None:
    alice, bob = (authority.sign(name, names=[f"{name}.test"]) for name in ("alice", "bob"))
    shown = {name: written(leaf.pem, tmp_path, f"{name}.pem") for name, leaf in (("alice", alice), ("bob", bob))}

    async def page(port: int, name: str) -> str:
        curl = ("curl", "-sS", "--cacert", root, f"--tlsv{version}", "--tls-max", version, "--cert", shown[name])
        return await run(*curl, f"https://localhost:{port}/in", status=None)

    stale = authority.revoke(bob, until=-datetime.timedelta(hours=1))
    elsewhere = Authority("another").revoke()
    for crls, more, alices in [
        (authority.revoke(bob), {}, True),
        # Nobody says anything of her.
        (elsewhere, {}, False),
        (stale, {}, False),
        (stale, {"stale-crls": "accept"}, True),
    ]:
        clients = {"certificates": "required", "roots": authority.pem, "crls": crls, **more}
        config = {"certificates": [localhost.pair], "clients": clients}
        async with backend(web) as to, listen(config, to, tmp_path) as port:
            assert ("page /in" == await page(port, "alice")) == alices
            assert "page" not in await page(port, "bob")
