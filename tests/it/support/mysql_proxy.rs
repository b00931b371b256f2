//! A loopback proxy between a service and MySQL that reads the client's packets and may cut at any of them.

use std::sync::{Arc, Mutex};

use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use super::proxy::Then;

/// One command packet of the client.
pub struct Command<'a> {
    /// What it asks for: 3 query, 22 prepare, 23 execute, 25 close of a statement, 14 ping, 1 quit.
    pub kind: u8,
    pub payload: &'a [u8],
}

impl Command<'_> {
    /// Whether this is a text query with these words in it.
    pub fn is_query_with(&self, words: &str) -> bool {
        self.kind == 3 && self.payload.windows(words.len()).any(|window| window == words.as_bytes())
    }
}

type Judge = dyn FnMut(&Command<'_>) -> Then + Send;

#[derive(Clone)]
pub struct Proxy {
    port: u16,
    judge: Arc<Mutex<Box<Judge>>>,
}

impl Proxy {
    pub async fn start(target: &MySqlConnectOptions) -> Self {
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

    /// The options of the server, through this proxy, without TLS, which it could not read.
    pub fn options(&self, target: &MySqlConnectOptions) -> MySqlConnectOptions {
        target.clone().host("127.0.0.1").port(self.port).ssl_mode(MySqlSslMode::Disabled)
    }

    /// From now on every command of every client is judged by `judge`.
    pub fn judge(&self, judge: impl FnMut(&Command<'_>) -> Then + Send + 'static) {
        *self.judge.lock().unwrap() = Box::new(judge);
    }
}

async fn serve(client: TcpStream, server: TcpStream, judge: Arc<Mutex<Box<Judge>>>) {
    let (client_read, mut client_write) = client.into_split();
    let (mut server_read, server_write) = server.into_split();
    let (cut, was_cut) = tokio::sync::oneshot::channel();
    let (end, ended) = tokio::sync::oneshot::channel();
    let back = tokio::spawn(async move {
        // Dropped at the end.
        let _end: tokio::sync::oneshot::Sender<()> = end;
        tokio::select! {
            biased;
            stalled = was_cut => if stalled == Ok(true) {
                // Keeps the server's side open, and the client's too: what is written there is never read.
                std::future::pending::<()>().await;
            } else {
                // The server has done what it answers; until then the client must not learn of the cut, since the store
                // would end the session. Some packets have no answer.
                let answer = server_read.read_u8();
                let _ = tokio::time::timeout(std::time::Duration::from_secs(1), answer).await;
            },
            _ = tokio::io::copy(&mut server_read, &mut client_write) => {}
        }
        // Dropping both halves of both sides closes the connections.
    });
    forward(client_read, server_write, judge, (cut, ended)).await;
    // After a stall `back` never ends by itself.
    back.abort();
    let _ = back.await;
}

/// Reads a packet with its header; `None` at the end.
async fn read_packet(client: &mut OwnedReadHalf) -> Option<Vec<u8>> {
    let mut header = [0; 4];
    client.read_exact(&mut header).await.ok()?;
    let length = usize::from(header[0]) | usize::from(header[1]) << 8 | usize::from(header[2]) << 16;
    let mut packet = vec![0; length + 4];
    packet[..4].copy_from_slice(&header);
    client.read_exact(&mut packet[4..]).await.ok()?;
    Some(packet)
}

async fn forward(
    mut client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    judge: Arc<Mutex<Box<Judge>>>,
    (cut, ended): (tokio::sync::oneshot::Sender<bool>, tokio::sync::oneshot::Receiver<()>),
) {
    while let Some(packet) = read_packet(&mut client).await {
        // Only a command begins a sequence; the handshake and the rest of large packets do not.
        let then = if packet[3] == 0 && packet.len() > 4 {
            (judge.lock().unwrap())(&Command { kind: packet[4], payload: &packet[5..] })
        } else {
            Then::Forward
        };
        match then {
            Then::Forward => {}
            Then::CutBefore => break,
            Then::Stall => {
                let _ = cut.send(true);
                // Until the client gives the connection up.
                let _ = tokio::io::copy(&mut client, &mut tokio::io::sink()).await;
                return;
            }
            Then::CutAfter => {
                // Nothing of the server's answer may pass: stop reading it first.
                let _ = cut.send(false);
                let _ = server.write_all(&packet).await;
                // The server must have read and done it before it sees the connection close.
                let _ = ended.await;
                return;
            }
        }
        if server.write_all(&packet).await.is_err() {
            break;
        }
    }
    let _ = cut.send(false);
}
