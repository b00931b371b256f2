//! A loopback proxy between a service and Postgres that reads the client's messages and may cut at any of them.

use std::sync::{Arc, Mutex};

use sqlx::postgres::PgConnectOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// What to do with a message of the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    Forward,
    /// Close both sides without letting the message through.
    CutBefore,
    /// Let the message through, then close the client's side before the answer comes back.
    CutAfter,
    /// Keep both sides open and pass nothing on any more, in either direction.
    Stall,
}

/// One message of the frontend protocol: its type byte (0 for the startup message) and its payload.
pub struct Message<'a> {
    pub kind: u8,
    pub payload: &'a [u8],
}

impl Message<'_> {
    /// Whether this is a simple query with this text.
    pub fn is_query(&self, text: &str) -> bool {
        self.kind == b'Q' && self.payload.starts_with(text.as_bytes())
    }
}

type Judge = dyn FnMut(&Message<'_>) -> Then + Send;

#[derive(Clone)]
pub struct Proxy {
    port: u16,
    judge: Arc<Mutex<Box<Judge>>>,
}

impl Proxy {
    pub async fn start(target: &PgConnectOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let target = (target.get_host().to_owned(), target.get_port());
        let judge: Arc<Mutex<Box<Judge>>> = Arc::new(Mutex::new(Box::new(|_| Then::Forward)));
        let shared = Arc::clone(&judge);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect((target.0.as_str(), target.1)).await else { continue };
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                tokio::spawn(serve(client, server, Arc::clone(&shared)));
            }
        });
        Self { port, judge }
    }

    /// The options of the server, through this proxy.
    pub fn options(&self, target: &PgConnectOptions) -> PgConnectOptions {
        target.clone().host("127.0.0.1").port(self.port)
    }

    /// From now on every message of every client is judged by `judge`.
    pub fn judge(&self, judge: impl FnMut(&Message<'_>) -> Then + Send + 'static) {
        *self.judge.lock().unwrap() = Box::new(judge);
    }
}

async fn serve(client: TcpStream, server: TcpStream, judge: Arc<Mutex<Box<Judge>>>) {
    let (client_read, mut client_write) = client.into_split();
    let (mut server_read, server_write) = server.into_split();
    let (cut, was_cut) = tokio::sync::oneshot::channel();
    let back = tokio::spawn(async move {
        tokio::select! {
            biased;
            stalled = was_cut => if stalled == Ok(true) {
                // Keeps the server's side open, and the client's too: what is written there is never read.
                std::future::pending::<()>().await;
            },
            _ = tokio::io::copy(&mut server_read, &mut client_write) => {}
        }
        // Dropping both halves of both sides closes the connections.
    });
    forward(client_read, server_write, judge, cut).await;
    // After a stall `back` never ends by itself.
    back.abort();
    let _ = back.await;
}

async fn forward(
    mut client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    judge: Arc<Mutex<Box<Judge>>>,
    cut: tokio::sync::oneshot::Sender<bool>,
) {
    let mut is_started = false;
    loop {
        let mut kind = [0];
        if is_started && client.read_exact(&mut kind).await.is_err() {
            break;
        }
        let mut length = [0; 4];
        if client.read_exact(&mut length).await.is_err() {
            break;
        }
        let mut payload = vec![0; u32::from_be_bytes(length) as usize - 4];
        if client.read_exact(&mut payload).await.is_err() {
            break;
        }
        let then = (judge.lock().unwrap())(&Message { kind: kind[0], payload: &payload });
        if then == Then::CutBefore {
            break;
        }
        if then == Then::Stall {
            let _ = cut.send(true);
            // Until the client gives the connection up.
            let _ = tokio::io::copy(&mut client, &mut tokio::io::sink()).await;
            return;
        }
        if then == Then::CutAfter {
            // Nothing of the server's answer may pass: stop reading it first.
            let _ = cut.send(false);
            let _ = server.write_all(&kind).await;
            let _ = server.write_all(&length).await;
            let _ = server.write_all(&payload).await;
            // The server must have read it before it sees the connection close.
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            return;
        }
        let mut message = Vec::with_capacity(payload.len() + 5);
        if is_started {
            message.extend_from_slice(&kind);
        }
        message.extend_from_slice(&length);
        message.extend_from_slice(&payload);
        if server.write_all(&message).await.is_err() {
            break;
        }
        // An SSL request is answered before the startup message proper follows, again without a type.
        is_started = is_started || u32::from_be_bytes(length) != 8;
    }
    let _ = cut.send(false);
}
