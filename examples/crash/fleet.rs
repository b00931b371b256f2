//! The services under test: this program again, as processes that can be killed and stopped.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{OnceLock, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::Failure;
use crate::service::{COMMAND, Settings};

/// Two, so that one can follow the other while that is stopped.
pub const SERVICES: usize = 2;

/// The one that asks its store each time.
pub const WITHOUT_MEMORY: usize = 0;

/// How long a service may take to start: its database may be starting, too.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Fleet {
    services: Vec<Service>,
}

struct Service {
    settings: Settings,
    log: PathBuf,
    address: OnceLock<String>,
    /// Held by whoever disturbs it.
    child: Mutex<Option<Child>>,
    /// How it has ended when nobody had killed it.
    ended: std::sync::Mutex<Vec<String>>,
}

impl Fleet {
    /// None of them runs yet.
    pub fn new(settings: &Settings, folder: &std::path::Path) -> Self {
        let services = (0..SERVICES)
            .map(|number| Service {
                // Pools that test a connection before they give it out hide what others meet.
                settings: Settings {
                    tests_connections: number == 0,
                    waits: number != WITHOUT_MEMORY,
                    ..settings.clone()
                },
                log: folder.join(format!("service-{number}.log")),
                address: OnceLock::new(),
                child: Mutex::new(None),
                ended: std::sync::Mutex::default(),
            })
            .collect();
        Self { services }
    }

    pub async fn start(&self) -> Result<(), Failure> {
        for service in &self.services {
            let mut slot = service.child.lock().await;
            *slot = Some(service.spawn().await?);
        }
        Ok(())
    }

    pub fn address(&self, number: usize) -> &str {
        self.services[number].address.get().map_or("", String::as_str)
    }

    /// SIGKILL, and another process on the same address.
    pub async fn kill(&self, number: usize) -> Result<(), Failure> {
        let service = &self.services[number];
        let mut slot = service.child.lock().await;
        if let Some(mut child) = slot.take()
            && service.runs(&mut child)?
        {
            child.kill().await?;
        }
        *slot = Some(service.spawn().await?);
        Ok(())
    }

    /// SIGSTOP, and SIGCONT after that long.
    pub async fn stop(&self, number: usize, lasts: Duration) -> Result<(), Failure> {
        let slot = self.services[number].child.lock().await;
        let pid = slot.as_ref().and_then(Child::id).ok_or_else(|| format!("service {number} does not run"))?;
        // By the shell's own `kill`, since a bare machine has no program of that name; and by one process, which continues the
        // service also if we are gone meanwhile.
        let words = format!("kill -STOP {pid} && sleep {} && kill -CONT {pid}", lasts.as_secs_f64());
        let status = Command::new("sh").args(["-c", &words]).status().await?;
        if status.success() { Ok(()) } else { Err(format!("{words}: {status}").into()) }
    }

    /// What services did that nobody had done to them: they ended, or something in them panicked.
    pub async fn mishaps(&self) -> Result<Vec<String>, Failure> {
        let mut mishaps = Vec::new();
        for (number, service) in self.services.iter().enumerate() {
            if let Some(child) = service.child.lock().await.as_mut() {
                service.runs(child)?;
            }
            let ended = service.ended.lock().unwrap_or_else(PoisonError::into_inner);
            mishaps.extend(ended.iter().map(|status| format!("service {number} ended by itself: {status}")));
            let log = String::from_utf8_lossy(&std::fs::read(&service.log)?).into_owned();
            let panics = log.lines().filter(|line| line.contains("panicked at"));
            mishaps.extend(panics.map(|line| format!("service {number}: {line}")));
        }
        Ok(mishaps)
    }

    /// Kills them and waits for it.
    pub async fn end(&self) {
        for service in &self.services {
            if let Some(mut child) = service.child.lock().await.take() {
                let _ = child.kill().await;
            }
        }
    }
}

impl Service {
    /// Whether it runs. How a process has ended that was not killed is taken down.
    fn runs(&self, child: &mut Child) -> Result<bool, Failure> {
        let Some(status) = child.try_wait()? else { return Ok(true) };
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).push(status.to_string());
        Ok(false)
    }

    async fn spawn(&self) -> Result<Child, Failure> {
        let listen = self.address.get().map_or("127.0.0.1:0", String::as_str);
        let log = std::fs::File::options().create(true).append(true).open(&self.log)?;
        let mut child = Command::new(std::env::current_exe()?)
            .arg(COMMAND)
            .args(self.settings.words(listen))
            // It ends with its standard input, so also with us.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no output of the service")?).lines();
        let line = timeout(PATIENCE, lines.next_line()).await.map_err(|_| "a service did not start")??;
        let line = line.ok_or_else(|| format!("a service ended at its start: see {}", self.log.display()))?;
        let address = line.strip_prefix("listening on ").ok_or_else(|| format!("a service said {line}"))?;
        let _ = self.address.set(address.to_owned());
        Ok(child)
    }
}
