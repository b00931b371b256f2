//! Requests over HTTP/1.1, each on a connection of its own.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::ProbeError;
use crate::key::IDEMPOTENCY_KEY;

/// Where a service is, and what every request to it has.
#[derive(Debug)]
pub(super) struct Wire {
    authority: String,
    path: String,
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    /// How long one answer may take.
    pub(super) patience: Duration,
    /// How long a request is sent again that is told to come back later.
    pub(super) persistence: Duration,
}

/// An answer, read to its end.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Why there is none.
pub(super) type Lost = Box<dyn std::error::Error + Send + Sync>;

impl Answer {
    /// How its body begins, for a person.
    pub(super) fn excerpt(&self) -> String {
        String::from_utf8_lossy(&self.body).chars().take(200).collect()
    }
}

impl Wire {
    pub(super) fn new(url: &str, path: &str, headers: HeaderMap) -> Result<Self, ProbeError> {
        let address = || ProbeError::Address(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| address())?;
        if uri.scheme_str() != Some("http") || !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(address());
        }
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(address)?;
        let whole: Uri = path.parse().map_err(|_| ProbeError::Malformed(path.to_owned()))?;
        if !path.starts_with('/') || whole.authority().is_some() {
            return Err(ProbeError::Malformed(path.to_owned()));
        }
        Ok(Self {
            authority: format!("{host}:{}", uri.port_u16().unwrap_or(80)),
            path: path.to_owned(),
            method: Method::POST,
            headers,
            patience: Duration::from_secs(30),
            persistence: Duration::from_secs(60),
        })
    }

    /// Sends a request with these lines of the key's field and waits for the whole answer.
    pub(super) async fn send(&self, keys: &[HeaderValue], body: &Bytes) -> Result<Answer, Lost> {
        timeout(self.patience, self.exchange(keys, body)).await?
    }

    async fn exchange(&self, keys: &[HeaderValue], body: &Bytes) -> Result<Answer, Lost> {
        let (mut sender, connection) = http1::handshake(TokioIo::new(self.connect().await?)).await?;
        let exchange = async {
            let response = sender.send_request(self.request(keys, body)?).await?;
            let (head, body) = response.into_parts();
            let body = body.collect().await?.to_bytes();
            Ok(Answer { status: head.status, headers: head.headers, body })
        };
        tokio::pin!(exchange, connection);
        tokio::select! {
            biased;
            answer = &mut exchange => answer,
            // The connection may end just when all of the answer is there.
            _ = &mut connection => exchange.await,
        }
    }

    /// Sends a whole request and closes the connection without reading anything.
    pub(super) async fn leave(&self, keys: &[HeaderValue], body: &Bytes) -> Result<(), Lost> {
        let request = self.request(keys, body)?;
        let mut text = format!("{} {} HTTP/1.1\r\n", request.method(), request.uri()).into_bytes();
        for (name, value) in request.headers() {
            text.extend_from_slice(name.as_str().as_bytes());
            text.extend_from_slice(b": ");
            text.extend_from_slice(value.as_bytes());
            text.extend_from_slice(b"\r\n");
        }
        text.extend_from_slice(b"\r\n");
        text.extend_from_slice(body);
        let send = async {
            let mut stream = self.connect().await?;
            stream.write_all(&text).await?;
            stream.flush().await?;
            // Long enough for the request to begin, not for it to end where it is a slow one.
            tokio::time::sleep(Duration::from_millis(200)).await;
            Ok(())
        };
        timeout(self.patience, send).await?
    }

    async fn connect(&self) -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect(&self.authority).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    fn request(&self, keys: &[HeaderValue], body: &Bytes) -> Result<Request<Full<Bytes>>, http::Error> {
        let mut request = Request::builder().method(&self.method).uri(&self.path).body(Full::new(body.clone()))?;
        let headers = request.headers_mut();
        headers.clone_from(&self.headers);
        headers.insert(HOST, HeaderValue::from_str(&self.authority)?);
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        for key in keys {
            headers.append(IDEMPOTENCY_KEY, key.clone());
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_perhaps_a_port() {
        let wire = |url| Wire::new(url, "/payments", HeaderMap::new()).map(|wire| wire.authority);
        assert_eq!(wire("http://localhost").unwrap(), "localhost:80");
        assert_eq!(wire("http://127.0.0.1:3000/").unwrap(), "127.0.0.1:3000");
        let sixth = wire("http://[::1]:3000").unwrap();
        assert!(sixth.parse::<std::net::SocketAddr>().is_ok(), "{sixth}");
        for refused in ["https://localhost", "localhost:3000", "http://localhost/v1", "http://", "", "http://a b"] {
            assert!(matches!(wire(refused), Err(ProbeError::Address(_))), "{refused}");
        }
        assert!(matches!(Wire::new("http://a", "payments", HeaderMap::new()), Err(ProbeError::Malformed(_))));
    }
}
