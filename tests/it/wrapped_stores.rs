//! Stores around stores: they pass the kit like what they hold.

use std::time::Duration;

use axum::http::StatusCode;
use bytes::Bytes;
use idempotency::policy::State;
use idempotency::record::AnswerBody;
use idempotency::store::{
    AnyStore, BodyCodec, ClaimRequest, CodedStore, Entry, Isolation, Kept, MemoryClaim, Operate, Purge, Store, Verdict,
};
use idempotency::testing::ManualClock;
use idempotency::testing::store::{Harness, answer, completed, request};
use idempotency::{Error, ErrorKind, LookupKey, MemoryStore};

use crate::support::app::{count_effects, create_effects, effects, send, write_effect};
use crate::support::mysql::{MySqlHarness, Way};
use crate::support::postgres::{PostgresHarness, pool_of, store_on};

const LEASE: Duration = Duration::from_secs(10);

/// A memory store in some wrapping.
struct Wrapped<S> {
    memory: MemoryStore,
    clock: ManualClock,
    store: S,
}

impl<S> Wrapped<S> {
    fn new(wrap: impl FnOnce(MemoryStore) -> S) -> Self {
        let clock = ManualClock::default();
        let memory = MemoryStore::new().lease(LEASE).unwrap().clock(clock.clone());
        Self { store: wrap(memory.clone()), memory, clock }
    }
}

impl<S: Store> Harness for Wrapped<S> {
    type Store = S;

    const FREES_ON_DROP: bool = false;

    async fn store(&self) -> S {
        self.store.clone()
    }

    async fn expire(&self, _: &LookupKey) {
        self.clock.advance(Duration::from_secs(3600));
    }

    async fn records(&self) -> u64 {
        self.memory.len() as u64
    }

    async fn end_leases(&self) {
        self.clock.advance(LEASE);
    }
}

/// Not a cipher, but all that one does here: another form, and a check.
struct Mask(u8);

impl BodyCodec for Mask {
    fn encode(&self, body: Bytes) -> Bytes {
        std::iter::once(self.0).chain(body.iter().map(|byte| byte ^ self.0)).collect()
    }

    fn decode(&self, stored: Bytes) -> Result<Bytes, Box<dyn std::error::Error + Send + Sync>> {
        match stored.split_first() {
            Some((mask, rest)) if *mask == self.0 => Ok(rest.iter().map(|byte| byte ^ self.0).collect()),
            _ => Err("another mask".into()),
        }
    }
}

/// `PostgresHarness` behind an `AnyStore`.
struct AnyPostgres(PostgresHarness);

impl Harness for AnyPostgres {
    type Store = AnyStore;

    const FREES_ON_DROP: bool = true;

    async fn store(&self) -> AnyStore {
        AnyStore::operable(self.0.store().await)
    }

    async fn expire(&self, lookup: &LookupKey) {
        self.0.expire(lookup).await;
    }

    async fn records(&self) -> u64 {
        self.0.records().await
    }
}

idempotency::store_conformance!(any_memory, async { Wrapped::new(AnyStore::operable) });
idempotency::operator_conformance!(any_memory_operators, async { Wrapped::new(AnyStore::operable) });
idempotency::store_conformance!(any_postgres, async {
    AnyPostgres(PostgresHarness::new(Isolation::ReadCommitted).await)
});
/// `MySqlHarness` behind an `AnyStore`.
struct AnyMySql(MySqlHarness);

impl Harness for AnyMySql {
    type Store = AnyStore;

    const FREES_ON_DROP: bool = true;

    async fn store(&self) -> AnyStore {
        AnyStore::operable(self.0.store().await)
    }

    async fn expire(&self, lookup: &LookupKey) {
        self.0.expire(lookup).await;
    }

    async fn records(&self) -> u64 {
        self.0.records().await
    }
}

