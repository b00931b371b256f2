//! The conformance kit must fail stores that are wrong: each of these breaks one promise, and the property that names
//! it must say so.

use std::sync::Arc;
use std::time::Duration;

use idempotency::fingerprint::{Fingerprint, Profile};
use idempotency::record::AnswerBody;
use idempotency::store::{
    Boxed, Claim, ClaimRequest, Fence, Kept, LeaseControl, MemoryClaim, OnUnknown, Purge, Settled, Settlement, Store,
    Verdict,
};
use idempotency::testing::ManualClock;
use idempotency::testing::store::{self as kit, Harness};
use idempotency::{Endpoint, Error, ErrorKind, Key, LookupKey, MemoryStore, ScopeId};

const LEASE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    IgnoresFingerprint,
    IgnoresPreviousFingerprints,
    IgnoresScope,
    FoldsCase,
    ClaimsTwice,
    BusyBeforeMismatch,
    RefusesOtherProfiles,
    ComparesTheFirstBytes,
    Waits,
    DropsHeaders,
    LosesBody,
    KeepsAbandoned,
    ForgetsRefusals,
    NeverExpires,
    LetsStaleOwnersThrough,
    FenceStands,
    NeverRenews,
    HasNoLease,
    NeverPurges,
    FreesOnDropInNameOnly,
    ForgetsDispatching,
    RunsHeldKeys,
    HoldsByItself,
    WaitsOutUnknown,
    RecordsForAnybody,
}

#[derive(Clone)]
struct Broken(MemoryStore, Fault);

struct BrokenClaim(Option<MemoryClaim>, Fault);

fn changed(request: &ClaimRequest, fault: Fault) -> ClaimRequest {
    let lookup = request.lookup();
    let text = |fold: bool| if fold { lookup.key().as_str().to_lowercase() } else { lookup.key().as_str().to_owned() };
    let key = Key::new(&text(fault == Fault::FoldsCase)).unwrap();
    let scope = if fault == Fault::IgnoresScope { ScopeId::shared() } else { lookup.scope().clone() };
    let lookup = LookupKey::new(scope, key, Endpoint::named(lookup.endpoint().as_str()));
    let fingerprint = match fault {
        Fault::IgnoresFingerprint => Fingerprint::new(Profile::from_bytes([0; 8]), [0; 32]),
        Fault::ComparesTheFirstBytes => {
            let mut digest = *request.fingerprint().digest();
            digest[4..].fill(0);
            Fingerprint::new(request.fingerprint().profile(), digest)
        }
        Fault::RefusesOtherProfiles => Fingerprint::new(Profile::from_bytes([0; 8]), *request.fingerprint().digest()),
        _ => *request.fingerprint(),
    };
    let previous = if fault == Fault::IgnoresPreviousFingerprints { &[] } else { request.previous() };
    ClaimRequest::new(lookup, fingerprint, request.retention()).with_previous(previous.to_vec())
}

impl Store for Broken {
    type Claim = BrokenClaim;

    async fn claim(&self, request: &ClaimRequest) -> Result<Verdict<BrokenClaim>, Error> {
        let Self(inner, fault) = self;
        let request = changed(request, *fault);
        loop {
            return Ok(match inner.claim(&request).await? {
                Verdict::Claimed(claim) => Verdict::Claimed(BrokenClaim(Some(claim), *fault)),
                Verdict::InProgress { .. } if *fault == Fault::ClaimsTwice => {
                    Verdict::Claimed(BrokenClaim(None, *fault))
                }
                Verdict::InProgress { .. } if *fault == Fault::Waits => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                }
                Verdict::Mismatch if *fault == Fault::BusyBeforeMismatch => Verdict::InProgress { retry_after: None },
                Verdict::Replay(record) => Verdict::Replay(record),
                Verdict::InProgress { retry_after } => Verdict::InProgress { retry_after },
                Verdict::Unknown if *fault == Fault::RunsHeldKeys => Verdict::Claimed(BrokenClaim(None, *fault)),
                Verdict::Unknown => Verdict::Unknown,
                _ => Verdict::Mismatch,
            });
        }
    }
}

