//! Who relays: whoever holds the lock on a file beside the database (M39). The operating system frees it however the
//! process ends, so there is no lease to wait for, and nobody takes anything from a process that is merely stalled.

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use crate::db::outbox::{Beat, Fence, Member, Taken};
use crate::outbox::Bucket;

/// The post of the one that relays.
#[derive(Debug)]
pub(super) struct Post {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held: Option<Held>,
    /// Of the last bucket that was taken here.
    epoch: i64,
}

/// By a member of this process.
#[derive(Debug)]
struct Held {
    /// Locked while it is open. It is not empty while somebody works, so that the next one knows whether the last one
    /// has gone in order.
    file: File,
    member: Member,
    /// Until when its word counts against others of this process.
    until: Instant,
    /// Whether the one before has gone without a word.
    vanished: bool,
    taken: Vec<Taken>,
}

impl Post {
    pub(super) fn beside(database: &Path) -> Self {
        let mut name: OsString = database.file_name().unwrap_or_default().to_owned();
        // Not of the form that is swept away as the lock of a dead store.
        name.push(".idem-relay");
        Self { path: database.with_file_name(name), state: Mutex::default() }
    }

    /// A later incarnation follows its earlier one at once, anybody else when that one has been silent for its lease.
    pub(super) fn beat(&self, member: &Member, lease: Duration, joins: bool) -> io::Result<Beat> {
        let mut state = self.state();
        let until = Instant::now() + lease;
        if let Some(held) = &mut state.held {
            if held.member.token != member.token {
                let gone = (joins && held.member.name == member.name) || held.until <= Instant::now();
                if !gone {
                    return Ok(Beat::StandBy);
                }
                (held.member, held.vanished) = (member.clone(), true);
                held.taken.clear();
            }
            held.until = until;
        } else {
            let Some((file, vanished)) = lock(&self.path)? else { return Ok(Beat::StandBy) };
            state.held = Some(Held { file, member: member.clone(), until, vanished, taken: Vec::new() });
        }
        let holdings = state.held.as_ref().map_or(Vec::new(), |held| held.taken.clone());
        Ok(Beat::Member { members: vec![member.name.clone()], holdings })
    }

    pub(super) fn take(&self, member: &Member, most: u32) -> Vec<Taken> {
        let mut state = self.state();
        let State { held, epoch } = &mut *state;
        let Some(held) = held.as_mut().filter(|held| held.member.token == member.token) else { return Vec::new() };
        let is_free = |bucket: &Bucket| held.taken.iter().all(|taken| taken.fence.bucket != *bucket);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let free: Vec<Bucket> = Bucket::all().filter(is_free).take(most).collect();
        let mut taken = Vec::with_capacity(free.len());
        for bucket in free {
            *epoch += 1;
            taken.push(Taken { fence: Fence { bucket, epoch: *epoch, owner: member.token }, vanished: held.vanished });
        }
        held.taken.extend_from_slice(&taken);
        taken
    }

    pub(super) fn release(&self, fences: &[Fence]) {
        if let Some(held) = &mut self.state().held {
            held.taken.retain(|taken| !fences.contains(&taken.fence));
        }
    }

    /// In order, or not.
    pub(super) fn leave(&self, member: Uuid, in_order: bool) {
        let mut state = self.state();
        if let Some(held) = state.held.take_if(|held| held.member.token == member)
            && in_order
        {
            // Where it fails, the next one is careful.
            let _ = held.file.set_len(0);
        }
    }

    pub(super) fn holds(&self, fence: &Fence) -> bool {
        self.state().held.as_ref().is_some_and(|held| held.taken.iter().any(|taken| taken.fence == *fence))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The locked file, and whether the one before has left it in disorder. `None`: somebody else has it. System calls on a
/// file of one byte, so not worth another thread.
fn lock(path: &Path) -> io::Result<Option<(File, bool)>> {
    let mut file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let vanished = file.read(&mut [0])? > 0;
    file.rewind()?;
    file.write_all(b"1")?;
    Ok(Some((file, vanished)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str) -> Member {
        Member { name: name.to_owned(), token: Uuid::new_v4() }
    }

    fn vanished(taken: &[Taken]) -> Vec<bool> {
        taken.iter().map(|taken| taken.vanished).collect()
    }

    const LEASE: Duration = Duration::from_secs(15);

    // M39: one relays, others stand by; whoever follows knows how the one before has gone.
    #[test]
    fn one_works_and_others_stand_by() {
        let folder = tempfile::tempdir().unwrap();
        let (here, there) = (Post::beside(&folder.path().join("db")), Post::beside(&folder.path().join("db")));
        let (one, two) = (member("one"), member("two"));
        assert!(matches!(here.beat(&one, LEASE, true).unwrap(), Beat::Member { .. }));
        let taken = here.take(&one, 2);
        assert_eq!(vanished(&taken), [false, false]);
        assert_eq!(here.take(&one, 100).len(), 62);
        assert!(here.holds(&taken[0].fence));
        for post in [&here, &there] {
            assert_eq!(post.beat(&two, LEASE, true).unwrap(), Beat::StandBy);
            assert!(post.take(&two, 1).is_empty());
        }
        here.leave(one.token, true);
        assert!(!here.holds(&taken[0].fence));
        assert!(matches!(there.beat(&two, LEASE, false).unwrap(), Beat::Member { .. }));
        assert_eq!(vanished(&there.take(&two, 1)), [false]);
        // As a killed process would.
        drop(there);
        assert!(matches!(here.beat(&one, LEASE, true).unwrap(), Beat::Member { .. }));
        let again = here.take(&one, 1);
        assert!(again[0].vanished && again[0].fence != taken[0].fence);
    }

    // M33, M39: a relay that starts again in the same process gets its post back, and the old one has no say.
    #[test]
    fn a_later_incarnation_follows_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let post = Post::beside(&folder.path().join("db"));
        let (old, new) = (member("pod-1"), member("pod-1"));
        post.beat(&old, LEASE, true).unwrap();
        let stale = post.take(&old, 1)[0].fence;
        assert!(matches!(post.beat(&new, LEASE, true).unwrap(), Beat::Member { .. }));
        assert!(!post.holds(&stale));
        assert_eq!(post.beat(&old, LEASE, false).unwrap(), Beat::StandBy);
        assert_eq!(vanished(&post.take(&new, 1)), [true]);
    }
}
