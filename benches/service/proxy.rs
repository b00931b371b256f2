//! A loopback proxy that makes the way to the database longer.

use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use crate::Failure;

pub(crate) struct Proxy {
    port: u16,
}

impl Proxy {
    /// Holds back what a client sends for `delay`: a round trip takes so much longer.
    pub(crate) async fn start(target: &PgConnectOptions, delay: Duration) -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let target = (target.get_host().to_owned(), target.get_port());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if let Ok(server) = TcpStream::connect((target.0.as_str(), target.1)).await {
                    tokio::spawn(serve(client, server, delay));
                }
            }
        });
        Ok(Self { port })
    }

    /// The options of the server, through this proxy.
    pub(crate) fn options(&self, target: &PgConnectOptions) -> PgConnectOptions {
        target.clone().host("127.0.0.1").port(self.port)
    }
}

async fn serve(client: TcpStream, server: TcpStream, delay: Duration) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let back = tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
    let mut data = vec![0; 64 * 1024];
    loop {
        // What sqlx sends between two waits arrives as one piece.
        let length = from_client.read(&mut data).await?;
        if length == 0 {
            break;
        }
        sleep(delay).await;
        to_server.write_all(&data[..length]).await?;
    }
    back.abort();
    Ok(())
}