impl Purge for Broken {
    async fn purge(&self, limit: u32) -> Result<u64, Error> {
        if self.1 == Fault::NeverPurges { Ok(0) } else { self.0.purge(limit).await }
    }
}

impl Claim for BrokenClaim {
    fn attempt(&self) -> u64 {
        self.0.as_ref().map_or(1, Claim::attempt)
    }

    fn fence(&self) -> Option<Fence> {
        if self.1 == Fault::FenceStands { Some(Fence(7)) } else { self.0.as_ref().and_then(Claim::fence) }
    }

    fn control(&self) -> Option<Arc<dyn LeaseControl>> {
        let inner = self.0.as_ref()?.control()?;
        Some(Arc::new(BrokenControl(inner, self.1)))
    }

    fn lease(&self) -> Option<Duration> {
        self.0.as_ref().filter(|_| self.1 != Fault::HasNoLease).and_then(Claim::lease)
    }

    async fn renew(&mut self) -> Result<(), Error> {
        match &mut self.0 {
            Some(_) if self.1 == Fault::NeverRenews => Ok(()),
            Some(claim) => claim.renew().await,
            None => Ok(()),
        }
    }

    async fn settle(self, settlement: Settlement) -> Result<Settled, Error> {
        let Self(Some(claim), fault) = self else { return Ok(Settled::Recorded) };
        let spoil = |mut kept: Kept| {
            if fault == Fault::DropsHeaders {
                kept.answer.headers.clear();
            }
            if fault == Fault::NeverExpires {
                kept.retention = Duration::from_secs(1 << 30);
            }
            if fault == Fault::LosesBody {
                kept.answer.body = AnswerBody::NotKept;
            }
            kept
        };
        let settlement = match settlement {
            Settlement::Commit(kept) => Settlement::Commit(spoil(kept)),
            Settlement::Refuse(_) if fault == Fault::ForgetsRefusals => Settlement::Abandon,
            Settlement::Refuse(kept) => Settlement::Refuse(spoil(kept)),
            Settlement::Abandon if fault == Fault::KeepsAbandoned => return Ok(Settled::Recorded),
            Settlement::Unknown if fault == Fault::WaitsOutUnknown => return Ok(Settled::Recorded),
            ended @ (Settlement::Abandon | Settlement::Unknown) => ended,
        };
        match claim.settle(settlement).await {
            Err(error) if error.kind() == ErrorKind::LeaseLost && fault == Fault::LetsStaleOwnersThrough => {
                Ok(Settled::Recorded)
            }
            settled => settled,
        }
    }
}

struct BrokenControl(Arc<dyn LeaseControl>, Fault);

impl LeaseControl for BrokenControl {
    fn dispatching(&self) -> Boxed<'_, ()> {
        if self.1 == Fault::ForgetsDispatching { Box::pin(async { Ok(()) }) } else { self.0.dispatching() }
    }

    fn record(&self, settlement: Settlement) -> Boxed<'_, ()> {
        let recorded = self.0.record(settlement);
        Box::pin(async { if self.1 == Fault::RecordsForAnybody { Ok(()) } else { recorded.await } })
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

/// `FREES` is what the harness says of the store.
struct BrokenHarness<const FREES: bool>(Broken, ManualClock);

impl<const FREES: bool> BrokenHarness<FREES> {
    fn new(fault: Fault) -> Self {
        let clock = ManualClock::default();
        Self(Broken(MemoryStore::new().lease(LEASE).unwrap().clock(clock.clone()), fault), clock)
    }
}

impl<const FREES: bool> Harness for BrokenHarness<FREES> {
    type Store = Broken;

    const FREES_ON_DROP: bool = FREES;

    async fn store(&self) -> Broken {
        self.0.clone()
    }

    async fn expire(&self, _: &LookupKey) {
        self.1.advance(Duration::from_secs(3600));
    }

    async fn records(&self) -> u64 {
        self.0.0.len() as u64
    }

