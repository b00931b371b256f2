//! A message in its owner's hands.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::millis;
use crate::error::{Error, ErrorKind};
use crate::store::Token;
use crate::store::redis::claim::REMEMBERED;
use crate::store::redis::link::Link;
use crate::store::redis::reply::int;
use crate::store::redis::scripts::Step;

/// The right to process a message, for a while. Dropped, it ends by itself, and the message can then be processed by
/// somebody else.
#[must_use = "a message that is neither marked done nor freed is processed again later"]
pub struct DedupGuard(Option<Held>);

struct Held {
    link: Arc<Link>,
    key: String,
    token: Token,
    processing: Duration,
    window: Duration,
}

impl DedupGuard {
    pub(super) fn new(link: Arc<Link>, key: String, token: Token, (processing, window): (Duration, Duration)) -> Self {
        Self(Some(Held { link, key, token, processing, window }))
    }

    /// Nothing holds the message, and nothing will remember it.
    pub(super) fn unprotected() -> Self {
        Self(None)
    }

    /// Whether the window knows of this message. Not where it runs unprotected.
    #[must_use]
    pub fn is_protected(&self) -> bool {
        self.0.is_some()
    }

    /// Marks the message done, for the whole window from now. Call it when the effect is there.
    ///
    /// # Errors
    /// [`ErrorKind::LeaseLost`]: the time for processing is over, so the message may run elsewhere, or has; nothing was
    /// changed. Anything else: it may be marked or not. The effect is there in both cases: acknowledge the message.
    ///
    /// # Cancel safety
    /// Dropped, it is marked or not.
    pub async fn done(&self) -> Result<(), Error> {
        match &self.0 {
            Some(held) => held.owned(Step::WindowDone, &millis(held.window)).await,
            None => Ok(()),
        }
    }

    /// Frees the message, so that its redelivery is processed at once (case B23). Call it when nothing was done.
    ///
    /// # Errors
    /// [`ErrorKind::LeaseLost`]: it was not this owner's any more. Anything else: it may be free or not; then it is free
    /// when the time for processing is over.
    ///
    /// # Cancel safety
    /// Dropped, it is free or not.
    pub async fn free(self) -> Result<(), Error> {
        match &self.0 {
            Some(held) => held.owned(Step::WindowFree, REMEMBERED).await,
            None => Ok(()),
        }
    }

    /// Takes the whole time for processing anew, from now.
    ///
    /// # Errors
    /// [`ErrorKind::LeaseLost`]: that time was over already. Anything else: it was prolonged or not.
    ///
    /// # Cancel safety
    /// Dropped, it was prolonged or not.
    pub async fn renew(&self) -> Result<(), Error> {
        match &self.0 {
            Some(held) => held.owned(Step::WindowRenew, &millis(held.processing)).await,
            None => Ok(()),
        }
    }
}

impl Held {
    /// A step that only the owner may take.
    async fn owned(&self, step: Step, span: &str) -> Result<(), Error> {
        let (answer, _) = self.link.run(step, &self.key, &[self.token.as_bytes(), span.as_bytes()]).await?;
        match int(Some(&answer))? {
            1 => Ok(()),
            0 => Err(ErrorKind::LeaseLost.into()),
            _ => Err(ErrorKind::Unreadable.into()),
        }
    }
}

impl fmt::Debug for DedupGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DedupGuard").field("is_protected", &self.is_protected()).finish_non_exhaustive()
    }
}
