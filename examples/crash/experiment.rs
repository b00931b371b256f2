//! The whole of it, in its order.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::Failure;
use crate::arguments::Arguments;
use crate::book::Book;
use crate::check::{Found, Promise, Violation, check};
use crate::clients::Clients;
use crate::clock::Clock;
use crate::evidence::Database;
use crate::faults::{self, Done, Faults};
use crate::fleet::Fleet;
use crate::gate::Gate;
use crate::place::Place;
use crate::report::Report;
use crate::schedule;
use crate::servers::Servers;
use crate::service::{Inspected, LEASE, Settings};
use crate::signals::asked_to_end;
use crate::wrong;

/// How long what was cut off may take to be noticed everywhere.
const SETTLES: Duration = Duration::from_secs(20);

/// How the experiment came to its end.
pub enum Ended {
    Reported(Report),
    /// By the signal of that number.
    Interrupted(u8),
}

/// Makes the experiment, and leaves nothing behind: no process, and no folder but where it tells of one.
pub async fn make(arguments: &Arguments) -> Result<Ended, Failure> {
    let folder = tempfile::Builder::new().prefix("idempotency-crash.").tempdir()?;
    let (mut servers, fleet) = (Servers::new(), OnceLock::new());
    let ended = tokio::select! {
        report = experiment(arguments, folder.path(), &mut servers, &fleet) => report.map(Ended::Reported),
        signal = asked_to_end() => signal.map(Ended::Interrupted),
    };
    if let Some(fleet) = fleet.get() {
        fleet.end().await;
    }
    servers.stop().await;
    let is_of_interest = match &ended {
        Ok(Ended::Reported(report)) => !report.violations.is_empty() && arguments.wrong.is_none(),
        Ok(Ended::Interrupted(_)) => false,
        Err(_) => fleet.get().is_some(),
    };
    if is_of_interest {
        eprintln!("crash: what the services said, and more, is kept in {}", folder.keep().display());
    }
    ended
}

async fn experiment(
    arguments: &Arguments,
    folder: &Path,
    servers: &mut Servers,
    started: &OnceLock<Arc<Fleet>>,
) -> Result<Report, Failure> {
    let (place, clock) = (arguments.place, Clock::start());
    let file = folder.join("crash.sqlite").display().to_string();
    let server = servers.start(place).await?;
    let url = if place == Place::Sqlite { file.as_str() } else { server.url() };
    let database = Database::open(arguments, url, &file).await?;
    let (gate, through) = Gate::before(place, url).await?;
    let wrong = arguments.wrong;
    let settings = Settings { place, wrong, tests_connections: true, waits: false, url: through, effects: file };
    let fleet = Arc::clone(started.get_or_init(|| Arc::new(Fleet::new(&settings, folder))));
    fleet.start().await?;
    let (book, done) = (Arc::new(Book::default()), Arc::new(Done::default()));
    let faults = Arc::new(Faults {
        fleet: Arc::clone(&fleet),
        gate,
        server,
        database,
        disturbed: tokio::sync::Mutex::default(),
        done: Arc::clone(&done),
    });
    let clients = Clients::new(arguments, Arc::clone(&fleet), Arc::clone(&book));

    let working = clients.start();
    faults::run(&faults, schedule::steps(place, arguments.seed), Instant::now() + arguments.lasts).await?;
    clients.finish(working).await?;
    clients.take_long().await?;
    clients.ask_again().await;

    let mut violations = book.wrongs();
    violations.extend(in_the_end(arguments, &clients, &faults.database, &book).await?);
    violations.extend(fleet.mishaps().await?);
    let mut violations: Vec<Violation> = violations.into_iter().map(Violation::from).collect();
    let effects = faults.database.effects().await?;
    let operations = book.operations();
    let forgotten_until = done.last_restart().filter(|_| arguments.is_forgetful);
    let lease = if wrong.is_some() { wrong::LEASE } else { LEASE };
    let promise = Promise { lease: place.is_lease().then_some(lease), forgotten_until };
    let Found { violations: found, forgotten } = check(promise, &operations, &effects, clock);
    violations.extend(found);
    let trouble = done.trouble();
    if violations.is_empty() && !trouble.is_empty() {
        return Err(trouble.join("; ").into());
    }
    violations.extend(trouble.into_iter().map(Violation::from));

    let answers = || operations.iter().flat_map(|operation| &operation.answers);
    let report = Report {
        title: title(arguments),
        seed: arguments.seed,
        lasts: arguments.lasts,
        operations: operations.len() as u64,
        attempts: book.attempts.load(Ordering::Relaxed),
        told_later: book.told_later.load(Ordering::Relaxed),
        unanswered: book.unanswered.load(Ordering::Relaxed),
        answers: answers().count() as u64,
        replays: answers().filter(|answer| answer.is_replay).count() as u64,
        effects: effects.len() as u64,
        forgotten: arguments.is_forgetful.then_some(forgotten),
        faults: done.counts(),
        sessions: done.sessions.load(Ordering::Relaxed),
        violations,
    };
    if !report.violations.is_empty() {
        write_down(folder, &report, &done, clock)?;
    } else if let Some(why) = shows_nothing(&report, &done) {
        return Err(format!("the experiment shows nothing: {why}").into());
    }
    Ok(report)
}

