//! Programs in networks of their own, as the user of the test: needs /dev/net/tun. Without root the
//! tests pass where the system does not permit it. The file is also the helper.
#![cfg(target_os = "linux")]

use std::ffi::{CStr, c_char, c_int};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use watm_launch::{Launched, Plan, help, launch};

const HELPER: &str = "--helper";
const HOST: &str = "--host";

/// Called before `main`, while the process has one thread, as a helper must.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn(c_int, *const *const c_char) = begin;

extern "C" fn begin(count: c_int, words: *const *const c_char) {
    if count != 3 {
        return;
    }
    // SAFETY: the loader passes the arguments of the program, of which there are three.
    let [word, value] = [1, 2].map(|index| unsafe { CStr::from_ptr(*words.add(index)) });
    let value = value.to_str().unwrap_or_default();
    if word.to_bytes() == HELPER.as_bytes() {
        process::exit(help(value.parse().expect("a number")));
    }
    if word.to_bytes() == HOST.as_bytes() {
        host(value);
        process::exit(0);
    }
}

/// Returns false for a user who may not, other than root.
fn permitted() -> bool {
    is_root() || launch(helper(), &plan(&[])).is_ok()
}

fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    status.lines().any(|line| line.starts_with("Uid:\t0\t0\t"))
}

fn helper() -> Command {
    let mut helper = Command::new(env::current_exe().expect("this file"));
    helper.arg(HELPER);
    helper
}

fn plan(words: &[&str]) -> Plan {
    Plan {
        program: words.iter().map(Into::into).collect(),
        addresses: vec![
            "198.18.0.2".parse().expect("an address"),
            "fd00::2".parse().expect("an address"),
        ],
        mtu: 1500,
        ..Plan::default()
    }
}

fn start(plan: &Plan) -> (Launched, OwnedFd) {
    let mut launched = launch(helper(), plan).expect("this system permits it");
    let device = launched.take_device().expect("a device");
    launched.begin().expect("the helper waits");
    (launched, device)
}

fn shell(script: &str) -> Plan {
    plan(&["sh", "-c", script])
}

/// A file that does not exist.
fn fresh(name: &str) -> PathBuf {
    let path = env::temp_dir().join(format!("watm-launch-{}-{name}", process::id()));
    let _ = fs::remove_file(&path);
    path
}

