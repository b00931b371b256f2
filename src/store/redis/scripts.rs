//! The scripts: each is one atomic step on one record.

use std::time::Duration;

use redis::{Cmd, Script};

/// Longer than any operation; with it every instant stays a whole number in Lua, whose numbers are doubles.
const LONGEST: Duration = Duration::from_secs(50 * 365 * 24 * 60 * 60);

/// Scripts that free memory, or end what has been let in already, run on a full server too. Redis 7 and newer know this
/// line.
const ALLOW_OOM: &str = "#!lua flags=allow-oom\n";

/// A step on a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Claim,
    Renew,
    Complete,
    Release,
    Hold,
    Stop,
    Look,
    Operate,
    WindowEnter,
    WindowDone,
    WindowFree,
    WindowRenew,
}

/// The scripts as one generation of servers takes them.
pub(super) struct Scripts {
    claim: Text,
    renew: Text,
    complete: Text,
    release: Text,
    hold: Text,
    stop: Text,
    look: Text,
    operate: Text,
    window_enter: Text,
    window_done: Text,
    window_free: Text,
    window_renew: Text,
}

struct Text {
    code: String,
    hash: String,
}

impl Scripts {
    /// `knows_flags`: for Redis 7 and newer.
    pub(super) fn new(knows_flags: bool) -> Self {
        let plain = |code: &str| Text { hash: Script::new(code).get_hash().to_owned(), code: code.to_owned() };
        let ending = |code: &str| if knows_flags { plain(&format!("{ALLOW_OOM}{code}")) } else { plain(code) };
        Self {
            claim: plain(include_str!("lua/claim.lua")),
            renew: ending(include_str!("lua/renew.lua")),
            complete: ending(include_str!("lua/complete.lua")),
            release: ending(include_str!("lua/release.lua")),
            hold: ending(include_str!("lua/hold.lua")),
            stop: ending(include_str!("lua/stop.lua")),
            look: plain(include_str!("lua/look.lua")),
            operate: ending(include_str!("lua/operate.lua")),
            window_enter: plain(include_str!("window/lua/enter.lua")),
            window_done: ending(include_str!("window/lua/done.lua")),
            window_free: ending(include_str!("window/lua/free.lua")),
            window_renew: ending(include_str!("window/lua/renew.lua")),
        }
    }

    fn text(&self, step: Step) -> &Text {
        match step {
            Step::Claim => &self.claim,
            Step::Renew => &self.renew,
            Step::Complete => &self.complete,
            Step::Release => &self.release,
            Step::Hold => &self.hold,
            Step::Stop => &self.stop,
            Step::Look => &self.look,
            Step::Operate => &self.operate,
            Step::WindowEnter => &self.window_enter,
            Step::WindowDone => &self.window_done,
            Step::WindowFree => &self.window_free,
            Step::WindowRenew => &self.window_renew,
        }
    }

    /// The call by the script's digest, as it is nearly always known to the server.
    pub(super) fn by_hash(&self, step: Step, key: &str, args: &[&[u8]]) -> Cmd {
        call("EVALSHA", &self.text(step).hash, key, args)
    }

    /// The same call with the script's text, which the server keeps from then on.
    pub(super) fn by_text(&self, step: Step, key: &str, args: &[&[u8]]) -> Cmd {
        call("EVAL", &self.text(step).code, key, args)
    }
}

fn call(command: &str, script: &str, key: &str, args: &[&[u8]]) -> Cmd {
    let mut cmd = redis::cmd(command);
    cmd.arg(script).arg(1).arg(key);
    for arg in args {
        cmd.arg(*arg);
    }
    cmd
}

/// A span of time as an argument.
pub(super) fn micros(span: Duration) -> String {
    span.min(LONGEST).as_micros().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    // S25: the present and two of them are still exact in a double.
    #[test]
    fn no_span_is_too_long_for_lua() {
        assert_eq!(micros(Duration::from_micros(1)), "1");
        let longest: f64 = micros(Duration::MAX).parse().unwrap();
        let in_2100 = 4_102_444_800e6;
        assert!(2.0f64.mul_add(longest, in_2100) < 2f64.powi(53), "{longest}");
    }

    // S25: only what ends something may go past the limit of memory.
    #[test]
    fn a_new_claim_never_goes_past_the_limit_of_memory() {
        for (knows_flags, flagged) in [(true, true), (false, false)] {
            let scripts = Scripts::new(knows_flags);
            for step in [Step::Claim, Step::WindowEnter] {
                assert!(!scripts.text(step).code.starts_with("#!"), "{step:?}");
            }
            let of_window = [Step::WindowDone, Step::WindowFree, Step::WindowRenew];
            for step in [Step::Renew, Step::Complete, Step::Release, Step::Hold, Step::Stop, Step::Operate]
                .into_iter()
                .chain(of_window)
            {
                assert_eq!(scripts.text(step).code.starts_with(ALLOW_OOM), flagged, "{step:?}");
            }
        }
    }
}
