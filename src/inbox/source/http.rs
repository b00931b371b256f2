//! Requests whose body has been read: webhooks, CloudEvents over HTTP.

use std::borrow::Cow;

use super::{IdError, Incoming};

impl<B: AsRef<[u8]>> Incoming for http::Request<B> {
    fn payload(&self) -> &[u8] {
        self.body().as_ref()
    }

    fn header(&self, name: &str) -> Result<Option<Cow<'_, [u8]>>, IdError> {
        let mut lines = self.headers().get_all(name).iter();
        let first = lines.next();
        if lines.next().is_some() {
            return Err(IdError::Repeated(format!("header field {name}")));
        }
        Ok(first.map(|value| Cow::Borrowed(value.as_bytes())))
    }
}
