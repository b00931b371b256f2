//! What one endpoint asks of its keys beyond the syntax.

use super::{Key, KeyError, MAX_KEY_BYTES};

/// Rules for keys beyond the syntax. The default accepts every well-formed key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyRules {
    min_length: usize,
    uuid_only: bool,
}

impl KeyRules {
    /// Refuses keys of fewer than `bytes` bytes. More than [`MAX_KEY_BYTES`] counts as that many, so that some key is
    /// always acceptable.
    #[must_use]
    pub fn min_length(mut self, bytes: usize) -> Self {
        self.min_length = bytes.min(MAX_KEY_BYTES);
        self
    }

    /// Accepts only UUIDs in the hyphenated form (RFC 9562 section 4), of any version. Upper and lower case are one
    /// key: [`check`](KeyRules::check) gives it in lower case.
    #[must_use]
    pub fn uuid_only(mut self) -> Self {
        self.uuid_only = true;
        self
    }

    /// Gives the key to go on with.
    ///
    /// # Errors
    /// [`KeyError::NotUuid`] and [`KeyError::TooShort`].
    pub fn check(&self, key: Key) -> Result<Key, KeyError> {
        if self.uuid_only && !is_uuid(key.as_str()) {
            return Err(KeyError::NotUuid);
        }
        if key.as_str().len() < self.min_length {
            return Err(KeyError::TooShort);
        }
        if self.uuid_only && key.as_str().bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Ok(Key(key.as_str().to_ascii_lowercase().into()));
        }
        Ok(key)
    }
}

/// Whether the text has the form 8-4-4-4-12 hexadecimal digits.
fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    #[test]
    fn without_rules_every_well_formed_key_is_accepted() {
        // H7
        assert_eq!(KeyRules::default().check(key("x")), Ok(key("x")));
    }

    #[test]
    fn a_key_below_the_minimum_is_refused() {
        // H7
        let rules = KeyRules::default().min_length(8);
        assert_eq!(rules.check(key("1234567")), Err(KeyError::TooShort));
        assert_eq!(rules.check(key("12345678")), Ok(key("12345678")));
    }

    #[test]
    fn a_minimum_above_the_maximum_still_accepts_the_longest_key() {
        // H7
        let longest = key(&"a".repeat(MAX_KEY_BYTES));
        assert_eq!(KeyRules::default().min_length(1000).check(longest.clone()), Ok(longest));
    }

    #[test]
    fn uuids_in_any_case_are_one_key() {
        // H7, case K05
        let rules = KeyRules::default().uuid_only();
        let lower = key("8e03978e-40d5-43e8-bc93-6894a57f9324");
        assert_eq!(rules.check(key("8E03978E-40d5-43E8-BC93-6894A57F9324")), Ok(lower.clone()));
        assert_eq!(rules.check(lower.clone()), Ok(lower));
    }

    #[test]
    fn what_is_not_a_hyphenated_uuid_is_refused() {
        // H7, case K05
        let rules = KeyRules::default().uuid_only();
        for text in [
            "8e03978e40d543e8bc936894a57f9324",
            "{8e03978e-40d5-43e8-bc93-6894a57f9324}",
            "8e03978e-40d5-43e8-bc93-6894a57f932g",
            "8e03978e-40d5-43e8-bc936-894a57f9324",
            "order-1",
        ] {
            assert_eq!(rules.check(key(text)), Err(KeyError::NotUuid), "{text}");
        }
    }
}