fn eventually(what: &str, is: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is() {
        assert!(Instant::now() < deadline, "not within 30 s: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_exit_status_is_passed_on() {
    if !permitted() {
        return;
    }
    assert_eq!(start(&shell("exit 7")).0.wait().expect("it ended"), 7);
    assert_eq!(
        start(&shell("kill -9 $$")).0.wait().expect("it ended"),
        128 + 9
    );
    assert_eq!(start(&shell("true")).0.wait().expect("it ended"), 0);
}

#[test]
fn a_program_that_does_not_exist_is_127() {
    if !permitted() {
        return;
    }
    let (mut launched, _device) = start(&plan(&["/nowhere/at/all"]));
    assert_eq!(launched.wait().expect("it ended"), 127);
}

#[test]
fn signals_are_forwarded() {
    if !permitted() {
        return;
    }
    let ready = fresh("ready");
    let script = "trap 'exit 3' TERM; : > \"$0\"; while :; do sleep 0.1; done";
    let name = ready.to_str().expect("UTF-8");
    let (mut launched, _device) = start(&plan(&["sh", "-c", script, name]));
    eventually("the program runs", || ready.exists());
    launched.signal(15);
    assert_eq!(launched.wait().expect("it ended"), 3);
    fs::remove_file(ready).expect("it is there");
}

/// The bytes of the header before each packet (`struct virtio_net_hdr`).
const HEADER: usize = 10;

/// The protocols and destinations of packets in the device, until these were seen.
fn packets(device: OwnedFd, wanted: &[(u8, &[u8])]) {
    let mut device = fs::File::from(device);
    let mut missing: Vec<_> = wanted.to_vec();
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut buffer = [0; 2048];
    while !missing.is_empty() {
        assert!(Instant::now() < deadline, "missing packets: {missing:?}");
        let Ok(length) = device.read(&mut buffer) else {
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        let packet = &buffer[HEADER..length];
        let (protocol, destination) = match packet[0] >> 4 {
            4 => (packet[9], &packet[16..20]),
            _ => (packet[6], &packet[24..40]),
        };
        missing.retain(|(known, to)| *known != protocol || *to != destination);
    }
}

#[test]
fn the_device_is_the_only_network() {
    if !permitted() {
        return;
    }
    let script = "
import socket
for family, address in (socket.AF_INET, '192.0.2.7'), (socket.AF_INET6, '2001:db8::7'):
    for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
        s = socket.socket(family, kind)
        s.setblocking(False)
        s.connect_ex((address, 80))
        if kind == socket.SOCK_DGRAM:
            s.send(b'x')
names = sorted(name for _, name in socket.if_nameindex())
assert names == ['lo', 'watm0'], names
local = socket.create_server(('127.0.0.1', 0))
socket.create_connection(local.getsockname())
";
    let (mut launched, device) = start(&plan(&["python3", "-c", script]));
    let mut v6 = [0; 16];
    v6[..4].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
    v6[15] = 7;
    let v4 = [192, 0, 2, 7];
    packets(device, &[(6, &v4), (17, &v4), (6, &v6), (17, &v6)]);
    assert_eq!(launched.wait().expect("it ended"), 0);
}

#[test]
fn files_and_resolvers_are_the_plans() {
    if !permitted() {
        return;
    }
    let out = fresh("files");
    let covered = fresh("covered");
    fs::write(&covered, "outside").expect("a folder for files");
    let mut plan = shell("cat /etc/resolv.conf \"$COVERED\" > \"$OUT\"");
    plan.resolvers = vec!["198.18.0.53".parse().expect("an address")];
    plan.environment = vec![
        ("COVERED".into(), covered.clone().into()),
        ("OUT".into(), out.clone().into()),
    ];
    plan.files = vec![
        (covered.clone().into(), b"inside".to_vec()),
        ("/nowhere/at/all".into(), b"ignored".to_vec()),
    ];
    assert_eq!(start(&plan).0.wait().expect("it ended"), 0);
    let seen = fs::read_to_string(&out).expect("written");
    assert_eq!(seen, "nameserver 198.18.0.53\ninside");
    assert_eq!(
        fs::read_to_string(&covered).expect("still there"),
        "outside"
    );
    fs::remove_file(out).expect("it is there");
    fs::remove_file(covered).expect("it is there");
}

#[test]
fn the_user_stays_the_same() {
    if !permitted() {
        return;
    }
    let own = Command::new("id").arg("-u").output().expect("id").stdout;
    let own = String::from_utf8(own).expect("a number");
    let script = format!("test \"$(id -u)\" = {}", own.trim());
    assert_eq!(start(&shell(&script)).0.wait().expect("it ended"), 0);
}

/// True while the process of this name exists.
fn runs(name: &str) -> bool {
    fs::read_dir("/proc").expect("Linux").any(|entry| {
        let path = entry.expect("an entry").path().join("cmdline");
        let words = fs::read(path).unwrap_or_default();
        words
            .split(|byte| *byte == 0)
            .any(|word| word == name.as_bytes())
    })
}

#[test]
fn nothing_outlives_the_program() {
    if !permitted() {
        return;
    }
    let name = format!("watm-orphan-{}", process::id());
    let script = format!("(setsid sh -c 'while :; do sleep 1; done' {name} &) ; sleep 0.2");
    assert_eq!(start(&shell(&script)).0.wait().expect("it ended"), 0);
    eventually("the orphan is gone", || !runs(&name));
}

/// The parent that the test kills.
fn host(name: &str) {
    let script = "setsid sh -c 'while :; do sleep 1; done' \"$0\" & while :; do sleep 1; done";
    let (mut launched, _device) = start(&plan(&["sh", "-c", script, name]));
    let _ = std::io::stdout().write_all(b"begun\n");
    let _ = launched.wait();
}

#[test]
fn nothing_outlives_a_killed_parent() {
    if !permitted() {
        return;
    }
    let name = format!("watm-left-{}", process::id());
    let mut parent = Command::new(env::current_exe().expect("this file"))
        .args([HOST, &name])
        .stdout(Stdio::piped())
        .spawn()
        .expect("this file runs");
    let mut begun = [0; 6];
    let out = parent.stdout.as_mut().expect("piped");
    out.read_exact(&mut begun).expect("it begins");
    eventually("the program runs", || runs(&name));
    parent.kill().expect("it runs");
    let status = parent.wait().expect("it ended");
    assert_eq!(status.signal(), Some(9));
    eventually("everything is gone", || !runs(&name));
}