idempotency::store_conformance!(any_mysql, async {
    AnyMySql(MySqlHarness::new(Way::NoWait, Isolation::ReadCommitted).await)
});
idempotency::operator_conformance!(any_mysql_operators, async {
    AnyMySql(MySqlHarness::new(Way::NoWait, Isolation::ReadCommitted).await)
});
idempotency::store_conformance!(coded, async { Wrapped::new(|memory| CodedStore::new(memory, Mask(0x5a))) });
idempotency::operator_conformance!(coded_operators, async {
    Wrapped::new(|memory| CodedStore::new(memory, Mask(0x5a)))
});

/// No more than the contract asks of a store.
#[derive(Clone)]
struct Bare(MemoryStore);

impl Store for Bare {
    type Claim = MemoryClaim;

    async fn claim(&self, request: &ClaimRequest) -> Result<Verdict<MemoryClaim>, Error> {
        self.0.claim(request).await
    }
}

// S8, S9: what the store inside does not offer is an error, and never a silence.
#[tokio::test]
async fn an_erased_store_of_your_own_says_what_it_cannot() {
    let store = AnyStore::new(Bare(MemoryStore::new()));
    let asked = request("k", 1);
    completed(&store, &asked, answer("done")).await;
    assert!(matches!(store.claim(&asked.again()).await, Ok(Verdict::Replay(_))));
    let entry = Entry::held(asked.lookup().clone(), State::Completed);
    let kept = Kept { answer: answer("operator"), retention: LEASE };
    let (scope, key) = (asked.lookup().scope(), asked.lookup().key());
    let errors = [
        store.purge(1).await.map(drop).unwrap_err(),
        store.find(scope, key, None).await.map(drop).unwrap_err(),
        store.list_stuck(LEASE, 1).await.map(drop).unwrap_err(),
        store.release(&entry).await.map(drop).unwrap_err(),
        store.settle_as(&entry, kept).await.map(drop).unwrap_err(),
        store.forget(&entry).await.map(drop).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Setup);
    }
}

// H41, cases F16, K16: the stored form is the codec's, and a wrong body is told so where it cannot be read.
#[tokio::test]
async fn a_body_is_kept_in_the_codecs_form_only() {
    let memory = MemoryStore::new();
    let coded = CodedStore::new(memory.clone(), Mask(0x5a));
    completed(&coded, &request("k", 1), answer("secret")).await;
    let Verdict::Replay(raw) = memory.claim(&request("k", 1)).await.unwrap() else { panic!() };
    assert!(matches!(&raw.answer.body, AnswerBody::Kept(body) if body != "secret" && body.len() == 7));
    let Verdict::Replay(record) = coded.claim(&request("k", 1)).await.unwrap() else { panic!() };
    assert_eq!(record.answer, answer("secret"));
    let other = CodedStore::new(memory, Mask(0x33));
    assert!(matches!(other.claim(&request("k", 2)).await, Ok(Verdict::Mismatch)));
    assert_eq!(other.claim(&request("k", 1)).await.unwrap_err().kind(), ErrorKind::Unreadable);
}

// H28, H29: an erased store lends its transaction and takes it back, with a key and without one.
#[tokio::test(flavor = "multi_thread")]
async fn an_erased_store_lends_its_transaction() {
    let pool = pool_of(5).await;
    create_effects(&pool).await;
    let store = CodedStore::new(AnyStore::new(store_on(&pool).await), Mask(0x5a));
    let app = effects(store.clone(), |mut tx| async move {
        write_effect(&mut tx, "one").await.unwrap();
        drop(tx);
        (StatusCode::CREATED, "done")
    });
    for replayed in [false, true] {
        let got = send(&app, Some("k"), "{}").await;
        assert_eq!((got.status.as_u16(), &got.body[..], got.is_replay()), (201, &b"done"[..], replayed));
    }
    assert_eq!(send(&app, None, "{}").await.status, 201);
    assert_eq!(count_effects(&pool).await, 2);
    let (keep, mut kept) = tokio::sync::mpsc::unbounded_channel();
    let app = effects(store, move |tx| {
        keep.send(tx).unwrap();
        async { StatusCode::CREATED }
    });
    for key in [Some("held"), None] {
        assert_eq!(send(&app, key, "{}").await.problem(), "held-transaction");
        drop(kept.recv().await);
    }
}
