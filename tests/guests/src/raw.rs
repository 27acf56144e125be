//! An import without the bindings that keep handles valid.

#[link(wasm_import_module = "watm:transport/sockets@0.2.0")]
unsafe extern "C" {
    #[link_name = "[method]byte-stream.read"]
    fn read(handle: i32, max_bytes: i32, result: *mut u8);
}

/// Reads from a handle that this module never got.
pub fn read_foreign_handle() {
    let mut result = [0u8; 64];
    // SAFETY: the result is written to 64 bytes of this function; the test is about the invalid
    // handle.
    unsafe { read(12_345, 16, result.as_mut_ptr()) }
}
