//! The conformance kit must fail inboxes that are wrong: each of these breaks one promise, and the property that names it
//! must say so.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idempotency::inbox::{MOST_IN_A_BATCH, Message, PayloadDigest, Processed};
use idempotency::store::Isolation;
use idempotency::testing::inbox::{self as kit, Failed, Harness, Work};
use tokio::task::yield_now;

use super::lab::{Lab, MariaDbLab};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    ForgetsMarks,
    MarksBeforeTheWork,
    WritesBesideTheTransaction,
    IgnoresPayloads,
    RefusesWhatIsNotCompared,
    Waits,
    RunsRivals,
    ConflictBeforeBusy,
    DuplicateWhileRunning,
    FailsWhenBusy,
    OneAtATime,
    FoldsCase,
    TrimsBlanks,
    CutsParts,
    IgnoresSources,
    IgnoresConsumers,
    ForgetsTheBatch,
    AllOrNothing,
    KeepsABatch,
    CutsBatches,
    TakesAnyBatch,
    ExpiresByItself,
    PurgesEverything,
    NeverPurges,
    StaysBusyWhenDropped,
}

type Key = (String, Vec<u8>, Vec<u8>);

struct Mark {
    payload: Option<PayloadDigest>,
    is_expired: bool,
}

#[derive(Default)]
struct State {
    marks: HashMap<Key, Mark>,
    running: HashSet<Key>,
    effects: HashMap<String, u64>,
}

/// An inbox in memory.
struct Model {
    state: Arc<Mutex<State>>,
    fault: Fault,
}

struct Running<'a>(&'a Model, Vec<Key>);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if self.0.fault != Fault::StaysBusyWhenDropped {
            self.end();
        }
    }
}

impl Running<'_> {
    fn end(&self) {
        let mut state = self.0.state.lock().unwrap();
        for key in &self.1 {
            state.running.remove(key);
        }
    }
}

impl Model {
    fn new(fault: Fault) -> Self {
        Self { state: Arc::default(), fault }
    }

    fn key(&self, consumer: &str, message: &Message) -> Key {
        let [source, id] = message.id().stored().map(<[u8]>::to_vec);
        let (mut consumer, mut source, mut id) = (consumer.to_owned(), source, id);
        match self.fault {
            Fault::FoldsCase => id = id.to_ascii_lowercase(),
            Fault::TrimsBlanks => id = id.trim_ascii().to_vec(),
            // Before what tells the stored digests of long parts apart.
            Fault::CutsParts => id.truncate(8),
            Fault::IgnoresSources => source.clear(),
            Fault::IgnoresConsumers => consumer.clear(),
            _ => {}
        }
        (consumer, source, id)
    }

    /// What is said before the work, if there is none to do.
    fn look(&self, state: &State, key: &Key, message: &Message) -> Option<Processed<()>> {
        let busy = Processed::Busy { retry_after: Duration::ZERO };
        let is_running = match self.fault {
            Fault::RunsRivals => false,
            Fault::OneAtATime => !state.running.is_empty(),
            _ => state.running.contains(key),
        };
        if is_running {
            return Some(match self.fault {
                Fault::DuplicateWhileRunning => Processed::Duplicate,
                Fault::ConflictBeforeBusy => Processed::Conflict,
                _ => busy,
            });
        }
        let mark = state.marks.get(key)?;
        if self.fault == Fault::ExpiresByItself && mark.is_expired {
            return None;
        }
        let is_same = match (mark.payload, message.payload()) {
            (Some(stored), Some(payload)) => stored == payload,
            (_, None) => self.fault != Fault::RefusesWhatIsNotCompared,
            (None, _) => true,
        };
        Some(if is_same || self.fault == Fault::IgnoresPayloads { Processed::Duplicate } else { Processed::Conflict })
    }

    fn mark(&self, state: &mut State, key: &Key, message: &Message) {
        if self.fault != Fault::ForgetsMarks {
            state.marks.insert(key.clone(), Mark { payload: message.payload(), is_expired: false });
        }
    }

