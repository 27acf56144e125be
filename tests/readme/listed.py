"""Which test runs each command of the pages, and which commands no test runs, with the reason.

A command belongs to the longest beginning here. `test_blocks.py` holds both tables to the pages.
"""

TESTED = {
    "make run": "test_make_run_shows_the_client_configuration_and_its_qr_code",
    "make modules program": "test_the_program_is_built_with_its_modules",
    "export PATH=": "test_the_program_is_built_with_its_modules",
    "pip install build/wheels/*.whl": "test_the_wheel_installs",
    "mitmweb-watm --mode watm:wireguard": "test_a_mitmproxy_of_ones_own_serves",
    "mitmdump -s": "test_a_mitmproxy_of_ones_own_serves",
    "watm listen --unsealed watm/target/modules/plain": "test_modules_carry_a_page",
    "watm dial --unsealed watm/target/modules/plain": "test_modules_carry_a_page",
    "watm relay --unsealed watm/target/modules/plain": "test_modules_carry_a_page",
    "curl --header": "test_modules_carry_a_page",
    "mitmdump-watm --set watm_unsealed=true": "test_modules_carry_a_page",
    "cargo build --release --target wasm32-unknown-unknown": "test_a_module_of_ones_own_is_sealed_and_swapped",
    "cargo run --locked -q --manifest-path watm/Cargo.toml -p watm-componentize": "test_a_module_of_ones_own_is_sealed_and_swapped",
    "watm inspect own.wasm": "test_a_module_of_ones_own_is_sealed_and_swapped",
    "watm listen --unsealed own.wasm": "test_a_module_of_ones_own_is_sealed_and_swapped",
    "watm seal own.sealed.wasm": "test_a_module_of_ones_own_is_sealed_and_swapped",
    "watm update undo.wasm": "test_a_module_of_ones_own_is_sealed_and_swapped",
    "watm trust --forget": "test_a_module_of_ones_own_is_sealed_and_swapped",
    "watm update --allow-downgrade": "test_a_module_of_ones_own_is_sealed_and_swapped",
    "watm seal own.wasm": "test_a_module_of_ones_own_is_sealed_and_swapped",
    "watm trust --approve own": "test_a_module_of_ones_own_is_sealed_and_swapped",
    "watm update own": "test_a_module_of_ones_own_is_sealed_and_swapped",
    "watm keygen root.key": "test_a_module_is_sealed_trusted_and_verified",
    "watm keygen release.key": "test_a_module_is_sealed_trusted_and_verified",
    "watm root new": "test_a_module_is_sealed_trusted_and_verified",
    "watm seal": "test_a_module_is_sealed_trusted_and_verified",
    "watm trust root.watm": "test_a_module_is_sealed_trusted_and_verified",
    "watm trust --approve": "test_a_module_is_sealed_trusted_and_verified",
    "watm verify": "test_a_module_is_sealed_trusted_and_verified",
    "watm update": "test_a_module_is_sealed_trusted_and_verified",
    "make modules": "test_the_modules_are_made_and_the_documentation_too",
    "cargo doc": "test_the_modules_are_made_and_the_documentation_too",
    "cargo run --release --example serve": "test_the_rust_program_answers",
    "watm listen --unsealed watm/target/modules/wireguard.wasm udp": "test_wireguard_serves_an_application",
    "watm tunnel --unsealed client.conf": "test_one_machine_shows_a_flow",
    "watm listen --unsealed watm/target/modules/wireguard": "test_wireguard_carries_a_page_in_a_stream",
    "watm relay --unsealed watm/target/modules/wireguard": "test_wireguard_carries_a_page_in_a_stream",
    "watm dial --unsealed watm/target/modules/wireguard": "test_wireguard_carries_a_page_in_a_stream",
    'mitmdump-watm --mode "watm:proxy-protocol': "test_a_balancers_client_is_seen",
    "cat cert.pem key.pem": "test_tls_is_ended_and_spoken",
    'mitmdump-watm --mode "watm:tls': "test_tls_is_ended_and_spoken",
    "watm listen --unsealed watm/target/modules/tls": "test_tls_is_ended_and_spoken",
    "watm dial --unsealed watm/target/modules/tls": "test_tls_is_ended_and_spoken",
    'mitmdump-watm --mode "watm:shadowsocks': "test_a_shadowsocks_server_shows_what_its_clients_do",
    "watm dial shadowsocks.wasm": "test_a_shadowsocks_server_shows_what_its_clients_do",
    'mitmdump-watm --mode "watm:wireguard?record': "test_a_bug_is_recorded_and_replayed",
    "watm replay": "test_a_bug_is_recorded_and_replayed",
    "watm inspect": "test_a_bug_is_recorded_and_replayed",
    "make tunnel CONF=wg0.conf": "test_tunnels_come_up",
    "curl --socks5-hostname": "test_tunnels_come_up",
    "watm tunnel wg0.conf --socks5 127.0.0.1:1080 --http": "test_tunnels_come_up",
    "watm tunnel wg0.conf --socks5 127.0.0.1:1080 --status": "test_tunnels_come_up",
    "watm status": "test_tunnels_come_up",
    "watm serve watm.toml": "test_an_application_is_served",
    "watm serve --unsealed watm/target/modules/plain.wasm": "test_an_application_is_served",
}
"""The test in test_readme.py that runs commands with this beginning."""

