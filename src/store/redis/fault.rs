//! What an error of the server or the connection means.

use std::fmt;
use std::io;

use redis::{ErrorKind as Kind, RedisError, ServerErrorKind};

use crate::error::{Error, ErrorKind};

/// The meaning of a failed call. In doubt the store is unavailable: nothing is claimed or replayed.
pub(super) fn fault(error: &RedisError) -> Error {
    Error::with_source(meaning(error), Cause::of(error))
}

fn meaning(error: &RedisError) -> ErrorKind {
    // Redis 6 and older wrap what a script meets in an error of the script.
    if error.code() == Some("OOM") || error.detail().is_some_and(|detail| detail.contains("OOM command not allowed")) {
        return ErrorKind::Full;
    }
    match error.kind() {
        Kind::AuthenticationFailed | Kind::InvalidClientConfig | Kind::EmptySentinelList | Kind::RESP3NotSupported => {
            ErrorKind::Setup
        }
        Kind::Server(ServerErrorKind::NoPerm | ServerErrorKind::CrossSlot) => ErrorKind::Setup,
        Kind::Extension if matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "WRONGTYPE")) => ErrorKind::Setup,
        Kind::Parse | Kind::UnexpectedReturnType => ErrorKind::Unreadable,
        // LOADING, CLUSTERDOWN, TRYAGAIN, MOVED, READONLY, MASTERDOWN, BUSY, MISCONF, NOREPLICAS, time-outs, no node.
        _ => ErrorKind::Unavailable,
    }
}

/// Whether the connection is worth nothing any more: it is closed or out of step, it leads to a server that is no
/// longer the primary, or it has not answered, which may be for ever.
pub(super) fn ends_connection(error: &RedisError) -> bool {
    error.is_unrecoverable_error()
        || error.is_timeout()
        || matches!(error.kind(), Kind::Server(ServerErrorKind::ReadOnly))
}

/// Whether the same call is worth sending once more at once, on a new connection: nobody has answered it, and whoever
/// was asked is not merely slow.
pub(super) fn is_cut(error: &RedisError) -> bool {
    error.is_connection_dropped() && !error.is_connection_refusal()
}

pub(super) fn is_unknown_script(error: &RedisError) -> bool {
    matches!(error.kind(), Kind::Server(ServerErrorKind::NoScript))
}

/// An error without what the server says beside its code: that may repeat the arguments of a call (H9).
#[derive(Debug)]
pub(super) enum Cause {
    Io(io::ErrorKind),
    Coded(String),
    Other(String),
}

impl Cause {
    fn of(error: &RedisError) -> Self {
        match (error.code(), std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>())) {
            (Some(code), _) => Self::Coded(code.to_owned()),
            (None, Some(io)) => Self::Io(io.kind()),
            (None, None) => Self::Other(error.category().to_owned()),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(kind) => write!(f, "redis: {kind}"),
            Self::Coded(code) => write!(f, "redis: {code}"),
            Self::Other(category) => write!(f, "redis: {category}"),
        }
    }
}

impl std::error::Error for Cause {}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(line: &str) -> RedisError {
        redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap().extract_error().unwrap_err()
    }

    // S25: nothing that passes by itself is anything but "ask again".
    #[test]
    fn what_passes_is_unavailable() {
        for line in [
            "LOADING Redis is loading the dataset in memory",
            "CLUSTERDOWN Hash slot not served",
            "TRYAGAIN Multiple keys request during rehashing of slot",
            "READONLY You can't write against a read only replica.",
            "MOVED 1 127.0.0.1:1",
            "ASK 1 127.0.0.1:1",
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            "BUSY Redis is busy running a script.",
            "MISCONF Redis is configured to save RDB snapshots",
            "NOREPLICAS Not enough good replicas to write.",
            "UNKNOWN of a later version",
            "ERR max number of clients reached",
        ] {
            assert_eq!(fault(&told(line)).kind(), ErrorKind::Unavailable, "{line}");
        }
        for kind in [io::ErrorKind::TimedOut, io::ErrorKind::ConnectionReset, io::ErrorKind::ConnectionRefused] {
            assert_eq!(fault(&io::Error::from(kind).into()).kind(), ErrorKind::Unavailable, "{kind}");
        }
    }

    #[test]
    fn what_does_not_pass_is_told_apart() {
        for (line, kind) in [
            ("OOM command not allowed when used memory > 'maxmemory'.", ErrorKind::Full),
            ("ERR Error running script: @user_script:9: -OOM command not allowed when used memory", ErrorKind::Full),
            ("NOPERM this user has no permissions", ErrorKind::Setup),
            ("NOAUTH Authentication required.", ErrorKind::Setup),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", ErrorKind::Setup),
            ("CROSSSLOT Keys in request don't hash to the same slot", ErrorKind::Setup),
        ] {
            assert_eq!(fault(&told(line)).kind(), kind, "{line}");
        }
    }

    // S25: a failover, a dead connection and a silent one are left; a server that is loading is not.
    #[test]
    fn a_connection_is_given_up_where_it_leads_nowhere() {
        assert!(ends_connection(&told("READONLY You can't write against a read only replica.")));
        assert!(ends_connection(&io::Error::from(io::ErrorKind::UnexpectedEof).into()));
        assert!(ends_connection(&io::Error::from(io::ErrorKind::TimedOut).into()));
        assert!(!ends_connection(&told("LOADING Redis is loading the dataset in memory")));
        assert!(!ends_connection(&told("NOSCRIPT No matching script.")));
    }

    // H9
    #[test]
    fn no_argument_of_a_call_is_shown() {
        let error = fault(&told("ERR unknown command 'EVALSHA', with args beginning with: 'secret-key'"));
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        assert!(format!("{error:?}").contains("ERR"), "{error:?}");
    }
}
