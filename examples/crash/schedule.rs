//! Which fault follows which, and when: by the seed alone.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use crate::fleet::SERVICES;
use crate::place::Place;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// SIGKILL of a service, which is started again at once.
    Kill,
    /// SIGSTOP of a service, and SIGCONT after a while.
    Stop,
    /// The server ends sessions: `pg_terminate_backend`, `KILL`, `CLIENT KILL`.
    Terminate,
    /// The server dies at once (`pg_ctl -m immediate` and the like), and starts again.
    Restart,
    /// A connection is cut before a message of the service has reached the server.
    CutBefore,
    /// A connection is cut when the server has got the message, and its answer is lost.
    CutAfter,
    /// SIGSTOP of the server, and SIGCONT after a while.
    Freeze,
    /// Another process holds the file's write lock for a while.
    Lock,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Kill => "service killed (SIGKILL)",
            Self::Stop => "service stopped and continued",
            Self::Terminate => "sessions ended by the server",
            Self::Restart => "server killed and restarted",
            Self::CutBefore => "connection cut before a message",
            Self::CutAfter => "connection cut before an answer",
            Self::Freeze => "server stopped and continued",
            Self::Lock => "write lock held by another process",
        }
    }

    /// How often each kind comes in a round.
    fn round(place: Place) -> &'static [(Self, usize)] {
        match place {
            Place::Postgres | Place::PostgresLease | Place::MariaDb => &[
                (Self::Kill, 3),
                (Self::Stop, 3),
                (Self::Terminate, 4),
                (Self::Restart, 1),
                (Self::CutBefore, 3),
                (Self::CutAfter, 6),
            ],
            Place::Redis => &[
                (Self::Kill, 3),
                (Self::Stop, 3),
                (Self::Terminate, 3),
                (Self::Restart, 1),
                (Self::CutAfter, 6),
                (Self::Freeze, 1),
            ],
            Place::Sqlite => &[(Self::Kill, 4), (Self::Stop, 4), (Self::Lock, 2)],
        }
    }
}

/// One fault, and how it is meant. Each kind reads what it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// After the step before.
    pub after: Duration,
    pub kind: Kind,
    /// Which service.
    pub service: usize,
    /// How long it lasts.
    pub lasts: Duration,
    /// How many messages pass before a cut, or how many sessions are ended; 0 is all of them.
    pub count: u32,
}

/// All of it, without an end: rounds in which every kind comes up.
pub fn steps(place: Place, seed: u64) -> impl Iterator<Item = Step> + Send {
    let mut rng = StdRng::seed_from_u64(seed);
    let round: Vec<Kind> =
        Kind::round(place).iter().flat_map(|&(kind, times)| std::iter::repeat_n(kind, times)).collect();
    std::iter::repeat_with(move || {
        let mut round = round.clone();
        round.shuffle(&mut rng);
        round.into_iter().map(|kind| step(place, kind, &mut rng)).collect::<Vec<_>>()
    })
    .flatten()
}

fn step(place: Place, kind: Kind, rng: &mut StdRng) -> Step {
    let longest = match kind {
        // Whoever has the write lock stops all others.
        Kind::Stop if place == Place::Sqlite => 1000,
        // Longer than a lease now and then, so that somebody follows.
        Kind::Stop => 3000,
        Kind::Freeze => 1500,
        _ => 800,
    };
    Step {
        after: Duration::from_millis(rng.random_range(50..900)),
        kind,
        service: rng.random_range(0..SERVICES),
        lasts: Duration::from_millis(rng.random_range(100..longest)),
        count: if kind == Kind::Terminate { rng.random_range(0..4) } else { rng.random_range(0..40) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_schedule_and_another_one_another() {
        let of = |seed| steps(Place::Postgres, seed).take(100).collect::<Vec<_>>();
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
    }

    #[test]
    fn every_kind_comes_in_every_round() {
        for place in [Place::Postgres, Place::PostgresLease, Place::MariaDb, Place::Sqlite, Place::Redis] {
            let length: usize = Kind::round(place).iter().map(|(_, times)| times).sum();
            let steps: Vec<Step> = steps(place, 3).take(3 * length).collect();
            for round in steps.chunks(length) {
                for (kind, times) in Kind::round(place) {
                    assert_eq!(round.iter().filter(|step| step.kind == *kind).count(), *times, "{place} {kind:?}");
                }
            }
        }
    }
}
