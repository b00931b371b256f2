//! A loopback proxy that may cut a connection instead of passing an answer on, whatever is spoken there.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Forwards to a server, and cuts a connection instead of passing the next answer on.
pub struct Cutter {
    port: u16,
    armed: Arc<Mutex<Option<Cut>>>,
}

/// What to do when a connection is cut.
type Cut = Box<dyn FnOnce() + Send>;

impl Cutter {
    /// `server` is HOST:PORT.
    pub async fn before(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let armed = Arc::new(Mutex::new(None));
        let cuts = Arc::clone(&armed);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward(client, server.clone(), Arc::clone(&cuts)));
            }
        });
        Self { port, armed }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The next answer is lost, and its connection.
    pub fn cut(&self) {
        self.arm(Some(Box::new(|| {})));
    }

    /// The same, with something to do then; `None`: nothing is to be lost any more.
    pub fn arm(&self, cut: Option<Cut>) {
        *self.armed.lock().unwrap() = cut;
    }

    pub fn has_cut(&self) -> bool {
        self.armed.lock().unwrap().is_none()
    }
}

async fn forward(mut client: TcpStream, server: String, cuts: Arc<Mutex<Option<Cut>>>) {
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    let (mut up, mut down) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        tokio::select! {
            read = client.read(&mut up) => match read {
                Ok(length) if length > 0 => {
                    if server.write_all(&up[..length]).await.is_err() { return; }
                }
                _ => return,
            },
            read = server.read(&mut down) => match read {
                Ok(length) if length > 0 => {
                    let cut = cuts.lock().unwrap().take();
                    if let Some(cut) = cut {
                        cut();
                        return;
                    }
                    if client.write_all(&down[..length]).await.is_err() { return; }
                }
                _ => return,
            },
        }
    }
}
