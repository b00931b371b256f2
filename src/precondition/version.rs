//! A version of a resource that never comes back.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use super::etag::EntityTag;
use super::evaluate::Current;

/// The version of one write of a resource: 122 random bits.
///
/// A new one for each write. So no tag ever stands for two contents: not after A was replaced by B and by A again, as a
/// digest would (a client that has seen only the first A would overwrite what B was for), and not after the resource was
/// deleted and created again, as a counter would. Store it beside the resource, as text or as a UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(Uuid);

impl Version {
    /// A version that was never used before.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "a default is the same every time")]
    pub fn new() -> Self {
        Self(Uuid::new_v4())
    }

    /// The version that was stored as this UUID.
    #[must_use]
    pub const fn from_uuid(stored: Uuid) -> Self {
        Self(stored)
    }

    /// As a UUID, to store it.
    #[must_use]
    pub const fn as_uuid(&self) -> Uuid {
        self.0
    }

    /// As a strong entity tag.
    #[must_use]
    pub fn to_tag(&self) -> EntityTag {
        EntityTag::from_parts(false, self.0.to_string().as_bytes())
    }

    /// What preconditions are judged against.
    #[must_use]
    pub fn to_current(&self) -> Current {
        Current::tagged(self.to_tag())
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Reads what `Display` writes.
impl FromStr for Version {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        text.parse().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // D2
    #[test]
    fn a_version_never_comes_back_and_reads_back() {
        let versions: std::collections::HashSet<Version> = (0..1000).map(|_| Version::new()).collect();
        assert_eq!(versions.len(), 1000);
        let version = Version::new();
        assert_eq!(version.to_string().parse(), Ok(version));
        assert_eq!(Version::from_uuid(version.as_uuid()), version);
        assert_eq!(version.to_tag().to_header_value(), format!("\"{version}\""));
        assert!(!version.to_tag().is_weak());
    }
}
