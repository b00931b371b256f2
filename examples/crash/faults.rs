//! Does what the schedule says.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

use crate::Failure;
use crate::evidence::Database;
use crate::fleet::Fleet;
use crate::gate::Gate;
use crate::proxy::Then;
use crate::schedule::{Kind, Step};
use crate::servers::Server;

/// How often a kind may be tried without success.
const OFTEN: u64 = 4;

/// What is disturbed.
pub struct Faults {
    pub fleet: Arc<Fleet>,
    pub gate: Gate,
    pub server: Server,
    pub database: Database,
    /// Held by whoever disturbs the server.
    pub disturbed: tokio::sync::Mutex<()>,
    pub done: Arc<Done>,
}

/// What was done.
#[derive(Default)]
pub struct Done {
    counts: Mutex<BTreeMap<Kind, u64>>,
    /// How many sessions were ended in all.
    pub sessions: AtomicU64,
    /// What was tried, and when.
    tried: Mutex<Vec<(Instant, Step)>>,
    /// From when to when the server was away.
    restarts: Mutex<Vec<(Instant, Instant)>>,
    trouble: Mutex<Vec<String>>,
}

impl Done {
    fn count(&self, kind: Kind) {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner).entry(kind).or_default() += 1;
    }

    pub fn counts(&self) -> BTreeMap<Kind, u64> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Each fault that was tried, and when.
    pub fn tried(&self) -> Vec<(Instant, Step)> {
        self.tried.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The kinds that were tried often and never happened: an experiment without them shows less than it says.
    pub fn missed(&self) -> Vec<String> {
        let (tried, counts) = (self.tried(), self.counts());
        let mut times: BTreeMap<Kind, u64> = BTreeMap::new();
        for (_, step) in &tried {
            *times.entry(step.kind).or_default() += 1;
        }
        times.retain(|kind, times| *times >= OFTEN && counts.get(kind).is_none_or(|count| *count == 0));
        times.iter().map(|(kind, times)| format!("{}: tried {times} times, never done", kind.name())).collect()
    }

    /// When the server was back for the last time.
    pub fn last_restart(&self) -> Option<Instant> {
        self.restarts.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|(_, ended)| *ended).max()
    }

    /// What could not be done.
    pub fn trouble(&self) -> Vec<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// One fault after the other until then, some of them at once. Returns when all of it is over and everything runs again.
///
/// # Errors
/// If a fault was lost half-way.
pub async fn run(faults: &Arc<Faults>, steps: impl Iterator<Item = Step>, until: Instant) -> Result<(), Failure> {
    let mut under_way = JoinSet::new();
    let mut next = Instant::now();
    for step in steps {
        next += step.after;
        if next >= until {
            break;
        }
        sleep_until(next.into()).await;
        let faults = Arc::clone(faults);
        faults.done.tried.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), step));
        under_way.spawn(async move {
            if let Err(error) = faults.strike(step).await {
                let mut trouble = faults.done.trouble.lock().unwrap_or_else(PoisonError::into_inner);
                trouble.push(format!("{}: {error}", step.kind.name()));
            }
        });
    }
    sleep_until(until.into()).await;
    faults.gate.open();
    while let Some(ended) = under_way.join_next().await {
        ended.map_err(|error| format!("a fault was lost: {error}"))?;
    }
    // A fault that was under way may have set a cut meanwhile.
    faults.gate.open();
    Ok(())
}

impl Faults {
    async fn strike(&self, step: Step) -> Result<(), Failure> {
        let Step { kind, service, lasts, count, .. } = step;
        match kind {
            Kind::Kill => self.fleet.kill(service).await?,
            Kind::Stop => self.fleet.stop(service, lasts).await?,
            Kind::Terminate => {
                let ended = self.terminate(count).await;
                self.done.sessions.fetch_add(ended, Ordering::Relaxed);
                if ended == 0 {
                    return Ok(());
                }
            }
            Kind::Restart => {
                let _disturbed = self.disturbed.lock().await;
                let began = Instant::now();
                self.server.restart().await?;
                let mut restarts = self.done.restarts.lock().unwrap_or_else(PoisonError::into_inner);
                restarts.push((began, Instant::now()));
            }
            Kind::Freeze => {
                let _disturbed = self.disturbed.lock().await;
                self.server.freeze(lasts).await?;
            }
            Kind::CutBefore | Kind::CutAfter => {
                let how = if kind == Kind::CutBefore { Then::CutBefore } else { Then::CutAfter };
                let done = Arc::clone(&self.done);
                self.gate.cut(how, count, move || done.count(kind));
                return Ok(());
            }
            // Among many writers it may not get the lock within its time.
            Kind::Lock if self.database.hold_the_write_lock(lasts).await.is_err() => return Ok(()),
            Kind::Lock => {}
        }
        self.done.count(kind);
        Ok(())
    }

    /// How many sessions were ended. A server that is starting has none.
    async fn terminate(&self, count: u32) -> u64 {
        for _ in 0..3 {
            match self.database.end_sessions(count).await {
                Ok(ended) => return ended,
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
        0
    }
}
