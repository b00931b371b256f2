//! What can happen.

use super::driver::{Ending, finish, own, proceed};
use super::{LATE, LEASE, Mistake, Stored, TICK, TICKS, Way, World};

/// The first number is the relay's, the second that of something under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// It succeeds.
    Done(usize, usize),
    /// It succeeds, or is on its way to, and the answer is lost.
    Lost(usize, usize),
    /// It is not done.
    Failed(usize, usize),
    /// The broker refuses the event for good.
    Refused(usize, usize),
    Crash(usize),
    /// The lease of the owner ends, and this relay takes the bucket.
    TakeOver(usize),
    /// A relay that has lost its bucket hears of it.
    Beat(usize),
    /// The late transaction commits.
    Commit,
    /// A message arrives that nobody waits for.
    Arrives(usize),
    /// Or never does.
    Vanishes(usize),
    /// Time passes.
    Tick,
}

pub(super) fn enabled(world: &World, actions: &mut Vec<Action>) {
    let mut quiet = true;
    for (number, relay) in world.relays.iter().enumerate() {
        let Some(relay) = relay else { continue };
        quiet &= relay.ways.is_empty();
        for (at, way) in relay.ways.iter().enumerate() {
            actions.push(Action::Done(number, at));
            if world.left.losses > 0 && !matches!(way, Way::DeleteLate(_)) {
                actions.extend([Action::Lost(number, at), Action::Failed(number, at)]);
            }
            if let Way::Publish(handout) = way
                && world.left.refusals > 0
                && !world.log.contains(&handout.row.place.seq)
            {
                actions.push(Action::Refused(number, at));
            }
        }
        let stale = relay.scheduler.owned().iter().any(|owned| !world.owns(number, *owned));
        if stale {
            actions.push(Action::Beat(number));
        }
        if world.owner != number && (world.relays[world.owner].is_none() || world.left.stalls > 0) {
            actions.push(Action::TakeOver(number));
        }
        // One is left to go on.
        if world.left.crashes > 0 && world.relays.iter().all(Option::is_some) {
            actions.push(Action::Crash(number));
        }
    }
    if !world.committed_late {
        actions.push(Action::Commit);
    }
    for at in 0..world.adrift.len() {
        actions.extend([Action::Arrives(at), Action::Vanishes(at)]);
    }
    let pending = !world.table.is_empty();
    if quiet && pending && world.committed_late && world.relays[world.owner].is_some() && world.ticks < TICKS {
        actions.push(Action::Tick);
    }
}

pub(super) fn act(world: &mut World, action: Action, mistake: Mistake) {
    match action {
        Action::Done(relay, at) => finish(world, (relay, at), Ending::Done, mistake),
        Action::Lost(relay, at) => {
            world.left.losses -= 1;
            finish(world, (relay, at), Ending::Lost, mistake);
        }
        Action::Failed(relay, at) => {
            world.left.losses -= 1;
            finish(world, (relay, at), Ending::Failed, mistake);
        }
        Action::Refused(relay, at) => {
            world.left.refusals -= 1;
            finish(world, (relay, at), Ending::Refused, mistake);
        }
        Action::Crash(number) => {
            world.left.crashes -= 1;
            let ways = world.relays[number].take().map_or_else(Vec::new, |relay| relay.ways);
            // What it had sent may arrive.
            world.adrift.extend(ways.into_iter().filter_map(|way| match way {
                Way::Publish(handout) => Some(handout.row.place.seq),
                _ => None,
            }));
            world.adrift.sort_unstable();
        }
        Action::TakeOver(number) => {
            let owner = world.owner;
            if let Some(stalled) = &mut world.relays[owner] {
                // Its lease ends for itself no later than for the others.
                world.left.stalls -= 1;
                stalled.now = stalled.now.max(stalled.lease_until);
            }
            own(world, number);
            proceed(world, number, mistake);
        }
        Action::Beat(number) => {
            beat(world, number);
            proceed(world, number, mistake);
        }
        Action::Commit => {
            world.committed_late = true;
            world.table.insert(LATE, Stored::default());
            // Whoever commits events wakes the relay of its process.
            for number in 0..world.relays.len() {
                if let Some(relay) = &mut world.relays[number] {
                    relay.scheduler.poke();
                }
                proceed(world, number, mistake);
            }
        }
        Action::Arrives(at) => {
            let seq = world.adrift.remove(at);
            world.log.push(seq);
        }
        Action::Vanishes(at) => {
            world.adrift.remove(at);
        }
        Action::Tick => {
            world.ticks += 1;
            for number in 0..world.relays.len() {
                if let Some(relay) = &mut world.relays[number] {
                    relay.now += TICK;
                }
                beat(world, number);
                proceed(world, number, mistake);
            }
        }
    }
}

/// The lease begins anew, and the relay hears what is not its own any more.
fn beat(world: &mut World, number: usize) {
    let (owner, epoch) = (world.owner, world.epoch);
    let Some(relay) = &mut world.relays[number] else { return };
    for owned in relay.scheduler.owned() {
        if owner != number || owned.epoch != epoch {
            relay.scheduler.lose(owned);
        }
    }
    relay.lease_until = relay.now + LEASE;
    relay.scheduler.lease_until(relay.lease_until);
}
