//! The transactional claim, on Postgres under READ COMMITTED.
//!
//! The crate's own: what a row means for a request (`policy::judge`) and the comparison of fingerprints. Modelled after their
//! texts: `CLAIM` (a snapshot; the lock K of the key; INSERT, which leaves a live row alone; the lock F of the fingerprint;
//! its probe; the look at the rivals), `SETTLE`, `STORE_FINISHED` and `FIND_OWN` in `src/db/postgres/sql.rs`, and what the claim
//! in `src/store/postgres` makes of them. A statement is several steps where rivals can come in between. Nothing expires here.

mod actions;
mod steps;
mod tests;

use idempotency::fingerprint::{Fingerprint, Match, Profile};
use idempotency::policy::{Judgement, State, judge};
use stateright::{Model, Property};

pub(super) use actions::Action;

/// One thing done wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mistake {
    Nothing,
    /// No lock K is taken.
    NoLock,
    /// INSERT replaces a live row, too.
    ReplacesLiveRow,
    /// A running row that others can see is taken for free.
    OrphanIsFree,
    /// The client is answered before COMMIT.
    AnswersBeforeCommit,
    /// A refusal is stored whatever stands there.
    RefusalOverwrites,
    /// A key that is locked while its fingerprint is not is told 422.
    ProbeIsEnough,
    /// After a lost COMMIT the service runs the handler again.
    RerunsAfterLostCommit,
    /// A transaction that ended early leaves its lock behind, as one of the session would be.
    LockOfSession,
}

#[derive(Clone, Debug)]
pub(super) struct Claims {
    pub(super) mistake: Mistake,
    /// What each client sends.
    pub(super) clients: &'static [u8],
    /// How often something goes wrong, of each kind.
    pub(super) faults: Faults,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Faults {
    /// A process dies.
    pub(super) crashes: u8,
    /// COMMIT is not answered.
    pub(super) losses: u8,
    /// A handler refuses, or gives up.
    pub(super) refusals: u8,
    /// A handler ends the transaction by itself.
    pub(super) ends: u8,
}

pub(super) type Token = u8;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Column {
    Running,
    Completed { refusal: bool },
    Orphaned,
}

/// The committed row of the key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Row {
    pub(super) column: Column,
    pub(super) print: u8,
    pub(super) token: Token,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Answer {
    pub(super) by: Token,
    pub(super) refusal: bool,
}

/// What a client was told for good.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Heard {
    Answer(Answer),
    Mismatch,
    Orphaned,
}

/// Where a client's request stands. What a transaction has written without COMMIT follows from it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum At {
    /// It is about to ask.
    Idle,
    /// Told 409; it asks again when something has changed.
    Waits,
    /// The statement's snapshot shows no live row.
    Looked(Token),
    /// It has K, and its row is inserted.
    Inserted(Token),
    /// It has K and has inserted nothing, since there is a row now: it asks again.
    Unseen(Token),
    /// K is somebody else's.
    Missed(Token),
    /// It holds F, shared, for a moment.
    Probes(Token),
    /// F was free.
    Probed(Token),
    /// The handler runs.
    Works(Token),
    /// The handler's work is written.
    Wrote(Token),
    /// The answer is written.
    Settled(Token),
    /// COMMIT is done.
    Committed(Answer),
    /// COMMIT was sent, and the connection is lost.
    Unsure(Token),
    /// Rolled back; a refusal is to be stored.
    Refuses(Token),
    /// It could not be: the key is asked for again.
    Reclaims(Token),
    /// The handler has committed.
    Ended(Token),
    Heard(Heard),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Client {
    pub(super) print: u8,
    pub(super) at: At,
}

/// A transaction whose COMMIT is on its way over a lost connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Adrift {
    pub(super) token: Token,
    pub(super) print: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct World {
    pub(super) row: Option<Row>,
    /// What handlers have done, and is committed.
    pub(super) work: Vec<Token>,
    pub(super) lock_k: Option<Token>,
    pub(super) lock_f: Option<(Token, u8)>,
    pub(super) clients: Vec<Client>,
    pub(super) adrift: Option<Adrift>,
    pub(super) left: Faults,
    /// A statement waits for a rival's transaction.
    pub(super) waits_for_rival: bool,
    /// Somebody was told 422 whose request is the one that has the key.
    pub(super) wronged: bool,
}

