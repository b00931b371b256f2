//! What can happen.

use super::{At, Client, Leases, Mistake, OPERATOR, Step, World, attempt, claim};

/// The number is the client's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// What comes next, if nothing goes wrong.
    Next(usize),
    /// The same, and its answer is lost.
    Lose(usize),
    /// The heartbeat.
    Renew(usize),
    /// The handler gives up.
    Abandon(usize),
    /// The process dies.
    Crash(usize),
    /// Time passes.
    LeaseEnds,
    /// An operator looks at a key that waits for one.
    Look,
    /// And gives it an answer.
    Answer,
}

pub(super) fn enabled(world: &World, actions: &mut Vec<Action>) {
    for (number, Client { at, .. }) in world.clients.iter().enumerate() {
        match at {
            At::Heard(_) | At::Mismatch => continue,
            At::Waits | At::Unknown if !is_news(world) => continue,
            At::Idle | At::Waits | At::Unknown => {
                actions.push(Action::Next(number));
                if world.left.losses > 0 {
                    actions.push(Action::Lose(number));
                }
                continue;
            }
            At::Asks(_) | At::Seen { .. } => actions.push(Action::Next(number)),
            At::Attempt { token, step, .. } => {
                // Its own settlement waits for its own guard: the handler has ended it.
                actions.push(Action::Next(number));
                if world.left.losses > 0 && matches!(step, Step::Called) {
                    actions.push(Action::Lose(number));
                }
                let ended = world.row.is_some_and(|row| row.token == *token && row.ended && row.answer.is_none());
                if ended && world.locked.is_none() {
                    actions.push(Action::Renew(number));
                }
                if world.left.abandons > 0 && matches!(step, Step::Begins) {
                    actions.push(Action::Abandon(number));
                }
            }
        }
        if world.left.crashes > 0 {
            actions.push(Action::Crash(number));
        }
    }
    let Some(row) = world.row.filter(|row| row.answer.is_none()) else {
        if world.operator.is_some() {
            actions.push(Action::Answer);
        }
        return;
    };
    if !row.ended && (world.left.stalls > 0 || !world.owner_lives()) {
        actions.push(Action::LeaseEnds);
    }
    if world.operator.is_some() {
        actions.push(Action::Answer);
    } else if row.ended && row.held {
        actions.push(Action::Look);
    }
}

/// Whether a request that was told 409 would be told something else now.
fn is_news(world: &World) -> bool {
    world.row.is_none_or(|row| row.answer.is_some() || (row.ended && !row.held && world.locked.is_none()))
}

pub(super) fn act(world: &mut World, action: Action, model: &Leases) {
    match action {
        Action::Next(client) => match world.clients[client].at {
            At::Attempt { token, fence, step } => {
                world.clients[client].at = attempt::next(world, (token, fence, step), model);
            }
            _ => claim::next(world, client, model, false),
        },
        Action::Lose(client) => {
            world.left.losses -= 1;
            match world.clients[client].at {
                At::Attempt { token, fence, step } => {
                    // The client is told that it is not known.
                    let _ = attempt::next(world, (token, fence, step), model);
                    world.clients[client].at = At::Idle;
                }
                _ => claim::next(world, client, model, true),
            }
        }
        Action::Renew(client) => {
            if let At::Attempt { token, .. } = world.clients[client].at
                && let Some(row) = world.owned(token)
            {
                row.ended = false;
            }
        }
        Action::Abandon(client) => {
            world.left.abandons -= 1;
            if let At::Attempt { token, .. } = world.clients[client].at {
                attempt::abandon(world, token);
            }
            world.clients[client].at = At::Idle;
        }
        Action::Crash(client) => {
            world.left.crashes -= 1;
            if let At::Attempt { token, .. } = world.clients[client].at {
                // What its transaction has not committed is undone.
                world.locked = world.locked.filter(|holder| *holder != token);
            }
            world.clients[client].at = At::Idle;
        }
        Action::LeaseEnds => {
            if world.owner_lives() {
                world.left.stalls -= 1;
            }
            if let Some(row) = &mut world.row {
                row.ended = true;
            }
        }
        Action::Look => world.operator = world.row.map(|row| (row.token, row.fence)),
        Action::Answer => {
            let seen = world.operator.take();
            let careless = model.mistake == Mistake::OperatorOverwrites;
            if world.locked.is_none()
                && let Some(row) = &mut world.row
                && ((seen == Some((row.token, row.fence)) && row.answer.is_none() && row.ended) || careless)
            {
                row.answer = Some(OPERATOR);
                row.held = false;
            }
        }
    }
}
