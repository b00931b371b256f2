//! Clients that send one request after the other, each on a connection of its own.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::Failure;
use crate::orders::{Body, Order};

/// Their connections stay open from one round to the next.
pub(crate) struct Clients(Vec<SendRequest<Body>>);

impl Clients {
    pub(crate) async fn connect(address: SocketAddr, clients: usize) -> Result<Self, Failure> {
        let mut all = Vec::with_capacity(clients);
        for _ in 0..clients {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let (sender, connection) = handshake(TokioIo::new(stream)).await?;
            tokio::spawn(connection);
            all.push(sender);
        }
        Ok(Self(all))
    }

    /// All clients send for so long: how many answers came a second.
    pub(crate) async fn round(&mut self, length: Duration, next: fn(usize) -> Order) -> Result<f64, Failure> {
        let start = Instant::now();
        let took = self.each(next, move |_| start.elapsed() < length).await?;
        let answers = u32::try_from(took.len())?;
        Ok(f64::from(answers) / start.elapsed().as_secs_f64())
    }

    /// The seconds that each of so many requests takes, all clients together.
    pub(crate) async fn times(&mut self, requests: usize, next: fn(usize) -> Order) -> Result<Vec<f64>, Failure> {
        let each = requests / self.0.len();
        self.each(next, move |sent| sent < each).await
    }

    /// The seconds that one request takes.
    pub(crate) async fn one(&mut self, order: Order) -> Result<f64, Failure> {
        match self.0.first_mut() {
            Some(client) => send(client, &order).await,
            None => Err("no client".into()),
        }
    }

    async fn each(
        &mut self,
        next: fn(usize) -> Order,
        go_on: impl Fn(usize) -> bool + Clone + Send + 'static,
    ) -> Result<Vec<f64>, Failure> {
        let mut tasks = JoinSet::new();
        for (number, mut client) in self.0.drain(..).enumerate() {
            let go_on = go_on.clone();
            tasks.spawn(async move {
                let mut took = Vec::new();
                while go_on(took.len()) {
                    took.push(send(&mut client, &next(number)).await?);
                }
                Ok::<_, Failure>((client, took))
            });
        }
        let mut all = Vec::new();
        while let Some(done) = tasks.join_next().await {
            let (client, took) = done??;
            self.0.push(client);
            all.extend(took);
        }
        Ok(all)
    }
}

/// Sends a request and reads its answer, which must be the expected one: a fast refusal is no speed.
async fn send(client: &mut SendRequest<Body>, order: &Order) -> Result<f64, Failure> {
    let request = order.request();
    let start = Instant::now();
    client.ready().await?;
    let (head, body) = client.send_request(request).await?.into_parts();
    let body = body.collect().await?.to_bytes();
    let took = start.elapsed().as_secs_f64();
    let is_replay = head.headers.contains_key("idempotent-replayed");
    if head.status.as_u16() == order.status() && is_replay == order.is_replay() {
        return Ok(took);
    }
    Err(format!("{order:?} was answered {} {}", head.status, String::from_utf8_lossy(&body)).into())
}
