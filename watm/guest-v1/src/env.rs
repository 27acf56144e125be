//! WATER's additions to WASI: connections from the host. Used by `hosted`, `imports`, `relayed` and
//! `shell`.

use wasip1::Ciovec;

use crate::descriptor::Descriptor;

mod imports {
    #[link(wasm_import_module = "env")]
    unsafe extern "C" {
        pub fn water_dial_fixed() -> i32;
        pub fn water_dial(
            network: *const wasip1::Ciovec,
            network_len: usize,
            address: *const wasip1::Ciovec,
            address_len: usize,
        ) -> i32;
        pub fn water_accept() -> i32;
    }
}

/// Connects to the address that the caller of the host named. Fails with an errno below 0, as the
/// other functions do.
pub fn dial_fixed() -> Result<Descriptor, i32> {
    // SAFETY: the call takes no arguments.
    Descriptor::from_host(unsafe { imports::water_dial_fixed() })
}

/// Connects by TCP to `address`, a host and a port.
pub fn dial(address: &str) -> Result<Descriptor, i32> {
    let [network, address] = ["tcp", address].map(|text| Ciovec {
        buf: text.as_ptr(),
        buf_len: text.len(),
    });
    // SAFETY: each argument is one slice of a text that outlives the call.
    Descriptor::from_host(unsafe { imports::water_dial(&network, 1, &address, 1) })
}

/// Waits for a connection to the host's listener.
pub fn accept() -> Result<Descriptor, i32> {
    // SAFETY: the call takes no arguments.
    Descriptor::from_host(unsafe { imports::water_accept() })
}
