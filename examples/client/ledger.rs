//! The file of operations that have no answer yet.
//!
//! It is replaced as a whole: written beside itself, synced, and renamed, so that a reader after a crash finds the old
//! one or the new one. An operation is in it before its first attempt, and until its answer.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use axum::http::{HeaderValue, Method, Uri};
use idempotency::client::PendingOperation;
use serde::{Deserialize, Serialize};

use crate::Failure;

/// One operation of the run.
#[derive(Clone, Serialize, Deserialize)]
pub struct Entry {
    /// From 1.
    pub operation: u64,
    #[serde(flatten)]
    pub pending: PendingOperation,
}

/// What the file holds.
#[derive(Default, Serialize, Deserialize)]
struct Contents {
    /// How many operations of the run have been begun, those that have left the file included.
    begun: u64,
    pending: Vec<Entry>,
}

pub struct Ledger {
    place: Option<Place>,
    contents: Contents,
}

/// Where it is.
struct Place {
    file: PathBuf,
    folder: PathBuf,
    /// Held while the process lives: two clients on one file would undo each other's changes.
    _lock: File,
}

impl Ledger {
    /// Reads the file, if there is one. Without a path nothing is kept.
    pub fn open(file: Option<&Path>) -> Result<Self, Failure> {
        let Some(file) = file else { return Ok(Self { place: None, contents: Contents::default() }) };
        let place = Place::lock(file)?;
        let contents = match fs::read(file) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|error| format!("{} is no file of pending operations: {error}", file.display()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Contents::default(),
            Err(error) => return Err(format!("{}: {error}", file.display()).into()),
        };
        Ok(Self { place: Some(place), contents })
    }

    /// Begins what is missing of `operations`.
    pub fn fill(&mut self, operations: u64, url: &Uri) -> io::Result<()> {
        for operation in self.contents.begun + 1..=operations {
            let json = HeaderValue::from_static("application/json");
            let body = format!(r#"{{"amount": {operation}, "currency": "EUR", "card": "ok"}}"#);
            let pending = PendingOperation::new(Method::POST, url.clone(), Some(json), body);
            self.contents.pending.push(Entry { operation, pending });
        }
        self.contents.begun = self.contents.begun.max(operations);
        self.write()
    }

    pub fn entries(&self) -> &[Entry] {
        &self.contents.pending
    }

    /// Takes an operation out.
    pub fn answered(&mut self, operation: u64) -> io::Result<()> {
        self.contents.pending.retain(|entry| entry.operation != operation);
        self.write()
    }

    /// Removes the file where nothing is left in it; how many operations are left.
    pub fn close(self) -> io::Result<usize> {
        let left = self.contents.pending.len();
        if let (Some(place), 0) = (&self.place, left) {
            fs::remove_file(&place.file)?;
            place.sync_folder()?;
        }
        Ok(left)
    }

    fn write(&self) -> io::Result<()> {
        self.place.as_ref().map_or(Ok(()), |place| place.replace(&serde_json::to_vec_pretty(&self.contents)?))
    }
}

impl Place {
    fn lock(file: &Path) -> Result<Self, Failure> {
        let folder = match file.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        let beside = beside(file, ".lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&beside);
        let lock = lock.map_err(|error| format!("{}: {error}", beside.display()))?;
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => Err(format!("{} is in use by another client", file.display()).into()),
            Err(TryLockError::Error(error)) => Err(format!("{}: {error}", beside.display()).into()),
            Ok(()) => Ok(Self { file: file.to_owned(), folder, _lock: lock }),
        }
    }

    fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        let beside = beside(&self.file, ".new");
        let mut new = File::create(&beside)?;
        new.write_all(bytes)?;
        new.sync_all()?;
        fs::rename(&beside, &self.file)?;
        self.sync_folder()
    }

    /// The rename itself must outlive a loss of power.
    fn sync_folder(&self) -> io::Result<()> {
        if cfg!(unix) { File::open(&self.folder)?.sync_all() } else { Ok(()) }
    }
}

fn beside(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(ending);
    name.into()
}
