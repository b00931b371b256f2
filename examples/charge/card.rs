//! Test cards that stop their own process in the middle, in the first attempt at an operation only.

use std::time::Duration;

use idempotency::Attempt;

/// `ok`, `declined`, `die:POINT` or `wait:POINT:MILLISECONDS`.
pub struct Card<'a> {
    text: &'a str,
    is_first: bool,
}

impl<'a> Card<'a> {
    pub fn new(text: &'a str, attempt: &Attempt) -> Self {
        Self { text, is_first: attempt.number() == 1 }
    }

    /// Dies or waits here, if the card says so.
    pub async fn at(&self, point: &str) {
        if !self.is_first {
            return;
        }
        let mut words = self.text.split(':');
        match (words.next(), words.next()) {
            // As `kill -9` would: nothing is cleaned up.
            (Some("die"), Some(here)) if here == point => std::process::abort(),
            (Some("wait"), Some(here)) if here == point => {
                let milliseconds = words.next().and_then(|text| text.parse().ok()).unwrap_or(1000);
                tokio::time::sleep(Duration::from_millis(milliseconds)).await;
            }
            _ => {}
        }
    }
}
