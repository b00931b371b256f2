//! The command line.

use std::error::Error;

use idempotency::testing::probe::{Probe, Profile};

pub const USAGE: &str =
    "usage: probe URL [--header 'NAME: VALUE']… [--path /payments] [--body FILE] [--other-body FILE]
             [--slow-body FILE] [--method POST] [--profile ietf|stripe|acp] [--json]

  URL           http://HOST[:PORT]
  --body        a request that the service accepts; by default one for the reference service
  --other-body  another one; by default the first number in the body is one larger
  --slow-body   one that it accepts and takes a second or two for, to see what happens meanwhile";

/// What the reference service accepts.
const BODY: &str = r#"{"amount": 1250, "currency": "EUR", "card": "ok"}"#;
const SLOW: &str = r#"{"amount": 1250, "currency": "EUR", "card": "slow:1500"}"#;

pub struct Arguments {
    pub probe: Probe,
    pub json: bool,
}

type Wrong = Box<dyn Error>;

impl Arguments {
    /// `None`: help is asked for.
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Self>, Wrong> {
        let (mut url, mut path, mut method, mut profile, mut json) = (None, None, None, Profile::Ietf, false);
        let (mut headers, mut body, mut other, mut slow) = (Vec::new(), None, None, None);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--help" | "-h" => return Ok(None),
                "--json" => json = true,
                "--header" => headers.push(value()?),
                "--path" => path = Some(value()?),
                "--method" => method = Some(value()?.parse()?),
                "--profile" => profile = value()?.parse()?,
                "--body" => body = Some(read(&value()?)?),
                "--other-body" => other = Some(read(&value()?)?),
                "--slow-body" => slow = Some(read(&value()?)?),
                option if option.starts_with('-') => return Err(format!("there is no option {option}").into()),
                _ if url.is_some() => return Err(format!("one address is enough: {word}").into()),
                _ => url = Some(word),
            }
        }
        let url = url.ok_or("the address of the service is missing")?;
        // Our own slow request fits our own other one only.
        let slow = slow.or_else(|| body.is_none().then(|| SLOW.into()));
        let body = body.unwrap_or_else(|| BODY.into());
        let mut probe = Probe::new(&url, path.as_deref().unwrap_or("/payments"), body)?.profile(profile);
        for header in headers {
            let (name, value) = header.split_once(':').ok_or("a header is written as NAME: VALUE")?;
            probe = probe.header(name.trim(), value.trim())?;
        }
        probe = method.into_iter().fold(probe, Probe::method);
        probe = other.into_iter().fold(probe, Probe::other_body);
        Ok(Some(Self { probe: slow.into_iter().fold(probe, Probe::slow_body), json }))
    }
}

fn read(file: &str) -> Result<Vec<u8>, Wrong> {
    std::fs::read(file).map_err(|error| format!("{file}: {error}").into())
}
