//! A lease in a SQL table.
//!
//! The crate's own: `State::of_lease`, `judge`, the comparison of fingerprints, and what `OnUnknown` holds. Modelled after their
//! texts: `ASK`, `TAKE_OVER`, `TAKE_AFRESH`, `RENEW`, `DISPATCH`, `SETTLE`, `ABANDON`, `GUARD`, `CHECKPOINT` and `SETTLE_AS` in
//! `src/db/postgres/lease/sql.rs`, each one step, and the algorithm around them in `src/store/leased`. Records do not expire by
//! age. A stall is a lease that ends while its owner lives.

mod actions;
mod attempt;
mod claim;
mod tests;

use idempotency::store::OnUnknown;
use stateright::{Model, Property};

pub(super) use actions::Action;

/// One thing done wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mistake {
    Nothing,
    /// The system that is called does not compare fences.
    NoFenceCheck,
    /// The guard does not compare the token.
    GuardWithoutToken,
    /// An answer is stored by whoever has one.
    SettleWithoutToken,
    /// A lease is taken over before it has ended.
    TakesLiveLease,
    /// A lease is taken by its key, whatever has happened since it was seen.
    TakesUnseen,
    /// A fence is drawn anew for each owner, from a counter that a release resets.
    FenceStartsAgain,
    /// The owner's call is made first, and recorded afterwards.
    CallsBeforeDispatch,
    /// The record of a call does not compare the token.
    DispatchWithoutToken,
    /// What was called does not hold the key.
    HeldIsTakenOver,
    /// A claim does not know its own token again.
    OwnTokenIsForeign,
    /// An operator's answer does not ask whether the key still waits for one.
    OperatorOverwrites,
    /// The checkpoint is written after the work's COMMIT.
    CheckpointApart,
}

#[derive(Clone, Debug)]
pub(super) struct Leases {
    pub(super) mistake: Mistake,
    /// `HoldDispatched`: the handler makes a call that must not be made twice. Else it writes under a guard with a checkpoint,
    /// and makes a call that compares fences.
    pub(super) on_unknown: OnUnknown,
    /// What each client sends.
    pub(super) clients: &'static [u8],
    /// How often something goes wrong, of each kind.
    pub(super) faults: Faults,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Faults {
    /// A process dies.
    pub(super) crashes: u8,
    /// A lease ends while its owner lives.
    pub(super) stalls: u8,
    /// An answer of the database is lost.
    pub(super) losses: u8,
    /// A handler gives up.
    pub(super) abandons: u8,
}

pub(super) type Token = u8;
/// Nobody's.
pub(super) const NOBODY: Token = Token::MAX;
/// An operator's answers.
pub(super) const OPERATOR: Token = Token::MAX - 1;

/// The row of the key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Row {
    pub(super) print: u8,
    pub(super) token: Token,
    pub(super) fence: u8,
    pub(super) held: bool,
    pub(super) ended: bool,
    pub(super) expired: bool,
    pub(super) checkpoint: bool,
    /// Whose answer it has.
    pub(super) answer: Option<Token>,
}

