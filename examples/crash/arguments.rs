//! The command line.

use std::time::Duration;

use crate::Failure;
use crate::place::Place;
use crate::wrong::Wrong;

pub const USAGE: &str =
    "usage: crash [--store postgres|postgres-lease|mariadb|sqlite|redis] [--minutes M] [--seed S] [--no-aof]
             [--wrong claim-without-lock|commit-before-claim|settle-without-token|take-over-at-once|answer-anybody|
                      replay-without-rollback]

  --store    where the keys are (postgres); private servers are started for it
  --minutes  how long there are faults (2; 0.3 with --wrong); a fraction will do
  --seed     decides which fault follows which, and when; by default another one each time. The same seed gives the
             same schedule, but not the same interleaving
  --no-aof   Redis without its append-only file: what a restart makes it forget is counted and no violation
  --wrong    a store with that mistake instead, which must be found out

The exit code is 0 if every promise was kept, 1 if one was broken, 2 for wrong arguments, 3 where the experiment could not
be made or shows nothing, and 128 and the signal's number where a signal has ended it.";

#[derive(Clone, Debug)]
pub struct Arguments {
    pub place: Place,
    pub lasts: Duration,
    pub seed: u64,
    pub is_forgetful: bool,
    pub wrong: Option<Wrong>,
}

impl Arguments {
    /// `None`: help is asked for.
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Self>, Failure> {
        let (mut place, mut minutes, mut seed, mut is_forgetful, mut wrong) = (None, None, None, false, None);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--help" | "-h" => return Ok(None),
                "--no-aof" => is_forgetful = true,
                "--store" => place = Some(value()?.parse::<Place>()?),
                "--minutes" => minutes = Some(value()?.parse::<f64>().map_err(|_| "--minutes needs a number")?),
                "--seed" => seed = Some(value()?.parse::<u64>().map_err(|_| "--seed needs a whole number")?),
                "--wrong" => wrong = Some(value()?.parse::<Wrong>()?),
                _ => return Err(format!("{word}?").into()),
            }
        }
        // A store that is wrong shows it soon.
        let minutes = minutes.unwrap_or(if wrong.is_some() { 0.3 } else { 2.0 });
        let lasts = Some(minutes).filter(|minutes| (0.05..=1440.0).contains(minutes)).map(|minutes| minutes * 60.0);
        let lasts = Duration::from_secs_f64(lasts.ok_or("--minutes must be between 0.05 and 1440")?);
        let own = wrong.map(Wrong::place);
        if own.is_some() && place.is_some() && own != place {
            return Err("that mistake is made on another store".into());
        }
        let place = own.or(place).unwrap_or(Place::Postgres);
        if is_forgetful && place != Place::Redis {
            return Err("--no-aof is for --store redis".into());
        }
        Ok(Some(Self { place, lasts, seed: seed.unwrap_or_else(rand::random), is_forgetful, wrong }))
    }
}
