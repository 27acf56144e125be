//! Downloads over HTTP that resume where they broke off. The sources `http` and `oci` use them.

use reqwest::header::{
    CONTENT_RANGE, DATE, ETAG, HeaderMap, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    LAST_MODIFIED, RANGE,
};
use reqwest::{Client, Response, StatusCode, Url};

use super::{Fetched, Part};
use crate::error::{FetchError, one_line};
use crate::network::{NetworkOptions, Pace, refused, send};
use crate::record::Validators;

/// The most times that a broken download resumes at once, each time with more bytes than before.
/// After that the next check resumes it.
const MOST_RESUMPTIONS: usize = 5;

/// A download over HTTP, in as many pieces as it takes.
pub(super) struct Download<'a> {
    pub(super) client: &'a Client,
    pub(super) options: &'a NetworkOptions,
    pub(super) url: &'a Url,
    /// Headers of every request.
    pub(super) headers: HeaderMap,
    /// The most bytes that the file may have.
    pub(super) limit: u64,
    /// The digest that the address promises, if any. It identifies the part, as no other version of
    /// the content exists.
    pub(super) digest: Option<String>,
}

impl Download<'_> {
    /// Downloads the whole file, or the bytes missing from `part`.
    pub(super) async fn run(&self, part: &mut Part) -> Result<Fetched, FetchError> {
        if part.len() > 0 && !self.can_resume(part) {
            part.discard().await?;
        }
        for _ in 0..MOST_RESUMPTIONS {
            let before = part.len();
            match self.attempt(part).await {
                Err(error) if self.is_worth_another(&error, before, part) => {}
                other => return other,
            }
        }
        self.attempt(part).await
    }

    fn can_resume(&self, part: &Part) -> bool {
        self.digest.is_some() || part.validators().range_condition().is_some()
    }

    /// Returns true if the server may answer that the known file is current.
    fn is_conditional(&self) -> bool {
        self.headers.contains_key(IF_NONE_MATCH) || self.headers.contains_key(IF_MODIFIED_SINCE)
    }

    /// Returns true if the connection broke after progress, or if only the part was unusable.
    fn is_worth_another(&self, error: &FetchError, before: u64, part: &Part) -> bool {
        match error {
            FetchError::WrongRange(_) => before > 0,
            error => error.is_broken_connection() && part.len() > before && self.can_resume(part),
        }
    }

    async fn attempt(&self, part: &mut Part) -> Result<Fetched, FetchError> {
        let have = part.len();
        let mut request = self
            .client
            .get(self.url.clone())
            .headers(self.headers.clone());
        if have > 0 {
            request = request.header(RANGE, format!("bytes={have}-"));
            let condition = part.validators().range_condition();
            if let Some(condition) = condition.filter(|_| self.digest.is_none()) {
                request = request.header(IF_RANGE, condition);
            }
        }
        let response = send(request).await?;
        match response.status() {
            StatusCode::OK => {
                part.start(self.validators(&response)).await?;
            }
            StatusCode::PARTIAL_CONTENT if have > 0 => {
                if let Err(error) = self.check_range(&response, part) {
                    part.discard().await?;
                    return Err(error);
                }
            }
            StatusCode::RANGE_NOT_SATISFIABLE if have > 0 => {
                part.discard().await?;
                return Err(FetchError::WrongRange("none".to_owned()));
            }
            StatusCode::NOT_MODIFIED if self.is_conditional() => return Ok(Fetched::NotModified),
            _ => return Err(refused(&response)),
        }
        match self.read(response, part).await {
            Ok(()) => {
                let (bytes, validators) = part.take();
                Ok(Fetched::File(bytes, validators))
            }
            Err(error) => {
                match self.can_resume(part) && error.leaves_a_part() {
                    true => part.flush().await?,
                    false => part.discard().await?,
                }
                Err(error)
            }
        }
    }

    async fn read(&self, mut response: Response, part: &mut Part) -> Result<(), FetchError> {
        let limit = self.limit;
        let room = |part: &Part| limit.saturating_sub(part.len());
        if response.content_length() > Some(room(part)) {
            return Err(FetchError::TooLarge { limit });
        }
        let mut pace = Pace::new(self.options);
        while let Some(chunk) = response.chunk().await? {
            if chunk.len() as u64 > room(part) {
                return Err(FetchError::TooLarge { limit });
            }
            pace.check(chunk.len())?;
            part.append(&chunk).await?;
        }
        part.flush().await?;
        Ok(())
    }

    /// Checks that the answer continues the part, and with the same version.
    fn check_range(&self, response: &Response, part: &Part) -> Result<(), FetchError> {
        let range = response.headers().get(CONTENT_RANGE);
        let text = range.and_then(|range| range.to_str().ok()).unwrap_or("");
        let first = text
            .strip_prefix("bytes ")
            .and_then(|range| range.split_once('-'))
            .and_then(|(first, _)| first.parse().ok());
        if first != Some(part.len()) {
            return Err(FetchError::WrongRange(one_line(text)));
        }
        let (new, old) = (self.validators(response).tag, &part.validators().tag);
        match new.is_some() && old.is_some() && new != *old {
            true => Err(FetchError::WrongRange("of another version".to_owned())),
            false => Ok(()),
        }
    }

    fn validators(&self, response: &Response) -> Validators {
        match &self.digest {
            Some(digest) => Validators {
                tag: Some(digest.clone()),
                modified: None,
            },
            None => validators(response.headers()),
        }
    }
}

/// Returns the validators in an answer's headers, without those that are too long to record.
fn validators(headers: &HeaderMap) -> Validators {
    let text = |value: Option<&HeaderValue>| {
        let text = value?.to_str().ok()?;
        (text.len() <= Validators::MAX_BYTES).then(|| text.to_owned())
    };
    // A file may change once more in the second in which it was sent, and keep its date. A date
    // that is not older is no validator (RFC 9110, section 8.8.2.2).
    let date = |value: &Option<String>| httpdate::parse_http_date(value.as_deref()?).ok();
    let sent = date(&text(headers.get(DATE)));
    let modified = text(headers.get(LAST_MODIFIED));
    Validators {
        tag: text(headers.get(ETAG)),
        modified: modified.filter(|it| date(&Some(it.clone())) < sent),
    }
}
