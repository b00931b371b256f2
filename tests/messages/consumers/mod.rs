//! Consumers of real brokers: what M9 says to do with each answer of the inbox.

mod window;
