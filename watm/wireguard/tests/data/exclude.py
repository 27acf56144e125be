"""Write exclude.txt: networks without other networks, as Python's ipaddress computes them.

Each line is the allowed networks, those taken away, and the rest, separated by '|'.

    python3 exclude.py > exclude.txt
"""

import ipaddress
import random

BASES = {4: "10.64.0.0/10", 6: "fd00:7::/32"}


def network(rng: random.Random, version: int) -> ipaddress._BaseNetwork:
    base = ipaddress.ip_network(BASES[version])
    # The networks are near each other, so that they overlap.
    longest = base.max_prefixlen
    prefix = rng.choice([base.prefixlen, base.prefixlen + rng.randint(1, 6), rng.randint(base.prefixlen, longest), longest])
    low = int(base.network_address) + rng.getrandbits(rng.choice([3, longest - base.prefixlen]))
    return ipaddress.ip_network((low, prefix), strict=False)


def without(allowed: list, taken: list) -> list:
    rest = list(allowed)
    for other in taken:
        parts = []
        for one in rest:
            if not one.overlaps(other):
                parts.append(one)
            elif one != other and other.subnet_of(one):
                parts.extend(one.address_exclude(other))
        rest = parts
    return sorted(set(rest))


def main() -> None:
    rng = random.Random(7)
    for case in range(80):
        version = (4, 6)[case % 2]
        allowed = [network(rng, version) for _ in range(rng.randint(1, 3))]
        taken = [network(rng, version) for _ in range(rng.randint(0, 3))]
        rest = without(allowed, taken)
        print("|".join(",".join(map(str, part)) for part in (allowed, taken, rest)))
    for version in (4, 6):
        everything = [ipaddress.ip_network("0.0.0.0/0" if version == 4 else "::/0")]
        taken = [ipaddress.ip_network(net) for net in (["10.0.0.0/8", "192.168.0.0/16"] if version == 4 else ["fc00::/7", "2001:db8::1/128"])]
        print("|".join(",".join(map(str, part)) for part in (everything, taken, without(everything, taken))))


main()