impl At {
    /// Whose transaction it is, or whose answer.
    pub(super) const fn token(self) -> Option<Token> {
        match self {
            Self::Looked(token)
            | Self::Inserted(token)
            | Self::Unseen(token)
            | Self::Missed(token)
            | Self::Probes(token)
            | Self::Probed(token)
            | Self::Works(token)
            | Self::Wrote(token)
            | Self::Settled(token)
            | Self::Unsure(token)
            | Self::Refuses(token)
            | Self::Reclaims(token)
            | Self::Ended(token) => Some(token),
            Self::Committed(answer) | Self::Heard(Heard::Answer(answer)) => Some(answer.by),
            Self::Idle | Self::Waits | Self::Heard(Heard::Mismatch | Heard::Orphaned) => None,
        }
    }
}

impl World {
    /// One that nothing here is called by. (Random ones would only make the same states over and over.)
    pub(super) fn new_token(&self) -> Token {
        let clients = self.clients.iter().filter_map(|client| client.at.token());
        let locks = self.lock_k.into_iter().chain(self.lock_f.map(|(token, _)| token));
        let others = self.row.map(|row| row.token).into_iter().chain(self.adrift.map(|adrift| adrift.token));
        let used: Vec<Token> = clients.chain(locks).chain(others).chain(self.work.iter().copied()).collect();
        (0..).find(|token| !used.contains(token)).unwrap_or(Token::MAX)
    }

    /// Whether the row is there, inserted and not committed.
    pub(super) fn has_uncommitted(&self) -> bool {
        let inserted =
            |client: &Client| matches!(client.at, At::Inserted(_) | At::Works(_) | At::Wrote(_) | At::Settled(_));
        self.adrift.is_some() || self.clients.iter().any(inserted)
    }

    /// The transaction ends; its locks with it.
    pub(super) fn unlock(&mut self, token: Token) {
        self.lock_k = self.lock_k.filter(|holder| *holder != token);
        self.lock_f = self.lock_f.filter(|(holder, _)| *holder != token);
    }
}

/// What the crate says of a live row.
pub(super) fn judged(row: Row, print: u8) -> Judgement {
    let state = match row.column {
        Column::Completed { .. } => State::Completed,
        Column::Running | Column::Orphaned => State::Orphaned,
    };
    judge(state, compared(print, row.print))
}

pub(super) fn compared(print: u8, stored: u8) -> Match {
    let fingerprint = |print| Fingerprint::new(Profile::from_bytes([1; 8]), [print; 32]);
    fingerprint(print).compare(&fingerprint(stored))
}

impl Model for Claims {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let clients = self.clients.iter().map(|print| Client { print: *print, at: At::Idle }).collect();
        vec![World {
            row: None,
            work: Vec::new(),
            lock_k: None,
            lock_f: None,
            clients,
            adrift: None,
            left: self.faults,
            waits_for_rival: false,
            wronged: false,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        actions::enabled(world, actions);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        steps::act(&mut next, action, self.mistake);
        // Clients that ask the same are told apart by nothing else.
        next.clients.sort_unstable();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always("no operation runs twice", |_, world| world.work.len() <= 1),
            Property::<Self>::always("whoever has an answer has the stored one", |_, world| {
                world.clients.iter().all(|client| match client.at {
                    At::Heard(Heard::Answer(answer)) => world.row.is_some_and(|row| {
                        row.token == answer.by && row.column == Column::Completed { refusal: answer.refusal }
                    }),
                    _ => true,
                })
            }),
            Property::<Self>::always("a stored answer and its work are one", |_, world| match world.row {
                Some(Row { column: Column::Completed { refusal: false }, token, .. }) => world.work == [token],
                Some(Row { column: Column::Completed { refusal: true }, .. }) | None => world.work.is_empty(),
                Some(_) => true,
            }),
            Property::<Self>::always("nobody waits for a rival's transaction", |_, world| !world.waits_for_rival),
            Property::<Self>::always("an honest retry is never told 422", |_, world| !world.wronged),
            Property::<Self>::always("no key is stuck", |_, world| {
                let mut actions = Vec::new();
                actions::enabled(world, &mut actions);
                !actions.is_empty()
                    || (world.lock_k.is_none()
                        && world.lock_f.is_none()
                        && world.clients.iter().all(|client| matches!(client.at, At::Heard(_))))
            }),
        ]
    }
}
