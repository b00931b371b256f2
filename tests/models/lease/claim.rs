//! How a key is claimed: `LeaseStore::step`.

use idempotency::fingerprint::{Fingerprint, Profile};
use idempotency::policy::{Judgement, State, judge};

use super::{At, Leases, Mistake, NOBODY, OWN_RIVAL, Row, SMALLER_FENCE, Step, TAKEN_TOO_SOON, Token, World};

/// `lost`: the answer to the first statement does not come.
pub(super) fn next(world: &mut World, client: usize, model: &Leases, lost: bool) {
    let print = world.clients[client].print;
    world.clients[client].at = match world.clients[client].at {
        At::Idle | At::Waits | At::Unknown => {
            let token = world.new_token();
            let told = ask(world, print, token, model);
            if lost { At::Asks(token) } else { told }
        }
        // The same call, with the same token.
        At::Asks(token) => ask(world, print, token, model),
        At::Seen { own, token, fence } => take(world, print, (own, token, fence), model),
        at => at,
    };
}

fn ask(world: &mut World, print: u8, own: Token, model: &Leases) -> At {
    let Some(row) = world.row else {
        return grant(world, print, own, model, (false, false));
    };
    let is_own = row.token == own && row.answer.is_none();
    if is_own && model.mistake != Mistake::OwnTokenIsForeign {
        return At::Attempt { token: own, fence: row.fence, step: Step::Begins };
    }
    let seen = At::Seen { own, token: row.token, fence: row.fence };
    if row.expired {
        return seen;
    }
    let ended = row.ended || model.mistake == Mistake::TakesLiveLease;
    let held = row.held && model.mistake != Mistake::HeldIsTakenOver;
    let state = if row.answer.is_some() { State::Completed } else { State::of_lease(ended, held) };
    let fingerprint = |print| Fingerprint::new(Profile::from_bytes([1; 8]), [print; 32]);
    match judge(state, fingerprint(print).compare(&fingerprint(row.print))) {
        Judgement::TakeOver => seen,
        Judgement::Mismatch => At::Mismatch,
        Judgement::Replay => At::Heard(row.answer.unwrap_or(NOBODY)),
        Judgement::Unknown => At::Unknown,
        Judgement::InProgress | Judgement::Orphaned => {
            if is_own {
                world.wrong = Some(OWN_RIVAL);
            }
            At::Waits
        }
    }
}

/// `TAKE_OVER` and `TAKE_AFRESH`: compare what was seen, and step over a row that somebody has locked.
fn take(world: &mut World, print: u8, (own, token, fence): (Token, Token, u8), model: &Leases) -> At {
    let Some(row) = world.row else { return At::Idle };
    let careless = model.mistake == Mistake::TakesUnseen;
    let same = row.token == token && row.fence == fence || careless;
    let held = row.held && model.mistake != Mistake::HeldIsTakenOver;
    let ended = row.ended || careless || model.mistake == Mistake::TakesLiveLease;
    let free = row.answer.is_none() && ended && (row.expired || !held);
    if !same || !free {
        return At::Idle;
    }
    // It looks again a few times, and then says 409.
    if world.locked.is_some() {
        return At::Waits;
    }
    if !row.ended {
        world.wrong = Some(TAKEN_TOO_SOON);
    }
    grant(world, print, own, model, (true, row.checkpoint && !row.expired))
}

fn grant(world: &mut World, print: u8, own: Token, model: &Leases, (after, checkpoint): (bool, bool)) -> At {
    let starts_again = model.mistake == Mistake::FenceStartsAgain && after;
    let fence = if starts_again { 1 } else { world.fence + 1 };
    if fence <= world.fence {
        world.wrong = Some(SMALLER_FENCE);
    }
    world.fence = fence;
    let held = model.on_unknown.holds_from_start();
    world.row = Some(Row { print, token: own, fence, held, ended: false, expired: false, checkpoint, answer: None });
    At::Attempt { token: own, fence, step: Step::Begins }
}
