//! The programs that may use a tunnel: the lines `AllowedApps` and `DisallowedApps` of a file, which
//! WireSock introduced. `configuration` takes them out of what the module gets, and `exec` enforces
//! them.

use std::path::Path;

/// The mark with which WireSock hides a line from other programs.
const HIDDEN: &str = "#@ws:";

/// Rules for programs: names such as `firefox` or `Firefox.exe`, paths of programs, or folders.
///
/// Case and `.exe` do not count. A disallowed program stays so even if it is allowed too.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Applications {
    /// The only ones that are allowed; none: all.
    allowed: Vec<String>,
    disallowed: Vec<String>,
}

impl Applications {
    /// Returns the rules of a configuration, and the rest of it. Fails with the line that is wrong, or
    /// if peers have different rules, since the module chooses between peers.
    pub(super) fn split(config: &str) -> Result<(Option<Applications>, String), String> {
        let mut rest = String::with_capacity(config.len());
        // The rules of each section `[Peer]`, and before those what comes before the first.
        let mut sections = vec![Applications::default()];
        for (number, line) in config.lines().enumerate() {
            let content = line.trim_start_matches('\u{feff}').trim();
            if let Some(heading) = content.strip_prefix('[') {
                let name = heading.split(']').next().unwrap_or_default();
                if name.trim().eq_ignore_ascii_case("peer") {
                    sections.push(Applications::default());
                }
            }
            let current = sections.last_mut().expect("there is one at least");
            match current.take(content) {
                Ok(false) => rest.push_str(line),
                Ok(true) => {}
                Err(field) => {
                    let number = number + 1;
                    return Err(format!("line {number}: {field}: missing application name"));
                }
            }
            rest.push('\n');
        }
        let before = sections.remove(0);
        let some = sections.iter().chain([&before]).find(|one| !one.is_empty());
        let Some(rules) = some.cloned() else {
            return Ok((None, config.to_owned()));
        };
        let same = match before.is_empty() {
            true => sections.iter().all(|of_peer| *of_peer == rules),
            false => sections.iter().all(Applications::is_empty),
        };
        match same {
            true => Ok((Some(rules), rest)),
            false => Err(
                "AllowedApps, DisallowedApps: must be the same for all peers, since the address \
                 selects the peer; make a configuration for each peer"
                    .to_owned(),
            ),
        }
    }

    /// Takes the rules of a line. Returns false if it has none. Fails with the field if its value is
    /// empty.
    fn take<'a>(&mut self, line: &'a str) -> Result<bool, &'a str> {
        let line = line.strip_prefix(HIDDEN).unwrap_or(line);
        let Some((field, value)) = line.split_once('=') else {
            return Ok(false);
        };
        let field = field.trim();
        let rules = match field.to_ascii_lowercase().as_str() {
            "allowedapps" => &mut self.allowed,
            "disallowedapps" => &mut self.disallowed,
            _ => return Ok(false),
        };
        let names = value.split(',').map(str::trim);
        let before = rules.len();
        rules.extend(names.filter(|name| !name.is_empty()).map(str::to_owned));
        match rules.len() > before {
            true => Ok(true),
            false => Err(field),
        }
    }

    fn is_empty(&self) -> bool {
        self.allowed.is_empty() && self.disallowed.is_empty()
    }

    /// Returns true if the program with this path may use the tunnel.
    pub(super) fn admit(&self, program: &Path) -> bool {
        let program = comparable(&program.to_string_lossy());
        let names = |rule: &String| names(&comparable(rule), &program);
        let allowed = self.allowed.is_empty() || self.allowed.iter().any(names);
        allowed && !self.disallowed.iter().any(names)
    }
}

/// Returns true if a rule matches this program.
fn names(rule: &str, program: &str) -> bool {
    if !rule.contains('/') {
        let name = program.rsplit('/').next().unwrap_or_default();
        return bare(name) == bare(rule);
    }
    let folder = format!("{}/", rule.trim_end_matches('/'));
    bare(program) == bare(rule) || program.starts_with(&folder)
}

/// Returns a path in lower case, with `/` between its parts.
fn comparable(path: &str) -> String {
    path.replace('\\', "/").to_lowercase()
}

fn bare(name: &str) -> &str {
    name.strip_suffix(".exe").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(config: &str) -> Applications {
        let (rules, _) = Applications::split(config).unwrap();
        rules.expect("rules")
    }

    #[test]
    fn programs_are_named_by_name_path_or_folder() {
        let allows = |rule: &str, program: &str| {
            rules(&format!("[Peer]\nAllowedApps = {rule}")).admit(Path::new(program))
        };
        for (rule, program) in [
            ("curl", "/usr/bin/curl"),
            ("Curl.exe, wget", "/usr/bin/curl"),
            ("/usr/bin/curl", "/usr/bin/curl"),
            ("/opt/browser/", "/opt/browser/bin/firefox"),
            ("/opt/browser", "/opt/browser/bin/firefox"),
            ("C:\\Apps", "C:\\apps\\firefox.exe"),
        ] {
            assert!(allows(rule, program), "{rule} {program}");
        }
        for (rule, program) in [
            ("curl", "/usr/bin/curl2"),
            ("/usr/bin/curl", "/bin/curl"),
            ("/opt/browser", "/opt/browser2/firefox"),
            ("bin", "/usr/bin/curl"),
        ] {
            assert!(!allows(rule, program), "{rule} {program}");
        }
    }

    #[test]
    fn a_disallowed_program_stays_so() {
        let rules = rules("[Peer]\n#@ws:DisallowedApps = curl\nallowedapps=curl,wget\n");
        assert!(!rules.admit(Path::new("/usr/bin/curl")));
        assert!(rules.admit(Path::new("/usr/bin/wget")));
        assert!(!rules.admit(Path::new("/usr/bin/python3")));
    }

    #[test]
    fn the_module_gets_the_other_lines_at_their_places() {
        let config = "[Interface]\nMTU = 1400\n[Peer]\nAllowedApps = curl\nPublicKey = x\n";
        let (rules, rest) = Applications::split(config).unwrap();
        assert!(rules.is_some());
        assert_eq!(rest, "[Interface]\nMTU = 1400\n[Peer]\n\nPublicKey = x\n");
        let plain = "[Peer]\r\nPublicKey = x";
        assert_eq!(Applications::split(plain), Ok((None, plain.to_owned())));
    }

    #[test]
    fn faults_are_named() {
        for (config, expected) in [
            (
                "[Peer]\nAllowedApps = ,\n",
                "line 2: AllowedApps: missing application name",
            ),
            (
                "[Peer]\nAllowedApps = a\n[Peer]\nAllowedApps = b\n",
                "must be the same for all peers",
            ),
            (
                "[Peer]\nAllowedApps = a\n[Peer]\n",
                "must be the same for all peers",
            ),
        ] {
            let error = Applications::split(config).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