/// Where a client's request stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum At {
    Idle,
    /// Told 409; it asks again when something has changed.
    Waits,
    /// Its claim was answered into the void, and is asked again by the same call.
    Asks(Token),
    /// It has seen a row that may be taken, with this token and fence.
    Seen {
        own: Token,
        token: Token,
        fence: u8,
    },
    /// An attempt, and how far it is.
    Attempt {
        token: Token,
        fence: u8,
        step: Step,
    },
    /// Told that a person has to look.
    Unknown,
    /// It has its answer.
    Heard(Token),
    /// Told 422.
    Mismatch,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Step {
    Begins,
    /// In its own transaction, which holds the row and has not committed.
    Guards,
    /// Its work is committed, its checkpoint not yet.
    Unmarked,
    /// It may call somebody else.
    Calls,
    /// It has called.
    Called,
    /// Its answer is stored.
    Settled,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Client {
    pub(super) print: u8,
    pub(super) at: At,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct World {
    pub(super) row: Option<Row>,
    /// Whose transaction holds the row.
    pub(super) locked: Option<Token>,
    /// Work that guards have let through.
    pub(super) work: u8,
    /// The fences of the calls that were taken, in order.
    pub(super) calls: Vec<u8>,
    pub(super) clients: Vec<Client>,
    /// What an operator has seen: a token and a fence.
    pub(super) operator: Option<(Token, u8)>,
    /// The last fence that anybody was granted.
    pub(super) fence: u8,
    pub(super) left: Faults,
    pub(super) wrong: Option<&'static str>,
}

impl World {
    /// One that nothing here is called by. (Random ones would only make the same states over and over.)
    pub(super) fn new_token(&self) -> Token {
        let mut used: Vec<Token> = self.locked.into_iter().chain(self.operator.map(|(token, _)| token)).collect();
        if let Some(row) = self.row {
            used.push(row.token);
            used.extend(row.answer);
        }
        for client in &self.clients {
            match client.at {
                At::Asks(token) | At::Attempt { token, .. } | At::Heard(token) => used.push(token),
                At::Seen { own, token, .. } => used.extend([own, token]),
                At::Idle | At::Waits | At::Unknown | At::Mismatch => {}
            }
        }
        (0..).find(|token| !used.contains(token)).unwrap_or(NOBODY)
    }

    pub(super) fn owned(&mut self, token: Token) -> Option<&mut Row> {
        self.row.as_mut().filter(|row| row.token == token && row.answer.is_none())
    }

    /// Whether the row's owner is at work.
    pub(super) fn owner_lives(&self) -> bool {
        let Some(row) = self.row else { return false };
        self.clients.iter().any(|client| match client.at {
            At::Asks(token) | At::Attempt { token, .. } => token == row.token,
            _ => false,
        })
    }
}

const TAKEN_TOO_SOON: &str = "taken from an owner whose lease has not ended";
const OWN_RIVAL: &str = "told 409 for its own claim";
const SMALLER_FENCE: &str = "granted a fence that is not larger";

impl Model for Leases {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let clients = self.clients.iter().map(|print| Client { print: *print, at: At::Idle }).collect();
        vec![World {
            row: None,
            locked: None,
            work: 0,
            calls: Vec::new(),
            clients,
            operator: None,
            fence: 0,
            left: self.faults,
            wrong: None,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        actions::enabled(world, actions);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        actions::act(&mut next, action, self);
        // Clients that ask the same are told apart by nothing else.
        next.clients.sort_unstable();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always("guarded work with a checkpoint is done once", |_, world| world.work <= 1),
            Property::<Self>::always("calls come in the order of their fences", |_, world| world.calls.is_sorted()),
            Property::<Self>::always("a call that must not be repeated is made once", |model, world| {
                !model.on_unknown.holds_dispatched() || world.calls.len() <= 1
            }),
            Property::<Self>::always("all answers are the stored one", |_, world| {
                world.clients.iter().all(|client| match client.at {
                    At::Heard(token) => world.row.is_some_and(|row| row.answer == Some(token)),
                    _ => true,
                })
            }),
            Property::<Self>::always("an owner loses nothing before its lease has ended", |_, world| {
                world.wrong != Some(TAKEN_TOO_SOON)
            }),
            Property::<Self>::always("nobody is its own rival", |_, world| world.wrong != Some(OWN_RIVAL)),
            Property::<Self>::always("fences grow", |_, world| world.wrong != Some(SMALLER_FENCE)),
            Property::<Self>::always("no key is stuck", |_, world| {
                let mut actions = Vec::new();
                actions::enabled(world, &mut actions);
                let done = |client: &Client| matches!(client.at, At::Heard(_) | At::Mismatch);
                !actions.is_empty()
                    || (world.locked.is_none()
                        && world.row.is_some_and(|row| row.answer.is_some())
                        && world.clients.iter().all(done))
            }),
        ]
    }
}
