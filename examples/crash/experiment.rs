//! The whole of it, in its order.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::Failure;
use crate::arguments::Arguments;
use crate::book::Book;
use crate::check::{Found, Promise, check};
use crate::clients::Clients;
use crate::evidence::Database;
use crate::faults::{self, Done, Faults};
use crate::fleet::Fleet;
use crate::gate::Gate;
use crate::place::Place;
use crate::report::Report;
use crate::schedule;
use crate::servers::Servers;
use crate::service::Settings;

/// How long what was cut off may take to be noticed everywhere.
const SETTLES: Duration = Duration::from_secs(20);

pub async fn make(arguments: &Arguments) -> Result<Report, Failure> {
    let place = arguments.place;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("crash.sqlite").display().to_string();
    let servers = Servers::start(place).await?;
    let url = if place == Place::Sqlite { file.as_str() } else { servers.url() };
    let database = Database::open(arguments, url, &file).await?;
    let (gate, through) = Gate::before(place, url).await?;
    let settings =
        Settings { place, wrong: arguments.wrong, tests_connections: true, url: through, effects: file.clone() };
    let fleet = Arc::new(Fleet::start(&settings, folder.path()).await?);
    let (book, done) = (Arc::new(Book::default()), Arc::new(Done::default()));
    let faults = Arc::new(Faults {
        fleet: Arc::clone(&fleet),
        gate,
        servers,
        database,
        server: tokio::sync::Mutex::default(),
        done: Arc::clone(&done),
    });
    let clients = Clients::new(arguments, Arc::clone(&fleet), Arc::clone(&book));

    let working = clients.start();
    faults::run(&faults, schedule::steps(place, arguments.seed), Instant::now() + arguments.lasts).await;
    clients.finish(working).await;
    clients.ask_again().await;

    let mut violations = book.wrongs();
    violations.extend(done.trouble());
    violations.extend(fleet.ended().await);
    violations.extend(in_the_end(arguments, &clients, &faults.database, &book).await?);
    let effects = faults.database.effects().await?;
    let operations = book.operations();
    let forgotten_until = done.last_restart().filter(|_| arguments.is_forgetful);
    let promise = Promise { is_lease: place.is_lease(), forgotten_until };
    let Found { violations: found, forgotten } = check(promise, &operations, &effects);
    violations.extend(found);

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
        violations,
    };
    if !report.violations.is_empty() && arguments.wrong.is_none() {
        eprintln!("crash: what the services said is kept in {}", folder.keep().display());
    }
    drop((clients, fleet));
    if let Ok(faults) = Arc::try_unwrap(faults).map_err(|_| ()) {
        let Faults { servers, fleet, .. } = faults;
        drop(fleet);
        servers.stop().await;
    }
    Ok(report)
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
    loop {
        let mut left = clients.inspect().await;
        left.extend(database.sessions().await?);
        // A wrong store has tables of its own.
        if arguments.wrong.is_none() {
            let (keys, asked) = (database.keys().await?, book.len() as u64);
            if keys.unfinished > 0 || keys.completed != asked {
                left.push(format!("of {asked} keys {} are done, {} are not", keys.completed, keys.unfinished));
            }
        }
        if left.is_empty() || Instant::now() >= until {
            return Ok(left);
        }
        sleep(Duration::from_millis(500)).await;
    }
}
