//! Messages of NATS JetStream.

use std::borrow::Cow;

use async_nats::jetstream::Message;

use super::{IdError, Incoming, id_source};
use crate::inbox::MessageId;

const MESSAGE_ID: &str = "Nats-Msg-Id";

impl Incoming for Message {
    fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Names are compared without regard to case.
    fn header(&self, name: &str) -> Result<Option<Cow<'_, [u8]>>, IdError> {
        let fields = self.headers.iter().flat_map(async_nats::HeaderMap::iter);
        let mut lines = fields
            .filter(|(field, _)| AsRef::<str>::as_ref(*field).eq_ignore_ascii_case(name))
            .flat_map(|(_, lines)| lines);
        let first = lines.next();
        if lines.next().is_some() {
            return Err(IdError::Repeated(format!("header {name}")));
        }
        Ok(first.map(|value| Cow::Borrowed(value.as_str().as_bytes())))
    }

    /// `Nats-Msg-Id`, else stream and sequence.
    fn broker_id(&self, source: &str) -> Result<MessageId, IdError> {
        if let Some(id) = self.header(MESSAGE_ID)? {
            return id_source::named(source, &id, MESSAGE_ID);
        }
        let info = self.info().map_err(|_| IdError::absent("stream and sequence"))?;
        id_source::placed(source, &[info.stream], &info.stream_sequence.to_string())
    }

    fn deliveries(&self) -> Option<u64> {
        self.info().ok().and_then(|info| u64::try_from(info.delivered).ok())
    }
}
