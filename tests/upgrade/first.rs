//! A process of the first version, as far as its database knows it: the statements that it runs, and their parameters.

use std::collections::HashMap;

use idempotency::inbox::InboxDialect;
use idempotency::store::{AnyStore, ClaimRequest};
use idempotency::{LeaseDialect, OutboxDialect};
use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, Pool, SqlSafeStr, SqlStr};

/// How long everything is kept, in microseconds.
pub const RETENTION: i64 = 3_600_000_000;
/// How long a lease lasts, in microseconds.
pub const LEASE: i64 = 30_000_000;
/// The destination, key and bucket of every event: which bucket a key is in is frozen too (M22).
pub const DESTINATION: &str = "broker";
pub const KEY: &str = "c1";
pub const CONSUMER: &str = "billing";
pub const SOURCE: &str = "orders";

pub trait First: Sized {
    type DB: OutboxDialect + InboxDialect + LeaseDialect;
    /// A transaction that holds a key.
    type Claim;
    /// Whether relays share buckets by rows.
    const SHARES: bool;

    /// A database without tables.
    async fn empty() -> Self;
    fn pool(&self) -> &Pool<Self::DB>;
    /// The first version's tables up to this migration, with the history that it keeps.
    async fn create(&self, version: i32);
    /// Whether the migration is in the history.
    async fn applied(&self, version: i32) -> bool;
    /// Another migration, which the newest code does not know.
    async fn apply(&self, version: i32);
    /// The newest code's transactional store.
    async fn newest(&self) -> AnyStore;

    /// `None`: somebody else has the key, or there is a record.
    async fn claim(&self, request: &ClaimRequest) -> Option<Self::Claim>;
    async fn settle(&self, claim: Self::Claim, request: &ClaimRequest, answer: &[u8]);
    async fn give_up(&self, claim: Self::Claim, request: &ClaimRequest);
    /// The stored answer to this very request, in its stored form.
    async fn answer(&self, request: &ClaimRequest) -> Option<Vec<u8>>;
    /// What an operator does with a completed record.
    async fn forget(&self, request: &ClaimRequest) -> bool;

    async fn lease(&self, request: &ClaimRequest) -> bool;
    async fn renew(&self, request: &ClaimRequest) -> bool;
    async fn settle_lease(&self, request: &ClaimRequest, answer: &[u8]) -> bool;
    async fn abandon_lease(&self, request: &ClaimRequest) -> bool;
    async fn leased_answer(&self, request: &ClaimRequest) -> Option<Vec<u8>>;

    /// Whether it is the first delivery, whose mark is committed then.
    async fn accept(&self, id: &str, payload: &[u8]) -> bool;

    /// An event of [`DESTINATION`] and [`KEY`], in a transaction of its own.
    async fn enqueue(&self, bucket: u8, payload: &str);
    /// Joins as a relay and takes what it can get. `false`: not everything.
    async fn join(&self) -> bool;
    /// Publishes what is in the bucket: the payloads, in order.
    async fn publish(&self, bucket: u8) -> Vec<String>;
    async fn leave(&self);
}

/// The texts of a file of statements, by their names.
pub struct Texts(HashMap<&'static str, &'static str>);

impl Texts {
    pub fn of(file: &'static str) -> Self {
        let parts = file.split("-- name: ").skip(1);
        Self(parts.map(|part| part.split_once('\n').map(|(name, text)| (name, text.trim())).unwrap()).collect())
    }

    pub fn get(&self, name: &str) -> SqlStr {
        expand(self.0[name])
    }
}

/// A text for the tables where the connection's own settings lead.
pub fn expand(text: &str) -> SqlStr {
    AssertSqlSafe(text.replace("{schema}", "")).into_sql_str()
}

/// The first bytes of a digest over a domain and parts with their lengths.
pub fn digest(domain: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new_with_prefix(domain);
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

pub fn of_payload(payload: &[u8]) -> [u8; 32] {
    Sha256::digest(payload).into()
}

/// The first number in a digest.
pub fn number(digest: [u8; 32]) -> i64 {
    i64::from_be_bytes(digest[..8].try_into().unwrap())
}

/// The row that a statement is about.
macro_rules! bound {
    ($query:expr, $request:expr) => {{
        let lookup = $request.lookup();
        let parts = [lookup.scope().as_str(), lookup.key().as_str(), lookup.endpoint().as_str()];
        parts.into_iter().fold($query, |query, part| query.bind(part.to_owned()))
    }};
}

pub(crate) use bound;
