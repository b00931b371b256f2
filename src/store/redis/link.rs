//! The connection that all clones of a store share, made anew when it is lost.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::time::timeout;

use super::connection::{Connection, Node, Target};
use super::fault::{ends_connection, fault, is_cut, is_unknown_script};
use super::scripts::{Scripts, Step};
use super::server::Server;
use crate::error::{Error, ErrorKind};
use crate::events::{Event, emit};

pub(super) struct Link {
    target: Target,
    connect_timeout: Duration,
    response_timeout: Duration,
    open: Mutex<Option<Open>>,
    /// One connects, the others wait for what comes of it.
    connecting: tokio::sync::Mutex<()>,
    failed: AtomicU64,
    made: AtomicU64,
    warned: AtomicBool,
}

/// A connection, and how its servers want their scripts.
#[derive(Clone)]
pub(super) struct Open {
    pub(super) connection: Connection,
    scripts: Arc<Scripts>,
    number: u64,
}

impl Link {
    pub(super) fn new(target: Target, connect_timeout: Duration, response_timeout: Duration) -> Self {
        Self {
            target,
            connect_timeout,
            response_timeout,
            open: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            failed: AtomicU64::new(0),
            made: AtomicU64::new(0),
            warned: AtomicBool::new(false),
        }
    }

    /// Runs a script on the record of `key`; gives its answer and the connection that it came by. A call whose answer was
    /// cut off is sent once more: every script recognises a call that it has served (S6).
    ///
    /// # Cancel safety
    /// Dropped, the script has run or not.
    pub(super) async fn run(&self, step: Step, key: &str, args: &[&[u8]]) -> Result<(Value, Open), Error> {
        let answered = match self.once(step, key, args).await {
            Err(Failed::Called(error)) if is_cut(&error) => self.once(step, key, args).await,
            answered => answered,
        };
        answered.map_err(Failed::into_error)
    }

    /// Reads from the server that has the key in this command; sent once more if its answer is cut off.
    pub(super) async fn read(&self, cmd: &Cmd) -> Result<(Value, Open), Error> {
        let answered = match self.read_once(cmd).await {
            Err(Failed::Called(error)) if is_cut(&error) => self.read_once(cmd).await,
            answered => answered,
        };
        answered.map_err(Failed::into_error)
    }

    /// Sends a command once, whatever comes of it.
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
    pub(super) async fn once_only(&self, cmd: &Cmd) -> Result<(Value, Open), Failed> {
        self.read_once(cmd).await
    }

    async fn read_once(&self, cmd: &Cmd) -> Result<(Value, Open), Failed> {
        let mut open = self.open().await.map_err(Failed::Connecting)?;
        let answer = open.connection.call(cmd).await;
        let value = self.seen(&open, answer).map_err(Failed::Called)?;
        Ok((value, open))
    }

    async fn once(&self, step: Step, key: &str, args: &[&[u8]]) -> Result<(Value, Open), Failed> {
        let mut open = self.open().await.map_err(Failed::Connecting)?;
        let mut answer = open.connection.call(&open.scripts.by_hash(step, key, args)).await;
        if answer.as_ref().is_err_and(is_unknown_script) {
            answer = open.connection.call(&open.scripts.by_text(step, key, args)).await;
        }
        let value = self.seen(&open, answer).map_err(Failed::Called)?;
        Ok((value, open))
    }

    /// An open connection, made if there is none.
    pub(super) async fn open(&self) -> Result<Open, Error> {
        if let Some(open) = self.current() {
            return Ok(open);
        }
        let failed = self.failed.load(Ordering::SeqCst);
        let _turn = self.connecting.lock().await;
        if let Some(open) = self.current() {
            return Ok(open);
        }
        if self.failed.load(Ordering::SeqCst) != failed {
            // The one before us has found nobody: a crowd does not knock one after the other.
            return Err(ErrorKind::Unavailable.into());
        }
        match timeout(self.connect_timeout, self.connect()).await {
            Ok(Ok(open)) => {
                *self.open.lock().unwrap_or_else(PoisonError::into_inner) = Some(open.clone());
                Ok(open)
            }
            Ok(Err(error)) => {
                self.failed.fetch_add(1, Ordering::SeqCst);
                Err(error)
            }
            Err(elapsed) => {
                self.failed.fetch_add(1, Ordering::SeqCst);
                Err(Error::with_source(ErrorKind::Unavailable, elapsed))
            }
        }
    }

    async fn connect(&self) -> Result<Open, Error> {
        let mut connection =
            self.target.connect(self.connect_timeout, self.response_timeout).await.map_err(|error| fault(&error))?;
        let server = connection.server(&Node::Only).await.map_err(|error| fault(&error))?;
        self.judge(&server)?;
        let scripts = Arc::new(Scripts::new(server.knows_script_flags()));
        Ok(Open { connection, scripts, number: self.made.fetch_add(1, Ordering::SeqCst) })
    }

    /// Refuses a server that is too old, and warns of one that deletes records, once.
    pub(super) fn judge(&self, server: &Server) -> Result<(), Error> {
        if server.is_too_old() {
            return Err(Error::with_source(ErrorKind::Setup, "Redis 6 or newer is needed"));
        }
        if server.evicts() && !self.warned.swap(true, Ordering::SeqCst) {
            emit(Event::EvictionPolicy);
        }
        Ok(())
    }

    fn current(&self) -> Option<Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Passes an answer on, and gives the connection up where it is worth nothing any more. A cluster's connection
    /// looks after those of its nodes itself: it must not go because one of them has gone.
    pub(super) fn seen<T>(&self, open: &Open, answer: RedisResult<T>) -> RedisResult<T> {
        if let (Err(error), Connection::Single(_)) = (&answer, &open.connection)
            && ends_connection(error)
        {
            let mut current = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            if current.as_ref().is_some_and(|current| current.number == open.number) {
                *current = None;
            }
        }
        answer
    }
}

pub(super) enum Failed {
    Connecting(Error),
    Called(RedisError),
}

impl Failed {
    fn into_error(self) -> Error {
        match self {
            Self::Connecting(error) => error,
            Self::Called(error) => fault(&error),
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("is_open", &self.current().is_some()).finish_non_exhaustive()
    }
}
