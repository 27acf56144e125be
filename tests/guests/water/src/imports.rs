//! The imports of a WATER module of v1. Pointers and handles are plain numbers here, since they may
//! be invalid.
//!
//! The host checks its reads and writes against the memory, so a call can at worst write to a place
//! of the memory: [`Guest`](crate::guest::Guest) has one for that, which nothing else uses.

#[link(wasm_import_module = "env")]
unsafe extern "C" {
    pub safe fn water_dial_fixed() -> i32;
    pub safe fn water_dial(network: u32, networks: u32, address: u32, addresses: u32) -> i32;
    pub safe fn water_accept() -> i32;
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    pub safe fn args_get(a: u32, b: u32) -> i32;
    pub safe fn clock_res_get(clock: u32, out: u32) -> i32;
    pub safe fn clock_time_get(clock: u32, precision: u64, out: u32) -> i32;
    pub safe fn environ_sizes_get(a: u32, b: u32) -> i32;
    pub safe fn fd_advise(fd: i32, offset: u64, len: u64, advice: u32) -> i32;
    pub safe fn fd_allocate(fd: i32, offset: u64, len: u64) -> i32;
    pub safe fn fd_close(fd: i32) -> i32;
    pub safe fn fd_fdstat_get(fd: i32, out: u32) -> i32;
    pub safe fn fd_fdstat_set_flags(fd: i32, flags: u32) -> i32;
    pub safe fn fd_filestat_get(fd: i32, out: u32) -> i32;
    pub safe fn fd_pread(fd: i32, parts: u32, count: u32, offset: u64, out: u32) -> i32;
    pub safe fn fd_prestat_dir_name(fd: i32, out: u32, len: u32) -> i32;
    pub safe fn fd_prestat_get(fd: i32, out: u32) -> i32;
    pub safe fn fd_read(fd: i32, parts: u32, count: u32, out: u32) -> i32;
    pub safe fn fd_readdir(fd: i32, out: u32, len: u32, cookie: u64, used: u32) -> i32;
    pub safe fn fd_renumber(from: i32, to: i32) -> i32;
    pub safe fn fd_seek(fd: i32, offset: i64, whence: u32, out: u32) -> i32;
    pub safe fn fd_tell(fd: i32, out: u32) -> i32;
    pub safe fn fd_write(fd: i32, parts: u32, count: u32, out: u32) -> i32;
    pub safe fn path_filestat_get(fd: i32, flags: u32, path: u32, len: u32, out: u32) -> i32;
    pub safe fn path_open(
        fd: i32,
        directory_flags: u32,
        path: u32,
        len: u32,
        open_flags: u32,
        rights: u64,
        inherited: u64,
        flags: u32,
        out: u32,
    ) -> i32;
    pub safe fn poll_oneoff(subscriptions: u32, events: u32, count: u32, out: u32) -> i32;
    pub safe fn proc_exit(code: u32);
    pub safe fn random_get(out: u32, len: u32) -> i32;
    pub safe fn sched_yield() -> i32;
    pub safe fn sock_recv(
        fd: i32,
        parts: u32,
        count: u32,
        flags: u32,
        out: u32,
        flags_out: u32,
    ) -> i32;
    pub safe fn sock_send(fd: i32, parts: u32, count: u32, flags: u32, out: u32) -> i32;
    pub safe fn sock_shutdown(fd: i32, how: u32) -> i32;
}
