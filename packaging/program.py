"""The program in the forms in which it is installed: program.py archive|wheel|deb|image TARGET, or modules

| form | file in dist/ | for |
|---|---|---|
| `archive` | `watm-VERSION-TARGET.tar.gz`, `.zip` for Windows | unpack and run |
| `wheel` | `watm-VERSION-py3-none-PLATFORM.whl` | pip, pipx, uv |
| `deb` | `watm_VERSION_ARCHITECTURE.deb` | Debian, Ubuntu |
| `image` | `watm-VERSION-oci-ARCHITECTURE.tar` | containers |

Each has the sealed modules where the program finds them. `modules` packs them alone, with their root.
"""

import hashlib
import json
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import archives
import project
import wheels
from project import File

WHEEL_PLATFORMS = {
    # Static, hence for both C libraries.
    "x86_64-unknown-linux-musl": "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64",
    "aarch64-unknown-linux-musl": "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64",
    "aarch64-apple-darwin": "macosx_11_0_arm64",
    "x86_64-apple-darwin": "macosx_11_0_x86_64",
    "x86_64-pc-windows-gnullvm": "win_amd64",
    "aarch64-pc-windows-gnullvm": "win_arm64",
}
ARCHITECTURES = {"x86_64-unknown-linux-musl": "amd64", "aarch64-unknown-linux-musl": "arm64"}
"""The names of Debian, which are those of containers too."""

MAINTAINER = "The WATM authors <authors@watm.invalid>"
USER = 65532
"""The user of the image, which has no name and owns nothing but its state."""


def archive(target: str) -> None:
    """The installation below a folder of its own."""
    name = f"watm-{project.version()}-{target}"
    files = [_beside(file, name) for file in _installation(target)]
    if "windows" in target:
        project.write(f"{name}.zip", archives.pack(files, project.date()))
    else:
        project.write(f"{name}.tar.gz", archives.compress(archives.tar(files, project.date())))


def _beside(file: File, name: str) -> File:
    """Modules lie beside the program, and everything else keeps its place."""
    path = file.path.removeprefix("bin/").removeprefix("share/watm/")
    return replace(file, path=f"{name}/{path}")


def wheel(target: str) -> None:
    """A wheel without Python code: the program among the scripts, and the rest below the prefix."""
    version, platform = project.version(), WHEEL_PLATFORMS[target]
    data, info = f"watm-{version}.data", f"watm-{version}.dist-info"
    files = []
    for file in _installation(target):
        if file.path.startswith("bin/"):
            files.append(replace(file, path=f"{data}/scripts/{file.path.removeprefix('bin/')}"))
        elif file.path.startswith("share/doc/"):
            files.append(replace(file, path=f"{info}/licenses/{Path(file.path).name}"))
        else:
            files.append(replace(file, path=f"{data}/data/{file.path}"))
    metadata = (
        f"Metadata-Version: 2.4\nName: watm\nVersion: {version}\nSummary: {project.SUMMARY}\n"
        "License-Expression: MIT OR Apache-2.0\n"
        + "".join(f"License-File: {Path(file.path).name}\n" for file in files if "/licenses/" in file.path)
        + "Classifier: Environment :: Console\nClassifier: Programming Language :: Rust\n"
    )
    files.append(File(f"{info}/METADATA", metadata.encode()))
    files.append(wheels.about(info, "py3-none", platform))
    files.append(wheels.record(info, files))
    project.write(f"watm-{version}-py3-none-{platform}.whl", archives.pack(files, project.date()))


def deb(target: str) -> None:
    """A package of Debian: https://manpages.debian.org/deb.5."""
    version, architecture, date = project.version(), ARCHITECTURES[target], project.date()
    files = []
    for file in _installation(target):
        if file.path.startswith("share/man/"):
            file = replace(file, path=f"{file.path}.gz", content=archives.compress(file.content))
        # Debian's folder for zsh.
        path = file.path.replace("share/zsh/site-functions", "share/zsh/vendor-completions")
        files.append(replace(file, path=f"./usr/{path}"))
    files.append(File("./usr/share/doc/watm/copyright", _copyright().encode()))
    size = sum(len(file.content) for file in files) // 1024
    control = (
        f"Package: watm\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: {MAINTAINER}\n"
        f"Installed-Size: {size}\nSection: net\nPriority: optional\n"
        f"Description: {project.SUMMARY[0].lower()}{project.SUMMARY[1:]}\n"
        " A static program with its modules, which are signed WebAssembly files.\n"
    )
    sums = "".join(f"{hashlib.md5(file.content).hexdigest()}  {file.path.removeprefix('./')}\n" for file in files)
    about = [File("./control", control.encode()), File("./md5sums", sums.encode())]
    members = [
        ("debian-binary", b"2.0\n"),
        ("control.tar.gz", archives.compress(archives.tar(about, date))),
        ("data.tar.gz", archives.compress(archives.tar(files, date))),
    ]
    project.write(f"watm_{version}_{architecture}.deb", archives.ar(members, date))


