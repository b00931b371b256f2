//! Deliveries of RabbitMQ.

use std::borrow::Cow;

use lapin::message::Delivery;
use lapin::types::AMQPValue;

use super::{IdError, Incoming, id_source};
use crate::inbox::MessageId;

/// What quorum queues count: how often a message was delivered and came back.
const DELIVERY_COUNT: &str = "x-delivery-count";
/// How the AMQP binding of CloudEvents writes an attribute, in its two forms (section 3.1.3.1).
const ATTRIBUTE: [&str; 2] = ["cloudEvents:", "cloudEvents_"];

impl Incoming for Delivery {
    fn payload(&self) -> &[u8] {
        &self.data
    }

    /// The header of this name; a number counts by its digits.
    fn header(&self, name: &str) -> Result<Option<Cow<'_, [u8]>>, IdError> {
        value_of(self, name)
            .map(|value| bytes(value).ok_or_else(|| IdError::NotText(format!("header {name}"))))
            .transpose()
    }

    fn content_type(&self) -> Result<Option<Cow<'_, [u8]>>, IdError> {
        Ok(self.properties.content_type().as_ref().map(|value| Cow::Borrowed(value.as_str().as_bytes())))
    }

    fn cloud_event_attribute(&self, name: &str) -> Result<Option<Cow<'_, [u8]>>, IdError> {
        let mut found = None;
        for prefix in ATTRIBUTE {
            let value = self.header(&format!("{prefix}{name}"))?;
            if found.is_some() && value.is_some() {
                return Err(IdError::Repeated(format!("attribute {name} of a CloudEvent")));
            }
            found = found.or(value);
        }
        Ok(found)
    }

    /// The property `message_id`.
    fn broker_id(&self, source: &str) -> Result<MessageId, IdError> {
        const WHAT: &str = "property message_id";
        let id = self.properties.message_id().as_ref().ok_or_else(|| IdError::absent(WHAT))?;
        id_source::named(source, id.as_str().as_bytes(), WHAT)
    }

    /// By `x-delivery-count` of a quorum queue. A classic queue only says whether it has delivered a message before, so of
    /// those that it has nothing is known.
    fn deliveries(&self) -> Option<u64> {
        match value_of(self, DELIVERY_COUNT).and_then(whole) {
            Some(before) => before.checked_add(1),
            None => (!self.redelivered).then_some(1),
        }
    }
}

fn value_of<'a>(delivery: &'a Delivery, name: &str) -> Option<&'a AMQPValue> {
    delivery.properties.headers().as_ref()?.inner().get(name)
}

fn whole(value: &AMQPValue) -> Option<u64> {
    match value {
        AMQPValue::ShortShortInt(number) => u64::try_from(*number).ok(),
        AMQPValue::ShortShortUInt(number) => Some((*number).into()),
        AMQPValue::ShortInt(number) => u64::try_from(*number).ok(),
        AMQPValue::ShortUInt(number) => Some((*number).into()),
        AMQPValue::LongInt(number) => u64::try_from(*number).ok(),
        AMQPValue::LongUInt(number) => Some((*number).into()),
        AMQPValue::LongLongInt(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

fn bytes(value: &AMQPValue) -> Option<Cow<'_, [u8]>> {
    match value {
        AMQPValue::LongString(text) => Some(text.as_bytes().into()),
        AMQPValue::ShortString(text) => Some(text.as_str().as_bytes().into()),
        AMQPValue::ByteArray(bytes) => Some(bytes.as_slice().into()),
        number => whole(number).map(|number| number.to_string().into_bytes().into()),
    }
}

#[cfg(test)]
mod tests {
    use lapin::BasicProperties;
    use lapin::types::FieldTable;

    use super::*;
    use crate::inbox::source::IdSource;

    fn delivery(redelivered: bool, headers: &[(&str, AMQPValue)]) -> Delivery {
        let mut delivery = Delivery::mock(1, "".into(), "q".into(), redelivered, b"body".to_vec());
        let mut table = FieldTable::default();
        for (name, value) in headers {
            table.insert((*name).into(), value.clone());
        }
        delivery.properties = BasicProperties::default().with_headers(table);
        delivery
    }

    // M6
    #[test]
    fn deliveries_are_counted_where_the_queue_counts_them() {
        let count = |count| delivery(true, &[("x-delivery-count", AMQPValue::LongLongInt(count))]).deliveries();
        assert_eq!((count(0), count(4), count(-1)), (Some(1), Some(5), None));
        assert_eq!(delivery(false, &[]).deliveries(), Some(1));
        assert_eq!(delivery(true, &[]).deliveries(), None);
    }

    // M9, M2
    #[test]
    fn a_delivery_is_named_by_its_property_or_by_its_event() {
        let mut named = delivery(false, &[]);
        assert!(matches!(IdSource::broker("q").read(&named), Err(IdError::Absent(_))));
        named.properties = BasicProperties::default().with_message_id("m-1".into());
        assert_eq!(IdSource::broker("q").read(&named).unwrap(), MessageId::new("q", "m-1").unwrap());
        named.properties = BasicProperties::default().with_message_id("".into());
        assert!(matches!(IdSource::broker("q").read(&named), Err(IdError::Empty(_))));

        let text = |text: &str| AMQPValue::LongString(text.as_bytes().to_vec().into());
        for prefix in ATTRIBUTE {
            let event =
                delivery(false, &[(&format!("{prefix}id"), text("7")), (&format!("{prefix}source"), text("/s"))]);
            assert_eq!(IdSource::cloud_events().read(&event).unwrap(), MessageId::new("/s", "7").unwrap());
        }
        let twice = [("cloudEvents:id", text("7")), ("cloudEvents_id", text("8")), ("cloudEvents:source", text("/s"))];
        assert!(matches!(IdSource::cloud_events().read(&delivery(false, &twice)), Err(IdError::Repeated(_))));
        let number = delivery(false, &[("event", AMQPValue::LongUInt(7))]);
        assert_eq!(IdSource::header("q", "event").read(&number).unwrap(), MessageId::new("q", "7").unwrap());
        let odd = delivery(false, &[("event", AMQPValue::Boolean(true))]);
        assert!(matches!(IdSource::header("q", "event").read(&odd), Err(IdError::NotText(_))));
    }
}
