//! Enters namespaces, and explains why the system does not permit it. `helper` calls it.

use std::fs::{self, File};
use std::path::Path;

use super::sys::{Errno, set_namespace, unshare};
use crate::Namespace;

/// The sysctl of Debian and of older Ubuntu that forbids user namespaces.
const DEBIAN: &str = "kernel/unprivileged_userns_clone";
/// The sysctl of Ubuntu by which AppArmor takes the rights within one away.
const APPARMOR: &str = "kernel/apparmor_restrict_unprivileged_userns";
/// The number of user namespaces that may exist.
const MOST: &str = "user/max_user_namespaces";

/// Enters a network namespace and all that it needs. Later children are in a new namespace for
/// processes. Without the rights of root, this process is in a user namespace too, in which it has
/// all of them until it runs another program. Its user stays the same.
pub fn enter() -> Result<(), String> {
    let own = libc::CLONE_NEWNET | libc::CLONE_NEWNS | libc::CLONE_NEWPID;
    if is_root() && unshare(own).is_ok() {
        return Ok(());
    }
    // SAFETY: both calls take no pointers, and cannot fail.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    unshare(libc::CLONE_NEWUSER).map_err(|error| explain("a user namespace", error))?;
    map(user, group).map_err(|error| explain("the map of users", error))?;
    unshare(own).map_err(|error| explain("a network namespace", error))
}

/// Enters a network namespace that exists already. That of a process is entered by way of its user
/// namespace if this user has no rights here, as those of a container without root.
pub fn join(namespace: &Namespace) -> Result<(), String> {
    let (network, users) = namespace.files();
    let shown = network.display();
    let enter = |path: &Path, kind| -> Result<(), Errno> {
        let file = File::open(path).map_err(|error| Errno::of(&error))?;
        set_namespace(&file, kind)
    };
    let entered = match (enter(&network, libc::CLONE_NEWNET), users) {
        (Err(Errno(libc::EPERM)), Some(users)) => {
            enter(&users, libc::CLONE_NEWUSER).and_then(|()| enter(&network, libc::CLONE_NEWNET))
        }
        (entered, _) => entered,
    };
    entered.map_err(|error| {
        let advice = match error.0 {
            libc::ENOENT => {
                "name one that `ip netns` shows, the number of a process, or the path of a file"
            }
            libc::EINVAL => "it must be a network namespace",
            _ => "run as root, or as the user who runs the container",
        };
        format!("cannot enter the network namespace {shown}: {error}; {advice}")
    })
}

fn is_root() -> bool {
    // SAFETY: the call takes no pointers, and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Maps the user and the group to themselves.
fn map(user: u32, group: u32) -> Result<(), Errno> {
    let write = |path: &str, content: String| {
        let written = fs::write(path, content);
        written.map_err(|error| Errno::of(&error))
    };
    write("/proc/self/setgroups", "deny".to_owned())?;
    write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    write("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// Describes an error of a step that needs the rights of a user namespace.
pub fn explain(step: &str, error: Errno) -> String {
    let reason = format!("cannot make {step}: {error}");
    match cause(error) {
        Some(cause) => format!("{reason}. {cause}"),
        None => reason,
    }
}

fn cause(error: Errno) -> Option<String> {
    let is = |name: &str, value: &str| sysctl(name).is_some_and(|found| found == value);
    if error == Errno(libc::ENOSPC) || is(MOST, "0") {
        return Some(format!(
            "The system permits no more user namespaces: set {} higher (`sysctl \
             user.max_user_namespaces=15000`)",
            MOST.replace('/', ".")
        ));
    }
    let forbidden = matches!(error.0, libc::EPERM | libc::EACCES);
    if !forbidden || is_root() && !is(APPARMOR, "1") {
        return (error.0 == libc::EPERM).then(|| {
            "A container may forbid it: run it with the right CAP_SYS_ADMIN, or without its \
             seccomp filter"
                .to_owned()
        });
    }
    if is(APPARMOR, "1") {
        return Some(
            "AppArmor restricts user namespaces on this system: run as root, give the program a \
             profile with `userns,`, or set kernel.apparmor_restrict_unprivileged_userns to 0"
                .to_owned(),
        );
    }
    if is(DEBIAN, "0") {
        return Some(
            "User namespaces are for root alone on this system: run as root, or set \
             kernel.unprivileged_userns_clone to 1"
                .to_owned(),
        );
    }
    Some("Run as root, or outside of a container whose filter forbids it".to_owned())
}

fn sysctl(name: &str) -> Option<String> {
    let content = fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
    Some(content.trim().to_owned())
}
