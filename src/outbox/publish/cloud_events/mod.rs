//! Events as CloudEvents 1.0: what a publisher of your own needs to speak like the ones here.

mod attributes;
mod binary;
mod structured;

pub use attributes::attributes;
pub use binary::Binding;
pub use structured::{STRUCTURED_JSON, structured};

#[cfg(test)]
mod tests;