    async fn run(&self, consumer: &str, messages: &[Message], work: Work) -> Result<Vec<Processed<()>>, Failed> {
        yield_now().await;
        let (mut told, mut firsts): (Vec<_>, Vec<(Key, Message)>) = (Vec::new(), Vec::new());
        let mut running = Running(self, Vec::new());
        for message in messages {
            let key = self.key(consumer, message);
            loop {
                let answer = {
                    let mut state = self.state.lock().unwrap();
                    let before = running.1.iter().position(|earlier| *earlier == key);
                    let answer = match before {
                        Some(_) if self.fault == Fault::ForgetsTheBatch => None,
                        Some(_) => {
                            let (_, first) = firsts.iter().find(|(first, _)| *first == key).unwrap();
                            Some(if first.payload() == message.payload() {
                                Processed::Duplicate
                            } else {
                                Processed::Conflict
                            })
                        }
                        None => self.look(&state, &key, message),
                    };
                    if answer.is_none() {
                        state.running.insert(key.clone());
                        running.1.push(key.clone());
                        firsts.push((key.clone(), message.clone()));
                        if self.fault == Fault::MarksBeforeTheWork {
                            self.mark(&mut state, &key, message);
                        }
                        if self.fault == Fault::WritesBesideTheTransaction {
                            *state.effects.entry(work.what.clone()).or_default() += 1;
                        }
                    }
                    answer
                };
                match answer {
                    Some(Processed::Busy { .. }) if self.fault == Fault::Waits => yield_now().await,
                    Some(Processed::Busy { .. }) if self.fault == Fault::FailsWhenBusy && messages.len() > 1 => {
                        return Err(Failed("aborted".to_owned()));
                    }
                    answer => {
                        told.push(answer.unwrap_or(Processed::First(())));
                        break;
                    }
                }
            }
        }
        if self.fault == Fault::AllOrNothing && told.iter().any(|told| *told != Processed::First(())) {
            return Ok(vec![Processed::Duplicate; told.len()]);
        }
        yield_now().await;
        work.pass().await;
        yield_now().await;
        if work.fails && !(self.fault == Fault::KeepsABatch && messages.len() > 1) {
            running.end();
            return Err(Failed::by_work());
        }
        let mut state = self.state.lock().unwrap();
        for (key, message) in &firsts {
            self.mark(&mut state, key, message);
            if self.fault != Fault::WritesBesideTheTransaction {
                *state.effects.entry(work.what.clone()).or_default() += 1;
            }
            state.running.remove(key);
        }
        if work.fails { Err(Failed::by_work()) } else { Ok(told) }
    }
}

impl Harness for Model {
    type Inbox = String;

    async fn inbox(&self, consumer: &str) -> String {
        consumer.to_owned()
    }

    async fn process(&self, inbox: &String, message: &Message, work: Work) -> Result<Processed<()>, Failed> {
        Ok(self.run(inbox, std::slice::from_ref(message), work).await?[0])
    }

    async fn accept(&self, inbox: &String, messages: &[Message], work: Work) -> Result<Vec<Processed<()>>, Failed> {
        let messages = match self.fault {
            Fault::CutsBatches => &messages[..messages.len().min(MOST_IN_A_BATCH / 2)],
            Fault::TakesAnyBatch => messages,
            _ if messages.len() > MOST_IN_A_BATCH => return Err(Failed("too many".to_owned())),
            _ => messages,
        };
        self.run(inbox, messages, work).await
    }

    async fn effects(&self, what: &str) -> u64 {
        self.state.lock().unwrap().effects.get(what).copied().unwrap_or_default()
    }

    async fn expire(&self) {
        self.state.lock().unwrap().marks.values_mut().for_each(|mark| mark.is_expired = true);
    }

    async fn purge(&self, _: &String, limit: u32) -> Result<u64, Failed> {
        let mut state = self.state.lock().unwrap();
        let gone = state.marks.iter().filter(|(_, mark)| mark.is_expired || self.fault == Fault::PurgesEverything);
        let limit = if self.fault == Fault::NeverPurges { 0 } else { limit as usize };
        let gone: Vec<Key> = gone.map(|(key, _)| key.clone()).take(limit).collect();
        for key in &gone {
            state.marks.remove(key);
        }
        Ok(gone.len() as u64)
    }
}

// The model without a fault passes, so that it is the fault which is found.
idempotency::inbox_conformance!(sound, async { Model::new(Fault::None) });

macro_rules! finds {
    ($($fault:ident: $property:ident,)*) => {$(
        #[allow(non_snake_case)]
        mod $fault {
            use super::*;

            #[tokio::test]
            async fn is_found() {
                let checked = tokio::spawn(async { kit::$property(&Model::new(Fault::$fault)).await });
                // A property that never ends has found it as well.
                let ended = tokio::time::timeout(Duration::from_secs(20), checked).await;
                assert!(!matches!(ended, Ok(Ok(()))), "{} lets it pass", stringify!($property));
            }
        }
    )*};
}

