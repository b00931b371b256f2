//! What can happen.

use super::{At, Client, World};

/// The number is the client's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// What comes next, if nothing goes wrong.
    Next(usize),
    /// The handler refuses.
    Refuse(usize),
    /// The handler fails.
    GiveUp(usize),
    /// The handler commits by itself.
    EndTransaction(usize),
    /// COMMIT is sent and not answered.
    LoseCommit(usize),
    /// The process dies.
    Crash(usize),
    /// A COMMIT on its way arrives.
    Arrives,
    /// Or the server finds out that nobody is there.
    NeverArrives,
}

pub(super) fn enabled(world: &World, actions: &mut Vec<Action>) {
    for (number, Client { at, .. }) in world.clients.iter().enumerate() {
        match at {
            At::Heard(_) => continue,
            // It would be told the same.
            At::Waits if world.row.is_none() && world.lock_k.is_some() => continue,
            At::Idle | At::Waits => {
                actions.push(Action::Next(number));
                continue;
            }
            _ => actions.push(Action::Next(number)),
        }
        if matches!(at, At::Works(_)) {
            if world.left.refusals > 0 {
                actions.extend([Action::Refuse(number), Action::GiveUp(number)]);
            }
            if world.left.ends > 0 {
                actions.push(Action::EndTransaction(number));
            }
        }
        if matches!(at, At::Settled(_)) && world.left.losses > 0 && world.adrift.is_none() {
            actions.push(Action::LoseCommit(number));
        }
        if world.left.crashes > 0 {
            actions.push(Action::Crash(number));
        }
    }
    if world.adrift.is_some() {
        actions.extend([Action::Arrives, Action::NeverArrives]);
    }
}
