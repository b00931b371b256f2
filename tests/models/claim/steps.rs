//! What follows from what happens.

use idempotency::fingerprint::Match;
use idempotency::policy::Judgement;

use super::{Action, Adrift, Answer, At, Column, Heard, Mistake, Row, Token, World, compared, judged};

pub(super) fn act(world: &mut World, action: Action, mistake: Mistake) {
    match action {
        Action::Next(client) => next(world, client, mistake),
        Action::Refuse(client) => {
            world.left.refusals -= 1;
            if let At::Works(token) = world.clients[client].at {
                world.unlock(token);
                world.clients[client].at = At::Refuses(token);
            }
        }
        Action::GiveUp(client) => {
            world.left.refusals -= 1;
            if let At::Works(token) = world.clients[client].at {
                world.unlock(token);
            }
            world.clients[client].at = At::Idle;
        }
        Action::EndTransaction(client) => {
            world.left.ends -= 1;
            if let At::Works(token) = world.clients[client].at {
                let print = world.clients[client].print;
                world.row = Some(Row { column: Column::Running, print, token });
                world.work.push(token);
                if mistake != Mistake::LockOfSession {
                    world.unlock(token);
                }
                world.clients[client].at = At::Ended(token);
            }
        }
        Action::LoseCommit(client) => {
            world.left.losses -= 1;
            if let At::Settled(token) = world.clients[client].at {
                world.adrift = Some(Adrift { token, print: world.clients[client].print });
                world.clients[client].at = At::Unsure(token);
            }
        }
        Action::Crash(client) => {
            world.left.crashes -= 1;
            if let Some(token) = open(world.clients[client].at) {
                world.unlock(token);
            }
            world.clients[client].at = At::Idle;
        }
        Action::Arrives => {
            if let Some(Adrift { token, print }) = world.adrift.take() {
                commit(world, token, print);
            }
        }
        Action::NeverArrives => {
            if let Some(Adrift { token, .. }) = world.adrift.take() {
                world.unlock(token);
            }
        }
    }
}

/// Whose transaction a crash rolls back. One whose COMMIT is on its way has a connection of its own.
const fn open(at: At) -> Option<Token> {
    match at {
        At::Unsure(_) | At::Refuses(_) | At::Reclaims(_) | At::Ended(_) | At::Committed(_) | At::Heard(_) => None,
        _ => at.token(),
    }
}

fn next(world: &mut World, client: usize, mistake: Mistake) {
    let print = world.clients[client].print;
    world.clients[client].at = match world.clients[client].at {
        At::Idle | At::Waits => {
            let token = world.new_token();
            asked(world, print, mistake).unwrap_or(At::Looked(token))
        }
        At::Looked(token) if world.lock_k.is_none() || mistake == Mistake::NoLock => insert(world, token, mistake),
        At::Looked(token) => At::Missed(token),
        At::Unseen(token) => {
            world.unlock(token);
            asked(world, print, mistake).unwrap_or(At::Idle)
        }
        At::Inserted(token) => {
            // It may be held for a moment by a probe: the claim holds without it.
            let probed = world.clients.iter().any(|other| other.print == print && matches!(other.at, At::Probes(_)));
            if !probed && world.lock_f.is_none() {
                world.lock_f = Some((token, print));
            }
            At::Works(token)
        }
        At::Missed(_) if world.lock_f.is_some_and(|(_, held)| held == print) => At::Waits,
        At::Missed(token) => At::Probes(token),
        At::Probes(_) if mistake == Mistake::ProbeIsEnough => mismatch(world, print),
        At::Probes(token) => At::Probed(token),
        At::Probed(_) => {
            let rival = |holder| world.lock_f.is_some_and(|(owner, held)| owner == holder && held != print);
            if world.lock_k.is_some_and(rival) { mismatch(world, print) } else { At::Waits }
        }
        At::Works(token) => At::Wrote(token),
        At::Wrote(token) => At::Settled(token),
        At::Settled(token) if mistake == Mistake::AnswersBeforeCommit => {
            world.adrift = Some(Adrift { token, print });
            At::Heard(Heard::Answer(Answer { by: token, refusal: false }))
        }
        At::Settled(token) => {
            commit(world, token, print);
            At::Committed(Answer { by: token, refusal: false })
        }
        At::Committed(answer) => At::Heard(Heard::Answer(answer)),
        At::Unsure(token) => match world.row {
            Some(row) if row.token == token && matches!(row.column, Column::Completed { .. }) => {
                At::Committed(Answer { by: token, refusal: false })
            }
            _ if mistake == Mistake::RerunsAfterLostCommit => {
                world.work.push(token);
                At::Idle
            }
            // The client is told that it is not known, and asks again.
            _ => At::Idle,
        },
        At::Refuses(token) => {
            let free = world.row.is_none() && world.lock_k.is_none();
            if free || mistake == Mistake::RefusalOverwrites {
                refused(world, token, print)
            } else {
                At::Reclaims(token)
            }
        }
        // Another answer stands, or the rival has gone without a word.
        At::Reclaims(token) => match asked(world, print, mistake) {
            Some(told) => told,
            None if world.lock_k.is_some() => At::Waits,
            None => refused(world, token, print),
        },
        At::Ended(token) => {
            if let Some(row) = world.row.as_mut().filter(|row| row.token == token && row.column == Column::Running) {
                row.column = Column::Orphaned;
            }
            At::Idle
        }
        At::Heard(heard) => At::Heard(heard),
    };
}

/// What a live row says to a request; `None` where there is none.
fn asked(world: &mut World, print: u8, mistake: Mistake) -> Option<At> {
    let row = world.row?;
    if mistake == Mistake::OrphanIsFree && row.column == Column::Running {
        world.row = None;
        return None;
    }
    Some(match (judged(row, print), row.column) {
        (Judgement::Mismatch, _) => mismatch(world, print),
        (Judgement::Replay, Column::Completed { refusal }) => {
            At::Heard(Heard::Answer(Answer { by: row.token, refusal }))
        }
        (Judgement::Orphaned, _) => At::Heard(Heard::Orphaned),
        (told, column) => unreachable!("{told:?} of {column:?}"),
    })
}

fn insert(world: &mut World, token: Token, mistake: Mistake) -> At {
    // The index shows it to every INSERT, which waits for what becomes of it.
    if world.has_uncommitted() {
        world.waits_for_rival = true;
    }
    world.lock_k = Some(token);
    if world.row.is_some() && mistake != Mistake::ReplacesLiveRow { At::Unseen(token) } else { At::Inserted(token) }
}

fn commit(world: &mut World, token: Token, print: u8) {
    world.row = Some(Row { column: Column::Completed { refusal: false }, print, token });
    world.work.push(token);
    world.unlock(token);
}

fn refused(world: &mut World, token: Token, print: u8) -> At {
    world.row = Some(Row { column: Column::Completed { refusal: true }, print, token });
    At::Committed(Answer { by: token, refusal: true })
}

fn mismatch(world: &mut World, print: u8) -> At {
    // Whose request has the key at this moment.
    let owner = world.clients.iter().find(|other| open(other.at).is_some_and(|token| world.lock_k == Some(token)));
    let adrift = world.adrift.filter(|adrift| world.lock_k == Some(adrift.token)).map(|adrift| adrift.print);
    let has = world.row.map(|row| row.print).or(adrift).or(owner.map(|owner| owner.print));
    world.wronged |= has.is_none_or(|has| compared(print, has) != Match::Different);
    At::Heard(Heard::Mismatch)
}
