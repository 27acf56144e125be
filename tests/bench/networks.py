"""Networks of single processes, each with one device for packets.

The kernel removes a network and its device with the last process in it, so that nothing stays
behind, also after a crash. Without root, the processes are root in a user namespace.
"""

import os
import subprocess

DEVICE = "watm0"
# The program's address and MTU, as with `mitmdump-watm exec`.
ADDRESS = "198.18.0.2/32"
MTU = 1500


def apart() -> list[str]:
    """Returns the command that runs another one in a new network."""
    return ["unshare", "--net", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]


def beside(pid: int) -> list[str]:
    """Returns the command that runs another one in the network of a process."""
    users = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
    return ["nsenter", f"--target={pid}", "--net", *users, "--"]


def configure(mtu: int, *, make: bool, inside: list[str] | None = None) -> None:
    """Sends all traffic of a network into its device. `make`: the device does not exist yet.
    `inside`: the command that enters the network, if this process is in another one.
    """
    steps = [
        "link set lo up",
        *([f"tuntap add {DEVICE} mode tun"] if make else []),
        f"address add {ADDRESS} dev {DEVICE}",
        f"link set {DEVICE} mtu {mtu} up",
        f"route add default dev {DEVICE}",
    ]
    command = [*(inside or []), "ip", "-batch", "-"]
    subprocess.run(command, input="\n".join(steps) + "\n", text=True, check=True, timeout=30)


def refusal() -> str:
    """Returns what the system says against a network with a device; empty if it permits one."""
    command = [*apart(), "ip", "tuntap", "add", DEVICE, "mode", "tun"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except FileNotFoundError as error:
        return f"{error.filename} is not installed"
    return done.stderr.strip() if done.returncode else ""
