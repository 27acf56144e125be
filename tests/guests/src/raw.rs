//! An import called without the bindings that keep handles honest.

#[link(wasm_import_module = "watm:transport/sockets@0.1.0")]
unsafe extern "C" {
    #[link_name = "[method]byte-stream.read"]
    fn read(handle: i32, max_bytes: i32, result: *mut u8);
}

/// Read from a handle that was never given to this module.
pub fn read_foreign_handle() {
    let mut result = [0u8; 64];
    // SAFETY: the result is written to 64 bytes that are ours; whether the handle is, is
    // what the test is about.
    unsafe { read(12_345, 16, result.as_mut_ptr()) }
}
