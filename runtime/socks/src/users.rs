//! The users of a proxy and their passwords.

use std::fmt;

use watm_socks_wire::same;

/// The users of a proxy. Without any, all clients may use it.
#[derive(Clone, Default)]
pub struct Users(Vec<(String, String)>);

impl Users {
    /// Admits all clients.
    pub fn everybody() -> Users {
        Users::default()
    }

    /// Adds a user. Fails if the name or the password is empty or longer than the 255 bytes of RFC
    /// 1929, or if the name has a colon, which HTTP cannot express.
    pub fn with(mut self, name: &str, password: &str) -> Result<Users, String> {
        let sized = |text: &str| (1..=255).contains(&text.len());
        if !sized(name) || name.contains(':') {
            return Err("a user's name must have 1 to 255 bytes, and no colon".to_owned());
        }
        if !sized(password) {
            return Err("a password must have 1 to 255 bytes".to_owned());
        }
        self.0.push((name.to_owned(), password.to_owned()));
        Ok(self)
    }

    /// Returns true if clients need no authentication.
    pub fn is_everybody(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if the user exists and the password matches. The time taken does not depend on
    /// the result.
    pub(crate) fn has(&self, name: &[u8], password: &[u8]) -> bool {
        let mut known = false;
        for (one, secret) in &self.0 {
            known |= same(one.as_bytes(), name) & same(secret.as_bytes(), password);
        }
        known
    }
}

/// Writes the names without the passwords.
impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().map(|(name, _)| name);
        f.debug_set().entries(names).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_and_the_password_have_to_be_right() {
        let users = Users::everybody().with("ann", "secret").unwrap();
        assert!(users.has(b"ann", b"secret"));
        for (name, password) in [
            ("ann", "secre"),
            ("ann", "secrets"),
            ("an", "secret"),
            ("", ""),
        ] {
            assert!(
                !users.has(name.as_bytes(), password.as_bytes()),
                "{name} {password}"
            );
        }
        assert!(!format!("{users:?}").contains("secret"));
        for (name, password) in [("", "a"), ("a", ""), ("a:b", "c")] {
            assert!(Users::everybody().with(name, password).is_err());
        }
    }
}
