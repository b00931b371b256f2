//! How the parts of an operation are written with serde.

pub(super) mod as_text {
    use std::fmt::Display;
    use std::str::FromStr;

    use http::{Method, Uri};
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    use crate::key::Key;

    pub(in crate::client) trait Text: Sized {
        fn write(&self) -> String;
        fn read(text: &str) -> Result<Self, impl Display>;
    }

    impl Text for Key {
        fn write(&self) -> String {
            self.as_str().to_owned()
        }

        fn read(text: &str) -> Result<Self, impl Display> {
            Self::new(text)
        }
    }

    impl Text for Method {
        fn write(&self) -> String {
            self.to_string()
        }

        fn read(text: &str) -> Result<Self, impl Display> {
            Self::from_str(text)
        }
    }

    impl Text for Uri {
        fn write(&self) -> String {
            self.to_string()
        }

        fn read(text: &str) -> Result<Self, impl Display> {
            Self::from_str(text)
        }
    }

    pub(in crate::client) fn serialize<T: Text, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&value.write())
    }

    pub(in crate::client) fn deserialize<'de, T: Text, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        T::read(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

pub(super) mod as_field {
    use http::HeaderValue;
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::{Error as _, Serialize, Serializer};

    pub(in crate::client) fn serialize<S: Serializer>(value: &Option<HeaderValue>, to: S) -> Result<S::Ok, S::Error> {
        let text = value.as_ref().map(HeaderValue::to_str).transpose();
        text.map_err(|_| S::Error::custom("a content type is visible ASCII"))?.serialize(to)
    }

    pub(in crate::client) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<HeaderValue>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(HeaderValue::try_from).transpose().map_err(D::Error::custom)
    }
}

pub(super) mod as_milliseconds {
    use std::time::{Duration, SystemTime};

    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    fn milliseconds(at: SystemTime) -> u64 {
        let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn time(milliseconds: u64) -> Option<SystemTime> {
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(milliseconds))
    }

    pub(in crate::client) fn cut(at: SystemTime) -> SystemTime {
        time(milliseconds(at)).unwrap_or(at)
    }

    pub(in crate::client) fn serialize<S: Serializer>(at: &SystemTime, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(milliseconds(*at))
    }

    pub(in crate::client) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SystemTime, D::Error> {
        time(u64::deserialize(from)?).ok_or_else(|| D::Error::custom("not a time"))
    }
}

pub(super) mod as_body {
    use std::fmt::Write as _;

    use bytes::Bytes;
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::{Serialize, Serializer};

    #[derive(serde::Serialize, serde::Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Stored {
        Text(String),
        Hex(String),
    }

    pub(in crate::client) fn serialize<S: Serializer>(body: &Bytes, to: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(body) {
            Ok(text) => Stored::Text(text.to_owned()),
            Err(_) => Stored::Hex(body.iter().fold(String::with_capacity(body.len() * 2), |mut hex, byte| {
                // Writing to a String cannot fail.
                let _ = write!(hex, "{byte:02x}");
                hex
            })),
        }
        .serialize(to)
    }

    pub(in crate::client) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        match Stored::deserialize(from)? {
            Stored::Text(text) => Ok(text.into()),
            Stored::Hex(hex) => unhex(hex.as_bytes()).ok_or_else(|| D::Error::custom("not hex")),
        }
    }

    fn unhex(hex: &[u8]) -> Option<Bytes> {
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let (pairs, []) = hex.as_chunks::<2>() else { return None };
        pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
    }
}
