//! `ss://` URLs (SIP002), and the older ones that are base64 as a whole.

use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use percent_encoding::percent_decode_str;
use watm_core::ConfigError;

use super::ignored::NO_PLUGINS;
use super::value::{self, field, quote};
use super::{Config, server};
use crate::method::Method;

const SCHEME: &str = "ss://";

/// Parameters without effect, with the only value that is supported.
const NEEDLESS: &[(&str, &str)] = &[
    ("type", "tcp"),
    ("security", "none"),
    ("headerType", "none"),
];

const EXAMPLE: &str =
    "expected ss://METHOD:PASSWORD@HOST:PORT#NAME, where METHOD:PASSWORD may be in base64";

/// The text behind `ss://`, in upper or lower case. `None` if the text begins with something else.
pub fn without_scheme(text: &str) -> Option<&str> {
    let (scheme, rest) = text.split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then_some(rest)
}

/// Parses the text behind the scheme of a URL.
pub fn parse(text: &str) -> Result<Config, ConfigError> {
    let syntax = || ConfigError::Syntax(EXAMPLE.to_owned());
    let (rest, name) = text.split_once('#').unwrap_or((text, ""));
    // Names are for people, and often not encoded.
    if name.contains(['\n', '\r']) || rest.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(ConfigError::Syntax(format!(
            "a space, or a second line, in a URL; {EXAMPLE}"
        )));
    }
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let Some((user, host)) = rest.rsplit_once('@') else {
        let whole = decode(rest.trim_end_matches('/')).ok_or_else(syntax)?;
        let (user, host) = whole.rsplit_once('@').ok_or_else(syntax)?;
        // The text from base64 is not percent-encoded as well.
        return build(user.to_owned(), host, query);
    };
    let user = percent(user).ok_or_else(|| field("userinfo", "wrong percent encoding"))?;
    // Base64 has no colon.
    let user = match user.contains(':') {
        true => user,
        false => decode(&user)
            .ok_or_else(|| field("userinfo", "neither METHOD:PASSWORD nor that in base64"))?,
    };
    build(user, host.trim_end_matches('/'), query)
}

fn build(user: String, host: &str, query: &str) -> Result<Config, ConfigError> {
    let (method, password) = user
        .split_once(':')
        .ok_or_else(|| field("userinfo", "expected METHOD:PASSWORD"))?;
    let method: Method = value::method(method).map_err(|why| field("method", why))?;
    let wrong = || {
        field(
            "host",
            "expected a host and a port, such as example.com:8388 or [2001:db8::1]:8388",
        )
    };
    let (name, port) = host.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse().map_err(|_| wrong())?;
    let bare = name.starts_with('[') || !name.contains(':');
    let server = value::destination(name, port)
        .filter(|_| bare)
        .ok_or_else(wrong)?;
    let mut config = server::assemble(method, password, Vec::new())?;
    config.server = Some(server);
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, text) = parameter.split_once('=').unwrap_or((parameter, ""));
        match name {
            "prefix" => {
                let text =
                    percent(text).ok_or_else(|| field("prefix", "not percent-encoded UTF-8"))?;
                config.prefix = value::prefix(&text).map_err(|why| field("prefix", why))?;
            }
            "plugin" if text.is_empty() => {}
            "plugin" => return Err(field("plugin", NO_PLUGINS)),
            // Outline marks its own servers, and lists of servers name a group.
            "outline" | "group" => {}
            _ => match NEEDLESS.iter().find(|(known, _)| *known == name) {
                Some((_, only)) if text.eq_ignore_ascii_case(only) || text.is_empty() => {}
                Some((name, only)) => {
                    let why = format!("{}: not supported; expected {only}", quote(text));
                    return Err(field(name, why));
                }
                None => {
                    let why = "unknown parameter; expected prefix";
                    return Err(field(&quote(name), why));
                }
            },
        }
    }
    Ok(config)
}

fn percent(text: &str) -> Option<String> {
    Some(percent_decode_str(text).decode_utf8().ok()?.into_owned())
}

/// Decodes base64 in either alphabet, with or without padding.
fn decode(text: &str) -> Option<String> {
    let alphabet = match text.contains(['-', '_']) {
        true => &URL_SAFE,
        false => &STANDARD,
    };
    let config =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let bytes = GeneralPurpose::new(alphabet, config).decode(text).ok()?;
    String::from_utf8(bytes).ok()
}
