//! What the command line says.

use std::path::PathBuf;

use axum::http::{HeaderValue, Uri};

use crate::Failure;

const USAGE: &str = "usage: client URL [--operations N] [--pending FILE] [--bearer NAME]";

pub struct Arguments {
    pub url: Uri,
    pub operations: u64,
    pub pending: Option<PathBuf>,
    pub bearer: Option<HeaderValue>,
}

impl Arguments {
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let (mut url, mut operations, mut pending, mut bearer) = (None, 1, None, None);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value; {USAGE}"));
            match word.as_str() {
                "--operations" => {
                    operations = value()?.parse().map_err(|_| format!("--operations: a number; {USAGE}"))?;
                }
                "--pending" => pending = Some(PathBuf::from(value()?)),
                "--bearer" => bearer = Some(HeaderValue::try_from(format!("Bearer {}", value()?))?),
                _ if word.starts_with('-') || url.is_some() => return Err(format!("{word}? {USAGE}").into()),
                _ => url = Some(word.parse::<Uri>().map_err(|error| format!("{word}: {error}; {USAGE}"))?),
            }
        }
        let url = url.ok_or(USAGE)?;
        if url.scheme_str() != Some("http") || url.authority().is_none() {
            return Err(format!("the URL must begin with http://; this example has no TLS. {USAGE}").into());
        }
        Ok(Self { url, operations, pending, bearer })
    }
}