/// Why it proves nothing that no promise was broken.
fn shows_nothing(report: &Report, done: &Done) -> Option<String> {
    if report.operations == 0 || report.answers == 0 {
        return Some("no operation was answered".to_owned());
    }
    if report.faults.values().sum::<u64>() == 0 {
        return Some("there was no fault".to_owned());
    }
    Some(done.missed().join(", ")).filter(|missed| !missed.is_empty())
}

/// Everything for whoever looks for the reason: all violations, and which fault was when.
fn write_down(folder: &Path, report: &Report, done: &Done, clock: Clock) -> Result<(), Failure> {
    let mut text = format!("{report}\nall violations\n");
    for violation in &report.violations {
        write!(text, "{violation}")?;
    }
    text.push_str("faults, as they were meant\n");
    for (at, step) in done.tried() {
        writeln!(text, "  {} {step:?}", clock.at(at))?;
    }
    std::fs::write(folder.join("report.txt"), text)?;
    Ok(())
}

fn title(arguments: &Arguments) -> String {
    let aof = match (arguments.place, arguments.is_forgetful) {
        (Place::Redis, false) => " with its append-only file, appendfsync always",
        (Place::Redis, true) => " without its append-only file",
        _ => "",
    };
    let wrong = arguments.wrong.map_or_else(String::new, |wrong| format!(", made wrong: {}", wrong.name()));
    format!("store {}{aof}{wrong}", arguments.place)
}

/// Pools, sessions and keys. What is not in order at once may be so a little later.
async fn in_the_end(
    arguments: &Arguments,
    clients: &Clients,
    database: &Database,
    book: &Book,
) -> Result<Vec<String>, Failure> {
    let until = Instant::now() + if arguments.wrong.is_some() { SETTLES / 4 } else { SETTLES };
    let mut found = BTreeSet::new();
    loop {
        // Sessions first: a look into the pools ends what it finds dead.
        let mut unsettled = database.sessions().await?;
        let Inspected { unsettled: more, left } = clients.inspect().await;
        unsettled.extend(more);
        found.extend(left);
        // A wrong store has tables of its own.
        if arguments.wrong.is_none() {
            let (keys, asked) = (database.keys().await?, book.len() as u64);
            if keys.unfinished > 0 || keys.completed != asked {
                unsettled.push(format!("of {asked} keys {} are done, {} are not", keys.completed, keys.unfinished));
            }
        }
        if unsettled.is_empty() || Instant::now() >= until {
            return Ok(found.into_iter().chain(unsettled).collect());
        }
        sleep(Duration::from_millis(500)).await;
    }
}
