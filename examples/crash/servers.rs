//! Private servers, by `tests/run`, which ends them when its standard input does.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::Failure;
use crate::place::Place;

/// How long servers may take to start: where their packages are missing they are installed first.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long they may take to stop.
const STOPS: Duration = Duration::from_secs(60);

/// Whoever has started them. Dropped, it stops them by itself, which takes a moment.
pub struct Servers {
    child: Option<Child>,
}

/// A server that runs, and how to disturb it.
#[derive(Clone, Debug)]
pub struct Server {
    place: Place,
    variables: HashMap<String, String>,
}

impl Servers {
    /// None runs yet.
    pub fn new() -> Self {
        Self { child: None }
    }

    pub async fn start(&mut self, place: Place) -> Result<Server, Failure> {
        let Some(server) = place.server() else { return Ok(Server { place, variables: HashMap::new() }) };
        let script: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/run");
        let mut command = Command::new(&script);
        // Nobody else's server is to be restarted.
        for variable in ["POSTGRES_URL", "MYSQL_URL", "REDIS_URL"] {
            command.env_remove(variable);
        }
        let child = command
            .args(["--servers", server, "--shell"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}; this example needs the repository", script.display()))?;
        let child = self.child.insert(child);
        let mut lines = BufReader::new(child.stdout.take().ok_or("no output of tests/run")?).lines();
        let mut variables = HashMap::new();
        let needed = variable(place);
        while !(variables.contains_key(needed.0) && variables.contains_key(needed.1)) {
            let line =
                timeout(PATIENCE, lines.next_line()).await.map_err(|_| "tests/run did not start the server")??;
            let line = line.ok_or("tests/run ended; see above what it said")?;
            if let Some((name, value)) = line.strip_prefix("export ").and_then(|pair| pair.split_once('=')) {
                // As the shell quotes it.
                variables.insert(name.to_owned(), value.replace('\\', ""));
            }
        }
        Ok(Server { place, variables })
    }

    /// Stops them and waits for it.
    pub async fn stop(self) {
        if let Some(mut child) = self.child {
            drop(child.stdin.take());
            let _ = timeout(STOPS, child.wait()).await;
        }
    }
}

impl Server {
    fn get(&self, variable: &str) -> &str {
        self.variables.get(variable).map_or("", String::as_str)
    }

    pub fn url(&self) -> &str {
        self.get(variable(self.place).0)
    }

    /// Kills the server at once and starts it again.
    pub async fn restart(&self) -> Result<(), Failure> {
        match self.place {
            Place::Redis => self.control(&["restart", "single"]).await,
            _ => self.control(&["restart-immediate"]).await,
        }
    }

    /// Stops the server where it is, for that long.
    pub async fn freeze(&self, lasts: Duration) -> Result<(), Failure> {
        self.control(&["pause", "single"]).await?;
        tokio::time::sleep(lasts).await;
        self.control(&["resume", "single"]).await
    }

    async fn control(&self, words: &[&str]) -> Result<(), Failure> {
        let program = self.get(variable(self.place).1);
        let status = Command::new(program).args(words).stdin(Stdio::null()).status().await?;
        if status.success() { Ok(()) } else { Err(format!("{program} {}: {status}", words.join(" ")).into()) }
    }
}

/// What `tests/run` exports: the address, and the program that controls the server.
fn variable(place: Place) -> (&'static str, &'static str) {
    match place {
        Place::MariaDb => ("MYSQL_URL", "MYSQL_CTL"),
        Place::Redis => ("REDIS_URL", "REDIS_CTL"),
        Place::Postgres | Place::PostgresLease | Place::Sqlite => ("POSTGRES_URL", "POSTGRES_CTL"),
    }
}
