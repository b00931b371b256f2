//! What makes two requests the same request.
//!
//! A [`Fingerprinter`] reduces a [`RequestView`] to a [`Fingerprint`]: SHA-256 over a versioned encoding of method,
//! original path, raw query, content type, content encoding, chosen headers and body. JSON bodies count by value
//! (member order, white space and number spelling do not matter) and `multipart/form-data` by its parts, without the
//! boundary between them; all other bodies count byte for byte.
//!
//! A body that was to count by value or by parts and is not well-formed counts byte for byte: never are two bodies equal
//! because neither could be read. [`Fingerprinter`] has options for more, for less, and for digests that only the holder
//! of a secret can make.
//!
//! Authorization, cookies, dates, trace ids, user agent and preconditions never count: a client that repeats an
//! operation after it renewed its token or re-read the entity tag must get its stored answer.
//!
//! Each fingerprint carries the [`Profile`] that it was made under; [`Fingerprint::compare`] never calls two requests
//! different when only the profiles differ.

mod content;
mod digest;
mod fingerprinter;
mod json;
mod members;
mod multipart;
mod number;
mod pointers;
mod profile;
mod secret;
mod string;
mod transcript;
mod view;

pub use digest::{Fingerprint, Match};
pub use fingerprinter::Fingerprinter;
pub use pointers::PointerError;
pub use profile::Profile;
pub use view::RequestView;
