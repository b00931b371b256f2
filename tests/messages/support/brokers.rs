//! The private brokers of `tests/run`: where they are, who may disturb them, and a gate before them.

use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard, watch};

/// A server that tests share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broker {
    Nats,
    RabbitMq,
    Redis,
}

static NATS: RwLock<()> = RwLock::const_new(());
static RABBITMQ: RwLock<()> = RwLock::const_new(());
static REDIS: RwLock<()> = RwLock::const_new(());

impl Broker {
    fn lock(self) -> &'static RwLock<()> {
        match self {
            Self::Nats => &NATS,
            Self::RabbitMq => &RABBITMQ,
            Self::Redis => &REDIS,
        }
    }

    pub fn url(self) -> String {
        variable(match self {
            Self::Nats => "NATS_URL",
            Self::RabbitMq => "AMQP_URL",
            Self::Redis => "REDIS_URL",
        })
    }

    /// `127.0.0.1:port`.
    pub fn address(self) -> String {
        let url = self.url();
        let rest = url.split("://").nth(1).unwrap();
        let authority = rest.split('/').next().unwrap();
        authority.rsplit('@').next().unwrap().to_owned()
    }

    /// For tests that need the server as it is.
    pub async fn calm(self) -> RwLockReadGuard<'static, ()> {
        self.lock().read().await
    }

    /// For tests that stop, kill or pause it: nobody else has it meanwhile.
    pub async fn alone(self) -> Disturbing {
        Disturbing { broker: self, _alone: self.lock().write().await }
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run the tests by tests/run"))
}

/// The server is this test's alone, and is put right again when this is dropped.
pub struct Disturbing {
    broker: Broker,
    _alone: RwLockWriteGuard<'static, ()>,
}

impl Disturbing {
    /// `start`, `stop`, `kill`, `restart`, `pause`, `resume`. Waits until it is done.
    pub async fn does(&self, what: &'static str) {
        let broker = self.broker;
        let done = tokio::task::spawn_blocking(move || control(broker, what)).await.unwrap();
        assert!(done, "{broker:?} {what}");
    }
}

impl Drop for Disturbing {
    fn drop(&mut self) {
        // One that was paused runs already: `start` does nothing then.
        control(self.broker, "resume");
        assert!(control(self.broker, "start"), "{:?} start", self.broker);
    }
}

/// What `rabbitmqctl` does with the private RabbitMQ.
pub async fn rabbitmqctl(arguments: &[&str]) {
    let mut command = Command::new(variable("AMQP_CTL"));
    command.arg("ctl").args(arguments);
    let done = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

fn control(broker: Broker, what: &str) -> bool {
    let (variable_of, name) = match broker {
        Broker::Nats => ("NATS_CTL", None),
        Broker::RabbitMq => ("AMQP_CTL", None),
        Broker::Redis => ("REDIS_CTL", Some("single")),
    };
    Command::new(variable(variable_of)).arg(what).args(name).status().unwrap().success()
}

/// A loopback port before a server. Its connections can be held up, cut, or refused.
pub struct Gate {
    port: u16,
    state: watch::Sender<Flow>,
    connections: Arc<Mutex<usize>>,
}

/// What passes a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Everything.
    Open,
    /// The client's bytes go through, the server's do not.
    NoAnswers,
    /// Nothing, and the connections stay.
    Stalled,
    /// Connections are closed, and new ones at once.
    Cut,
}

impl Gate {
    pub async fn before(address: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (state, seen) = watch::channel(Flow::Open);
        let connections = Arc::new(Mutex::new(0));
        let (address, count) = (address.to_owned(), Arc::clone(&connections));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if *seen.borrow() == Flow::Cut {
                    continue;
                }
                let Ok(server) = TcpStream::connect(&address).await else { continue };
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                *count.lock().unwrap() += 1;
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::spawn(pass(from_client, to_server, seen.clone(), &[Flow::Open, Flow::NoAnswers]));
                tokio::spawn(pass(from_server, to_client, seen.clone(), &[Flow::Open]));
            }
        });
        Self { port, state, connections }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn set(&self, flow: Flow) {
        self.state.send_replace(flow);
    }

    /// How many connections have been made through it.
    pub fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut seen: watch::Receiver<Flow>, when: &[Flow]) {
    let mut buffer = vec![0; 65_536];
    loop {
        let flow = *seen.borrow_and_update();
        if flow == Flow::Cut {
            return;
        }
        tokio::select! {
            changed = seen.changed() => if changed.is_err() { return },
            read = from.read(&mut buffer), if when.contains(&flow) => match read {
                Ok(bytes @ 1..) => if to.write_all(&buffer[..bytes]).await.is_err() { return },
                _ => return,
            },
        }
    }
}

/// Until it holds, at most ten seconds.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..500 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("not within ten seconds: {what}");
}