    async fn store_on_unknown(&self, on_unknown: OnUnknown) -> Option<Broken> {
        let Broken(store, fault) = self.0.clone();
        let chosen = if fault == Fault::HoldsByItself { OnUnknown::Hold } else { on_unknown };
        Some(Broken(store.on_unknown(chosen), fault))
    }

    async fn end_leases(&self) {
        self.1.advance(LEASE);
    }
}

/// Runs one property on one store; whether it holds.
macro_rules! holds {
    ($harness:ty, $fault:expr, $property:ident) => {{
        let run = tokio::spawn(async { kit::$property(&<$harness>::new($fault)).await });
        // A property that waits for ever on a broken store has found it as well.
        matches!(tokio::time::timeout(Duration::from_secs(10), run).await, Ok(Ok(())))
    }};
}

macro_rules! caught {
    ($($fault:ident by $property:ident)*) => {
        // Case C26: a store that cannot claim atomically (`ClaimsTwice`) fails as all others do.
        #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
        async fn each_broken_store_fails_the_property_that_names_its_fault() {
            $(
                assert!(holds!(BrokenHarness<false>, Fault::None, $property), "{} fails a good store", stringify!($property));
                assert!(
                    !holds!(BrokenHarness<false>, Fault::$fault, $property),
                    "{} does not see {:?}", stringify!($property), Fault::$fault
                );
            )*
        }
    };
}

caught! {
    IgnoresFingerprint by a_completed_key_with_another_request_is_a_mismatch
    IgnoresFingerprint by completion_keeps_the_claims_fingerprint
    IgnoresFingerprint by an_honest_retry_is_never_a_mismatch
    IgnoresPreviousFingerprints by a_request_is_compared_in_the_stored_profile
    IgnoresScope by scopes_compare_byte_for_byte
    IgnoresScope by scope_key_and_endpoint_are_told_apart
    FoldsCase by keys_compare_byte_for_byte
    ClaimsTwice by of_many_identical_claims_one_is_owner
    ClaimsTwice by a_running_key_is_in_progress
    BusyBeforeMismatch by a_mismatch_outranks_in_progress
    RefusesOtherProfiles by another_profile_counts_as_a_match
    ComparesTheFirstBytes by every_bit_of_a_fingerprint_counts
    Waits by a_claim_never_waits_for_a_rival
    DropsHeaders by an_answer_comes_back_byte_for_byte
    LosesBody by a_fresh_key_is_claimed_and_its_answer_replayed
    LosesBody by a_large_answer_comes_back_whole
    KeepsAbandoned by an_abandoned_key_is_free_at_once
    ForgetsRefusals by a_refusal_is_replayed
    NeverExpires by an_expired_record_counts_as_absent
    LetsStaleOwnersThrough by a_stale_owner_changes_nothing
    FenceStands by a_lease_that_ends_is_taken_over_with_a_larger_fence
    HasNoLease by a_renewed_lease_does_not_end
    NeverRenews by a_renewed_lease_does_not_end
    ForgetsDispatching by a_dispatched_attempt_that_stops_is_held
    RunsHeldKeys by a_dispatched_attempt_that_stops_is_held
    RunsHeldKeys by a_held_key_is_not_run_again_and_another_request_is_still_told_so
    HoldsByItself by what_follows_a_stop_is_the_stores_choice
    WaitsOutUnknown by an_unknown_outcome_ends_the_lease_at_once
    RecordsForAnybody by an_end_is_recorded_late_once_and_by_its_owner_only
    NeverPurges by a_purge_takes_what_has_expired_and_nothing_else
}

// A lease store that says its dropped claims are free at once is found out, by the cut test as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_store_that_frees_on_drop_in_name_only_is_found_out() {
    assert!(!holds!(BrokenHarness<true>, Fault::FreesOnDropInNameOnly, a_dropped_claim_publishes_nothing));
    assert!(!holds!(BrokenHarness<true>, Fault::FreesOnDropInNameOnly, a_dropped_settlement_is_done_or_undone));
}
