//! Who is alive: each store holds a lock on a file of its own beside the database, and the operating system frees it
//! however the process ends.

use std::ffi::OsString;
use std::fs::{File, TryLockError, metadata, read_dir, remove_file};
use std::io;
use std::path::{Path, PathBuf};

use uuid::Uuid;

/// How often a newborn whose file was swept away under it tries again.
const BIRTHS: usize = 16;

/// The name of this store and the lock that proves it alive. Dropped, the file goes, and with it the name for good.
#[derive(Debug)]
pub(super) struct Owner {
    id: Uuid,
    database: PathBuf,
    /// Locked while it is open.
    _file: File,
}

impl Owner {
    /// A new name beside `database`.
    pub(super) fn born(database: &Path) -> io::Result<Self> {
        for _ in 0..BIRTHS {
            let id = Uuid::new_v4();
            let path = lock_file(database, &id);
            let file = File::options().read(true).write(true).create_new(true).open(&path)?;
            match file.try_lock() {
                // Whoever sweeps may have taken the file for a dead one's between its making and its locking; then
                // the path is gone, or about to go.
                Ok(()) if is_at(&file, &path)? => return Ok(Self { id, database: database.to_owned(), _file: file }),
                Ok(()) | Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Err(io::Error::from(io::ErrorKind::WouldBlock))
    }

    pub(super) fn id(&self) -> &[u8] {
        self.id.as_bytes()
    }

    pub(super) fn is(&self, id: &[u8]) -> bool {
        self.id() == id
    }

    /// Whether the store of that name still lives. In doubt it does. Asked with system calls on a file that is open
    /// for microseconds, so not worth another thread.
    pub(super) fn is_alive(&self, id: &[u8]) -> bool {
        match Uuid::from_slice(id) {
            Ok(id) => holds_lock(&lock_file(&self.database, &id)),
            Err(_) => true,
        }
    }

    /// Removes the files of the dead. What cannot be read or removed stays for the next one to try.
    pub(super) fn sweep(&self) {
        let prefix = lock_prefix(&self.database);
        let folder = self.database.parent().unwrap_or(Path::new("."));
        for entry in read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.as_encoded_bytes();
            if name.starts_with(prefix.as_encoded_bytes()) && name.ends_with(b".lock") {
                holds_lock(&entry.path());
            }
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Still locked: nobody else looks at it as a dead one's.
        let _ = remove_file(lock_file(&self.database, &self.id));
    }
}

/// Whether somebody holds the lock on that file. If not, the file is removed. Askers share the lock, so that they are
/// not taken for its owner by one another.
fn holds_lock(path: &Path) -> bool {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return error.kind() != io::ErrorKind::NotFound,
    };
    match file.try_lock_shared() {
        Ok(()) => {
            let _ = remove_file(path);
            false
        }
        Err(_) => true,
    }
}

fn lock_prefix(database: &Path) -> OsString {
    let mut name = database.file_name().unwrap_or_default().to_owned();
    name.push(".idem-");
    name
}

fn lock_file(database: &Path, id: &Uuid) -> PathBuf {
    let mut name = lock_prefix(database);
    name.push(format!("{}.lock", id.simple()));
    database.with_file_name(name)
}

#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let own = file.metadata()?;
    match metadata(path) {
        Ok(found) => Ok((found.dev(), found.ino()) == (own.dev(), own.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> io::Result<bool> {
    Ok(metadata(path).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    // S16: dead by the operating system's word, never by a clock.
    #[test]
    fn an_owner_lives_as_long_as_its_lock() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("db");
        let (one, two) = (Owner::born(&database).unwrap(), Owner::born(&database).unwrap());
        assert!(one.is_alive(two.id()) && two.is_alive(one.id()));
        let gone = two.id().to_vec();
        drop(two);
        assert!(!one.is_alive(&gone));
        // What a killed process leaves behind: a file without a lock.
        File::create(lock_file(&database, &Uuid::from_slice(&gone).unwrap())).unwrap();
        assert!(!one.is_alive(&gone));
    }

    // S16: "lock files of dead processes are removed at start", and only those.
    #[test]
    fn sweeping_removes_the_dead_only() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("db");
        let one = Owner::born(&database).unwrap();
        let dead = lock_file(&database, &Uuid::new_v4());
        let other = folder.path().join("other.idem-1.lock");
        File::create(&dead).unwrap();
        File::create(&other).unwrap();
        Owner::born(&database).unwrap().sweep();
        assert!(!dead.exists());
        assert!(other.exists() && lock_file(&database, &one.id).exists());
    }

    // S16: a newborn whose file is swept away between its making and its locking notices.
    #[test]
    fn a_newborn_never_lives_on_a_removed_file() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("db");
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let sweeper = Owner::born(&database).unwrap();
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    sweeper.sweep();
                }
            });
            for _ in 0..300 {
                let Ok(born) = Owner::born(&database) else { continue };
                assert!(lock_file(&database, &born.id).exists());
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
}