NOT_RUN = {
    "make test": "it is what runs this; test_make_test_is_a_target looks at it",
    "make wheel": "it made the wheel in the environment that these tests run in",
    "watm doctor": "it judges this machine's routes; tests/proxy runs it in namespaces",
    ": watm.load": "a command in mitmproxy; host-python/tests/test_mitmdump.py gives it",
    ": watm.status": "a command in mitmproxy; host-python/tests/test_mitmdump.py gives it",
    ": watm.unload": "a command in mitmproxy; host-python/tests/test_mitmdump.py gives it",
    ": watm.swap": "a command in mitmproxy; tests/interop/test_swap.py swaps",
    ": watm.upstream": "commands in mitmproxy; host-python/tests/test_upstream.py gives them",
    'mitmdump-watm --set "watm_upstream': "needs a server of a VPN; tests/upstream has them",
    "watm dial --unsealed wireguard.wasm": "needs a tunnel in a tunnel; tests/tunnel/test_chains.py has one",
    "watm tunnel wg0.conf --socks5 127.0.0.1:1080 --pcap": "needs a capture outside; tests/upstream/test_capture.py has one",
    "tshark -r outer.pcap": "needs a capture outside; tests/upstream/test_capture.py has one",
    "ssh -o ProxyCommand": "needs an SSH server; tests/tunnel/test_tunnel.py has --stdio without it",
}
"""Beginnings of commands that no test runs as they are, and why."""

PARSED = {
    "toml,serve": "test_a_configuration_of_serve_is_accepted",
    "toml,grants": "test_grants_are_accepted",
    "toml,plain": "test_a_configuration_of_a_module_is_accepted",
    "toml,reverse": "test_a_configuration_of_a_module_is_accepted",
    "toml,proxy-protocol": "test_a_configuration_of_a_module_is_accepted",
    "ini,wireguard": "test_a_configuration_of_a_module_is_accepted",
    "json,wireguard": "test_a_configuration_of_a_module_is_accepted",
    "json,shadowsocks": "test_a_configuration_of_a_module_is_accepted",
    "json,tls": "test_a_configuration_of_a_module_is_accepted",
    "json,root": "test_a_module_is_sealed_trusted_and_verified",
    "json,manifest": "test_a_module_is_sealed_trusted_and_verified",
}
"""The test that has the program's own parser read blocks of this kind."""

PROGRAMS = {
    "start_server(": "test_the_python_program_echoes",
    "open_connection(": "test_modules_carry_a_page",
}
"""What a program in Python has in it, and the test that runs it."""
