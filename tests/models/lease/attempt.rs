//! What an attempt does.

use super::{At, Leases, Mistake, NOBODY, Step, Token, World};

/// The next step. One that has lost its lease ends: the client is told so, and asks again.
pub(super) fn next(world: &mut World, (token, fence, step): (Token, u8, Step), model: &Leases) -> At {
    let next = if model.on_unknown.holds_dispatched() {
        once(world, (token, step), fence, model)
    } else {
        guarded(world, (token, step), fence, model)
    };
    match next {
        Some(Step::Settled) if step == Step::Settled => At::Heard(token),
        Some(step) => At::Attempt { token, fence, step },
        None => At::Idle,
    }
}

/// A call that must not be made twice.
fn once(world: &mut World, (token, step): (Token, Step), fence: u8, model: &Leases) -> Option<Step> {
    let calls_first = model.mistake == Mistake::CallsBeforeDispatch;
    match step {
        Step::Begins if calls_first => world.calls.push(fence),
        Step::Begins => dispatch(world, token, model)?,
        _ if calls_first && step == Step::Calls => dispatch(world, token, model)?,
        Step::Calls => world.calls.push(fence),
        _ => return settle(world, token, model),
    }
    Some(if step == Step::Begins { Step::Calls } else { Step::Called })
}

fn dispatch(world: &mut World, token: Token, model: &Leases) -> Option<()> {
    let held = model.on_unknown.holds_dispatched();
    if model.mistake == Mistake::DispatchWithoutToken {
        world.row.as_mut()?.held = held;
    } else {
        world.owned(token)?.held = held;
    }
    Some(())
}

/// Work of the handler's own in the same database, then a call that compares fences.
fn guarded(world: &mut World, (token, step): (Token, Step), fence: u8, model: &Leases) -> Option<Step> {
    Some(match step {
        Step::Begins if world.row.is_some_and(|row| row.token == token && row.checkpoint) => Step::Calls,
        Step::Begins => {
            if model.mistake == Mistake::GuardWithoutToken {
                let row = world.row.as_mut()?;
                row.ended = row.answer.is_some();
            } else {
                world.owned(token)?.ended = false;
            }
            world.locked = Some(token);
            Step::Guards
        }
        Step::Guards => {
            world.locked = None;
            world.work += 1;
            if model.mistake == Mistake::CheckpointApart {
                return Some(Step::Unmarked);
            }
            world.row.as_mut()?.checkpoint = true;
            Step::Calls
        }
        Step::Unmarked => {
            world.owned(token)?.checkpoint = true;
            Step::Calls
        }
        Step::Calls => {
            let largest = world.calls.last().copied().unwrap_or(0);
            if fence < largest && model.mistake != Mistake::NoFenceCheck {
                return None;
            }
            world.calls.push(fence);
            Step::Called
        }
        Step::Called | Step::Settled => return settle(world, token, model),
    })
}

fn settle(world: &mut World, token: Token, model: &Leases) -> Option<Step> {
    let row = world.row.as_mut()?;
    if row.answer == Some(token) {
        return Some(Step::Settled);
    }
    let owns = row.token == token && row.answer.is_none();
    if !owns && model.mistake != Mistake::SettleWithoutToken {
        return None;
    }
    row.answer = Some(token);
    row.held = false;
    Some(Step::Settled)
}

pub(super) fn abandon(world: &mut World, token: Token) {
    if let Some(row) = world.owned(token) {
        row.token = NOBODY;
        row.held = false;
        row.ended = true;
        row.expired = !row.checkpoint;
    }
}
