//! What an error of Redis means for an entry, by its code.

use redis::{ErrorKind as Kind, RedisError, ServerErrorKind as Server};

use crate::outbox::publish::{Answer, Reason};
use crate::store::Unwritten;

pub(super) fn judge(unwritten: &Unwritten) -> Answer {
    match unwritten {
        Unwritten::NotSent => Answer::UNAVAILABLE,
        Unwritten::TooFewReplicas => Answer::Unknown,
        Unwritten::Called(error) => called(error),
    }
}

/// A server that answers with an error has not run the command.
fn called(error: &RedisError) -> Answer {
    match error.kind() {
        Kind::Server(Server::NoPerm) => Answer::refused(Reason::Denied),
        // A command that this server does not take, such as MINID before Redis 6.2.
        Kind::Server(Server::ResponseError) => Answer::refused(Reason::Rejected),
        // LOADING, CLUSTERDOWN, TRYAGAIN, MOVED, ASK, READONLY, MASTERDOWN, BUSY and what a later version adds.
        Kind::Server(_) | Kind::ClusterConnectionNotFound => Answer::UNAVAILABLE,
        Kind::Extension if error.code() == Some("WRONGTYPE") => Answer::refused(Reason::Rejected),
        // OOM, MISCONF, NOREPLICAS, NOAUTH.
        Kind::Extension => Answer::UNAVAILABLE,
        _ => Answer::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn told(line: &str) -> Answer {
        called(&redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap().extract_error().unwrap_err())
    }

    // M34, case B10: by codes.
    #[test]
    fn what_passes_is_unavailable_and_what_is_about_the_event_is_a_refusal() {
        for code in [
            "LOADING",
            "CLUSTERDOWN",
            "TRYAGAIN",
            "READONLY",
            "MOVED 1 127.0.0.1:1",
            "MASTERDOWN",
            "BUSY",
            "MISCONF",
            "NOREPLICAS",
            "OOM",
            "NOAUTH",
            "UNKNOWNCODE",
        ] {
            assert_eq!(told(&format!("{code} of whatever language")), Answer::UNAVAILABLE, "{code}");
        }
        assert_eq!(told("NOPERM x"), Answer::refused(Reason::Denied));
        assert_eq!(told("WRONGTYPE x"), Answer::refused(Reason::Rejected));
        assert_eq!(told("ERR syntax error"), Answer::refused(Reason::Rejected));
    }

    #[test]
    fn what_ends_without_an_answer_is_unknown() {
        for kind in [io::ErrorKind::TimedOut, io::ErrorKind::ConnectionReset, io::ErrorKind::UnexpectedEof] {
            assert_eq!(called(&io::Error::from(kind).into()), Answer::Unknown, "{kind}");
        }
        assert_eq!(judge(&Unwritten::NotSent), Answer::UNAVAILABLE);
        assert_eq!(judge(&Unwritten::TooFewReplicas), Answer::Unknown);
    }
}