finds! {
    ForgetsMarks: a_first_delivery_acts_and_a_later_one_is_a_duplicate,
    MarksBeforeTheWork: a_delivery_that_fails_leaves_nothing_and_the_next_one_acts,
    WritesBesideTheTransaction: a_delivery_that_fails_leaves_nothing_and_the_next_one_acts,
    IgnoresPayloads: another_payload_is_a_conflict,
    RefusesWhatIsNotCompared: another_payload_is_a_conflict,
    Waits: a_running_message_is_busy_at_once,
    RunsRivals: of_many_deliveries_one_acts,
    ConflictBeforeBusy: busy_outranks_conflict,
    DuplicateWhileRunning: nothing_is_a_duplicate_before_the_first_commit,
    FailsWhenBusy: a_transaction_goes_on_after_busy,
    OneAtATime: different_messages_do_not_disturb_each_other,
    FoldsCase: ids_compare_byte_for_byte,
    TrimsBlanks: ids_compare_byte_for_byte,
    CutsParts: long_parts_are_not_cut,
    IgnoresSources: sources_are_told_apart,
    IgnoresConsumers: two_consumers_of_one_message_both_run,
    ForgetsTheBatch: a_duplicate_inside_a_batch_is_told,
    AllOrNothing: a_batch_tells_each_message_its_own,
    KeepsABatch: a_batch_that_is_rolled_back_leaves_nothing,
    CutsBatches: a_large_batch_is_accepted_whole,
    TakesAnyBatch: a_large_batch_is_accepted_whole,
    ExpiresByItself: a_mark_counts_until_it_is_purged,
    PurgesEverything: a_purge_takes_what_has_expired_and_nothing_else,
    NeverPurges: a_mark_counts_until_it_is_purged,
    StaysBusyWhenDropped: a_dropped_delivery_is_done_or_undone,
}

#[tokio::test]
async fn a_false_duplicate_is_found_in_a_crowd() {
    for fault in [Fault::MarksBeforeTheWork, Fault::DuplicateWhileRunning] {
        let property = kit::a_crowd_with_rollbacks_acts_once_each_and_has_no_false_duplicates;
        let found = tokio::spawn(async move { property(&Model::new(fault)).await }).await;
        assert!(found.is_err(), "{fault:?} passes");
    }
}

#[tokio::test]
async fn who_runs_beside_a_rival_is_found_in_another_process_too() {
    let property = kit::a_running_message_is_busy_in_another_process;
    let found = tokio::spawn(async move { property(&Model::new(Fault::RunsRivals)).await }).await;
    assert!(found.is_err());
}

/// Goes by the rows that an upsert has found, on a real server.
struct Upsert(MariaDbLab);

impl Harness for Upsert {
    type Inbox = ();

    async fn inbox(&self, _: &str) {}

    async fn process(&self, inbox: &(), message: &Message, work: Work) -> Result<Processed<()>, Failed> {
        Ok(self.accept(inbox, std::slice::from_ref(message), work).await?[0])
    }

    async fn accept(&self, (): &(), messages: &[Message], work: Work) -> Result<Vec<Processed<()>>, Failed> {
        let mut tx = self.0.begin().await;
        let mut told = Vec::new();
        for message in messages {
            let [source, id] = message.id().stored().map(<[u8]>::to_vec);
            let upsert = "INSERT INTO idempotency_inbox (consumer, source, id, token, accepted_at, expires_at)
                VALUES ('upsert', ?, ?, '0', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE id = id";
            let upsert = sqlx::query(upsert).bind(source).bind(id).execute(&mut *tx).await.map_err(Failed::of)?;
            if upsert.rows_affected() == 1 {
                MariaDbLab::write(&mut tx, &work.what).await.map_err(Failed::of)?;
                told.push(Processed::First(()));
            } else {
                told.push(Processed::Duplicate);
            }
        }
        tx.commit().await.map_err(Failed::of)?;
        Ok(told)
    }

    async fn effects(&self, what: &str) -> u64 {
        self.0.effects(what).await.try_into().unwrap()
    }

    async fn expire(&self) {}

    async fn purge(&self, (): &(), _: u32) -> Result<u64, Failed> {
        Ok(0)
    }
}

// M3
#[tokio::test]
async fn an_inbox_that_counts_found_rows_is_found() {
    let harness = Upsert(MariaDbLab::new(Isolation::ReadCommitted).await);
    let found = tokio::spawn(async move { kit::a_row_that_is_found_is_no_row_that_was_inserted(&harness).await });
    assert!(found.await.is_err(), "the upsert passes");
}