def _copyright() -> str:
    return (
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: WATM\n\n"
        "Files: *\nCopyright: the WATM authors\nLicense: MIT or Apache-2.0\n"
        " See LICENSE-MIT, LICENSE-APACHE and, for what is linked, THIRD-PARTY-LICENSES.txt beside this file.\n"
    )


def image(target: str) -> None:
    """An image of one layer, in the layout of OCI (image-spec 1.1) as an archive.

    `watm serve /etc/watm/watm.toml` runs without root, on a file system that may be read-only. The
    state is in the volume /var/lib/watm.
    """
    architecture, date, version = ARCHITECTURES[target], project.date(), project.version()
    kept = ("bin/", "share/watm/", "share/doc/")
    files = [replace(file, path=f"usr/{file.path}") for file in _installation(target) if file.path.startswith(kept)]
    # The folders of the configuration and of the state.
    files.append(File("etc/watm/.keep", b""))
    files.append(File("var/lib/watm/.keep", b"", 0o600, USER))
    files.append(File("etc/passwd", f"watm:x:{USER}:{USER}:watm:/var/lib/watm:/sbin/nologin\n".encode()))
    layer = archives.tar(files, date)
    packed = archives.compress(layer)
    blobs: dict[str, bytes] = {}

    def add(content: bytes, media: str) -> dict:
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(content)}

    created = _time(date)
    configuration = {
        "created": created,
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "Env": [
                "PATH=/usr/bin",
                "HOME=/var/lib/watm",
                "XDG_CACHE_HOME=/var/lib/watm/cache",
                "XDG_CONFIG_HOME=/etc",
                "XDG_DATA_HOME=/usr/share",
                "XDG_STATE_HOME=/var/lib/watm/state",
            ],
            "Entrypoint": ["/usr/bin/watm", "serve"],
            "Cmd": ["/etc/watm/watm.toml"],
            "WorkingDir": "/usr/share/watm/modules",
            "Volumes": {"/var/lib/watm": {}},
            "StopSignal": "SIGTERM",
            "Labels": {"org.opencontainers.image.title": "watm", "org.opencontainers.image.version": version},
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created": created, "created_by": "make dist"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": add(_json(configuration), "application/vnd.oci.image.config.v1+json"),
        "layers": [add(packed, "application/vnd.oci.image.layer.v1.tar+gzip")],
    }
    described = add(_json(manifest), "application/vnd.oci.image.manifest.v1+json")
    described["platform"] = {"architecture": architecture, "os": "linux"}
    described["annotations"] = {"org.opencontainers.image.ref.name": version}
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [described]}
    layout = [File("oci-layout", _json({"imageLayoutVersion": "1.0.0"})), File("index.json", _json(index))]
    layout += [File(f"blobs/sha256/{digest}", content) for digest, content in blobs.items()]
    project.write(f"watm-{version}-oci-{architecture}.tar", archives.tar(layout, date))


def _json(value: dict) -> bytes:
    return json.dumps(value, indent=1).encode()


def _time(date: int) -> str:
    return datetime.fromtimestamp(date, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def modules() -> None:
    """The sealed modules and their root, for hosts that are installed already."""
    name = f"watm-modules-{project.version()}"
    files = [replace(file, path=f"{name}/{Path(file.path).name}") for file in project.modules()]
    project.write(f"{name}.tar.gz", archives.compress(archives.tar(files, project.date())))


def _installation(target: str) -> list[File]:
    """All files below a prefix."""
    with tempfile.TemporaryDirectory() as folder:
        manual = project.manual(Path(folder))
    return [project.program(target), *project.modules(), *manual, *project.completions(), *project.licences()]


if __name__ == "__main__":
    forms = {"archive": archive, "wheel": wheel, "deb": deb, "image": image}
    match sys.argv[1:]:
        case ["modules"]:
            modules()
        case [form, target] if form in forms:
            forms[form](target)
        case _:
            sys.exit(__doc__)
