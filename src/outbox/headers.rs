//! The stored form of header fields: a JSON array of pairs, which keeps their order and repetitions.

/// `None` without any.
pub(crate) fn to_text(headers: &[(String, String)]) -> Option<String> {
    if headers.is_empty() {
        return None;
    }
    let pair = |(name, value): &(String, String)| serde_json::Value::from(vec![name.as_str(), value.as_str()]);
    Some(serde_json::Value::Array(headers.iter().map(pair).collect()).to_string())
}

pub(crate) fn from_text(text: Option<&str>) -> Result<Vec<(String, String)>, serde_json::Error> {
    text.map_or(Ok(Vec::new()), serde_json::from_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    // M21
    #[test]
    fn header_fields_come_back_as_they_were() {
        let headers = [("a", "1"), ("A", "\"\\ü"), ("a", "2"), ("empty", "")];
        let headers: Vec<_> = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        assert_eq!(from_text(to_text(&headers).as_deref()).unwrap(), headers);
        assert_eq!(to_text(&[]), None);
        assert_eq!(from_text(None).unwrap(), []);
    }
}
